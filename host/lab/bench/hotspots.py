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
from edgekit.host.simulator.model import ModelEstimate
from edgekit.host.simulator.report import bound_text
from edgekit.kb.targets.board import BoardProfile

SHOWN = 5  # operators, slowest first
_TINY_US = 5.0  # below this, dispatch overhead dominates an operator
_TINY_SHARE = 0.5  # share of time in tiny operators above which overhead is the verdict
_NEAR = 0.7  # of the best rate: little left to gain
_DELAYED = 20.0  # percent of a thread's time runnable but without a core
_USED = 0.6  # share of the threads' time in kernels; below it they mostly wait
_DISK_FAULTS = 10.0  # per second
_TO_QUANTIZE = ("fully_connected", "matmul")  # operators that --weights applies to
_TO_PRUNE = ("conv2d", "fully_connected")  # operators with sparse kernels


@dataclass(frozen=True)
class BenchTarget:
    """What was timed: the model's file or name, as a command accepts it; the board's name and
    profile; the compiler's report on the release (explain/2), None if unknown on this host."""

    model: str
    board: str
    profile: BoardProfile
    explained: Mapping[str, Any] | None


@dataclass(frozen=True)
class HotOperator:
    """An operator and its bottleneck: memory, compute, overhead, kernel or unknown.

    `bytes` read and written, `multiply_adds`, and the fractions it reaches of the board's memory
    bandwidth and of the best multiply-add rate; None if unknown.
    """

    name: str
    op: str
    kernel: str
    share: float
    median_us: float
    kind: str
    why: str
    advice: str
    bytes: int | None = None
    multiply_adds: int | None = None
    of_memory: float | None = None
    of_products: float | None = None


@dataclass(frozen=True)
class Verdict:
    """The program's bottleneck: memory, io, others, heat, clock, waiting, overhead or kernel;
    advice; and its slowest operators."""

    kind: str
    why: str
    advice: str
    operators: tuple[HotOperator, ...]


def judge(timing: Benchmark, found: ModelHotspots, target: BenchTarget) -> Verdict:
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
            return Verdict(kind, why, advice, operators)
    if not operators:
        return Verdict(
            "overhead", "the model has no operators", _advise_fewer_threads(timing, target), ()
        )
    first = operators[0]
    why = f"{first.name} ({first.op}, {first.share:.0%} of the time): {first.why}"
    return Verdict(first.kind, why, first.advice, operators)


_Reason = tuple[str, str, str]
_NONE: _Reason = ("", "", "")


def estimated(estimate: ModelEstimate | None, target: BenchTarget) -> Verdict:
    """The verdict for an emulated board, whose times are meaningless: based on the estimate, if
    there is one."""
    advice = f"edgekit estimate {target.model} --board {target.profile.name}"
    if estimate is None:
        why = "an emulator's times do not show the bottleneck of a core"
        return Verdict("emulated", why, f"estimate with the core's timing model: {advice}", ())
    total = estimate.cost.cycles or 1
    operators = tuple(
        HotOperator(
            *(o.spec.name, o.spec.op, o.spec.kernel),
            o.cost.cycles / total,
            1e3 * estimate.milliseconds(o.cost.cycles),
            "estimated",
            f"its estimated cycles: {bound_text(o.cost)}",
            "measure other methods in simulated time: edgekit lab tune model "
            f"{_model_arguments(target)}",
        )
        for o in sorted(estimate.operators, key=lambda o: -o.cost.cycles)[:SHOWN]
    )
    first = operators[0] if operators else None
    why = f"{first.name} ({first.op}, {first.share:.0%}): {first.why}" if first else "no operators"
    return Verdict("estimated", why, first.advice if first else advice, operators)


def _check_disturbances(timing: Benchmark, seen: ThreadHotspots, target: BenchTarget) -> _Reason:
    """Detects other programs, heat and a reduced clock."""
    caller = seen.threads[0] if seen.threads else None
    delayed = max((t.delayed or 0.0 for t in seen.threads), default=0.0)
    noise = timing.noise
    others = noise.others if noise and noise.others is not None else 0.0
    crowded = noise is not None and others + timing.threads > noise.cores + 0.5
    if delayed >= _DELAYED or (crowded and caller and caller.running < 100 - _DELAYED):
        names = ", ".join(f"{o.name} ({o.percent:.0f} % of a core)" for o in seen.others)
        why = (
            f"other programs use the cores: a thread was ready but had no core for {delayed:.0f} %"
        )
        why += f" of the time; {names}" if names else "; not visible from this host"
        stop = ", ".join(f"{o.name} (process {o.process})" for o in seen.others[:1])
        advice = f"stop {stop}" if stop else "stop other programs on the board"
        free = max(int((noise.cores if noise else timing.threads) - others + 0.5), 1)
        if free < timing.threads:
            advice += f"; or leave a core free: {_bench_command(target)} --threads {free}"
        return "others", why, advice
    governor = timing.after.governor
    if noise is not None and noise.throttled:
        return (
            "heat",
            "heat reduces the clock",
            f"cool it; see edgekit doctor{_board_option(target)}",
        )
    if reason(None, timing.threads, governor, 1.0) != reason(None, timing.threads, None, 1.0):
        why = f"the governor is {governor}: the clock may not be at its highest"
        return "clock", why, f"see how to change it: edgekit doctor{_board_option(target)}"
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
    less += f"{_board_option(target)} --memory-limit 16MiB"
    if seen.major_faults >= _DISK_FAULTS:
        why = f"{seen.major_faults:.0f} pages a second are read back from disk: memory is short"
        return "memory", why, less
    if cause.kind == "memory" and cause.why.startswith("swapping"):
        return "memory", cause.why, less
    if cause.kind == "io":
        return (
            "io",
            cause.why,
            f"stop what uses the disk; see edgekit doctor{_board_option(target)}",
        )
    if cause.kind == "memory":
        return "memory", cause.why, _move_less(timing.operators, decided, target)
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
        f"fewer threads may be as fast: {_bench_command(target)} --threads {fewer}",
    )


def _check_small_operators(timing: Benchmark, target: BenchTarget) -> _Reason:
    small = [o for o in timing.operators if o.median_us < _TINY_US]
    share = sum(o.share for o in small)
    if share < _TINY_SHARE:
        return _NONE
    why = f"{len(small)} of {len(timing.operators)} operators take less than {_TINY_US:g} µs each, "
    why += f"{share:.0%} of the time: the overhead between them dominates"
    if timing.threads > 1:
        return "overhead", why, f"use one thread: {_bench_command(target)} --threads 1"
    return "overhead", why, _other_orders(target)


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
    tune = f"measure other methods: edgekit lab tune model {_model_arguments(target)}"
    if made is None:
        why = "its work is unknown: another host compiled the release"
        return HotOperator(
            *identity, "unknown", why, f"name the model: {_bench_command(target)} --hotspots"
        )
    seconds = operator.median_us / 1e6
    moved, products = made["bytes"], made.get("multiply_adds")
    of_memory = None
    if seconds and not cached:
        of_memory = moved / seconds / found.memory_bytes_per_second
    rate, which = best.get(made["precision"], (0.0, ""))
    of_products = products / seconds / rate if products and seconds and rate else None
    facts = (moved, products, of_memory, of_products)
    if operator.median_us < _TINY_US:
        why = f"it takes {operator.median_us:.1f} µs, about the cost of the call"
        return HotOperator(
            *identity, "overhead", why, _advise_fewer_threads(timing, target), *facts
        )
    if is_bound_by_memory(of_memory) and (of_products or 0.0) < _NEAR:
        why = f"it moves {_format_megabytes(moved)} at {of_memory:.0%} of the memory's rate"
        advice = _move_less([operator], {operator.name: made}, target)
        return HotOperator(*identity, "memory", why, advice, *facts)
    if products is None or of_products is None:
        does = "multiplies nothing" if products == 0 else "multiplies at an unknown rate"
        where = "a cache" if cached or (of_memory or 0) > 1 else "memory"
        why = f"it {does} and moves {_format_megabytes(moved)} through {where}"
        return HotOperator(*identity, "kernel", why, tune, *facts)
    giga = products / seconds / 1e9
    if of_products >= _NEAR:
        why = f"it multiplies at {giga:.1f} G/s, {of_products:.0%} of the best known rate, {which}"
        return HotOperator(*identity, "compute", why, _multiply_less(made, timing, target), *facts)
    why = f"it multiplies at {giga:.1f} G/s, {of_products:.0%} of the best rate, {which}"
    return HotOperator(*identity, "kernel", why, tune, *facts)


def _best_rates(
    operators: Sequence[OperatorTime], decided: Mapping[str, Any]
) -> dict[str, tuple[float, str]]:
    """For each result type, the highest multiply-adds per second, and the operator reaching it."""
    best: dict[str, tuple[float, str]] = {}
    for operator in operators:
        made = decided.get(operator.name, {})
        if (products := made.get("multiply_adds")) and operator.median_us >= _TINY_US:
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


def _move_less(
    operators: Sequence[OperatorTime], decided: Mapping[str, Any], target: BenchTarget
) -> str:
    """Advice for reducing the bytes moved by the heaviest of these operators."""
    made = [decided[o.name] for o in operators if o.name in decided]
    heaviest = max(made, key=lambda o: int(o["bytes"]))
    if heaviest["precision"] != "f32":
        compile_command = f"edgekit compile {_model_arguments(target)}"
        return f"less memory between operators: {compile_command} --order memory"
    if target.profile.computes_half:
        return f"half the bytes: {_bench_command(target)} --precision f16"
    fewer = ""
    if 2 * heaviest.get("constant_bytes", 0) > heaviest["bytes"]:
        fewer = _prune_advice(heaviest, target)
        if heaviest["op"] in _TO_QUANTIZE:
            how = "--weights int8"
            return f"a quarter of the weights: {_bench_command(target)} {how}{fewer}"
    return f"8 bits move a quarter of the bytes: {_quantize_command(target)}{fewer}"


def _multiply_less(made: Mapping[str, Any], timing: Benchmark, target: BenchTarget) -> str:
    """Advice for when multiply-adds already run near the best rate."""
    noise = timing.noise
    if noise and noise.others is not None and timing.threads + noise.others + 0.5 < noise.cores:
        return f"a core is free: {_bench_command(target)} --threads {timing.threads + 1}"
    if made["precision"] == "f32":
        if target.profile.computes_half:
            return f"twice the products at a time: {_bench_command(target)} --precision f16"
        return f"8 bits are faster: {_quantize_command(target)}{_prune_advice(made, target)}"
    return f"a smaller model, or a faster board: edgekit estimate {target.model} --board BOARD"


def _advise_fewer_threads(timing: Benchmark, target: BenchTarget) -> str:
    if timing.threads > 1:
        return f"use one thread: {_bench_command(target)} --threads 1"
    return _other_orders(target)


def _other_orders(target: BenchTarget) -> str:
    return f"other orders: edgekit lab tune model --orders 6 {_model_arguments(target)}"


def _quantize_command(target: BenchTarget) -> str:
    return f"edgekit quantize {target.model} --samples samples.npz{_board_option(target)}"


def _prune_advice(made: Mapping[str, Any], target: BenchTarget) -> str:
    """The alternative for float operators with weights; the prune command reports which of the
    layers will run sparse."""
    if made["op"] not in _TO_PRUNE:
        return ""
    command = f"edgekit prune {target.model} --samples samples.npz{_board_option(target)}"
    return f"; or prune weights: {command}"


def _bench_command(target: BenchTarget) -> str:
    return f"edgekit bench model {_model_arguments(target)}"


def _model_arguments(target: BenchTarget) -> str:
    return f"{target.model}{_board_option(target)}"


def _board_option(target: BenchTarget) -> str:
    return f" --board {target.board}"


def _format_megabytes(size: int) -> str:
    return f"{size / 1e6:.2f} MB"
