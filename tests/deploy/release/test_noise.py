"""Deciding whether a measurement is too noisy."""

from __future__ import annotations

import pytest

from edgekit.host.deploy.release.noise import reason
from edgekit.host.deploy.release.types import Noise

QUIET = Noise(4, 0.1, False, 0.4)


@pytest.mark.parametrize(
    ("noise", "threads", "governor", "spread"),
    [
        (QUIET, 1, "performance", 0.05),
        (QUIET, 4, "ondemand", 0.05),  # a governor alone is not noise
        (Noise(4, 2.5, None, 9.0), 1, None, 0.05),  # one core is idle
        (None, 1, None, 0.05),  # noise not measured
    ],
)
def test_quiet_measurements_are_believed(
    noise: Noise | None, threads: int, governor: str | None, spread: float
) -> None:
    assert reason(noise, threads, governor, spread) is None


@pytest.mark.parametrize(
    ("noise", "threads", "governor", "spread", "said"),
    [
        (QUIET, 1, None, 0.4, "runs differ by 40% of their median"),
        (QUIET, 1, "powersave", 0.4, "the governor is powersave"),
        (Noise(2, 1.4, None, 3.2), 1, None, 0.0, "1.4 of 2 cores busy (load average 3.2)"),
        (Noise(4, 0.5, None, None), 4, None, 0.0, "0.5 of 4 cores busy"),
        (Noise(4, 0.0, True, 0.0), 1, None, 0.0, "heat throttles the clock"),
    ],
)
def test_the_reason_is_named(
    noise: Noise, threads: int, governor: str | None, spread: float, said: str
) -> None:
    found = reason(noise, threads, governor, spread)
    assert found is not None
    assert said in found
