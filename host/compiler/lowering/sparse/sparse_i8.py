"""Quantized layers that skip zero weights (device/kernels/sparse/i8_layer.c)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgekit.device.runtime.kernel_facts import SPARSE_I8_COPIES
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.quantization import (
    Multiplier,
    activation_range,
    convolution_multiplier,
    dense_multiplier,
    zero_point_of,
)
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node
from edgekit.host.compiler.lowering.common.arguments import C_TYPES
from edgekit.host.compiler.lowering.common.window import Window, bias_vector, window_of
from edgekit.host.compiler.lowering.context import Context, lowers, padded
from edgekit.host.compiler.lowering.gemm.requantize import requantize_fields, wrap_i32
from edgekit.host.compiler.lowering.packing import signed_weights, zero_of_rows
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value
from edgekit.kb.targets.isa import Isa

STRIP_ROWS, WINDOW = 8, 64  # outputs per strip; inputs that a group selects from
_SLOTS = (4, 8)  # options for slots per group
_NEAR = 0.25  # cost of a byte from L1 relative to one from memory
_MOST_COLUMNS = (1 << 16) + WINDOW - 1  # the start of a window is stored in 16 bits
_MOST_PIECES = 32
_BLOCK_BYTES = 8192  # input bytes per task, which stay in L1 along with a strip
_COPIED_BYTES = 16384  # the same of copied windows, whose weights are read again for each task
_ROWS = np.arange(STRIP_ROWS)
_I32 = np.dtype(np.int32)


@dataclass(frozen=True, eq=False)
class QuantizedStrips:
    """Weights in the layout of ek_sparse_i8_args, in groups of `slots` slots."""

    slots: int
    first: Array
    base: Array
    groups: Array
    order: Array

    @property
    def bytes_read(self) -> float:
        """Cost-weighted bytes loaded per point: weights, and windows, which are in L1."""
        return len(self.base) * (2 + 2 * STRIP_ROWS * self.slots + _NEAR * WINDOW)

    def pieces(self, most: int) -> Array:
        """The first strips of at most `most` pieces, followed by the end.

        Pieces have similar numbers of groups rather than outputs, since weights per output vary.
        """
        count = max(min(most, len(self.first) - 1), 1)
        wanted = np.arange(1, count) * (int(self.first[-1]) / count)
        cuts = np.searchsorted(self.first, wanted)
        nearer = wanted - self.first[np.maximum(cuts - 1, 0)] < self.first[cuts] - wanted
        return np.concatenate([[0], cuts - nearer, [len(self.first) - 1]])


def prunable_i8_weights(graph: Graph, node: Node) -> Array | None:
    """The s8 weights [n, k] of a quantized dense layer or convolution, less their zero point.

    Returns None for other operators, and for weights that are not constant, do not fit s8, or have
    more columns than a window start can address or copies of windows can hold.
    """
    if not _is_layer(node):
        return None
    x, w = (graph.tensors[name or ""] for name in node.inputs[:2])
    types = (x.dtype, w.dtype, graph.tensors[node.outputs[0]].dtype)
    if types not in ((DType.I8,) * 3, (DType.U8,) * 3) or w.data is None or x.data is not None:
        return None
    signed, zero = signed_weights(w.data.reshape(len(w.data), -1), zero_of_rows(w))
    most = _MOST_COLUMNS if copied_window(graph, node) is None else SPARSE_I8_COPIES
    return None if zero.any() or signed.shape[1] > most else signed


def _is_layer(node: Node) -> bool:
    if not isinstance(node.op, ops.FullyConnected | ops.Conv2D) or node.op.epilogue is not None:
        return False
    return isinstance(node.op, ops.FullyConnected) or len(node.inputs) < 4


def copied_window(graph: Graph, node: Node) -> Window | None:
    """The window of a convolution whose inputs per point are not adjacent in x, else None."""
    if not isinstance(node.op, ops.Conv2D):
        return None
    x, w, y = (graph.tensors[t or ""] for t in (*node.inputs[:2], node.outputs[0]))
    window = window_of(node.op, x, w, y)
    return None if window.pointwise else window


def quantized_strips(weights: Array, isa: Isa) -> QuantizedStrips:
    """s8 weights [n, k] with the number of slots per group that reads the fewest bytes."""
    dots = isa.i8.is_signed_dot
    made = [_pack_strips(weights, slots, dots) for slots in _SLOTS]
    return min(made, key=lambda strips: strips.bytes_read)


def _pack_strips(weights: Array, slots: int, dots: bool) -> QuantizedStrips:
    """Packs outputs with similar weight counts into a strip; groups of all strips are built at
    once."""
    rows, k = weights.shape
    strips = -(-rows // STRIP_ROWS)
    order = np.argsort(-np.count_nonzero(weights, axis=1), kind="stable")
    column, value = _rows_of(weights[order], strips)
    at = np.zeros((strips, STRIP_ROWS), np.int64)
    left, found = np.arange(strips), []
    while True:
        base = column[left[:, None], _ROWS, at[left]].min(axis=1)
        left, base = left[base < k], base[base < k]
        if not len(left):
            break
        base = np.clip(base, 0, max(k - WINDOW, 0))
        found.append((left, base, _next_group(column, value, at, left, base, slots)))
    none = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 2, slots, STRIP_ROWS))
    strip, base, pairs = (np.concatenate(parts) for parts in zip(none, *found, strict=True))
    sort = np.argsort(strip, kind="stable")
    first = np.searchsorted(strip[sort], np.arange(strips + 1))
    groups = pairs[sort].astype(np.int8)
    if dots:  # four slots of a row are contiguous
        groups = groups.reshape(-1, 2, slots // 4, 4, STRIP_ROWS).swapaxes(-1, -2)
    whole = np.concatenate([order, np.repeat(order[-1:], strips * STRIP_ROWS - rows)])
    return QuantizedStrips(slots, first, base[sort], groups, whole)


def _rows_of(weights: Array, strips: int) -> tuple[Array, Array]:
    """Columns and values of nonzero weights, [strips, rows, most], padded with column k, value 0.

    A weight of -128 is stored as -64 twice.
    """
    row, column = np.nonzero(weights)
    value = weights[row, column].astype(np.int64)
    times = np.where(value == -128, 2, 1)
    row, column = np.repeat(row, times), np.repeat(column, times)
    value = np.repeat(value // times, times)
    start = np.searchsorted(row, np.arange(strips * STRIP_ROWS + 1))
    most = int(np.diff(start).max()) + max(_SLOTS)
    columns = np.full((strips * STRIP_ROWS, most), weights.shape[1], np.int64)
    values = np.zeros(columns.shape, np.int64)
    nth = np.arange(len(row)) - start[row]
    columns[row, nth], values[row, nth] = column, value
    shape = (strips, STRIP_ROWS, most)
    return columns.reshape(shape), values.reshape(shape)


def _next_group(
    column: Array, value: Array, at: Array, strips: Array, base: Array, slots: int
) -> Array:
    """The next group of some strips: the next weights of each row within the window.

    Returns [strips, 2, slots, rows] and advances `at`.
    """
    made = np.zeros((len(strips), 2, slots, STRIP_ROWS), np.int8)
    for slot in range(slots):
        here = strips[:, None], _ROWS, at[strips]
        columns, values = column[here] - base[:, None], value[here]
        taken = (columns < WINDOW) & (values != 0)
        made[:, 0, slot], made[:, 1, slot] = columns * taken, values * taken
        at[strips] += taken
    return made


@lowers(ops.PrunedConv2D)
def lower_sparse_i8(ctx: Context, node: Node) -> list[KernelCall]:
    """Lowers a layer whose weights are accepted by `prunable_i8_weights`."""
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    weights = prunable_i8_weights(ctx.graph, node)
    assert weights is not None
    assert isinstance(node.op, ops.FullyConnected | ops.Conv2D)
    rows, k = weights.shape
    strips = quantized_strips(weights, ctx.isa)
    dense = isinstance(node.op, ops.FullyConnected)
    macros: dict[str, str | int] = {"ROWS": STRIP_ROWS, "WINDOW": WINDOW}
    macros |= {"SLOTS": strips.slots, "TX": C_TYPES[x.dtype]}
    window = copied_window(ctx.graph, node)
    macros |= {"COPIED": int(window is not None)} | ({"ROUND_ONCE": 1} if dense else {})
    kernel = ctx.kernel(
        f"sparse_{x.dtype.value}_{_kind(dense, window)}_{strips.slots}",
        "sparse/i8_layer.c",
        "sparse/i8_layer.h",
        "ek_sparse_i8_args",
        **macros,
    )
    points = y.elements // rows
    # Threads take different points, since outputs of one point share cache lines of y.
    held = _BLOCK_BYTES if window is None else _COPIED_BYTES
    block = max(min(held // k, math.ceil(points / ctx.threads)), 1)
    # Windows are copied once per thread that has pieces of their task.
    whole = window is not None and math.ceil(points / block) >= ctx.threads
    cut = strips.pieces(1 if whole else _MOST_PIECES)
    low, high = activation_range(node.op.activation, y)
    fields: dict[str, Field] = {
        "rows": rows,
        "cols": k,
        "points": points,
        "pieces": len(cut) - 1,
        "block": block,
        "cut": ctx.weights.add(cut.astype(np.uint32)),
        "first": ctx.weights.add(strips.first.astype(np.uint32)),
        "base": ctx.weights.add(strips.base.astype(np.uint16)),
        "groups": ctx.weights.add(strips.groups),
        "order": ctx.weights.add(strips.order.astype(np.uint32)),
        **_epilogue_fields(ctx, node, weights, strips.order),
        "y_zero": zero_point_of(y),
        "low": low,
        "high": high,
        "pitch": ctx.pitch(y.name),
        "x": Value(x.name),
        "y": Value(y.name),
    }
    if window is not None:
        fields |= {"win": window.fields, "x_zero": zero_point_of(x)}
    return [KernelCall(kernel, fields, (len(cut) - 1) * math.ceil(points / block))]


def _kind(dense: bool, window: Window | None) -> str:
    return "dense" if dense else "conv" if window is None else "window"


def _epilogue_fields(ctx: Context, node: Node, weights: Array, order: Array) -> dict[str, Field]:
    """Bias and factors in strip order; the bias includes the contribution of x's zero point."""
    x, w, y = (ctx.tensor(name) for name in (*node.inputs[:2], node.outputs[0]))
    rows, width = len(weights), round_up(len(order), ctx.isa.vl) + ctx.isa.vl
    x_zero = zero_point_of(x) - (128 if x.dtype is DType.U8 else 0)
    bias = bias_vector(ctx.optional(node, 2), rows, _I32).astype(np.int64)
    bias -= x_zero * weights.sum(axis=1, dtype=np.int64)
    dense = isinstance(node.op, ops.FullyConnected)
    factor = dense_multiplier(x, w, y) if dense else convolution_multiplier(x, w, y)
    ordered = Multiplier(
        *(np.broadcast_to(v, rows)[order] for v in (factor.multiplier, factor.shift))
    )
    fields = requantize_fields(ctx, ordered, width, rounds_once=dense)
    return {**fields, "bias": ctx.weights.add(padded(wrap_i32(bias)[order], width, _I32))}
