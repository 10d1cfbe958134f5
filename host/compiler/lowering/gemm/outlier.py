"""Fully connected layers and 1x1 convolutions whose activation outliers are split off at run time.

outlier/layer.c marks outlier channels and quantizes the rest; conv/i8_conv.c multiplies bytes and
adds the outliers' contribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgekit.device.runtime.kernel_facts import OUTLIER_CHANNELS
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import ALIGN, round_up
from edgekit.host.compiler.ir.ops import OutlierFullyConnected
from edgekit.host.compiler.ir.types import Array, DType, Node, Tensor
from edgekit.host.compiler.lowering.common.window import Window, bias_vector
from edgekit.host.compiler.lowering.context import Context, lowers
from edgekit.host.compiler.lowering.gemm.group_products import (
    ROOM_BYTES,
    GroupsPart,
    GroupsProduct,
    groups_product,
    x1_type,
)
from edgekit.host.compiler.lowering.gemm.grouped_row import (
    STREAM_SCALES,
    Stream,
    bits_of,
    grouped_row,
    is_streamed,
    operands_of,
    raised_by,
    stream_of,
    sums_of,
)
from edgekit.host.compiler.lowering.gemm.product_i8 import float_product
from edgekit.host.compiler.lowering.gemm.row_tables import row_tables
from edgekit.host.compiler.lowering.gemm.scales import stored_scales
from edgekit.host.compiler.lowering.packing import NO_ZERO, fits_int4
from edgekit.host.compiler.lowering.plan import Field, Kernel, KernelCall, Value, Weights

_F32 = np.dtype(np.float32)
_MARK_BITS = 32


@dataclass(frozen=True)
class PackedRows:
    """Packed byte weights [panel][depth / group][columns][group], as defined in outlier/layer.h.

    All panels together have `padded` columns.
    """

    weights: Weights
    depth: int
    columns: int
    padded: int


@lowers(ops.OutlierFullyConnected)
def lower_outlier(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, OutlierFullyConnected)
    x = ctx.tensor(node.inputs[0])
    weights, scale = operands_of(ctx, node)
    n, k = weights.shape
    m, slices = x.elements // k, len(scale)
    streams = is_streamed(ctx, node)
    if streams and m == 1:
        return _lower_row(ctx, node, op)
    stream = stream_of(ctx, node) if streams else None
    scales = np.zeros((slices, round_up(n, ctx.isa.vl)), np.float32)
    scales[:, :n] = scale
    of_groups = stored_scales(scales, 16 if slices > 1 else 32)
    short = of_groups.bits == 16
    made = _product(ctx, node, m, short, stream)
    stored, part_bytes = (stream.at, 0) if stream else _store_parts(ctx, made)
    quantized, row_scale = ctx.scratch(node, m * k + ROOM_BYTES), ctx.scratch(node, 4 * m)
    scale_field = "scale16" if short else "scale"
    scales_at = None if stream else ctx.weights.add(of_groups.values)
    residual, count = ctx.optional(node, 4), ctx.scratch(node, 4)
    products = []
    for i, part in enumerate(made.parts):
        last = i + 1 == len(made.parts)
        bias = ctx.optional(node, 3) if last else None
        low, high = op.activation.bounds if last else (-float("inf"), float("inf"))
        # y already holds a partial result before this product
        holds_some = i > 0 or residual is not None
        fields: dict[str, Field] = {
            "weights": Weights(stored.offset + i * part_bytes),
            **part.fields,
            "x": Value(quantized.tensor, part.first * (k // slices)),
            "x_scale": row_scale,
            "x_scale_step": 1,
            "bias_f32": ctx.weights.add(bias_vector(bias, scales.shape[1], _F32)),
            "add": ctx.weights.add(np.ones(1, np.int32)) if holds_some else count,
            "low_f32": low,
            "high_f32": high,
            "y": Value(node.outputs[0]),
        }
        if scales_at is not None:
            row = of_groups.values[0].nbytes
            fields[scale_field] = Weights(scales_at.offset + part.first * row)
        products.append(KernelCall(part.kernel, fields, part.tasks))
    fields = {
        "m": m, "n": n, "k": k, "share": op.share, "threshold": op.threshold,
        "x": Value(x.name),
        "weights": stored,
        scale_field: scales_at,
        "slice": k // slices, "slices": made.groups,
        "part_bytes": part_bytes,
        "depth": made.depth,
        "columns": made.columns,
        "n_padded": stream.padded(n, ctx.isa) if stream else scales.shape[1],
        "bits": made.bits,
        "streamed": int(stream is not None),
        "scales": STREAM_SCALES.index(stream.scales) if stream else 0,
        "x1": quantized,
        "row_scale": row_scale,
        "marks": ctx.scratch(node, round_up(k, _MARK_BITS) // 8),
        "channel": ctx.scratch(node, 4 * k),
        "count": count,
        "x2": ctx.scratch(node, 4 * m * OUTLIER_CHANNELS),
        "sums": None,
        "factor": 0,
        "multiples": 1,
        "residual": None if residual is None else Value(residual.name),
        "y": Value(node.outputs[0]),
    }  # fmt: skip
    return [KernelCall(_layer_kernel(ctx), fields, None), *products]


def _product(ctx: Context, node: Node, m: int, short: bool, stream: Stream | None) -> GroupsProduct:
    if stream or len(ctx.constant(node, 2, "scales")) > 1:
        return groups_product(ctx, node, m, short, stream)
    return _ungrouped_product(ctx, node, m)


def _lower_row(ctx: Context, node: Node, op: OutlierFullyConnected) -> list[KernelCall]:
    """A row whose product adds outliers and residual itself."""
    weights, scale = operands_of(ctx, node)
    (n, k), slices = weights.shape, len(scale)
    channel, count = ctx.scratch(node, 4 * k), ctx.scratch(node, 4)
    tables = row_tables(ctx, node, slices, channel, count) if op.tables else None
    x1 = row_scale = sums = None
    bits = bits_of(ctx, node)
    factor, multiples = -raised_by(ctx.isa, bits), sums_of(ctx.isa, bits)
    if tables is None:
        x1, row_scale = ctx.scratch(node, k + ROOM_BYTES), ctx.scratch(node, 4)
        sums = ctx.scratch(node, 4 * slices * multiples) if factor else None
    fields: dict[str, Field] = {
        "m": 1, "n": n, "k": k, "share": op.share,
        "threshold": op.threshold,
        "x": Value(node.inputs[0] or ""),
        "slice": k // slices,
        "x1": x1,
        "row_scale": row_scale,
        "marks": ctx.scratch(node, round_up(k, _MARK_BITS) // 8),
        "channel": channel,
        "count": count,
        "sums": sums,
        "factor": factor,
        "multiples": multiples,
        "y": None,
    }  # fmt: skip
    layer = KernelCall(_layer_kernel(ctx), fields, None)
    if tables is not None:
        return [layer, tables.made, grouped_row(ctx, node, tables.row, channel, count)]
    row = {"x1": x1, "sums": sums, "x_scale": row_scale}
    return [layer, grouped_row(ctx, node, row, channel, count)]


def _ungrouped_product(ctx: Context, node: Node, m: int) -> GroupsProduct:
    """The product of weights with one scale per output."""
    weights = ctx.constant(node, 1, "weights")
    n, k = weights.shape
    window = Window((1, 1, m, k), (1, 1, m, n), (1, 1))
    x_type = x1_type(ctx)
    x1 = Tensor(f"{ctx.tensor(node.inputs[0]).name}:x1", (m, k), x_type)
    halve = fits_int4(weights)
    zeros = (128 if x_type is DType.U8 else 0, NO_ZERO)
    made = float_product(ctx, node, window, weights, x1, zeros, halve)
    part = GroupsPart(made.kernel, made.fields, made.tasks, made.weights, 0)
    return GroupsProduct((part,), 1, made.depth, made.bits, made.columns)


def packed_rows(ctx: Context, table: str) -> PackedRows | None:
    """Locates the rows of a constant quantized table in the packed weights of another product.

    Returns None if no product does, or if its weights are not stored as bytes.
    """
    for node in ctx.graph.nodes:
        is_split = isinstance(node.op, OutlierFullyConnected)
        if not is_split or node.inputs[1] != table or len(ctx.constant(node, 2, "scales")) > 1:
            continue
        n, k = ctx.tensor(table).shape
        made = _ungrouped_product(ctx, node, ctx.tensor(node.inputs[0]).elements // k)
        if made.bits == 8:
            padded = round_up(n, ctx.isa.vl)
            return PackedRows(_store_parts(ctx, made)[0], made.depth, made.columns, padded)
    return None


def streamed_rows(ctx: Context, table: str, scale: Array) -> tuple[Stream, int] | None:
    """Locates the rows of a quantized table, with their scales [rows, groups], in the stream of a
    product by it; and the number of its columns, padded.

    Returns None if no product streams the table with these scales.
    """
    for node in ctx.graph.nodes:
        if not isinstance(node.op, OutlierFullyConnected) or node.inputs[1] != table:
            continue
        if is_streamed(ctx, node) and np.array_equal(ctx.constant(node, 2, "scales").T, scale):
            stream = stream_of(ctx, node)
            return stream, stream.padded(len(scale), ctx.isa)
    return None


def _store_parts(ctx: Context, made: GroupsProduct) -> tuple[Weights, int]:
    """Stores the weights of a product; returns their location and the bytes per part."""
    size = round_up(made.parts[0].weights.nbytes, ALIGN)
    return ctx.weights.add(
        np.concatenate([_padded_bytes(p.weights, size) for p in made.parts])
    ), size


def _padded_bytes(values: Array, size: int) -> Array:
    """The in-memory bytes of `values`, zero-padded to `size`."""
    raw = values.reshape(-1).view(np.uint8)
    return np.concatenate([raw, np.zeros(size - raw.size, np.uint8)])


def _layer_kernel(ctx: Context) -> Kernel:
    simd = ctx.isa.simd
    parts = (Kernel(f"ek_outlier_mark_{simd}", "outlier/mark.c", "", ""),)
    return Kernel(
        f"ek_outlier_layer_{simd}", "outlier/layer.c", "outlier/layer.h", "ek_outlier_layer_args",
        (), parts,
    )  # fmt: skip
