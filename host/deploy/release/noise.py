"""Decides whether a measurement is trustworthy; otherwise gives a one-line reason."""

from __future__ import annotations

from edgekit.host.deploy.release.runtime import BoardCalls
from edgekit.host.deploy.release.types import Benchmark, Noise
from edgekit.host.errors import IncompatibleError

_MOST_SPREAD = 0.25  # (p90 - p10) / median
_SPARE = 0.15  # cores; background load of an otherwise idle Linux
_SLOW_GOVERNORS = ("conservative", "ondemand", "powersave", "userspace")


def why_noisy(timing: Benchmark) -> str | None:
    """Returns why a benchmark's times are not trustworthy, or None."""
    spread = (timing.p90_ms - timing.p10_ms) / timing.median_ms if timing.median_ms else 0.0
    return reason(timing.noise, timing.threads, timing.after.governor, spread)


def check_quiet(board: BoardCalls, threads: int) -> None:
    """Rejects a busy board before time is spent on measuring it.

    Raises IncompatibleError with the reason.
    """
    found = board.call("noise")
    noise = Noise(**{name: found[name] for name in ("cores", "others", "throttled", "load")})
    if why := reason(noise, threads, found["governor"]):
        refuse_noise(board.name, why)


def refuse_noise(board: str, why: str) -> None:
    """Raises IncompatibleError for a board too noisy for its results to be kept."""
    raise IncompatibleError(
        f"board '{board}': expected a quiet board while measuring, found: {why}; stop other "
        "programs there, let it cool down, or keep the results anyway: --allow-noise"
    )


def reason(
    noise: Noise | None, threads: int, governor: str | None, spread: float = 0.0
) -> str | None:
    """Returns the problem with a measurement on `threads` threads, or None.

    `spread` is (p90 - p10) / median of the runs.
    """
    found = []
    if spread > _MOST_SPREAD:
        found.append(f"runs differ by {spread:.0%} of their median")
    others = noise.others if noise is not None else None
    if noise is not None and others is not None and others + threads > noise.cores + _SPARE:
        load = "" if noise.load is None else f" (load average {noise.load:.1f})"
        found.append(f"other programs keep {others:.1f} of {noise.cores} cores busy{load}")
    if noise is not None and noise.throttled:
        found.append("heat throttles the clock")
    if found and governor in _SLOW_GOVERNORS:
        found.append(f"the governor is {governor}")
    return ", ".join(found) or None
