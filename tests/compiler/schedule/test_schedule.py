"""Complete graphs: orders are valid, unit assignments kept, memory matches the lowering's plan."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.host.compiler.costs.model import CostModel
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import DType, Graph, Node, Tensor
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.schedule.dag import dag_of
from edgekit.host.compiler.schedule.memory import buffers_of
from edgekit.host.compiler.schedule.schedule import schedule
from edgekit.host.compiler.schedule.search import Effort
from edgekit.host.compiler.schedule.types import Schedule
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.compiler.transforms.passes.quantized import integer_form
from edgekit.host.lab.zoo.models import open_zoo
from edgekit.kb.targets.board import load_board
from tests.support.places import few_or_all
from tests.support.schedule_graphs import graph_of, random_edges

_SMALL = Effort(ways=80, samples=2, nodes=400)
_EXTRA = os.environ.get("EDGEKIT_EXTRA_DATA")
_ZOO = open_zoo(Path(__file__).parents[3] / "models", Path(_EXTRA) if _EXTRA else None)


@pytest.mark.parametrize("board", ["rpi5", "rk3566", "bpi-f3"])
def test_the_cost_of_a_split_product_knows_what_it_takes_apart(board):
    """Board-specific costs, both for outlier channels and for groups of k."""
    costs = [_split_cost(board, *each) for each in ((0, 1), (4, 1), (16, 1), (64, 1))]
    assert costs == sorted(costs) and costs[3] > 1.2 * costs[0] and costs[1] < 1.3 * costs[0]
    groups = [_split_cost(board, 0, each) for each in (1, 3, 12)]
    assert groups == sorted(groups) and 1.5 < (groups[2] - groups[0]) / (groups[1] - groups[0]) < 6
    assert _split_cost(board, 16, 3) - groups[1] == pytest.approx(costs[2] - costs[0])


def _split_cost(board: str, outliers: int, groups: int) -> float:
    tensors = [
        Tensor("x", (128, 384), DType.F32),
        Tensor("w", (384, 384), DType.I8, None, np.zeros((384, 384), np.int8)),
        Tensor("s", (groups, 384), DType.F32, None, np.ones((groups, 384), np.float32)),
        Tensor("y", (128, 384), DType.F32),
    ]
    node = Node("n", ops.OutlierFullyConnected(6.0, outliers=outliers), ("x", "w", "s"), ("y",))
    graph = Graph("one", {t.name: t for t in tensors}, (node,), ("x",), ("y",))
    return CostModel(load_board(board)).cost(graph, node)


def _graph(path: Path) -> Graph:
    return run_passes(integer_form(import_model(path)))[0]


def _is_valid(original: Graph, found: Graph) -> bool:
    place = {node.name: i for i, node in enumerate(found.nodes)}
    dag = dag_of(original)
    names = [n.name for n in original.nodes]
    edges = [(names[b], names[i]) for i, before in enumerate(dag.before) for b in before]
    return sorted(place) == sorted(names) and all(place[a] < place[b] for a, b in edges)


@given(random_edges(12), st.sampled_from(["search", "memory", "import"]))
@settings(max_examples=40)
def test_an_order_computes_what_the_graph_did(edges, order):
    graph = graph_of(*edges)
    options = CompileOptions(order=order)
    found = schedule(graph, load_board("rk3588"), options, model=None, effort=_SMALL)
    assert _is_valid(graph, found.graph)
    if order == "import":
        assert found.graph.nodes == graph.nodes
    x = {"x": np.ones((1, 1), np.float32)}
    for name, value in evaluate(graph, x).outputs.items():
        np.testing.assert_array_equal(evaluate(found.graph, x).outputs[name], value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", few_or_all(_ZOO.models, _ZOO.models[::3]), ids=lambda path: path.stem
)
def test_peaks_computed_from_the_graph_equal_the_plan(path):
    """For each model's memory-optimal order, which must not need more than the importer's."""
    graph, board = _graph(path), load_board("local")
    peaks = {}
    for order in ("import", "memory"):
        found = schedule(graph, board, CompileOptions(order=order))
        assert _is_valid(graph, found.graph)
        memory = lower(found.graph, board).memory
        size = len(graph.nodes)
        peaks[order] = memory.lower_bound
        assert buffers_of(found.graph, 0, size).peak(range(size)) == memory.lower_bound
    assert peaks["memory"] <= peaks["import"]


def _diamond(elements: int = 2**20) -> Schedule:
    """Two branches, of one and of five functions, between a first and a last node."""
    edges = [(0, 1), (0, 2), (2, 3), (3, 4), (4, 5), (5, 6), (1, 7), (6, 7)]
    graph = graph_of(8, edges, sizes=[elements] * 8)
    nodes = [replace(n, op=ops.Logistic()) if len(n.inputs) == 1 else n for n in graph.nodes]
    return schedule(replace(graph, nodes=tuple(nodes)), load_board("rk3399"))


def test_branches_run_beside_each_other_on_two_clusters():
    found = _diamond()
    assert set(found.units.values()) == {"cpu", "little"}
    assert found.makespan_us < sum(found.costs.values())
    (part,) = found.subgraphs
    assert (part.orders_total, part.exhaustive) == (6, True)
    assert part.chosen_cost_us <= part.import_cost_us


def test_what_takes_less_than_starting_a_second_unit_stays_on_one():
    """A branch of a microsecond, while starting the other cluster takes five."""
    found = _diamond(elements=16)
    assert set(found.units.values()) == {"cpu"}
    assert found.makespan_us == sum(found.costs.values()) < 10


def test_queues_hold_every_node_once_and_waits_are_of_other_queues():
    found = _diamond()
    queues = found.queues()
    assert sorted(n for q in queues.values() for n in q) == sorted(found.units)
    place = {node.name: i for i, node in enumerate(found.graph.nodes)}
    for unit, queue in queues.items():
        assert [place[n] for n in queue] == sorted(place[n] for n in queue)
        assert {found.units[n] for n in queue} == {unit}
    waits = found.waits()
    assert any(waits.values())
    for node, others in waits.items():
        for other in others:
            assert found.units[other] != found.units[node] and place[other] < place[node]


@given(random_edges(10), st.data())
def test_queues_and_waits_keep_the_precedence(edges, data):
    """An order that respects queues and waits never runs a node before its inputs."""
    graph = graph_of(*edges)
    units = {n.name: data.draw(st.sampled_from(["cpu", "little"])) for n in graph.nodes}
    found = replace(schedule(graph, load_board("rk3588"), effort=_SMALL), units=units)
    queues, waits = {u: list(q) for u, q in found.queues().items()}, found.waits()
    readers = {n.name: n for n in graph.nodes}
    made: set[str] = {"x"}
    done: set[str] = set()
    while any(queues.values()):
        able = [u for u, q in queues.items() if q and set(waits[q[0]]) <= done]
        assert able, "every queue waits for another"
        name = queues[data.draw(st.sampled_from(able))].pop(0)
        assert {t for t in readers[name].inputs if t} <= made
        made.update(readers[name].outputs)
        done.add(name)


def test_what_is_placed_on_the_nna_stays_there():
    graph = graph_of(3, [(0, 1), (1, 2)])
    found = schedule(graph, load_board("nna2"), units={"n1": "nna"})
    assert found.units == {"n0": "cpu", "n1": "nna", "n2": "cpu"}


def test_a_core_in_order_takes_several_times_as_long_as_one_out_of_order():
    graph = graph_of(2, [(0, 1)], sizes=[10**6] * 2)
    model = CostModel(load_board("rk3588"))
    fast, slow = (model.cost(graph, graph.nodes[0], unit) for unit in ("cpu", "little"))
    assert 1.5 < slow / fast < 10
