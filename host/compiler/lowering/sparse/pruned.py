"""Fully connected layers that skip zero weights, where that was measured to be faster.

A layer with one row of x is a sparse matrix-vector product. Several rows are the pixels of an
image, which makes the layer a pointwise convolution; `regions` handles those. Quantized 1x1
convolutions are treated as layers over several points, since their kernel reads images directly.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from edgekit.device.runtime.arrays.sparse_blocks import default_settings
from edgekit.device.runtime.arrays.sparse_table import SpmvTable
from edgekit.device.runtime.kernel_facts import STRIP_PARTIAL_BYTES
from edgekit.host.compiler.costs.layout_table import I8_KERNELS, KernelWork, LayoutTable
from edgekit.host.compiler.costs.methods.operators import Form, MethodCost, OperatorMethod
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node, Operator
from edgekit.host.compiler.lowering.common.window import bias_vector
from edgekit.host.compiler.lowering.context import Context, lowers
from edgekit.host.compiler.lowering.groups import MethodGroups
from edgekit.host.compiler.lowering.methods import zero_tenths
from edgekit.host.compiler.lowering.plan import Field, Kernel, KernelCall, Value
from edgekit.host.compiler.lowering.sparse.sparse_i8 import lower_sparse_i8, prunable_i8_weights
from edgekit.host.compiler.lowering.sparse.strips import Sparse, build_strips, strip_height
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import BoardProfile, last_cache

_F32 = np.dtype(np.float32)
_PIECE = 1 << 12  # multiply-adds: a few microseconds, the time a thread takes to wake up
_MOST_PIECES = 32
# Required gain for quantized layers at several points, which do not wait for memory. Simulated
# board time counts a four-register table lookup like a one-register one, but some cores take
# longer.
_POINTS_MUST_GAIN = 1.5
_PRUNABLE = (ops.FullyConnected, ops.Conv2D)


def choose_pruned(
    graph: Graph,
    board: BoardProfile,
    table: LayoutTable | None,
    strips: SpmvTable,
    groups: MethodGroups | None = None,
) -> Graph:
    """Replaces layers that are cheaper when sparse by PrunedFullyConnected or PrunedConv2D.

    Without a table of costs, the graph is returned unchanged. `strips` selects the storage of f32
    weights. An entry of `groups` for a layer overrides its cost.
    """
    if table is None:
        return graph
    nodes = tuple(
        _prune_if_cheaper(graph, node, board, table, strips, groups) for node in graph.nodes
    )
    return graph if nodes == graph.nodes else dataclasses.replace(graph, nodes=nodes)


@dataclass(frozen=True, eq=False)
class LayerCosts:
    """A layer that may become sparse: its weights [n, k], the type it multiplies, and its costs in
    the table's unit. Sparse must cost less than dense even times `margin`."""

    weights: Array
    dtype: str
    dense: float
    sparse: float
    margin: float = 1.0


def _prune_if_cheaper(
    graph: Graph,
    node: Node,
    board: BoardProfile,
    table: LayoutTable,
    strips: SpmvTable,
    groups: MethodGroups | None,
) -> Node:
    layer = pruned_row(graph, node, board, table) or pruned_i8(graph, node, board, table)
    if layer is None or why_dense_i8(graph, node, board):
        return node
    is_chosen = layer.sparse * layer.margin < layer.dense
    if groups is not None:
        n, k = layer.weights.shape
        shape = GemmShape(graph.tensors[node.outputs[0]].elements // n, k, n)
        form = Form("pruned", shape, layer.dtype, zeros=zero_tenths(layer.weights))
        candidates = [
            MethodCost(OperatorMethod("in_place", layer.dtype), layer.dense),
            MethodCost(OperatorMethod("strips", layer.dtype), layer.sparse * layer.margin),
        ]
        is_chosen = groups.choose(node.name, form, candidates, (node.name,)).family == "strips"
    if not is_chosen:
        return node
    sparse, source = layer.sparse / table.lent, table.source(board.platform)
    rule = f"{sparse:.0f} {table.unit}, {layer.dense:.0f} dense, {source}"
    op = node.op
    if isinstance(op, ops.Conv2D):
        made: Operator = ops.PrunedConv2D(
            op.stride, op.dilation, op.padding, op.activation, rule=rule
        )
    elif layer.dtype == "f32":
        strip_form = pruned_form(op, layer.weights, board, strips)
        made = dataclasses.replace(strip_form, rule=f"{rule}; {strip_form.rule}")
    else:
        assert isinstance(op, ops.FullyConnected)
        made = ops.PrunedFullyConnected(op.keep_dims, op.activation, rule=rule)
    return dataclasses.replace(node, op=made)


def pruned_row(
    graph: Graph, node: Node, board: BoardProfile, table: LayoutTable
) -> LayerCosts | None:
    """An f32 layer with a single row; None for other nodes."""
    weights = pruned_weights(graph, node)
    if weights is None or graph.tensors[node.inputs[0] or ""].elements != weights.shape[1]:
        return None
    dense, sparse = (
        table.cost(name, row_work(weights, name == "sparse_row", board.isa.vl))
        for name in ("dense_row", "sparse_row")
    )
    return LayerCosts(weights, "f32", dense, sparse)


def pruned_i8(
    graph: Graph, node: Node, board: BoardProfile, table: LayoutTable
) -> LayerCosts | None:
    """A quantized layer that has a sparse kernel; None for other nodes, without costs of quantized
    layers in the table, and on boards with an NNA."""
    is_known = table.knows(I8_KERNELS[1]) and board.nna is None
    if not is_known or type(node.op) not in _PRUNABLE:
        return None
    weights = prunable_i8_weights(graph, node)
    if weights is None:
        return None
    x = graph.tensors[node.inputs[0] or ""]
    points = graph.tensors[node.outputs[0]].elements // len(weights)
    dense, sparse = (
        table.cost(name, quantized_work(weights, points, name == I8_KERNELS[1], board.isa.vl))
        for name in I8_KERNELS
    )
    dtype = "u8" if x.dtype is DType.U8 else "s8"
    return LayerCosts(weights, dtype, dense, sparse, _POINTS_MUST_GAIN if points > 1 else 1.0)


def why_dense_i8(graph: Graph, node: Node, board: BoardProfile) -> str:
    """Why a quantized layer stays dense whatever the table says; "" for other layers.

    With a single point, the weights must come from memory, as they did when the table was measured.
    """
    weights = prunable_i8_weights(graph, node) if type(node.op) in _PRUNABLE else None
    if weights is None:
        return ""
    if 2 * np.count_nonzero(weights) > weights.size:
        return "fewer than half of its weights are zero"
    points = graph.tensors[node.outputs[0]].elements // len(weights)
    if points == 1 and _stay_in_cache(graph, board):
        return "the model's constants stay in the cache, where dense is faster"
    return ""


def _stay_in_cache(graph: Graph, board: BoardProfile) -> bool:
    """True if the model's constants fit into the board's last-level cache.

    Dense layers then do not wait for memory: with sparse ones, ad01 took 1.3 to 1.7 times as long
    on an A53 and an X60.
    """
    held = last_cache(board)
    return sum(t.bytes for t in graph.tensors.values() if t.data is not None) <= held


def pruned_weights(graph: Graph, node: Node) -> Array | None:
    """The weights [n, k] of an f32 layer if they are constant and some are zero."""
    if type(node.op) is not ops.FullyConnected:
        return None
    x, w = (graph.tensors[name or ""] for name in node.inputs[:2])
    if {x.dtype, w.dtype} != {DType.F32} or w.data is None or x.data is not None:
        return None
    return w.data if int(np.count_nonzero(w.data)) < w.data.size else None


def pruned_form(
    op: Operator, weights: Array, board: BoardProfile, strips: SpmvTable
) -> ops.PrunedFullyConnected:
    """The layer with strips chosen for its weights; `rule` records the choice."""
    assert isinstance(op, ops.FullyConnected)
    found = Sparse.of(weights).features()
    rule = default_settings(found.mean, strip_height(board.isa, "f32"), _F32.itemsize)
    answer = strips.lookup(found, rule)
    text = f"strips: {answer.rule}, {answer.why}"
    return ops.PrunedFullyConnected(op.keep_dims, op.activation, how=answer.settings, rule=text)


def row_work(weights: Array, sparse: bool, vl: int) -> KernelWork:
    """The work of a product with one row.

    Dense products count complete vectors of outputs, sparse ones nonzero weights. For sparse
    products, `values` is the full matrix size, so that the cost model sees the density.
    """
    n, k = weights.shape
    if sparse:
        return KernelWork(int(np.count_nonzero(weights)), n * k, -(-n // vl))
    return KernelWork(k * round_up(n, vl), round_up(n, vl))


def quantized_work(weights: Array, points: int, sparse: bool, vl: int) -> KernelWork:
    """The work of a quantized layer at `points` points; see `row_work`."""
    one = row_work(weights, sparse, vl)
    values = one.values if sparse else one.values * points
    return KernelWork(one.products * points, values, points)


@lowers(ops.PrunedFullyConnected)
def lower_pruned(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ops.PrunedFullyConnected)
    x = ctx.tensor(node.inputs[0])
    if x.dtype is not DType.F32:
        return lower_sparse_i8(ctx, node)
    data = ctx.constant(node, 1, "weights")
    n, k = data.shape
    strips = build_strips(Sparse.of(data), op.how, ctx.isa)
    pieces = min(max(strips.values.size // _PIECE, 1), _MOST_PIECES)
    bias = ctx.optional(node, 2)
    low, high = op.activation.bounds
    fields: dict[str, Field] = {
        "rows": n,
        "cols": k,
        "strips": len(strips.strip),
        "slots": strips.slots,
        "width": op.how.width,
        "images": x.elements // k,
        "pieces": pieces,
        "strip": ctx.weights.add(strips.strip),
        "values": ctx.weights.add(strips.values),
        "index": ctx.weights.add(strips.index),
        "order": ctx.weights.add(strips.order),
        "x": Value(x.name),
        "y": Value(node.outputs[0]),
        "bias": None if bias is None else ctx.weights.add(bias_vector(bias, n, _F32)),
        "low": low,
        "high": high,
        "scratch": ctx.scratch(node, STRIP_PARTIAL_BYTES * pieces),
    }
    macros = (("EK_STORED", "0"), ("EK_NAME", "ek_spmv_f32"))
    parts = (
        Kernel("ek_spmv_f32", "sparse/spmv.c", "", "", macros),
        Kernel("ek_spmv_pieces", "sparse/pieces.c", "", ""),
    )
    kernel = Kernel(
        "ek_spmv_layer",
        "sparse/spmv_layer.c",
        "sparse/spmv_layer.h",
        "ek_spmv_layer_args",
        (),
        parts,
    )
    return [KernelCall(kernel, fields, None)]
