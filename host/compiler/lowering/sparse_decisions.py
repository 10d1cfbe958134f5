"""Which layers with zeros among their weights run sparse, and why the others run dense."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from edgekit.host.compiler.costs.layout_table import I8_KERNELS, LayoutTable
from edgekit.host.compiler.costs.layouts import is_pointwise, layout_costs
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node
from edgekit.host.compiler.lowering.channels_first.forms import costs, measured_form
from edgekit.host.compiler.lowering.sparse.pruned import (
    LayerCosts,
    pruned_i8,
    pruned_row,
    why_dense_i8,
)
from edgekit.host.compiler.lowering.sparse.sparse_i8 import prunable_i8_weights
from edgekit.kb.targets.board import BoardProfile
from edgekit.kb.targets.clusters import timed_core

# Channels-first pixels; shifted rows of them; strips of a matrix; groups of 64 8-bit inputs.
Form = Literal["pixels", "windows", "strips", "groups"]
_LEAST_ZEROS = 0.1  # share from which a layer counts as pruned: rounding makes a few zeros
_FLOATS = (DType.F32, DType.F16)


@dataclass(frozen=True)
class SparseDecision:
    """One layer. `form`: the sparse form that it runs in, or dense; microseconds of both on one
    thread, None if unknown, without what regions share; `times`: where those come from."""

    name: str
    density: float
    form: Form | Literal["dense"]
    sparse_us: float | None
    dense_us: float | None
    times: str | None
    why: str


def sparse_decisions(
    before: Graph, after: Graph, board: BoardProfile, table: LayoutTable | None
) -> tuple[SparseDecision, ...]:
    """The decisions by which the layers of `before` became those of `after`."""
    chosen = {node.name: node for node in after.nodes}
    found = (_decision(before, node, chosen.get(node.name), board, table) for node in before.nodes)
    return tuple(each for each in found if each is not None)


def _decision(
    graph: Graph, node: Node, chosen: Node | None, board: BoardProfile, table: LayoutTable | None
) -> SparseDecision | None:
    """None for operators without pruned weights."""
    if type(node.op) not in (ops.Conv2D, ops.FullyConnected):
        return None
    weights = graph.tensors[node.inputs[1] or ""]
    if weights.data is None or not weights.data.size:
        return None
    density = float(np.count_nonzero(weights.data)) / weights.data.size
    form = "dense" if chosen is None else _form_of(chosen, weights.data)
    if form == "dense" and density > 1 - _LEAST_ZEROS:
        return None
    found = None if table is None else _costs_of(graph, node, board, table)
    if table is None or found is None:
        why = _why_no_form(graph, node, board, table)
        return SparseDecision(node.name, density, form, None, None, None, why)
    rate = _microseconds(board, table)
    sparse, dense = found.sparse / table.lent, found.dense
    why = _why(graph, node, board, table, form, found)
    if rate is None:
        return SparseDecision(node.name, density, form, None, None, None, why)
    times = table.source(board.platform)
    return SparseDecision(node.name, density, form, sparse * rate, dense * rate, times, why)


def _form_of(node: Node, weights: Array) -> Form | Literal["dense"]:
    if isinstance(node.op, ops.ChannelsFirstConv2D):
        return "pixels" if weights.ndim == 2 or is_pointwise(node.op, weights.shape) else "windows"
    if isinstance(node.op, ops.PrunedConv2D):
        return "groups"
    if isinstance(node.op, ops.PrunedFullyConnected):
        return "groups" if weights.dtype.itemsize == 1 else "strips"
    return "dense"


def _costs_of(
    graph: Graph, node: Node, board: BoardProfile, table: LayoutTable
) -> LayerCosts | None:
    """The costs of both forms; None if no sparse kernel fits or was measured."""
    if one := pruned_row(graph, node, board, table) or pruned_i8(graph, node, board, table):
        return one
    x, w = (graph.tensors[name or ""] for name in node.inputs[:2])
    if x.dtype is not DType.F32 or w.data is None or w.dtype is not DType.F32:
        return None
    vl = board.isa.vl
    if isinstance(node.op, ops.FullyConnected):
        n, k = w.shape
        m = x.elements // k
        weights, form = w.data.reshape(n, 1, 1, k), ops.ChannelsFirstConv2D()
        images = (1, 1, m, k), (1, 1, m, n)
        found = layout_costs(ops.Conv2D(), form, weights, images, round_up(m, vl), table, vl)
        return LayerCosts(w.data, "f32", found.channels_last, found.channels_first)
    made = costs(graph, node, table, vl)
    if made is None or math.isinf(made.channels_first):
        return None
    return LayerCosts(w.data, "f32", made.channels_last, made.channels_first)


def _why(
    graph: Graph,
    node: Node,
    board: BoardProfile,
    table: LayoutTable,
    form: str,
    found: LayerCosts,
) -> str:
    raw = found.sparse / table.lent
    if form != "dense":
        return f"sparse takes {raw / found.dense:.2f} of the time of dense"
    if raw >= found.dense:
        return "dense is faster"
    if why := why_dense_i8(graph, node, board):
        return why
    if found.sparse * found.margin >= found.dense:
        needed = table.lent * found.margin
        return f"sparse gains, but less than the {needed - 1:.0%} that is certain enough"
    return "with the changes of layout around it, dense is faster"


def _why_no_form(graph: Graph, node: Node, board: BoardProfile, table: LayoutTable | None) -> str:
    """Why no sparse form was considered."""
    x = graph.tensors[node.inputs[0] or ""]
    if table is None:
        return "no times of sparse layers are known for this core"
    if x.dtype in _FLOATS:
        fits = measured_form(graph, node, table, board.isa.vl) is not None
        return "no sparse kernel for this type" if fits else "no sparse kernel for this window"
    if board.nna is not None:
        return "boards with an NNA compute it dense"
    if not table.knows(I8_KERNELS[1]):
        return "no times of sparse 8-bit layers are known for this core"
    if prunable_i8_weights(graph, node) is None:
        return "no sparse kernel for this 8-bit layer"
    return "no sparse kernel for this layer"


def _microseconds(board: BoardProfile, table: LayoutTable) -> float | None:
    """Microseconds per unit of a table's costs; None if they are no times."""
    if table.unit == "nanoseconds":
        return 1e-3
    core = timed_core(board)
    if table.unit != "cycles" or core is None:
        return None
    return 1 / core.clock_mhz
