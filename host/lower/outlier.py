"""Fully connected layers whose activations are split at run time: outlier/layer.c marks channels
and quantizes, conv/i8_conv.c multiplies bytes and adds what the outliers give."""

from __future__ import annotations

import numpy as np

from edgekit.host.graph.ops import OutlierFullyConnected
from edgekit.host.graph.types import Array, DType, Node, Tensor
from edgekit.host.lower.context import Context, padded, round_up
from edgekit.host.lower.isa import ByteProduct
from edgekit.host.lower.plan import Call, Field, Kernel, Value
from edgekit.host.lower.product_i8 import BytesProduct, float_product
from edgekit.host.lower.window import Window, bias_vector

_F32 = np.dtype(np.float32)
_MARK_BITS = 32


def lower_outlier(ctx: Context, node: Node) -> list[Call]:
    op = node.op
    assert isinstance(op, OutlierFullyConnected)
    x = ctx.tensor(node.inputs[0])
    weights, scale = ctx.constant(node, 1, "weights"), ctx.constant(node, 2, "scales")
    n, k = weights.shape
    m, slices = x.elements // k, len(scale)
    depth = k // slices
    # VNNI multiplies bytes without a sign: there X1 is shifted by 128.
    unsigned = ctx.isa.i8 is ByteProduct.DOT4_US
    x1 = Tensor(f"{x.name}:x1", (m, depth), DType.U8 if unsigned else DType.I8)
    codes, row_scale = ctx.scratch(node, m * k), ctx.scratch(node, 4 * m)
    count = ctx.scratch(node, 4)
    window = Window((1, 1, m, depth), (1, 1, m, n), (1, 1))
    low, high = op.activation.bounds
    width = round_up(n, ctx.isa.vl)
    products, packed = [], []
    for i in range(slices):
        part = weights[:, i * depth : (i + 1) * depth]
        made = float_product(ctx, node, window, part, x1, 128 if unsigned else 0)
        last = i + 1 == slices
        bias = ctx.optional(node, 3) if last else None
        fields: dict[str, Field] = {
            **made.fields,
            "x": Value(codes.tensor, i * m * depth),
            "scale": ctx.weights.add(padded(scale[i], width, _F32)),
            "x_scale": row_scale,
            "x_scale_step": 1,
            "bias_f32": ctx.weights.add(bias_vector(bias, width, _F32)),
            "add": ctx.weights.add(np.ones(1, np.int32)) if i else count,
            "low_f32": low if last else -float("inf"),
            "high_f32": high if last else float("inf"),
            "y": Value(node.outputs[0]),
        }
        products.append(Call(made.kernel, fields, made.tasks))
        packed.append(made)
    given = (m, n, k, depth, width)
    split = _split(ctx, node, given, packed, scale, (codes, row_scale, count))
    return [split, *products]


def _split(
    ctx: Context,
    node: Node,
    sizes: tuple[int, int, int, int, int],
    packed: list[BytesProduct],
    scale: Array,
    scratch: tuple[Value, Value, Value],
) -> Call:
    m, n, k, depth, width = sizes
    codes, row_scale, count = scratch
    op = node.op
    assert isinstance(op, OutlierFullyConnected)
    whole = np.zeros((len(scale), width), np.float32)
    whole[:, :n] = scale
    first = packed[0]
    fields: dict[str, Field] = {
        "m": m, "n": n, "k": k,
        "threshold": op.threshold,
        "x": Value(str(node.inputs[0])),
        "weights": ctx.weights.add(np.concatenate([p.weights for p in packed])),
        "scale": ctx.weights.add(whole),
        "slice": depth,
        "slice_bytes": first.weights.nbytes,
        "depth": first.depth,
        "group": ctx.isa.i8.group,
        "columns": first.columns,
        "n_padded": width,
        "wide": int(first.weights.dtype == np.int16),
        "x1": codes,
        "row_scale": row_scale,
        "marks": ctx.scratch(node, round_up(k, _MARK_BITS) // 8),
        "channel": ctx.scratch(node, 4 * k),
        "count": count,
        "rows": codes if len(packed) == 1 else ctx.scratch(node, m * k),
        "y": Value(node.outputs[0]),
    }  # fmt: skip
    simd = ctx.isa.simd
    parts = (Kernel(f"ek_outlier_mark_{simd}", "outlier/mark.c", "", ""),)
    kernel = Kernel(
        f"ek_outlier_layer_{simd}", "outlier/layer.c", "outlier/layer.h", "ek_outlier_layer_args",
        (), parts,
    )  # fmt: skip
    return Call(kernel, fields, None)
