"""Orders of a model that really run: compiled, put on a board, timed in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from edgekit.host.api import Device
from edgekit.host.bundle import Bundle, build_bundle, sign_bundle
from edgekit.host.compiler import build_graph, prepare
from edgekit.host.graph.types import Graph
from edgekit.host.importers import model_hash
from edgekit.host.options import CompileOptions, Order
from edgekit.host.schedule.cost import CostModel
from edgekit.host.schedule.dag import dag_of
from edgekit.host.schedule.memory import buffers_of
from edgekit.host.schedule.orders import shuffled
from edgekit.host.schedule.schedule import schedule
from edgekit.kb.board import BoardProfile

_STEPS_PER_NODE = 100  # of the chain that draws a random order


@dataclass(frozen=True)
class Candidate:
    """An order to try: how it was found, the nodes in it, and what the cost model says of it."""

    origin: str
    graph: Graph
    simulated_us: float
    peak_bytes: int


@dataclass(frozen=True)
class Timed:
    """A candidate that ran: its bundle, its arena, and the median of its latencies."""

    candidate: Candidate
    bundle: Bundle
    measured_us: float

    @property
    def arena_bytes(self) -> int:
        return self.bundle.manifest.memory.arena_bytes


def candidates(
    graph: Graph, board: BoardProfile, costs: CostModel, most: int, random_seed: int
) -> list[Candidate]:
    """Different orders, at most so many: the importer's, those of least time and of least memory,
    the rest drawn at random."""
    found: dict[tuple[str, ...], Candidate] = {}

    def add(origin: str, ordered: Graph) -> None:
        names = tuple(n.name for n in ordered.nodes)
        if names not in found and len(found) < most:
            found[names] = _candidate(origin, ordered, board, costs)

    ways: tuple[Order, ...] = ("import", "search", "memory")
    for way in ways:
        options = CompileOptions(order=way, random_seed=random_seed)
        add(way, schedule(graph, board, options, model=costs).graph)
    dag, random = dag_of(graph), Random(random_seed)
    for i in range(2 * most):
        steps = _STEPS_PER_NODE * dag.size
        order = shuffled(dag, range(dag.size), random, steps)
        add(f"random {i}", replace(graph, nodes=tuple(graph.nodes[k] for k in order)))
    return list(found.values())


def _candidate(origin: str, graph: Graph, board: BoardProfile, costs: CostModel) -> Candidate:
    kept = schedule(graph, board, CompileOptions(order="import"), model=costs)
    size = len(graph.nodes)
    peak = buffers_of(graph, 0, size).peak(range(size))
    return Candidate(origin, graph, kept.makespan_us, peak)


def time_orders(
    device: Device,
    model: Path,
    board: BoardProfile,
    asked: CompileOptions,
    found: list[Candidate],
    rounds: int,
    seconds: int,
    tell: Callable[[str], None],
) -> list[Timed]:
    """Every candidate of a model on the board, in turns, `rounds` times; the best first."""
    imported, made = prepare(model, board, asked)
    digest = model_hash(model)
    options = replace(asked, order="import")
    bundles = []
    for each in found:
        tell(f"compiling order {each.origin}")
        ordered = replace(made, graph=each.graph)
        artifact = build_graph(imported, ordered, digest, board, options=options)
        bundles.append(sign_bundle(build_bundle(artifact, board)))
    times: list[list[float]] = [[] for _ in found]
    with ExitStack() as stack:
        places = [stack.enter_context(device.aside()) for _ in found]
        for place, bundle in zip(places, bundles, strict=True):
            place.deploy(bundle)
        for r in range(rounds):
            for i, place in enumerate(places):
                tell(f"round {r + 1} of {rounds}, order {found[i].origin}")
                times[i].append(
                    1e3 * place.bench(threads=place.threads or 1, seconds=seconds).median_ms
                )
    timed = [
        Timed(c, b, statistics.median(t)) for c, b, t in zip(found, bundles, times, strict=True)
    ]
    return sorted(timed, key=lambda t: t.measured_us)
