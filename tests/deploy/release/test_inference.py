"""Sessions: one process on the board from the first run to the last, and how it ends."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.runtime.agent.npz import Array
from edgekit.device.runtime.agent.wire import MAGIC, pack, receive
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.errors import InputError, TransferError, UnreachableError

TinyBundle = Callable[..., Bundle]
X = np.array([1, 2, 3, -4], np.float32)


def served_by(folder: Path) -> list[int]:
    """PIDs of processes serving a session in `folder`."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (path / "cmdline").read_bytes().split(b"\0")
            if b"serve-session" in arguments and (path / "cwd").resolve() == folder:
                found.append(int(path.name))
        except OSError:
            continue
    return found


def test_one_process_serves_all_runs_of_a_session(
    device: Device, tiny: TinyBundle, tmp_path: Path
) -> None:
    deployed = device.deploy(tiny())
    with device.open() as session:
        (process,) = served_by(tmp_path / "board")
        for i in range(5):
            outputs, timings = session.run({"x": X + i})
            np.testing.assert_array_equal(outputs["y"], 2 * (X + i) + 1)
        assert served_by(tmp_path / "board") == [process]
        assert outputs["y"].flags.writeable
        assert [o.name for o in timings.operators] == ["twice", "plus"]
        total = sum(o.median_us for o in timings.operators)
        assert [o.share for o in timings.operators] == [
            pytest.approx(o.median_us / total if total else 0.0) for o in timings.operators
        ]
        assert timings.release == session.served.release == deployed.release.id
    assert served_by(tmp_path / "board") == []


def test_state_is_kept_from_run_to_run_until_reset(device: Device, tiny: TinyBundle) -> None:
    device.deploy(tiny("TINY_STATE"))
    with device.open() as session:
        assert session.served.variants[0].stateful
        counts = [session.run({"x": X})[0]["y"][0] - (2 * X[0] + 1) for _ in range(3)]
        session.reset()
        counts += [session.run({"x": X})[0]["y"][0] - (2 * X[0] + 1)]
    assert counts == [1, 2, 3, 1]
    with device.open() as session:
        assert session.run({"x": X})[0]["y"][0] - (2 * X[0] + 1) == 1


def test_bad_inputs_are_reported_and_the_session_continues(
    device: Device, tiny: TinyBundle
) -> None:
    device.deploy(tiny("TINY_STATE"))
    with device.open() as session:
        for inputs, expected in (
            ({"z": X}, "expected inputs x, found z"),
            ({"x": X[:3]}, r"input 'x': expected f32 \[4\], found f32 \[3\]"),
            ({"x": np.array([1, 2, 3, 2**24 + 1])}, "integers that floats"),
            ({"x": np.array(["a", "b", "c", "d"])}, "not numbers"),
        ):
            with pytest.raises(InputError, match=expected):
                session.run(inputs)
        outputs, _ = session.run({"x": X})
        np.testing.assert_array_equal(outputs["y"], 2 * X + 2)  # its first run


def test_types_that_hold_the_same_values_are_converted(tiny_device: Device) -> None:
    with tiny_device.open() as session:
        for kind in (np.float64, np.float16, np.int64, np.int8, ">f4", ">i2"):
            outputs, _ = session.run({"x": X.astype(kind)})
            np.testing.assert_array_equal(outputs["y"], 2 * X + 1)


def test_a_killed_process_is_one_clear_line(tiny_device: Device, tmp_path: Path) -> None:
    with tiny_device.open() as session:
        os.kill(served_by(tmp_path / "board")[0], signal.SIGKILL)
        with pytest.raises(UnreachableError, match="found it killed by SIGKILL; open another"):
            session.run({"x": X})
        with pytest.raises(InputError, match="found it closed; open another"):
            session.run({"x": X})
    tiny_device.run({"x": X})


def test_a_model_that_crashes_is_one_clear_line(
    tiny_device: Device, tiny: TinyBundle, tmp_path: Path
) -> None:
    crashing = dict(tiny("TINY_CRASH").files)["model.so"]
    library = next((tmp_path / "board" / "releases").glob("*/model.so"))
    library.chmod(0o600)
    library.write_bytes(crashing)
    with pytest.raises((UnreachableError, TransferError)):
        tiny_device.run({"x": X})


def test_what_a_model_prints_does_not_disturb(device: Device, tiny: TinyBundle) -> None:
    device.deploy(tiny('TINY_SAY="much to say"'))
    with device.open() as session:
        for _ in range(3):
            outputs, _ = session.run({"x": X})
    np.testing.assert_array_equal(outputs["y"], 2 * X + 1)


def test_a_session_keeps_its_release_and_tells_of_another(
    tiny_device: Device, tiny: TinyBundle
) -> None:
    first = tiny().manifest.id
    with tiny_device.open() as session:
        session.run({"x": X})
        assert session.replaced_by is None
        second = tiny_device.deploy(tiny('TINY_NAME="other"')).release.id
        _, timings = session.run({"x": X})
        assert (timings.release, session.replaced_by) == (first, second)
        tiny_device.rollback()
        session.run({"x": X})
        assert session.replaced_by is None


def test_without_a_release_there_is_no_session(device: Device) -> None:
    with pytest.raises(InputError, match="expected a deployed model, found none"):
        device.open()


def test_messages_that_are_none_or_too_long_are_refused() -> None:
    good = pack({"do": "run"}, {"x": Array("f32", (4,), X.tobytes())})

    def taken(data: bytes, most: int = 16) -> None:
        file = io.BytesIO(data)
        receive(lambda size: file.read(size).ljust(size, b"\0"), most)

    taken(good)
    damaged = [
        (good.replace(b"[4]", b"[5]"), "arrays: expected 20 bytes, found 16"),
        (good.replace(b'"f32"', b'"f99"'), "a known type"),
        (good.replace(MAGIC, b"HTTP"), "expected a message of a session"),
        (MAGIC + b"\xff" * 12, "expected a message of at most"),
        (pack({}, {}).replace(b"{", b"["), "expected JSON"),
    ]
    for data, expected in damaged:
        with pytest.raises(DeviceInputError, match=expected):
            taken(data)
    with pytest.raises(DeviceInputError, match=r"at most .* 15 bytes"):
        taken(good, most=15)
