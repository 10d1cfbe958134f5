"""Rows that benchmarks add to the history of measured orders."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.device.version import VERSION
from edgekit.host.compiler.driver import prepare
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.options import DEFAULT_OPTIONS
from edgekit.host.compiler.schedule.schedule import SubgraphRange, parts_of
from edgekit.host.deploy.release import Benchmark, ClockReadings, OperatorTime
from edgekit.host.lab.history.order_benchmarks import keep_orders
from edgekit.host.lab.history.orders import OrderMeasurement
from edgekit.host.lab.history.store import History
from edgekit.host.lab.tune.orders import build_orders, candidates
from edgekit.kb.targets.board import load_board

_MODEL = Path(__file__).parents[3] / "models" / "face_detection_short_range.tflite"
_BOARD = load_board("rpi3")


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    return prepare(_MODEL, _BOARD).graph


def _tuned(graph: Graph, part: SubgraphRange) -> list[OrderMeasurement]:
    """A part in the searched order, at 1 ms, and, if it is not the first part and has another
    order, in that one at 0.5 ms."""
    place = {node.name: i for i, node in enumerate(graph.nodes)}
    searched, *others = (part.order(c.graph, place) for c in candidates(graph, _BOARD, 8, 0))
    return [
        OrderMeasurement(
            "pi", _BOARD.platform, _MODEL.stem, part.name, part.key, order, searched, 1,
            5e-4 if order != searched else 1e-3, 1e-3, "now", VERSION, "tuner",
        )
        for order in {searched, *(others[-1:] if part.start else ())}
    ]  # fmt: skip


def _benchmark(graph: Graph, slow: float) -> Benchmark:
    """Each subgraph takes `slow` milliseconds, or half of that with a stored order."""
    scheduled, _ = plan_of(graph, _BOARD, DEFAULT_OPTIONS)
    times = []
    for part, made in zip(parts_of(graph, _BOARD), scheduled.subgraphs, strict=True):
        whole = 1e3 * slow * (0.5 if made.why.startswith("measured") else 1.0)
        times += [
            OperatorTime(node.name, "conv", "k", whole / part.size, 0.1)
            for node in part.nodes(graph)
        ]
    conditions = ClockReadings(None, None, None)
    return Benchmark(
        "r", _MODEL.stem, 1, 1.0, 1.0, 1.0, 9, tuple(times), 0, 0, before=conditions,
        after=conditions,
    )  # fmt: skip


@pytest.mark.slow
def test_a_benchmark_adds_what_remembered_orders_took_at_its_own_pace(graph):
    def kept() -> int:
        timing = _benchmark(graph, 3.0)
        return keep_orders(_MODEL, _BOARD, DEFAULT_OPTIONS, "pi", timing, "later")

    assert kept() == 0  # nothing was tuned
    with History() as history:
        for part in parts_of(graph, _BOARD):
            history.add_orders(_tuned(graph, part))
    rows = build_orders(_BOARD)[1]
    count = kept()
    assert count >= len(rows) > 0
    with History() as history:
        added = [m for m in history.read_orders().measurements if m.source == "benchmark"]
    assert len(added) == count and {m.when for m in added} == {"later"}
    assert {round(m.ratio, 6) for m in added} == {0.5}  # ratios hold at a third of the speed
    assert {row.graph for row in rows} == {m.graph for m in added}
    assert build_orders(_BOARD)[1] == rows


@pytest.mark.slow
def test_of_another_board_nothing_is_added(graph):
    with History() as history:
        for part in parts_of(graph, _BOARD):
            history.add_orders(_tuned(graph, part))
    build_orders(_BOARD)
    timing = _benchmark(graph, 1.0)
    assert keep_orders(_MODEL, _BOARD, DEFAULT_OPTIONS, "other", timing, "later") == 0
