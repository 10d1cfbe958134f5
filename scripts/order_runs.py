#!/usr/bin/env python3
"""Runs searched orders for real: two threads of this machine play two units.

    scripts/order_runs.py [--second matrix] [--only NAME ...] [--blocks N] [--seconds S]
    scripts/order_runs.py --random 8 --only FastestDet
    scripts/order_runs.py --handover

Each model is built for a board with this machine's core and a second unit that is as fast as the
core on its kind of operator (--second: everything, matrix products, or all but these). It is built
in the importer's order and in the chosen one, and each is run as the cost model simulates it: one
operator per unit, one thread per unit. For comparison it also runs on the core alone, and with both
threads on each operator. The builds alternate in bursts of short blocks, one thread per core; a
block counts if no thread waited for its core. A gain is the ratio of the lowest deciles, with its
90% interval.

The cost of passing a result to the other core is measured first, by size, and the orders are chosen
and simulated with it: it differs between machines, and on a virtual one from hour to hour,
depending on how close to each other its cores are. --handover: only measure that cost.

With --random, that many random orders run alongside the first two, and the model's ranking of them
is printed. On a busy machine, as root: setsid -w scripts/order_runs.py --nice -12. Calibrate first:
edgekit lab tune cost.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np

from edgekit.device.runtime import features
from edgekit.device.runtime.agent.interleave import pinned
from edgekit.device.runtime.agent.manifest import LIBRARY, WEIGHTS
from edgekit.device.runtime.agent.model import LoadedModel
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.costs.model import CostModel
from edgekit.host.compiler.driver import prepare, units_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Tensor
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.lowering.plan import Plan
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.schedule.dag import dag_of
from edgekit.host.compiler.schedule.orders import shuffled
from edgekit.host.compiler.schedule.schedule import schedule
from edgekit.host.compiler.schedule.types import Schedule
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.compiler.toolchain.zig import Toolchain
from edgekit.host.lab.tune.cost import rank_correlation
from edgekit.host.lab.zoo.models import extended_zoo, zoo_options
from edgekit.kb.targets.board import CPU, BoardProfile, load_board
from edgekit.kb.targets.units import UnitKind

_ROOT = Path(__file__).resolve().parents[1]
_OTHER = "second"
_THREADS = 2
_KINDS: tuple[UnitKind, ...] = ("cpu", "matrix", "vector")
_BLOCK_SECONDS = 0.0005  # short: on a busy machine, undisturbed stretches are brief
_PAUSE_SECONDS = 0.015  # before a block, so that the scheduler owes us time
_DRAWS = 500  # bootstrap samples
_FEW = 5  # blocks; too few for a median
_TRIES = 25  # to time one inference
_BURST = 10  # blocks
_DISTURBED_SECONDS = 20e-6  # waiting for a core this long distorts a block
_TASKS = Path("/proc/self/task")
_LEAST_GAIN = 1.001  # simulated; smaller gains are not worth a run
_STEPS = 32  # in a chain
_ELEMENTS = (256, 1024, 4096, 16384)  # in a passed result
_LEAST_STEP = 0.05  # microseconds; shorter steps count as this
_STEPS_PER_NODE = 100  # of the Markov chain that draws a random order


@dataclass(frozen=True)
class _Mark:
    """A timestamp, and the seconds that this process's threads had spent runnable without a core by
    then: the calling thread, and the others."""

    time: float
    caller: float
    others: float

    @property
    def waited(self) -> float:
        return self.caller + self.others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="of models")
    parser.add_argument("--blocks", type=int, default=100, help="undisturbed ones of each")
    parser.add_argument("--seconds", type=float, default=30, help="at most, of one model")
    parser.add_argument("--second", choices=_KINDS, default="cpu", help="kind of the second unit")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="orders to rank")
    parser.add_argument("--handover", action="store_true", help="instead of models")
    parser.add_argument("--nice", type=int, default=0, help="of this session while blocks run")
    wanted = parser.parse_args()
    board = with_second(load_board("local"), wanted.second)
    with tempfile.TemporaryDirectory() as folder:
        board = _handed_over(board, Path(folder), wanted)
    if wanted.handover:
        return
    zoo = extended_zoo(_ROOT / "models")
    paths = [
        path
        for path in (*zoo.models, *zoo.onnx)
        if not wanted.only or any(name in path.name for name in wanted.only)
    ]
    if not wanted.random:
        print(
            "| model | simulated: importer's | chosen | gain | measured: importer's | chosen",
            end="",
        )
        print(" | gain | same sign | core alone | both threads on each operator |")
        print("| --- |" + " ---: |" * 6 + " --- | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            show = _print_ranking if wanted.random else _measure_row
            show(path, board, Path(folder), wanted)


def with_second(board: BoardProfile, kind: UnitKind) -> BoardProfile:
    """The board with a second unit that is as fast as its core on its kind of operator."""
    core = board.speeds[0]
    none = {"matrix": ("elements_per_cycle",), "vector": ("f32_per_cycle", "s8_per_cycle")}
    lacks = dict.fromkeys(none.get(kind, ()), 0.0)
    second = replace(core, name=_OTHER, kind=kind, **lacks)
    return replace(board, units=(CPU, _OTHER), compute=(core, second))


def _measure_row(path: Path, board: BoardProfile, folder: Path, wanted: argparse.Namespace) -> None:
    costs = CostModel.of(board)
    graph = prepare(path, board, zoo_options(path)).graph
    kept, chosen = (
        schedule(graph, board, CompileOptions(order=order), model=costs)
        for order in ("import", "search")
    )
    gain = kept.makespan_us / chosen.makespan_us
    if gain < _LEAST_GAIN:
        return
    one = load_board("local")
    alone = lower(schedule(graph, one, model=CostModel.of(one)).graph, one, table_of(one))
    place = folder / path.stem
    built = [
        build(_lower_plan(kept, board), board, place / "import"),
        build(_lower_plan(chosen, board), board, place / "chosen"),
        build(alone, one, place / "alone"),
        build(alone, one, place / "both", _THREADS),
    ]
    found = in_turns(built, wanted)
    for model in built:
        model.close()
    if _too_few(path.stem, found):
        return
    low, middle, high = _bootstrap_ratio(found[0], found[1])
    times = [_format_us(_lowest_decile(t)) for t in found]
    same = "yes" if low > 1 else "no" if high < 1 else "undecided"
    print(
        f"| {path.stem} | {_format_us(kept.makespan_us)} "
        f"| {_format_us(chosen.makespan_us)} | {gain:.3f} "
        f"| {times[0]} | {times[1]} | {middle:.3f} ({low:.3f}–{high:.3f}) | {same} "
        f"| {times[2]} | {times[3]} |",
        flush=True,
    )


def _format_us(microseconds: float) -> str:
    return f"{microseconds:,.0f}" if microseconds >= 100 else f"{microseconds:.2f}"


def _too_few(what: str, found: Sequence[Sequence[float]]) -> bool:
    few = min(map(len, found)) < _FEW
    if few:
        print(f"{what}: the machine is too busy, found {list(map(len, found))} blocks")
    return few


def _bootstrap_ratio(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, float]:
    """The ratio of undisturbed times, and the bounds of its 90% bootstrap interval."""
    random = Random(0)
    drawn = sorted(
        _lowest_decile(random.choices(first, k=len(first)))
        / _lowest_decile(random.choices(second, k=len(second)))
        for _ in range(_DRAWS)
    )
    low, high = drawn[int(0.05 * _DRAWS)], drawn[int(0.95 * _DRAWS)]
    return low, _lowest_decile(first) / _lowest_decile(second), high


def _lowest_decile(times: Sequence[float]) -> float:
    """A block's time: the lowest decile. Other load on the host, which this system's counters do
    not show, only adds time, and adds more to blocks that use both cores."""
    return float(np.quantile(times, 0.1))


def _print_ranking(
    path: Path, board: BoardProfile, folder: Path, wanted: argparse.Namespace
) -> None:
    """Print how the cost model ranks the importer's order, the chosen one, and random ones."""
    costs = CostModel.of(board)
    graph = prepare(path, board, zoo_options(path)).graph
    found = [
        schedule(graph, board, CompileOptions(order=order), model=costs)
        for order in ("import", "search")
    ]
    dag, random = dag_of(graph), Random(0)
    for _ in range(wanted.random):
        order = shuffled(dag, range(dag.size), random, _STEPS_PER_NODE * dag.size)
        mixed = replace(graph, nodes=tuple(graph.nodes[i] for i in order))
        found.append(schedule(mixed, board, CompileOptions(order="import"), model=costs))
    built = [
        build(_lower_plan(each, board), board, folder / path.stem / str(i))
        for i, each in enumerate(found)
    ]
    blocks = in_turns(built, wanted)
    for model in built:
        model.close()
    if _too_few(path.stem, blocks):
        return
    times = [_lowest_decile(t) for t in blocks]
    for name, each, measured in zip(
        ("importer's", "chosen", *(f"random {i}" for i in range(wanted.random))),
        found,
        times,
        strict=True,
    ):
        print(f"{path.stem} {name}: simulated {each.makespan_us:,.0f} µs, measured {measured:,.0f}")
    ranks = rank_correlation([each.makespan_us for each in found], times)
    print(f"{path.stem}: rank correlation {ranks:.3f} over {len(found)} orders", flush=True)


def _handed_over(board: BoardProfile, folder: Path, wanted: argparse.Namespace) -> BoardProfile:
    """The board with this machine's current handover cost, measured on two chains on two cores;
    when crossed, each step reads what the other core has just produced. Unchanged if the machine is
    busy."""
    steps, starts = {}, []
    for elements in _ELEMENTS:
        built = []
        for crossed in (False, True):
            graph = _build_chains(elements, crossed)
            names = [node.name for node in graph.nodes]
            for other in (CPU, _OTHER):
                units = {name: other if name[0] == "b" else CPU for name in names}
                plan = lower(graph, board, table_of(board), [names], units)
                built.append(build(plan, board, folder / f"{elements}{crossed}{other}"))
        found = in_turns(built, wanted)
        for model in built:
            model.close()
        if _too_few(f"{4 * elements} bytes", found):
            return board
        one, two, one_crossed, two_crossed = map(_lowest_decile, found)
        step = (two_crossed - two) / _STEPS - (one_crossed - one) / (2 * _STEPS)
        steps[elements / 256] = max(step, 0.0)
        starts.append(max(two - one / 2, 0.0))
        print(f"{4 * elements} bytes: handover {step:.2f} µs, two units start in {starts[-1]:.2f}")
    sizes, times = np.array(list(steps)), np.array(list(steps.values()))
    per_kib, least = np.polyfit(sizes, times, 1, w=1 / np.maximum(times, _LEAST_STEP))
    costs = {
        "handover_us": max(float(least), 0.0),
        "handover_kib_us": max(float(per_kib), 0.0),
        "wake_us": float(np.median(starts)),
    }
    print(", ".join(f"{name} {value:.3f}" for name, value in costs.items()), end="\n\n")
    return replace(board, compute=tuple(replace(unit, **costs) for unit in board.compute))


def _build_chains(elements: int, crossed: bool) -> Graph:
    tensors = {"x": Tensor("x", (1, elements), DType.F32)}
    nodes, a, b = [], "x", "x"
    for i in range(_STEPS):
        for name, mine, other in ((f"a{i}", a, b), (f"b{i}", b, a)):
            tensors[name] = Tensor(name, (1, elements), DType.F32)
            nodes.append(Node(name, ops.Div(), (mine, other if crossed else mine), (name,)))
        a, b = f"a{i}", f"b{i}"
    return Graph("chains", tensors, tuple(nodes), ("x",), (a, b))


def _lower_plan(found: Schedule, board: BoardProfile) -> Plan:
    """Plan one section, so that a unit runs until it has to wait for the other."""
    names = [node.name for node in found.graph.nodes]
    return lower(found.graph, board, table_of(board), [names], found.units, apart=True)


def build(plan: Plan, board: BoardProfile, folder: Path, threads: int = 0) -> LoadedModel:
    """Compile a plan into a new folder and load it, with random inputs; by default with one thread
    per queue."""
    threads = threads or max(1, *(len(section.queues) for section in plan.sections))
    folder.mkdir(parents=True)
    library = Toolchain(board, cache_folder() / "objects").build(units_of(plan, board))
    (folder / LIBRARY).write_bytes(library)
    (folder / WEIGHTS).write_bytes(plan.lowered.weights)
    known = set(_TASKS.iterdir())
    model = LoadedModel(ReleaseFiles(folder), threads)
    for task in set(_TASKS.iterdir()) - known:  # otherwise they may all stay on one core for long
        os.sched_setaffinity(int(task.name), {features.cores()[-_THREADS]})
    random = np.random.default_rng(0)
    inputs = {}
    for spec in model.description.inputs:
        dtype = np.dtype(BY_NAME[spec.dtype].npy)
        drawn = random.uniform(-1, 1, spec.shape) * (1 if dtype.kind == "f" else 100)
        inputs[spec.name] = drawn.astype(dtype)
    model.set_inputs(inputs)
    return model


def in_turns(models: Sequence[LoadedModel], wanted: argparse.Namespace) -> list[list[float]]:
    """Microseconds per inference of each model, in at least the wanted number of undisturbed blocks
    unless time runs out. Bursts of blocks alternate, with every second round reversed."""
    counts = [_block_size(model) for model in models]
    found: list[list[float]] = [[] for _ in models]
    turns, end = list(range(len(models))), time.monotonic() + wanted.seconds
    with _session_priority(wanted.nice), pinned(1):  # the last core; workers use the one before
        while min(map(len, found)) < wanted.blocks and time.monotonic() < end:
            for i in turns:
                found[i] += [
                    1e6 * t / counts[i] for t in _time_burst(models[i].prepared_calls(counts[i]))
                ]
            turns.reverse()
    return found


@contextlib.contextmanager
def _session_priority(nice: int) -> Iterator[None]:
    """Set this session's priority through the scheduler's autogroup."""
    file = Path("/proc/self/autogroup")
    if nice:
        file.write_text(str(nice))
    yield
    if nice:
        file.write_text("0")


def _block_size(model: LoadedModel) -> int:
    """Inferences per block."""
    once = model.prepared_calls(1)
    least = min(_time_call(once) for _ in range(_TRIES))
    return max(int(_BLOCK_SECONDS / least), 1)


def _time_burst(block: Callable[[], int]) -> list[float]:
    """Run consecutive blocks; return the seconds of those in which no thread waited for a core."""
    _wait_until_idle()
    block()
    marks = [_read_clocks()]
    for _ in range(_BURST):
        block()
        marks.append(_read_clocks())
    _wait_until_idle()
    last = _read_clocks()
    marks.append(replace(last, caller=marks[-1].caller))  # ignore its wait during the pause
    # The kernel reports a wait only once the thread runs again, perhaps many blocks later.
    disturbed = [
        (a.time - (b.waited - a.waited), b.time)
        for a, b in itertools.pairwise(marks)
        if b.waited - a.waited > _DISTURBED_SECONDS
    ]
    return [
        b.time - a.time
        for a, b in itertools.pairwise(marks[:-1])
        if not any(first < b.time and a.time < end for first, end in disturbed)
    ]


def _read_clocks() -> _Mark:
    waits = {t.name: int((t / "schedstat").read_text().split()[1]) / 1e9 for t in _TASKS.iterdir()}
    caller = waits.pop(str(os.getpid()))
    return _Mark(time.perf_counter(), caller, sum(waits.values()))


def _wait_until_idle() -> None:
    """Pause until all other threads of this process sleep, so that the scheduler owes us time."""
    states = {"R"}
    while "R" in states:
        time.sleep(_PAUSE_SECONDS)
        stats = [task / "stat" for task in _TASKS.iterdir() if task.name != str(os.getpid())]
        states = {stat.read_text().rpartition(")")[2].split()[0] for stat in stats}


def _time_call(call: Callable[[], int]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
