"""Explains why a model takes as long as it does on a board, and advises what to try.

The board's measurements (release.ModelHotspots) are compared with the bytes and multiply-adds of
each operator, as reported by the compiler for the release: docs/estimates.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.device.runtime.agent.hotspots import ThreadHotspots, classify, is_bound_by_memory
from edgekit.host.deploy.release import Benchmark, ModelHotspots, OperatorTime
from edgekit.host.deploy.release.noise import reason
from edgekit.host.lab.bench.advice import (
    BenchTarget,
    bench_command,
    board_option,
    fewer_threads,
    move_less,
    multiply_less,
    other_methods,
    other_orders,
)
from edgekit.host.lab.bench.roofline import NEAR, TINY_US, HotOperator, judge_operators
from edgekit.host.simulator.model import ModelEstimate
from edgekit.kb.targets.board import BoardProfile

SHOWN = 5  # operators, slowest first
_TINY_SHARE = 0.5  # share of time in tiny operators above which overhead is the verdict
_DELAYED = 20.0  # percent of a thread's time runnable but without a core
_USED = 0.6  # share of the threads' time in kernels; below it they mostly wait
_DISK_FAULTS = 10.0  # per second


@dataclass(frozen=True)
class ProgramVerdict:
    """The program's bottleneck: memory, io, others, heat, clock, waiting, overhead or kernel;
    advice; and its slowest operators."""

    kind: str
    why: str
    advice: str
    operators: tuple[HotOperator, ...]


def judge(timing: Benchmark, found: ModelHotspots, target: BenchTarget) -> ProgramVerdict:
    """Determines the bottleneck of a benchmark with hot spots."""
    decided = {o["name"]: o for o in target.explained["operators"]} if target.explained else {}
    cached = _is_cached(timing, target.profile)
    best = _with_peaks(_best_rates(timing.operators, decided), timing, target.profile)
    slowest = sorted(timing.operators, key=lambda o: -o.median_us)[:SHOWN]
    operators = tuple(
        _judge_operator(o, decided.get(o.name), found, cached, best, timing, target)
        for o in slowest
    )
    for kind, why, advice in (
        _check_disturbances(timing, found.seen, target),
        _short_of_memory(timing, found, decided, cached, target),
        _check_waiting(timing, found.seen, target),
        _check_small_operators(timing, target),
    ):
        if kind:
            return ProgramVerdict(kind, why, advice, operators)
    if not operators:
        return ProgramVerdict(
            "overhead", "the model has no operators", fewer_threads(timing.threads, target), ()
        )
    first = operators[0]
    why = f"{first.name} ({first.op}, {first.share:.0%} of the time): {first.why}"
    return ProgramVerdict(first.kind, why, first.advice, operators)


_Reason = tuple[str, str, str]
_NONE: _Reason = ("", "", "")


def estimated(estimate: ModelEstimate | None, target: BenchTarget) -> ProgramVerdict:
    """The verdict for an emulated board, whose times are meaningless: based on the estimate, if
    there is one."""
    advice = f"edgekit estimate {target.model} --board {target.profile.name}"
    if estimate is None:
        why = "an emulator's times do not show the bottleneck of a core"
        return ProgramVerdict(
            "emulated", why, f"estimate with the core's timing model: {advice}", ()
        )
    operators = judge_operators(estimate, target)[:SHOWN]
    first = operators[0] if operators else None
    why = f"{first.name} ({first.op}, {first.share:.0%}): {first.why}" if first else "no operators"
    return ProgramVerdict("estimated", why, first.advice if first else advice, operators)


def _check_disturbances(timing: Benchmark, seen: ThreadHotspots, target: BenchTarget) -> _Reason:
    """Detects other programs, heat and a reduced clock."""
    caller = seen.threads[0] if seen.threads else None
    delayed = max((t.delayed or 0.0 for t in seen.threads), default=0.0)
    noise = timing.noise
    others = noise.others if noise and noise.others is not None else 0.0
    crowded = noise is not None and others + timing.threads > noise.cores + 0.5
    if delayed >= _DELAYED or (crowded and caller and caller.running < 100 - _DELAYED):
        names = ", ".join(f"{o.name} ({o.percent:.0f}% of a core)" for o in seen.others)
        why = f"other programs use the cores: a thread was ready but had no core for {delayed:.0f}%"
        why += f" of the time; {names}" if names else "; not visible from this host"
        stop = ", ".join(f"{o.name} (process {o.process})" for o in seen.others[:1])
        advice = f"stop {stop}" if stop else "stop other programs on the board"
        free = max(int((noise.cores if noise else timing.threads) - others + 0.5), 1)
        if free < timing.threads:
            advice += f"; or leave a core free: {bench_command(target)} --threads {free}"
        return "others", why, advice
    governor = timing.after.governor
    if noise is not None and noise.throttled:
        return (
            "heat",
            "heat reduces the clock",
            f"cool it; see edgekit doctor{board_option(target)}",
        )
    if reason(None, timing.threads, governor, 1.0) != reason(None, timing.threads, None, 1.0):
        why = f"the governor is {governor}: the clock may not be at its highest"
        return "clock", why, f"see how to change it: edgekit doctor{board_option(target)}"
    return _NONE


def _short_of_memory(
    timing: Benchmark,
    found: ModelHotspots,
    decided: Mapping[str, Any],
    cached: bool,
    target: BenchTarget,
) -> _Reason:
    """Detects swapping, paging from disk, or a model that as a whole is memory-bound."""
    seen = found.seen
    share = None
    if decided and not cached:
        moved = sum(decided[o.name]["bytes"] for o in timing.operators if o.name in decided)
        share = moved / (timing.median_ms / 1e3) / found.memory_bytes_per_second
    cause = classify(seen.waiting, seen.threads[0].running if seen.threads else None, share)
    less = f"stop other programs there, or compile for less memory: edgekit compile {target.model}"
    less += f"{board_option(target)} --memory-limit 16MiB"
    if seen.major_faults >= _DISK_FAULTS:
        why = f"{seen.major_faults:.0f} pages a second are read back from disk: memory is short"
        return "memory", why, less
    if cause.kind == "memory" and cause.why.startswith("swapping"):
        return "memory", cause.why, less
    if cause.kind == "io":
        return (
            "io",
            cause.why,
            f"stop what uses the disk; see edgekit doctor{board_option(target)}",
        )
    if cause.kind == "memory":
        made = [decided[o.name] for o in timing.operators if o.name in decided]
        return "memory", cause.why, move_less(made, target)
    return _NONE


def _check_waiting(timing: Benchmark, seen: ThreadHotspots, target: BenchTarget) -> _Reason:
    if len(seen.threads) < 2 or not all(t.samples for t in seen.threads[:1]):
        return _NONE
    useful = [t.running * (100 - t.waiting) / 1e4 for t in seen.threads]
    used = sum(useful) / len(useful)
    if used >= _USED:
        return _NONE
    parts = ", ".join(f"{share:.0%}" for share in useful)
    why = f"threads wait for each other: they run kernels for {parts} of the time"
    fewer = max(min(round(sum(useful)), timing.threads - 1), 1)
    return (
        "waiting",
        why,
        f"fewer threads may be as fast: {bench_command(target)} --threads {fewer}",
    )


def _check_small_operators(timing: Benchmark, target: BenchTarget) -> _Reason:
    small = [o for o in timing.operators if o.median_us < TINY_US]
    share = sum(o.share for o in small)
    if share < _TINY_SHARE:
        return _NONE
    why = f"{len(small)} of {len(timing.operators)} operators take less than {TINY_US:g} µs each, "
    why += f"{share:.0%} of the time: the overhead between them dominates"
    if timing.threads > 1:
        return "overhead", why, f"use one thread: {bench_command(target)} --threads 1"
    return "overhead", why, other_orders(target)


def _judge_operator(
    operator: OperatorTime,
    made: Mapping[str, Any] | None,
    found: ModelHotspots,
    cached: bool,
    best: Mapping[str, tuple[float, str]],
    timing: Benchmark,
    target: BenchTarget,
) -> HotOperator:
    identity = (operator.name, operator.op, operator.kernel, operator.share, operator.median_us)
    tune = other_methods("measure other methods", target)
    if made is None:
        why = "its work is unknown: another host compiled the release"
        return HotOperator(
            *identity, "unknown", why, f"name the model: {bench_command(target)} --hotspots"
        )
    seconds = operator.median_us / 1e6
    moved, products = made["bytes"], made.get("multiply_adds")
    of_memory = None
    if seconds and not cached:
        of_memory = moved / seconds / found.memory_bytes_per_second
    rate, which = best.get(made["precision"], (0.0, ""))
    of_products = products / seconds / rate if products and seconds and rate else None
    facts = (moved, products, of_memory, of_products)
    if operator.median_us < TINY_US:
        why = f"it takes {operator.median_us:.1f} µs, about the cost of the call"
        return HotOperator(
            *identity, "overhead", why, fewer_threads(timing.threads, target), *facts
        )
    if is_bound_by_memory(of_memory) and (of_products or 0.0) < NEAR:
        why = f"it moves {_format_megabytes(moved)} at {of_memory:.0%} of the memory's rate"
        advice = move_less([made], target)
        return HotOperator(*identity, "memory", why, advice, *facts)
    if products is None or of_products is None:
        does = "multiplies nothing" if products == 0 else "multiplies at an unknown rate"
        where = "a cache" if cached or (of_memory or 0) > 1 else "memory"
        why = f"it {does} and moves {_format_megabytes(moved)} through {where}"
        return HotOperator(*identity, "kernel", why, tune, *facts)
    giga = products / seconds / 1e9
    if of_products >= NEAR:
        why = f"it multiplies at {giga:.1f} G/s, {of_products:.0%} of the best known rate, {which}"
        advice = _use_free_core(timing, target) or multiply_less(made, target)
        return HotOperator(*identity, "compute", why, advice, *facts)
    why = f"it multiplies at {giga:.1f} G/s, {of_products:.0%} of the best rate, {which}"
    return HotOperator(*identity, "kernel", why, tune, *facts)


def _use_free_core(timing: Benchmark, target: BenchTarget) -> str:
    noise = timing.noise
    if noise and noise.others is not None and timing.threads + noise.others + 0.5 < noise.cores:
        return f"a core is free: {bench_command(target)} --threads {timing.threads + 1}"
    return ""


def _best_rates(
    operators: Sequence[OperatorTime], decided: Mapping[str, Any]
) -> dict[str, tuple[float, str]]:
    """For each result type, the highest multiply-adds per second, and the operator reaching it."""
    best: dict[str, tuple[float, str]] = {}
    for operator in operators:
        made = decided.get(operator.name, {})
        if (products := made.get("multiply_adds")) and operator.median_us >= TINY_US:
            rate = products / operator.median_us * 1e6
            kind = made["precision"]
            best[kind] = max(best.get(kind, (0.0, "")), (rate, f"that of {operator.name}"))
    return best


def _with_peaks(
    best: dict[str, tuple[float, str]], timing: Benchmark, profile: BoardProfile
) -> dict[str, tuple[float, str]]:
    """`best`, raised to the core's peak rate where its profile has that from a source."""
    unit = profile.speeds[0]
    known = {o.name for o in unit.origins if o.kind == "source"}
    clock = timing.after.frequency_mhz or (profile.timing[0].clock_mhz if profile.timing else None)
    found = dict(best)
    for kind, per_cycle in (("f32", unit.f32_per_cycle), ("s8", unit.s8_per_cycle)):
        if clock and f"{kind}_per_cycle" in known:
            peak = per_cycle * clock * 1e6 * timing.threads
            found[kind] = max(best.get(kind, (0.0, "")), (peak, "the peak of the core"))
    return found


def _is_cached(timing: Benchmark, profile: BoardProfile) -> bool:
    """Whether all data of a run stays in the last-level cache until the next."""
    size = timing.arena_bytes + timing.weights_bytes
    return size <= max(profile.l2_bytes, profile.l3_bytes)


def _format_megabytes(size: int) -> str:
    return f"{size / 1e6:.2f} MB"
