"""8-bit layers by their nonzeros: when sparse kernels are chosen, and bit-identical results."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from edgekit.device.runtime.arrays.sparse_table import SpmvTable
from edgekit.host.compiler.costs.layout_table import I8_KERNELS, KERNELS, KernelWork, LayoutTable
from edgekit.host.compiler.costs.layout_table import LayoutCase as Measured
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, Array, DType, Graph, Node, Padding, Tensor
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.lowering.plan import KernelCall
from edgekit.host.compiler.lowering.sparse.pruned import choose_pruned
from edgekit.host.compiler.lowering.sparse.sparse_i8 import quantized_strips
from edgekit.host.compiler.tables.layouts import layout_table_of
from edgekit.kb.targets.board import load_board, load_profile
from edgekit.kb.targets.isa import isa_of
from tests.support.kernel_runs import build, check, run_here
from tests.support.op_cases import quant
from tests.support.op_graphs import inputs_of

_LOCAL = dataclasses.replace(load_board("local"), l2_bytes=1 << 16, l3_bytes=0)  # with small caches
_A53 = load_profile("a53")
_FAST = "a53", "a72", "a76", "bpi-f3"


def _table(sparse: float, kernels: tuple[str, ...] = (*KERNELS, *I8_KERNELS)) -> LayoutTable:
    """A dense product costs 1 per weight, a sparse one `sparse` per nonzero."""
    works = [KernelWork(1 << n, 1 << n + 1, 1) for n in (10, 14, 18)]
    rates = {"sparse_i8": sparse}
    cases = [Measured(k, w, rates.get(k, 1.0) * w.products) for k in kernels for w in works]
    return LayoutTable("test", "nanoseconds", tuple(cases))


def _weights(n: int, k: int, density: float) -> Array:
    rng = np.random.default_rng(1)
    stored = rng.integers(-127, 128, (n, k))
    return np.where(rng.random((n, k)) < density, stored, 0).astype(np.int8)


def _layer(density: float, shape: tuple[int, ...] = (1, 600), n: int = 250, zero: int = 0) -> Graph:
    """One quantized layer: fully connected, or 1x1 on an image."""
    k = shape[-1]
    stored = _weights(n, k, density).reshape((n, k) if len(shape) == 2 else (n, 1, 1, k))
    op: Any = ops.FullyConnected if len(shape) == 2 else ops.Conv2D
    bias = np.random.default_rng(2).integers(-9999, 9999, n).astype(np.int32)
    tensors = (
        Tensor("x", shape, DType.I8, quant(0.05, 7)),
        Tensor("w", stored.shape, DType.I8, quant(0.01, zero), stored),
        Tensor("b", (n,), DType.I32, None, bias),
        Tensor("y", (*shape[:-1], n), DType.I8, quant(0.5, -3)),
    )
    node = Node("layer", op(activation=Activation.RELU), ("x", "w", "b"), ("y",))
    return Graph("layer", {t.name: t for t in tensors}, (node,), ("x",), ("y",))


def _chosen(graph: Graph, table: LayoutTable, board: str = "") -> str:
    profile = load_board(board) if board else _LOCAL
    return choose_pruned(graph, profile, table, SpmvTable()).nodes[0].op.kind


@pytest.mark.parametrize(
    ("shape", "kind"), [((1, 600), "pruned_fully_connected"), ((1, 3, 5, 600), "pruned_conv2d")]
)
def test_the_measured_costs_decide(shape, kind):
    graph = _layer(0.2, shape)
    after = choose_pruned(graph, _LOCAL, _table(1.0), SpmvTable())
    assert after.nodes[0].op.kind == kind
    assert "measured on test" in after.nodes[0].op.rule
    assert choose_pruned(graph, _LOCAL, _table(6.0), SpmvTable()) is graph


def test_several_points_have_to_gain_more():
    assert _chosen(_layer(0.2, (1, 600)), _table(4.0)) == "pruned_fully_connected"
    assert _chosen(_layer(0.2, (9, 600)), _table(4.0)) == "fully_connected"


def _of_window(graph: Graph) -> Graph:
    """The same layer with a 3x3 window."""
    node, w = graph.nodes[0], graph.tensors["w"]
    data = np.repeat(np.repeat(w.data, 3, axis=1), 3, axis=2)
    wide = dataclasses.replace(w, shape=data.shape, data=data)
    op = dataclasses.replace(node.op, padding=Padding(1, 1, 1, 1))
    node = dataclasses.replace(node, op=op)
    return dataclasses.replace(graph, tensors={**graph.tensors, "w": wide}, nodes=(node,))


@pytest.mark.parametrize(
    ("layer", "table", "board"),  # `layer` makes it: each worker collects all tests
    [
        (lambda: _layer(0.6), _table(0.1), _LOCAL),
        (lambda: _layer(0.2, zero=3), _table(0.1), _LOCAL),
        (lambda: _layer(0.2), _table(0.1, KERNELS), _LOCAL),
        (lambda: _layer(0.2, (1, 2048), 2000), _table(0.1), load_profile("nna1")),
        (lambda: _of_window(_layer(0.2, (1, 3, 5, 4000))), _table(0.1), _LOCAL),
        (lambda: _layer(0.2, (1, 66000), 8), _table(0.1), _LOCAL),
        (lambda: _layer(0.1, (1, 700), 700), layout_table_of(_A53), _A53),
    ],
    ids=[
        "dense", "weights' zero point", "not measured", "an NNA", "too large a window",
        "too many inputs", "weights in the cache",
    ],
)  # fmt: skip
def test_others_stay(layer, table, board):
    graph = layer()
    assert choose_pruned(graph, board, table, SpmvTable()) is graph


@pytest.mark.parametrize("board", _FAST)
def test_boards_take_layers_of_few_weights_and_leave_others(board):
    table = layout_table_of(load_profile(board))
    assert _chosen(_layer(0.1, (1, 2048), 2000), table, board) == "pruned_fully_connected"
    assert _chosen(_layer(0.6, (1, 2048), 2000), table, board) == "fully_connected"
    assert _chosen(_layer(0.4, (64, 256), 256), table, board) == "fully_connected"


_LAYERS = {
    "row": lambda: _layer(0.2, (1, 600)),
    "pixels": lambda: _layer(0.2, (1, 5, 7, 150)),
    "windows": lambda: _of_window(_layer(0.2, (1, 9, 7, 50), 60)),
    "many inputs": lambda: _of_window(_layer(0.2, (1, 3, 4, 700), 60)),
}


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("layer", _LAYERS.values(), ids=_LAYERS)
def test_no_bit_changes_on_any_number_of_threads(tmp_path, threads, layer):
    graph = layer()
    after = choose_pruned(graph, _LOCAL, _table(0.1), SpmvTable())
    assert after.nodes[0].op.kind.startswith("pruned")
    inputs = inputs_of(graph)
    made = run_here(build(after, _LOCAL, tmp_path / "sparse", threads=threads), inputs, threads)
    check(graph, made, inputs)
    dense = run_here(build(graph, _LOCAL, tmp_path / "dense"), inputs, threads)
    np.testing.assert_array_equal(made["y"], dense["y"])


@pytest.mark.parametrize(("threads", "points"), [(1, 35), (2, 18), (4, 9)])
def test_threads_share_points_rather_than_the_lines_of_their_outputs(threads, points):
    """When threads split outputs instead, four A76 reached 1.2 to 2.1 times one thread's speed."""
    after = choose_pruned(_layer(0.2, (1, 5, 7, 150)), _LOCAL, _table(0.1), SpmvTable())
    (step,) = lower(after, _LOCAL, threads=threads).lowered.steps
    (call,) = step.calls
    assert isinstance(call, KernelCall) and call.fields["block"] == points
    assert call.tasks == threads * int(str(call.fields["pieces"]))


@pytest.mark.parametrize("simd", ["neon", "neondot", "neoni8mm"])
def test_strips_hold_all_weights_and_little_else(simd):
    weights = _weights(1000, 512, 0.2)
    strips = quantized_strips(weights, isa_of(simd))
    values = strips.groups[:, 1]
    assert np.count_nonzero(values) == np.count_nonzero(weights)
    assert values.sum(dtype=np.int64) == weights.sum(dtype=np.int64)
    assert values.size < 1.3 * np.count_nonzero(weights)
    assert int(strips.base.max()) + 64 <= 512


def test_pieces_have_like_many_weights_where_outputs_do_not():
    weights = _weights(1024, 256, 0.1)
    weights[:64] = _weights(64, 256, 0.9)  # 1/16 of the outputs have a third of all weights
    strips = quantized_strips(weights, isa_of("neon"))
    groups = np.diff(strips.first[strips.pieces(8)])
    assert groups.sum() == len(strips.base) and groups.max() < 1.15 * groups.mean()
    assert list(quantized_strips(weights[:8], isa_of("neon")).pieces(8)) == [0, 1]
