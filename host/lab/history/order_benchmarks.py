"""Learns about a model's orders from benchmarks on a board where its orders were tuned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edgekit.device.version import VERSION
from edgekit.host.compiler.driver import prepare
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.schedule.schedule import parts_of
from edgekit.host.deploy.release import Benchmark
from edgekit.host.lab.history.orders import OrderMeasurement
from edgekit.host.lab.history.store import History
from edgekit.kb.targets.board import BoardProfile


def keep_orders(
    model: Path,
    board: BoardProfile,
    options: CompileOptions,
    name: str,
    timing: Benchmark,
    now: str,
) -> int:
    """Adds the times of a model's subgraphs in remembered orders on the board `name` to the
    history; returns how many.

    Their times in the searched order are estimated as those from tuning on that board, scaled by
    the pace of this run, which follows from the subgraphs that run in the searched order. Nothing
    is stored for models whose orders were not tuned or that have no such subgraph.
    """
    with History() as history:
        tuned = {
            (m.part, m.graph, m.order): m
            for m in history.read_orders(board.platform).measurements
            if (m.board, m.model, m.threads) == (name, model.stem, timing.threads)
            and (m.unit, m.source, m.kit_version) == ("seconds", "tuner", VERSION)
        }
        if not tuned:
            return 0
        found = _part_measurements(model, board, options, timing, tuned)
        usual = [(m, cost) for m, cost in found if m.order == m.searched]
        if not usual:
            return 0
        pace = sum(cost for _, cost in usual) / sum(m.cost for m, _ in usual)
        return history.add_orders(
            replace(m, cost=cost, default_cost=m.default_cost * pace, when=now, source="benchmark")
            for m, cost in found
            if m.order != m.searched
        )


def _part_measurements(
    model: Path,
    board: BoardProfile,
    options: CompileOptions,
    timing: Benchmark,
    tuned: dict[tuple[str, str, tuple[int, ...]], OrderMeasurement],
) -> list[tuple[OrderMeasurement, float]]:
    """The subgraphs that ran in a tuned order: the tuner's measurement, and the seconds of this
    run."""
    graph = prepare(model, board, options).graph
    scheduled, _ = plan_of(graph, board, options)
    place = {node.name: i for i, node in enumerate(graph.nodes)}
    took = {o.name: o.median_us * 1e-6 for o in timing.operators}
    found = []
    for part in parts_of(graph, board):
        known = tuned.get((part.name, part.key, part.order(scheduled.graph, place)))
        cost = sum(took.get(node.name, 0.0) for node in part.nodes(graph))
        if known is not None and cost > 0:
            found.append((known, cost))
    return found
