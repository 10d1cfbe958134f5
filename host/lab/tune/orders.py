"""Runs a model in different operator orders, on a board or simulated, and remembers the best."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Protocol

from edgekit.device.version import VERSION
from edgekit.host.compiler.costs.model import CostModel
from edgekit.host.compiler.driver import build_graph, prepare
from edgekit.host.compiler.frontends import model_hash
from edgekit.host.compiler.ir.types import Graph, Node
from edgekit.host.compiler.lowering.nna.units import assign_units
from edgekit.host.compiler.options import CompileOptions, Order
from edgekit.host.compiler.schedule.dag import dag_of
from edgekit.host.compiler.schedule.memory import buffers_of
from edgekit.host.compiler.schedule.orders import shuffled
from edgekit.host.compiler.schedule.schedule import SubgraphRange, parts_of, schedule
from edgekit.host.compiler.tables.orders import OrderRow, write_orders
from edgekit.host.deploy.board import Board
from edgekit.host.deploy.bundle import Bundle, build_bundle, sign_bundle
from edgekit.host.lab.history.orders import WORTH, OrderMeasurement, order_rows
from edgekit.host.lab.history.store import History
from edgekit.host.lab.tune.operators import ModelCosts
from edgekit.host.simulator.emulator import find_emulator
from edgekit.host.simulator.estimate_cache import recall, remember
from edgekit.host.simulator.model import estimate_model
from edgekit.host.simulator.target import SimulatedCore
from edgekit.kb.targets.board import BoardProfile

_STEPS_PER_NODE = 100  # of the Markov chain that draws a random order
_SEARCHED: Order = "search"
_TOGETHER = "the best of each subgraph"


@dataclass(frozen=True)
class OrderCandidate:
    """An order to try: its origin, the graph in that order, and the cost model's prediction."""

    origin: str
    graph: Graph
    simulated_us: float
    peak_bytes: int


@dataclass(frozen=True)
class TimedOrder:
    """A candidate that ran: its bundle, arena size, and median latency."""

    candidate: OrderCandidate
    bundle: Bundle
    measured_us: float

    @property
    def arena_bytes(self) -> int:
        return self.bundle.manifest.memory.arena_bytes


@dataclass(frozen=True)
class Kept:
    """A part whose order is remembered, named by its first operator, and the ratio of its cost to
    that in the searched order."""

    part: str
    ratio: float


@dataclass(frozen=True)
class OrderOutcome:
    """The orders that ran, best first; the orders remembered for parts; and the table's path."""

    timed: list[TimedOrder]
    kept: list[Kept]
    table: Path


class OrderMeasurer(Protocol):
    """Runs bundles alternately. `source` and `unit` as in measurements; `per_us`: units per
    microsecond."""

    source: str
    unit: str
    per_us: float

    def times(self, bundles: Sequence[Bundle]) -> list[list[ModelCosts]]:
        """The costs of operators and of the entire model, per bundle and round."""


class BoardOrders:
    """Times on a board, without changing what is deployed there."""

    source, unit, per_us = "tuner", "seconds", 1e-6

    def __init__(
        self, device: Board, threads: int, rounds: int, seconds: int, tell: Callable[[str], None]
    ) -> None:
        self._device, self._threads, self._tell = device, threads, tell
        self._rounds, self._seconds = rounds, seconds

    def times(self, bundles: Sequence[Bundle]) -> list[list[ModelCosts]]:
        with ExitStack() as stack:
            places = [stack.enter_context(self._device.temporary()) for _ in bundles]
            for place, bundle in zip(places, bundles, strict=True):
                place.deploy(bundle)
            found: list[list[ModelCosts]] = [[] for _ in bundles]
            for turn, (i, place) in itertools.product(range(self._rounds), enumerate(places)):
                self._tell(f"round {turn + 1} of {self._rounds}, order {i + 1} of {len(places)}")
                timing = place.bench(threads=self._threads, seconds=self._seconds)
                by_name = {o.name: o.median_us * 1e-6 for o in timing.operators}
                found[i].append(ModelCosts(by_name, timing.median_ms * 1e-3))
            return found


class EstimatedOrders:
    """Cycles of simulated time."""

    source, unit = "estimate", "cycles"

    def __init__(self, target: SimulatedCore, threads: int, tell: Callable[[str], None]) -> None:
        """Raises InputError if there is no emulator."""
        self._target, self._threads, self._tell = target, threads, tell
        self.per_us = float(target.core.clock_mhz)
        find_emulator(target.board.arch, tell)

    def times(self, bundles: Sequence[Bundle]) -> list[list[ModelCosts]]:
        found = []
        for i, bundle in enumerate(bundles):
            self._tell(f"estimating order {i + 1} of {len(bundles)}")
            manifest, threads = bundle.manifest, self._threads
            made = recall(manifest.id, self._target.board, threads)
            if made is None:
                made = estimate_model(manifest, bundle.files, self._target, threads)
                remember(manifest.id, self._target.board, threads, made)
            by_name = {o.spec.name: float(o.cost.cycles) for o in made.operators}
            found.append([ModelCosts(by_name, float(made.cost.cycles))])
        return found


@dataclass(frozen=True)
class OrderJob:
    """What to tune: `board` is a name, `threads` a number, `now` returns the time of day."""

    board: str
    profile: BoardProfile
    model: Path
    options: CompileOptions
    most: int
    threads: int
    now: str
    tell: Callable[[str], None]


def tune_orders(job: OrderJob, measurer: OrderMeasurer) -> OrderOutcome:
    """Runs different orders of a model, then the best order of each part combined against the
    searched order. Orders that are still better are remembered for boards of the platform; the
    results of the first run are kept even if the second is interrupted."""
    runs = _Runs(job, measurer)
    found = candidates(runs.graph, job.profile, job.most, job.options.random_seed)
    timed = runs.run(found)
    if together := runs.together(found):
        timed += runs.run([*(c for c in found if c.origin == _SEARCHED), together])[1:]
    table, rows = build_orders(job.profile)
    kept = [
        Kept(part.name, row.ratio) for row in rows for part in runs.parts if part.key == row.graph
    ]
    return OrderOutcome(sorted(timed, key=lambda t: t.measured_us), kept, table)


def has_untried_orders(job: OrderJob) -> bool:
    """Whether a model has several orders and this edgekit has timed none of them on the board."""
    with History() as history:
        here = (job.board, job.model.stem, job.threads, VERSION)
        if any(
            (m.board, m.model, m.threads, m.kit_version) == here
            for m in history.read_orders(job.profile.platform).measurements
            if m.source in (BoardOrders.source, EstimatedOrders.source)
        ):
            return False
    graph = prepare(job.model, job.profile, job.options).graph
    return len(candidates(graph, job.profile, 2, job.options.random_seed)) > 1


def build_orders(board: BoardProfile) -> tuple[Path, tuple[OrderRow, ...]]:
    """Builds the order table of a board's platform from the history; returns its path and rows."""
    with History() as history:
        rows = order_rows(history.read_orders(board.platform).measurements)
    return write_orders(board, rows), rows


class _Runs:
    """Runs orders of a model, and adds the costs of its parts to the history."""

    def __init__(self, job: OrderJob, measurer: OrderMeasurer) -> None:
        self._job, self._measurer = job, measurer
        self._made = prepare(job.model, job.profile, job.options)
        self.graph = self._made.graph
        self._place = {node.name: i for i, node in enumerate(self.graph.nodes)}
        self.parts = parts_of(self.graph, job.profile)
        self._costs: dict[tuple[SubgraphRange, tuple[int, ...]], float] = {}

    def run(self, found: Sequence[OrderCandidate]) -> list[TimedOrder]:
        """Times orders alternately; the searched one must be among them."""
        bundles = [self._build_bundle(each) for each in found]
        turns = self._measurer.times(bundles)
        (searched,) = (i for i, each in enumerate(found) if each.origin == _SEARCHED)
        measured = []
        for part in self.parts:
            orders = [part.order(each.graph, self._place) for each in found]
            costs = [self._part_cost(part, each) for each in turns]
            for order, cost in dict(zip(orders, costs, strict=True)).items():
                if cost > 0 and costs[searched] > 0:
                    usual = orders[searched], costs[searched]
                    measured.append(self._to_measurement(part, order, cost, *usual))
                    self._costs[part, order] = cost / costs[searched]
        with History() as history:
            history.add_orders(measured)
        totals = [statistics.median(t.total for t in each) for each in turns]
        return [
            TimedOrder(each, bundle, total / self._measurer.per_us)
            for each, bundle, total in zip(found, bundles, totals, strict=True)
        ]

    def together(self, found: Sequence[OrderCandidate]) -> OrderCandidate | None:
        """The best order of each part, if any part gains from an order other than the searched."""
        (searched,) = (each.graph for each in found if each.origin == _SEARCHED)
        nodes, gains = list[Node](), False
        for part in self.parts:
            order = part.order(searched, self._place)
            known = [o for p, o in self._costs if p == part]
            best = min(known, key=lambda o: self._costs[part, o], default=order)
            if best != order and self._costs[part, best] <= WORTH:
                order, gains = best, True
            nodes += (self.graph.nodes[part.start + i] for i in order)
        graph = replace(self.graph, nodes=tuple(nodes))
        return _make_candidate(_TOGETHER, graph, self._job.profile) if gains else None

    def _build_bundle(self, candidate: OrderCandidate) -> Bundle:
        job = self._job
        job.tell(f"compiling order {candidate.origin}")
        made, options = (
            replace(self._made, graph=candidate.graph),
            replace(job.options, order="import"),
        )
        digest = model_hash(job.model)
        artifact = build_graph(made, digest, job.profile, options=options)
        return sign_bundle(build_bundle(artifact, job.profile))

    def _part_cost(self, part: SubgraphRange, turns: Sequence[ModelCosts]) -> float:
        """The cost of the part's operators together, median of all turns; views cost nothing."""
        nodes = part.nodes(self.graph)
        return statistics.median(
            sum(turn.operators.get(node.name, 0.0) for node in nodes) for turn in turns
        )

    def _to_measurement(
        self,
        part: SubgraphRange,
        order: tuple[int, ...],
        cost: float,
        searched: tuple[int, ...],
        usual: float,
    ) -> OrderMeasurement:
        job, measurer = self._job, self._measurer
        return OrderMeasurement(
            board=job.board,
            platform=job.profile.platform,
            model=job.model.stem,
            part=part.name,
            graph=part.key,
            order=order,
            searched=searched,
            threads=job.threads,
            cost=cost,
            default_cost=usual,
            when=job.now,
            kit_version=VERSION,
            source=measurer.source,
            unit=measurer.unit,
        )


def candidates(
    graph: Graph, board: BoardProfile, most: int, random_seed: int
) -> list[OrderCandidate]:
    """Up to `most` different orders: the searched one, the importer's, the one of least memory,
    and random ones."""
    found: dict[tuple[str, ...], OrderCandidate] = {}

    def add(origin: str, ordered: Graph) -> None:
        names = tuple(n.name for n in ordered.nodes)
        if names not in found and len(found) < most:
            found[names] = _make_candidate(origin, ordered, board)

    costs = CostModel.of(board)
    units = assign_units(graph, board, costs.cost)
    ways: tuple[Order, ...] = (_SEARCHED, "import", "memory")
    for way in ways:
        options = CompileOptions(order=way, random_seed=random_seed)
        add(way, schedule(graph, board, options, units, costs).graph)
    dag, random = dag_of(graph), Random(random_seed)
    for i in range(2 * most):
        steps = _STEPS_PER_NODE * dag.size
        order = shuffled(dag, range(dag.size), random, steps)
        add(f"random {i}", replace(graph, nodes=tuple(graph.nodes[k] for k in order)))
    return list(found.values())


def _make_candidate(origin: str, graph: Graph, board: BoardProfile) -> OrderCandidate:
    kept = schedule(graph, board, CompileOptions(order="import"))
    size = len(graph.nodes)
    peak = buffers_of(graph, 0, size).peak(range(size))
    return OrderCandidate(origin, graph, kept.makespan_us, peak)
