"""A chip with parallel memory, matrix and vector units, as in the patent."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from edgekit.host.compiler.costs.model import CostModel
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Tensor
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.schedule.schedule import schedule
from edgekit.kb.targets.board import BoardProfile, load_board
from edgekit.kb.targets.units import ComputeUnit


def _board(**changed: float) -> BoardProfile:
    """A slow core, and the three units of an accelerator."""
    usual = {"clock_mhz": 1000.0, "bytes_per_cycle": 8.0, "start_us": 0.0, "handover_us": 0.0}
    speed = {**usual, **changed}
    units = (
        ComputeUnit(
            "cpu", "cpu", **usual, f32_per_cycle=0.1, s8_per_cycle=0.1, elements_per_cycle=0.1
        ),
        ComputeUnit("dau", "memory", **speed),
        ComputeUnit("mpu", "matrix", **speed, f32_per_cycle=64.0, s8_per_cycle=256.0),
        ComputeUnit("vpu", "vector", **speed, elements_per_cycle=16.0),
    )
    names = tuple(u.name for u in units if u.kind != "memory")
    return replace(load_board("a53"), units=names, compute=units)


def _branches() -> Graph:
    """Two branches from x, consecutive products and consecutive functions, joined at the end."""
    image = (1, 32, 32, 64)
    weights = {f"w{i}": np.zeros((64, 1, 1, 64), np.float32) for i in range(3)}
    tensors = {n: Tensor(n, image, DType.F32) for n in ("x", "a0", "a1", "a2", "b0", "b1", "y")}
    tensors |= {n: Tensor(n, w.shape, DType.F32, data=w) for n, w in weights.items()}
    nodes = (
        Node("a0", ops.Conv2D(), ("x", "w0", None), ("a0",)),
        Node("a1", ops.Conv2D(), ("a0", "w1", None), ("a1",)),
        Node("a2", ops.Conv2D(), ("a1", "w2", None), ("a2",)),
        Node("b0", ops.Logistic(), ("x",), ("b0",)),
        Node("b1", ops.HardSwish(), ("b0",), ("b1",)),
        Node("y", ops.Add(), ("a2", "b1"), ("y",)),
    )
    return Graph("branches", tensors, nodes, ("x",), ("y",))


def test_each_unit_takes_what_it_is_for():
    graph, costs = _branches(), CostModel(_board())
    conv, curve = graph.nodes[0], graph.nodes[3]
    assert costs.cost(graph, conv, "vpu") == costs.cost(graph, curve, "mpu") == math.inf
    assert costs.cost(graph, conv, "mpu") < costs.cost(graph, conv, "cpu")
    assert costs.cost(graph, curve, "vpu") < costs.cost(graph, curve, "cpu")
    assert "dau" not in costs.units


def test_the_units_work_beside_each_other():
    found = schedule(_branches(), _board())
    assert {n: found.units[n] for n in ("a0", "a1", "a2")} == dict.fromkeys(
        ("a0", "a1", "a2"), "mpu"
    )
    assert {found.units[n] for n in ("b0", "b1", "y")} == {"vpu"}
    assert found.makespan_us < sum(found.costs.values())


def test_constants_are_loaded_ahead_and_waited_for():
    """The first product waits for its load; with a slow memory unit all products do."""
    fast = schedule(_branches(), _board())
    slow = schedule(_branches(), _board(bytes_per_cycle=0.05))
    loads = 3 * 64 * 64 * 4 / (0.05 * 1000)
    assert fast.makespan_us < loads <= slow.makespan_us


def test_a_result_reaches_another_unit_later():
    near, far = (schedule(_branches(), _board(handover_us=h)).makespan_us for h in (0.0, 50.0))
    assert near + 50 <= far


@pytest.mark.parametrize("order", ["search", "memory"])
def test_no_order_is_worse_than_the_importers(order):
    graph, board = _branches(), _board()
    kept = schedule(graph, board, CompileOptions(order="import"))
    found = schedule(graph, board, CompileOptions(order=order))
    if order == "search":
        assert found.makespan_us <= kept.makespan_us
    assert sum(part.import_cost_us for part in found.subgraphs) == kept.makespan_us
