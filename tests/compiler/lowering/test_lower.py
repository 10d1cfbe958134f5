"""Lowering: outputs that alias other tensors, and variants without a kernel."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Padding, Tensor
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.lowering.packing import pack_panels
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, run_here
from tests.support.op_cases import quant
from tests.support.op_graphs import Case, constant, graph_of, inputs_of, tensor

_LOCAL = load_board("local")


def test_outputs_may_be_inputs_constants_views_and_each_other(tmp_path):
    tensors = {
        "x": Tensor("x", (2, 3), DType.F32),
        "c": Tensor("c", (2,), DType.F32, data=np.array([4, 5], np.float32)),
        "y": Tensor("y", (2, 3), DType.F32),
        "view": Tensor("view", (6,), DType.F32),
        "again": Tensor("again", (3, 2), DType.F32),
        "flat": Tensor("flat", (6,), DType.F32),
        "sum": Tensor("sum", (6,), DType.F32),
    }
    nodes = (
        Node("add", ops.Add(), ("x", "x"), ("y",)),
        Node("r1", ops.Reshape((6,)), ("y",), ("view",)),
        Node("r2", ops.Reshape((3, 2)), ("view",), ("again",)),
        Node("r3", ops.Reshape((6,)), ("x",), ("flat",)),
        Node("twice", ops.Add(), ("flat", "view"), ("sum",)),
    )
    outputs = ("view", "y", "again", "x", "c", "flat", "sum")
    graph = Graph("outs", tensors, nodes, ("x",), outputs)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = run_here(build(graph, _LOCAL, tmp_path), {"x": x})
    np.testing.assert_array_equal(made["view"], 2 * x.reshape(6))
    np.testing.assert_array_equal(made["y"], 2 * x)
    np.testing.assert_array_equal(made["again"], 2 * x.reshape(3, 2))
    np.testing.assert_array_equal(made["c"], [4, 5])
    np.testing.assert_array_equal(made["flat"], x.reshape(6))
    np.testing.assert_array_equal(made["sum"], 3 * x.reshape(6))
    np.testing.assert_array_equal(made["x"], x)


@pytest.mark.parametrize("shape", [(3, 2, 29), (2, 4, 9), (5, 9, 3)])
def test_shuffles_of_bytes_move_every_value(shape, tmp_path):
    x = tensor(shape, DType.I8, quant(0.1, 0))
    graph = graph_of([Case(ops.Transpose((0, 2, 1)), (x,), x.quant)])
    inputs = inputs_of(graph)
    made = run_here(build(graph, _LOCAL, tmp_path), inputs)
    want = inputs[graph.inputs[0]].transpose(0, 2, 1)
    np.testing.assert_array_equal(made[graph.outputs[0]], want)


def test_panels_hold_every_weight_once():
    w = np.arange(1, 1 + 5 * 3, dtype=np.float32).reshape(5, 3)
    packed = pack_panels(w, nr=4, vl=2)
    assert packed.size == 4 * 3 + 2 * 3
    np.testing.assert_array_equal(packed[:4], w[:4, 0])
    np.testing.assert_array_equal(packed[12:14], [w[4, 0], 0])
    grouped = pack_panels(w, nr=4, vl=4, group=2)
    np.testing.assert_array_equal(grouped[:4], [w[0, 0], w[0, 1], w[1, 0], w[1, 1]])


def _refused(case: Case) -> str:
    with pytest.raises(InputError) as error:
        lower(graph_of([case]), _LOCAL)
    message = str(error.value)
    assert "\n" not in message and "n0" in message
    return message


def test_forms_without_a_kernel_are_named():
    overlapping = ops.TransposeConv2D((1, 1), Padding(), (4, 4))
    x, w = tensor((1, 2, 2, 3)), constant(np.ones((2, 3, 3, 3), np.float32))
    assert "overlapping" in _refused(Case(overlapping, (x, w, None)))

    computed = Case(ops.FullyConnected(), (tensor((1, 4)), tensor((2, 4)), None))
    assert "constant weights" in _refused(computed)

    far = tensor((2, 1, 2, 1, 2, 1, 2, 1, 2))
    near = tensor((1, 2, 1, 2, 1, 2, 1, 2, 1))
    assert "dimensions" in _refused(Case(ops.Add(), (far, near)))


def test_weights_stored_twice_are_kept_once():
    w = constant(np.ones((8, 3, 3, 8), np.float32))
    case = Case(ops.Conv2D(), (tensor((1, 8, 8, 8)), w, None))
    once = lower(graph_of([case]), _LOCAL).lowered.weights
    twice = lower(graph_of([case, case]), _LOCAL).lowered.weights
    assert len(once) == len(twice)
    assert inputs_of(graph_of([case]))["n0_in0"].shape == (1, 8, 8, 8)


@pytest.mark.parametrize(("cost", "pieces"), [(None, 24), (0.1, 1), (0.9, 1), (2.0, 4), (1e3, 24)])
def test_threads_get_pieces_that_are_worth_it(cost, pieces):
    graph = graph_of([Case(ops.Mean((1,)), (tensor((24, 6, 64)),))])
    costs = {} if cost is None else {graph.nodes[0].name: cost}
    (call,) = lower(graph, _LOCAL, costs=costs).lowered.steps[0].calls
    assert call.tasks == 24 and -(-call.tasks // call.grain) == pieces
