"""Formatting of measured latency, shared by deploy and bench."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.host.cli.output import duration, table, three_digits, warn

if TYPE_CHECKING:
    from edgekit.host.deploy.release import Benchmark

_SLOWEST = 10
_NAME_WIDTH = 40
_KIND = 1  # the column that repeats what kernels are called


def time_key(emulated: bool) -> str:
    """The JSON key for a time: emulated times are not latencies."""
    return "emulated_ms" if emulated else "latency_ms"


def time_label(emulated: bool) -> str:
    """The text label for a time, at the start of a line."""
    return "emulated" if emulated else "latency "


def show_times(timing: Benchmark, emulated: bool) -> None:
    """Prints times in one line, with clock information; emulated times are labeled as such."""
    threads = f"{timing.threads} thread{'s' * (timing.threads != 1)}"
    threads += f" on {timing.cluster}" if timing.cluster else ""
    median, p10, p90, unit = duration(timing.median_ms, timing.p10_ms, timing.p90_ms)
    print(
        f"{time_label(emulated)} {median} {unit} median, {p10} p10, {p90} p90, "
        f"{timing.runs} runs, {threads}"
    )
    if timing.placement_note:
        print(f"threads  {timing.placement_note}")
    if timing.load_ms is not None:
        print(f"load     {timing.load_ms:.1f} ms from opening the release to its first result")
    clock = timing.after
    known = []
    if clock.governor:
        known.append(f"governor {clock.governor}")
    if clock.frequency_mhz:
        known.append(f"{clock.frequency_mhz:.0f} MHz")
    if clock.temperature_c:
        known.append(f"{clock.temperature_c:.0f} °C")
    if known:
        print(f"clock    {', '.join(known)}")


def warn_of_noise(timing: Benchmark, emulated: bool) -> None:
    """Warns if the times are unreliable; emulated times always are, so there is no warning."""
    from edgekit.host.deploy.release import why_noisy

    if not emulated and (why := why_noisy(timing)):
        warn(f"noisy measurement: {why}; measure again when it is quiet")


def show_slowest(timing: Benchmark, emulated: bool) -> None:
    """Prints the slowest operators with their kernels, slowest first."""
    slowest = sorted(timing.operators, key=lambda o: -o.median_us)[:_SLOWEST]
    rows = [
        (end_of(o.name), o.op, o.kernel, three_digits(o.median_us), f"{100 * o.share:.1f}%")
        for o in slowest
    ]
    print(f"slowest  {len(rows)} of {len(timing.operators)} operators")
    heads = ("operator", "kind", "kernel", "emulated µs" if emulated else "µs", "share")
    table(heads, rows, left=3, drop=(_KIND,), names=True)


def end_of(name: str) -> str:
    """The end of a long name: the beginning is only its scopes."""
    return name if len(name) <= _NAME_WIDTH else "..." + name[3 - _NAME_WIDTH :]
