"""Complete deploys over a serial console: a shell on a pty, and a virtual board."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from edgekit.host import compile_model, connect
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle, SigningKey
from edgekit.host.deploy.release import enroll
from edgekit.host.deploy.transport.serial import SerialTransport
from edgekit.host.errors import InputError
from edgekit.host.virtual import down, up
from tests.support.compiler_cache import home_with_shared_cache
from tests.support.tty_board import Faults, TtyBoard

pytestmark = pytest.mark.slow

TinyBundle = Callable[..., Bundle]
X = np.array([1, 2, 3, -4], np.float32)
OKAY_NABU = Path(__file__).parents[3] / "models" / "okay_nabu.tflite"


@pytest.fixture
def console(tmp_path: Path) -> Iterator[TtyBoard]:
    with TtyBoard(tmp_path, login=True) as found:
        yield found


@pytest.fixture
def board(
    console: TtyBoard, trusted: SigningKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Device]:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))
    device = Device(SerialTransport(console.target()))
    enroll(device, trusted.public)
    yield device
    device.transport.close()


def test_deploy_run_and_go_back(board: Device, console: TtyBoard, tiny: TinyBundle) -> None:
    first = board.deploy(tiny()).release
    assert first.changed
    before = console.to_board
    assert not board.deploy(tiny()).release.changed
    assert console.to_board - before < 20_000
    other = board.deploy(tiny('TINY_NAME="other"'))
    assert other.release.previous == first.id
    outputs, timings = other.run({"x": X})
    np.testing.assert_array_equal(outputs["y"], 2 * X + 1)
    assert timings.release == other.release.id
    status = board.rollback().current
    assert status is not None
    assert status.id == first.id


@pytest.mark.exhaustive
def test_a_plan_comes_over_the_console(board: Device, tiny: TinyBundle) -> None:
    assert "model.so" in board.plan(tiny()).send
    board.deploy(tiny())
    assert board.plan(tiny()).unchanged


def test_the_console_is_free_when_the_device_is_gone(
    console: TtyBoard, trusted: SigningKey, tiny: TinyBundle
) -> None:
    gc.disable()  # whose moment nobody can foresee
    try:
        _deploy_and_forget(console, trusted, tiny())
        again = SerialTransport(console.target())
        assert again.run(["true"], deadline=60).exit_code == 0
        again.close()
    finally:
        gc.enable()


def _deploy_and_forget(console: TtyBoard, trusted: SigningKey, bundle: Bundle) -> None:
    device = Device(SerialTransport(console.target()))
    enroll(device, trusted.public)
    assert device.deploy(bundle).release.changed


def test_a_session_has_the_console_for_itself(board: Device, tiny: TinyBundle) -> None:
    board.deploy(tiny("TINY_STATE"))
    with board.open() as session:
        for i in range(3):
            outputs, _ = session.run({"x": X})
            np.testing.assert_array_equal(outputs["y"], 2 * X + 2 + i)
        with pytest.raises(InputError, match="found a session open on it; close that one first"):
            board.status()
        session.run({"x": X})
    assert board.status().current is not None


def forget_runtime(board: Device) -> None:
    """Forces the runtime to be resent; it makes up most of a small model's transfer."""
    board.transport.remove("runtime", deadline=60)


@pytest.mark.exhaustive
def test_deploy_over_a_bad_line(board: Device, console: TtyBoard, tiny: TinyBundle) -> None:
    forget_runtime(board)
    console.faults = Faults(noise=1 / 3000, drop=1 / 15_000, flip=1 / 15_000)
    outputs, _ = board.deploy(tiny()).run({"x": X})
    np.testing.assert_array_equal(outputs["y"], 2 * X + 1)
    assert console.damages > 3


@pytest.mark.exhaustive
def test_deploy_through_a_cut(board: Device, console: TtyBoard, tiny: TinyBundle) -> None:
    forget_runtime(board)
    board.transport.close()
    console.faults.cut_after = [40_000]
    outputs, _ = board.deploy(tiny()).run({"x": X})
    np.testing.assert_array_equal(outputs["y"], 2 * X + 1)
    assert console.cuts == 1


@pytest.mark.boards
@pytest.mark.exhaustive  # tests/cli/test_virtual.py deploys over the console
def test_virtual_board_over_its_console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_HOME", str(home_with_shared_cache(tmp_path / "home")))
    up("a57")
    try:
        device = connect("a57", transport="serial")
        assert isinstance(device.transport, SerialTransport)
        bundle = compile_model(OKAY_NABU, board=device.profile)
        deployed = device.deploy(bundle)
        assert deployed.release.changed
        assert deployed.release.health["max_difference"] == [0.0]
        assert len(deployed.bench().operators) == len(bundle.manifest.operators)
        device.transport.close()
        over_ssh = connect("a57", transport="ssh").status().current
        assert over_ssh is not None
        assert over_ssh.id == bundle.manifest.id
    finally:
        down("a57")
