"""Rollback counters outlive their releases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent import release
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.errors import IncompatibleError, RolledBackError, UnhealthyError
from edgekit.host.deploy.bundle import Bundle

MakeBundle = Callable[..., Bundle]
Send = Callable[..., str]
Deploy = Callable[..., release.DeployOutcome]


def healthy(_: Path) -> dict[str, Any]:
    return {}


@pytest.fixture
def deploy(store: Store, paper: MakeBundle, send: Send) -> Deploy:
    def put(allow_downgrade: bool = False, **facts: Any) -> release.DeployOutcome:
        id_ = send(store, paper(**facts))
        return release.apply(store, id_, healthy, lambda _: None, allow_downgrade)

    return put


def test_highest_counter_is_known_after_two_other_models(deploy: Deploy) -> None:
    deploy(counter=5)
    deploy(name="other")
    deploy(name="third")
    with pytest.raises(IncompatibleError, match="expected counter 5 or more, found 4"):
        deploy(counter=4)
    assert deploy(counter=4, allow_downgrade=True).end == "committed"


def test_highest_counter_is_known_after_a_rollback(store: Store, deploy: Deploy) -> None:
    deploy(counter=4)
    deploy(counter=6)
    release.rollback(store)
    with pytest.raises(IncompatibleError, match="expected counter 6 or more, found 5"):
        deploy(counter=5)


def test_highest_counter_is_known_after_an_allowed_downgrade(deploy: Deploy) -> None:
    deploy(counter=6)
    deploy(counter=4, allow_downgrade=True)
    deploy(name="other")
    with pytest.raises(IncompatibleError, match="expected counter 6 or more, found 5"):
        deploy(counter=5)


def test_counter_is_known_though_the_manifest_is_damaged(store: Store, deploy: Deploy) -> None:
    deploy(counter=6)
    (store.root / "current" / "manifest.json").write_bytes(b"{")
    with pytest.raises(IncompatibleError, match="expected counter 6 or more, found 5"):
        deploy(counter=5)


def test_unhealthy_release_does_not_raise_the_counter(
    store: Store, deploy: Deploy, paper: MakeBundle, send: Send
) -> None:
    def sick(_: Path) -> dict[str, Any]:
        raise UnhealthyError("wrong")

    deploy(counter=4)
    with pytest.raises(RolledBackError):
        release.apply(store, send(store, paper(counter=6)), sick, lambda _: None)
    assert deploy(counter=5).end == "committed"
