"""A deploy never hangs: if the board stops answering, it ends with an error naming the state."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from edgekit.device.runtime.agent import states
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.deploy.release import deploy, probe
from edgekit.host.deploy.release.runtime import SLOWEST_BYTES_PER_SECOND
from edgekit.host.deploy.transport import Completed, LocalTransport, OnBytes, OnLine
from edgekit.host.errors import UnreachableError
from tests.support.patience import ends_by_itself

TinyBundle = Callable[..., Bundle]
SECONDS = 1.0


class BlackHole(LocalTransport):
    """Goes silent in one state of a deploy; like any transport, it returns by the deadline."""

    def __init__(self, root: Path, silent_in: str) -> None:
        super().__init__(root)
        self.silent_in = silent_in
        self.closed = threading.Event()
        self.plans = 0

    def run(
        self, command: Sequence[str], *, deadline: float, on_line: OnLine | None = None
    ) -> Completed:
        self.plans += "plan" in command
        if self.silent_in == ("probe" if self.plans == 1 else "plan") and "plan" in command:
            self._silence(deadline)
        if "apply" in command and self.silent_in in states.ON_BOARD:
            for state in states.ON_BOARD[: states.ON_BOARD.index(self.silent_in) + 1]:
                assert on_line is not None
                on_line(f"state {state}")
            self._silence(deadline)
        return super().run(command, deadline=deadline, on_line=on_line)

    def put(
        self, data: bytes, path: str, *, deadline: float, on_bytes: OnBytes | None = None
    ) -> None:
        if self.silent_in == "transfer" and path.endswith("weights.bin"):
            self._silence(deadline)
        super().put(data, path, deadline=deadline, on_bytes=on_bytes)

    def close(self) -> None:
        self.closed.set()
        super().close()

    def _silence(self, deadline: float) -> None:
        self.closed.wait(deadline)
        raise UnreachableError("board 'local': expected an answer, found none")


@pytest.mark.slow
@pytest.mark.parametrize("state", [row.name for row in states.STATES])
def test_silence_in_each_state(board_root: Path, tiny: TinyBundle, state: str) -> None:
    """Only this state's deadline is short, so only it can end the deploy."""
    bundle = tiny()
    deadlines = {row.name: SECONDS if row.name == state else 600.0 for row in states.STATES}
    deadlines["transfer"] -= size_allowance(bundle)
    probe(Device(LocalTransport(board_root)))  # sends the runtime
    transport = BlackHole(board_root, state)
    with ends_by_itself(), pytest.raises(UnreachableError, match=f"'{state}'"):
        deploy(Device(transport), bundle, deadlines=deadlines, health_seconds=1)
    assert transport.closed.is_set() == (state in states.ON_BOARD)


def size_allowance(bundle: Bundle) -> float:
    """Seconds a transfer gets for its size in addition to the state's deadline."""
    return sum(len(data) for data in bundle.files.values()) / SLOWEST_BYTES_PER_SECOND


class Slow(LocalTransport):
    """Each file is slow, but within the deadline."""

    def put(
        self, data: bytes, path: str, *, deadline: float, on_bytes: OnBytes | None = None
    ) -> None:
        time.sleep(min(deadline, 0.4))
        if deadline < 0.4:
            raise UnreachableError("board 'local': expected an answer, found none")
        super().put(data, path, deadline=deadline, on_bytes=on_bytes)


def test_files_share_the_deadline_of_their_state(board_root: Path, tiny: TinyBundle) -> None:
    """Five files of 0.4 s exceed the deadline of one second, although each alone meets it."""
    bundle = tiny()
    deadlines = {row.name: 600.0 for row in states.STATES}
    deadlines["transfer"] = 1.0 - size_allowance(bundle)
    with pytest.raises(UnreachableError, match="in state 'transfer'"):
        deploy(Device(Slow(board_root)), bundle, deadlines=deadlines)


def test_stopped_process_on_the_board(board_root: Path, tiny: TinyBundle) -> None:
    """The health check hangs, and its own limit is far off, so the host's deadline ends it."""
    deadlines = {row.name: SECONDS if row.name == "health" else 600.0 for row in states.STATES}

    class Patient(LocalTransport):
        def run(
            self, command: Sequence[str], *, deadline: float, on_line: OnLine | None = None
        ) -> Completed:
            longer = ["300" if word == "1" else word for word in command]
            return super().run(longer, deadline=deadline, on_line=on_line)

    transport = Patient(board_root)
    with (
        ends_by_itself(),
        pytest.raises(UnreachableError, match="expected 'health' to end within 2 s"),
    ):
        deploy(Device(transport), tiny("TINY_HANG"), deadlines=deadlines, health_seconds=1)
