"""Several models on one board, each with its own releases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.runtime.agent.store import Store
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.errors import (
    BusyError,
    IncompatibleError,
    InputError,
    RolledBackError,
    TransferError,
)

pytestmark = pytest.mark.slow

TinyBundle = Callable[..., Bundle]
X = np.array([1, 2, 3, -4], np.float32)
OTHER = 'TINY_NAME="other"'
THIRD = 'TINY_NAME="third"'


def test_each_name_has_its_own_current_previous_and_rollback(
    tiny_device: Device, tiny: TinyBundle
) -> None:
    wake = tiny_device.named("wake")
    face = tiny().manifest
    first = wake.deploy(tiny(OTHER)).release
    second = wake.deploy(tiny(THIRD)).release
    assert (first.previous, second.previous) == (None, first.id)
    wake.rollback()
    found = tiny_device.status()
    assert found.current is not None
    assert (found.current.id, found.previous) == (face.id, None)
    assert list(found.named) == ["wake"]
    beside = found.named["wake"]
    assert wake.status() == beside
    assert beside.current is not None
    assert beside.previous is not None
    assert (beside.current.id, beside.previous.id) == (first.id, second.id)
    for one in (tiny_device, wake):
        np.testing.assert_array_equal(one.run({"x": X})[0]["y"], 2 * X + 1)
    assert wake.bench(count=3).model == "other"
    assert tiny_device.bench(count=3).model == "tiny"


def test_default_name_keeps_its_folders(device: Device, tiny: TinyBundle, board_root: Path) -> None:
    id_ = device.deploy(tiny()).release.id
    assert (board_root / "current").readlink() == Path("releases") / id_
    assert not (board_root / "named").exists()


def test_what_one_name_has_is_not_sent_for_another(tiny_device: Device, tiny: TinyBundle) -> None:
    assert tiny_device.named("wake").plan(tiny()).send == ()
    assert tiny_device.named("wake").deploy(tiny()).release.changed
    assert tiny_device.named("eye").plan(tiny(OTHER)).send == ("model.so",)


@pytest.mark.exhaustive
def test_tidying_one_name_leaves_the_files_of_the_others(
    device: Device, tiny: TinyBundle, board_root: Path
) -> None:
    wake = device.named("wake")
    wake.deploy(tiny())
    device.deploy(tiny())
    for text in "abc":  # prunes the first release of the default name
        device.deploy(tiny(f'TINY_NAME="{text}"'))
    assert len(Store(board_root).installed()) == 2
    assert wake.verify().current == wake.status().current
    np.testing.assert_array_equal(wake.run({"x": X})[0]["y"], 2 * X + 1)


def test_counters_are_those_of_the_name(device: Device, tiny: TinyBundle) -> None:
    wake = device.named("wake")
    wake.deploy(tiny(counter=2))
    assert device.deploy(tiny(counter=1)).release.changed
    with pytest.raises(IncompatibleError, match="expected counter 2 or more, found 1"):
        wake.deploy(tiny(counter=1))


def test_unhealthy_release_goes_back_in_its_name_alone(
    tiny_device: Device, tiny: TinyBundle
) -> None:
    wake = tiny_device.named("wake")
    wake.deploy(tiny(OTHER))
    with pytest.raises(RolledBackError):
        wake.deploy(tiny("TINY_CRASH"))
    found = tiny_device.status()
    assert found.last_failure is None
    assert found.named["wake"].last_failure is not None
    assert found.named["wake"].current is not None


def test_damage_is_found_in_every_name(
    tiny_device: Device, tiny: TinyBundle, board_root: Path
) -> None:
    wake = tiny_device.named("wake")
    wake.deploy(tiny(OTHER))
    library = board_root / "named" / "wake" / "current" / "model.so"
    library.write_bytes(library.read_bytes()[:-1])
    with pytest.raises(TransferError, match=r"is damaged: model\.so"):
        wake.run({"x": X})
    with pytest.raises(TransferError, match=r"is damaged: model\.so"):
        tiny_device.verify()
    current = tiny_device.status().named["wake"].current
    assert current is not None
    assert current.damage.startswith("model.so")


def test_name_that_nothing_was_deployed_as(
    device: Device, tiny: TinyBundle, board_root: Path
) -> None:
    device.named("wake").deploy(tiny())
    wrong = device.named("wakk")
    for act in (lambda: wrong.run({"x": X}), wrong.bench, wrong.verify):
        with pytest.raises(InputError, match="deployed as 'wakk', found none; deployed: wake"):
            act()
    with pytest.raises(InputError, match="expected a previous release, found none"):
        wrong.rollback()
    assert wrong.status().current is None
    assert [p.name for p in (board_root / "named").iterdir()] == ["wake"]


def test_removed_model_is_gone_and_the_others_stay(
    tiny_device: Device, tiny: TinyBundle, board_root: Path
) -> None:
    wake = tiny_device.named("wake")
    older = wake.deploy(tiny()).release.id
    newer = wake.deploy(tiny(OTHER)).release.id
    assert wake.remove() == (newer, older)
    assert list((board_root / "named").iterdir()) == []
    assert tiny_device.verify().named == {}
    np.testing.assert_array_equal(tiny_device.run({"x": X})[0]["y"], 2 * X + 1)
    with pytest.raises(InputError, match="deployed as 'wake', found none; deployed: nothing"):
        wake.remove()
    assert list((board_root / "named").iterdir()) == []
    assert wake.deploy(tiny(OTHER)).release.changed


@pytest.mark.exhaustive
def test_removed_default_model_leaves_what_is_the_boards(device: Device, tiny: TinyBundle) -> None:
    wake = device.named("wake")
    first = device.deploy(tiny(counter=2)).release.id
    wake.deploy(tiny(OTHER))
    assert device.remove() == (first,)
    found = device.status()
    assert (found.current, found.previous, list(found.named)) == (None, None, ["wake"])
    assert wake.verify().current is not None
    with pytest.raises(InputError, match="nothing to remove"):
        device.remove()
    assert device.deploy(tiny(counter=1)).release.changed


@pytest.mark.parametrize("name", [None, "wake"])
def test_model_that_a_session_runs_is_not_removed(
    device: Device, tiny: TinyBundle, name: str | None
) -> None:
    model = device.named(name)
    model.deploy(tiny())
    device.named("other").deploy(tiny())
    with model.open() as session:
        with pytest.raises(
            BusyError, match=r"expected the model not to be in use, found process \d"
        ):
            model.remove()
        device.named("other").remove()
        np.testing.assert_array_equal(session.run({"x": X})[0]["y"], 2 * X + 1)
    model.remove()


def test_removal_that_was_killed_is_finished_by_the_next(
    device: Device, tiny: TinyBundle, board_root: Path
) -> None:
    wake = device.named("wake")
    wake.deploy(tiny())
    folder = board_root / "named" / "wake"
    folder.rename(folder.with_name(".wake.0123"))
    assert list(device.status().named) == []
    assert wake.remove() == ()
    assert list((board_root / "named").iterdir()) == []


@pytest.mark.parametrize("name", ["", "current", "..", "a/b", "A", "-x", "x" * 33, "a b", "\n"])
def test_names_that_no_folder_may_have(device: Device, name: str) -> None:
    with pytest.raises(InputError, match="expected a name of 1 to 32 small letters"):
        device.named(name)
