"""An installed release with a changed byte or a truncated file is reported and never run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.status import current_release
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.errors import DeviceError
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle
from tests.support.damages import damages

TinyBundle = Callable[..., Bundle]


def test_every_file_flipped_or_cut_is_named_and_never_run(
    tiny_device: Device, tiny: TinyBundle, board_root: Path
) -> None:
    """The short version of tests/long/flip_installed.py."""
    id_ = tiny().manifest.id
    shown: list[str] = []
    store = Store(board_root, shown.append)
    folder = store.releases / id_
    count = 0
    for path, damaged in damages(folder, places=5):
        name, whole = path.relative_to(folder).as_posix(), path.read_bytes()
        path.write_bytes(damaged)
        if name == "installed.json":  # rebuilt from the SHA-256 of the other files, and reported
            current_release(store)
            assert name in shown.pop()
            assert path.read_bytes() == whole
        else:
            with pytest.raises(DeviceError, match=f"release {id_} is damaged: {name}"):
                current_release(store)
        path.write_bytes(whole)
        count += 1
    assert count >= 40
    assert {p.relative_to(folder).as_posix() for p, _ in damages(folder, places=1)} >= {
        "installed.json",
        "manifest.json",
        "manifest.json.sig",
        *tiny().files,
    }
    assert current_release(store)[0].id == id_
    assert shown == []
