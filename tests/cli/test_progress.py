"""Progress output: rate, remaining time, and frequency of plain lines."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edgekit.host.cli.progress import Meter, deploying
from edgekit.host.deploy.release import DeployProgress

MIB = 1 << 20


class Clock:
    """A clock that a test sets, in seconds."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def at(clock: Clock) -> Callable[[float, int], str]:
    """show(seconds, mebibytes): the rate shown for a 10 MiB transfer resumed at 2 MiB."""
    meter = Meter(clock)
    meter.entered(DeployProgress("transfer", 2 * MIB, 10 * MIB))

    def show(seconds: float, mebibytes: int) -> str:
        clock.now = 100.0 + seconds
        return meter.rate(DeployProgress("transfer", mebibytes * MIB, 10 * MIB))

    return show


def test_rate_counts_what_was_sent_now(at: Callable[[float, int], str]) -> None:
    assert at(4, 4) == "512 KiB/s, 12 s left"
    assert at(4, 10) == "2 MiB/s, 0 s left"
    assert at(400, 4) == "5.119 KiB/s, 20 min 0 s left"


def test_nothing_is_said_too_early(at: Callable[[float, int], str]) -> None:
    assert at(0.1, 4) == ""
    assert at(4, 2) == ""


def test_bytes_are_shown_where_there_are_any(clock: Clock) -> None:
    meter = Meter(clock)
    meter.entered(DeployProgress("transfer", 0, 4 * MIB))
    assert meter.far(DeployProgress("probe")) == ""
    assert meter.far(DeployProgress("transfer", MIB, 4 * MIB)) == "1 MiB of 4 MiB"
    clock.now += 2
    shown = meter.far(DeployProgress("transfer", 2 * MIB, 4 * MIB))
    assert shown == "2 MiB of 4 MiB, 1 MiB/s, 2 s left"


def test_plain_lines_come_now_and_then(clock: Clock) -> None:
    meter = Meter(clock)
    assert meter.entered(DeployProgress("probe"))
    assert not meter.entered(DeployProgress("probe"))
    assert meter.entered(DeployProgress("transfer", 0, 10))
    due = []
    for _ in range(12):
        clock.now += 1
        due.append(meter.due())
    assert [i for i, d in enumerate(due, 1) if d] == [5, 10]


def test_off_a_terminal_each_state_is_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    with deploying("deploying to b") as show:
        for step in (
            DeployProgress("probe"),
            DeployProgress("transfer", 0, 9),
            DeployProgress("transfer", 9, 9),
            DeployProgress("health"),
        ):
            show(step)
    lines = capfd.readouterr().err.splitlines()
    assert lines == [f"deploying to b: {s} ..." for s in ("probe", "transfer", "health")]
