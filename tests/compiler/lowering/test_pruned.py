"""Fully connected layers by their nonzeros: when sparse kernels are used, and equal results."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.device.runtime.arrays.sparse_table import SpmvTable
from edgekit.host.compiler.costs.layout_table import KERNELS, KernelWork, LayoutTable
from edgekit.host.compiler.costs.layout_table import LayoutCase as Measured
from edgekit.host.compiler.driver import compile_artifact
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Activation, DType, Graph, Node, Tensor
from edgekit.host.compiler.lowering.channels_first.pointwise import choose_layouts
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.lowering.plan import KernelCall
from edgekit.host.compiler.lowering.sparse.pruned import choose_pruned
from edgekit.host.compiler.tables.layouts import layout_table_of
from edgekit.kb.targets.board import load_board, load_profile
from tests.support.group_graphs import pruned_layer
from tests.support.kernel_runs import build, check, run_here
from tests.support.onnx_models import model, node, save, value
from tests.support.op_cases import Case, constant, tensor
from tests.support.op_graphs import graph_of, inputs_of

_LOCAL = load_board("local")


def _table(sparse: float) -> LayoutTable:
    """A dense product costs 1 per weight, a sparse one `sparse` per nonzero."""
    works = [KernelWork(1 << n, 1 << n + 1, 1 << n - 8) for n in (10, 14, 18)]
    rates = {"sparse_row": sparse}
    cases = [Measured(k, w, rates.get(k, 1.0) * w.products) for k in KERNELS for w in works]
    return LayoutTable("test", "nanoseconds", tuple(cases))


def _kinds(graph: Graph) -> list[str]:
    return [node.op.kind for node in graph.nodes]


def test_the_measured_costs_decide():
    graph = pruned_layer(0.25)
    cheap = choose_pruned(graph, _LOCAL, _table(3.0), SpmvTable())
    assert _kinds(cheap) == ["pruned_fully_connected"]
    op = cheap.nodes[0].op
    assert isinstance(op, ops.PrunedFullyConnected)
    assert "measured on test and borrowed; strips: patent" in op.rule
    assert choose_pruned(graph, _LOCAL, _table(8.0), SpmvTable()) is graph


@pytest.mark.parametrize(("density", "rows"), [(1.0, 1), (0.1, 2)])
def test_others_stay(density, rows):
    graph = pruned_layer(density, rows)
    assert choose_pruned(graph, _LOCAL, _table(0.1), SpmvTable()) is graph


def test_without_measured_costs_nothing_changes():
    graph = pruned_layer(0.1)
    assert choose_pruned(graph, _LOCAL, None, SpmvTable()) is graph


@pytest.mark.parametrize("name", ["x86-64-v4", "a57"])
def test_the_kit_knows_where_it_pays(name):
    board = load_profile(name)
    table = layout_table_of(board)
    few, most = (choose_pruned(pruned_layer(d), board, table, SpmvTable()) for d in (0.03, 0.95))
    assert _kinds(few) == ["pruned_fully_connected"] and _kinds(most) == ["fully_connected"]


@pytest.mark.parametrize("threads", [1, 2])
def test_outputs_stay_and_do_not_depend_on_threads(tmp_path, threads):
    graph = pruned_layer(0.25)
    inputs = inputs_of(graph)
    after = choose_pruned(graph, _LOCAL, _table(0.1), SpmvTable())
    made = run_here(build(after, _LOCAL, tmp_path), inputs, threads)
    check(graph, made, inputs)
    alone = run_here(build(after, _LOCAL, tmp_path / "alone"), inputs, 1)
    assert all((made[name] == alone[name]).all() for name in alone)


def _uneven(n: int, k: int) -> Graph:
    """A layer whose first outputs have most of the weights."""
    rng = np.random.default_rng(7)
    weights = rng.standard_normal((n, k)).astype(np.float32)
    weights[rng.random((n, k)) >= np.where(np.arange(n) < n // 16, 0.9, 0.08)[:, None]] = 0
    return graph_of([Case(ops.FullyConnected(), (tensor((1, k)), constant(weights), None))])


def test_threads_share_layers_of_some_thousand_weights(tmp_path):
    graph = _uneven(300, 280)  # 11,000 weights
    after = choose_pruned(graph, _LOCAL, _table(0.1), SpmvTable())
    (step,) = lower(after, _LOCAL).lowered.steps
    (call,) = step.calls
    assert isinstance(call, KernelCall) and call.fields["pieces"] == 2
    inputs = inputs_of(graph)
    made = run_here(build(after, _LOCAL, tmp_path), inputs, 2)
    check(graph, made, inputs)
    alone = run_here(build(after, _LOCAL, tmp_path / "alone"), inputs, 1)
    assert all((made[name] == alone[name]).all() for name in alone)


@pytest.mark.slow
def test_a_pruned_gemm_of_a_file_says_why(tmp_path):
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((600, 256)).astype(np.float32)
    weights[rng.random(weights.shape) >= 0.03] = 0
    nodes = [node("Gemm", ["x", "w"], ["h"]), node("Relu", ["h"], ["y"])]
    path = save(model(nodes, [value("x", [1, 600])], ["y"], {"w": weights}), tmp_path)
    explained = compile_artifact(path, load_profile("x86-64-v4")).explain
    found, (layer,) = explained["operators"][0], explained["sparse"]
    assert (layer["name"], layer["form"]) == (found["name"], "strips")
    assert layer["sparse_us"] < layer["dense_us"]
    assert (found["op"], found["kernel"]) == ("pruned_fully_connected", "ek_spmv_layer")
    assert "measured on x86-64-v4; strips" in found["why"] and found["storage"]["width"] >= 1


def _network(rows: int) -> Graph:
    """Two pruned layers with a function between them, followed by a dense layer."""
    rng = np.random.default_rng(6)
    tensors = {n: Tensor(n, (rows, c), DType.F32) for n, c in
               (("x", 200), ("a", 128), ("b", 128), ("c", 160), ("y", 24))}  # fmt: skip
    for name, n, k, density in (("wa", 128, 200, 0.1), ("wc", 160, 128, 0.1), ("wy", 24, 160, 1)):
        data = rng.standard_normal((n, k)).astype(np.float32)
        data[rng.random((n, k)) >= density] = 0
        tensors[name] = Tensor(name, (n, k), DType.F32, None, data)
    nodes = (
        Node("first", ops.FullyConnected(True), ("x", "wa", None), ("a",)),
        Node("tanh", ops.Tanh(), ("a",), ("b",)),
        Node("second", ops.FullyConnected(activation=Activation.RELU), ("b", "wc", None), ("c",)),
        Node("third", ops.FullyConnected(), ("c", "wy", None), ("y",)),
    )
    return Graph("network", tensors, nodes, ("x",), ("y",))


def test_layers_over_many_rows_share_a_channel_major_region(tmp_path):
    graph = _network(64)
    after = choose_layouts(graph, layout_table_of(load_profile("x86-64-v4")), 16)
    kinds = [kind for kind in _kinds(after) if kind != "reshape"]
    assert kinds == [
        "transpose",
        "channels_first_conv2d",
        "tanh",
        "channels_first_conv2d",
        "transpose",
        "fully_connected",
    ]
    inputs = inputs_of(graph)
    expected = evaluate(graph, inputs).outputs["y"]
    np.testing.assert_allclose(evaluate(after, inputs).outputs["y"], expected, atol=1e-4)
    made = run_here(build(after, _LOCAL, tmp_path), inputs)["y"]
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)


def test_layers_with_few_zeros_stay():
    graph = pruned_layer(0.95, rows=64)
    assert choose_layouts(graph, layout_table_of(load_profile("x86-64-v4")), 16) is graph
