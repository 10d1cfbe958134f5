"""Recovery from damaged files on the board and from leftovers of dead hosts."""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.runtime.agent.manifest import RUNTIME, FileEntry
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle, SigningKey, sign_bundle
from edgekit.host.errors import RolledBackError, TransferError

pytestmark = pytest.mark.slow

TinyBundle = Callable[..., Bundle]
X = np.array([1, 2, 3, -4], np.float32)
OTHER = 'TINY_NAME="other"'


@pytest.mark.parametrize(
    "name", [".manifest.json.0123abcd", ".model.so.0123456789abcdef.part", "golden/.in0.0123abcd"]
)
def test_what_a_killed_host_was_writing_does_not_block_its_release(
    device: Device, tiny: TinyBundle, board_root: Path, name: str
) -> None:
    bundle = tiny()
    left = board_root / "incoming" / bundle.manifest.id / name
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    assert device.deploy(bundle).release.changed
    assert not any((board_root / "incoming").iterdir())


def test_damaged_runtime_is_never_run_and_sent_again(device: Device, board_root: Path) -> None:
    """Empty, truncated, with a changed byte anywhere, or replaced by another program."""
    device.status()
    (runtime,) = (board_root / "runtime").iterdir()
    whole = runtime.read_bytes()
    places = random.Random(16).sample(range(len(whole)), 6)
    damages = [whole[:i] + bytes([whole[i] ^ 4]) + whole[i + 1 :] for i in places]
    damages += [b"", whole[:-1], whole[: len(whole) // 2], b"print('{}')"]
    for damaged in damages:
        runtime.write_bytes(damaged)
        assert device.status().current is None
        assert runtime.read_bytes() == whole


def test_runtimes_of_kit_and_releases_are_files_of_their_own(
    device: Device, tiny: TinyBundle, board_root: Path
) -> None:
    device.deploy(tiny())
    device.deploy(tiny(OTHER))
    copies = [*(board_root / "runtime").iterdir(), *board_root.glob("releases/*/runtime.pyz")]
    assert len({path.stat().st_ino for path in copies}) == len(copies) == 3


def test_release_with_a_runtime_of_its_own_is_used_through_that(
    device: Device, tiny: TinyBundle, trusted: SigningKey, board_root: Path
) -> None:
    bundle = tiny()
    runtime = bundle.files[RUNTIME][:-2] + struct.pack("<H", 5) + b"older"  # a zip comment
    entry = FileEntry(RUNTIME, len(runtime), hashlib.sha256(runtime).hexdigest())
    files = tuple(entry if f.path == RUNTIME else f for f in bundle.manifest.files)
    manifest = replace(bundle.manifest, files=files).with_id()
    older = Bundle(manifest, {**bundle.files, RUNTIME: runtime})
    device.deploy(tiny(OTHER))
    device.deploy(sign_bundle(older, trusted))
    np.testing.assert_array_equal(device.run({"x": X})[0]["y"], 2 * X + 1)
    installed = board_root / "current" / RUNTIME
    assert installed.read_bytes() == runtime
    installed.write_bytes(runtime[:-1] + b"!")
    with pytest.raises(RolledBackError, match=r"is damaged \(runtime\.pyz"):
        device.run({"x": X})


def test_mending_a_file_mends_it_for_every_release_that_shares_it(
    tiny_device: Device, tiny: TinyBundle, board_root: Path
) -> None:
    tiny_device.deploy(tiny(OTHER))
    tiny_device.named("wake").deploy(tiny(OTHER))
    (board_root / "current" / "weights.bin").write_bytes(bytes(8))  # all releases share this file
    with pytest.raises(TransferError, match=r"is damaged: weights\.bin"):
        tiny_device.run({"x": X})
    tiny_device.deploy(tiny(OTHER))
    assert tiny_device.verify().current is not None
    tiny_device.rollback()


@pytest.mark.parametrize(
    "name",
    [
        "weights.bin",
        *(
            pytest.param(name, marks=pytest.mark.exhaustive)
            for name in ("model.so", "manifest.json", "golden/in0.bin")
        ),
    ],
)
def test_rollback_refuses_a_damaged_release(
    tiny_device: Device, tiny: TinyBundle, board_root: Path, name: str
) -> None:
    current = tiny_device.deploy(tiny(OTHER)).release.id
    path = board_root / "previous" / name
    data = path.read_bytes()
    path.unlink()  # both releases share this file
    path.write_bytes(data[:-1])
    with pytest.raises(TransferError, match=r"release [0-9a-f]{16}"):
        tiny_device.rollback()
    status = (board_root / "current").readlink().name
    assert status == current
    np.testing.assert_array_equal(tiny_device.run({"x": X})[0]["y"], 2 * X + 1)
