"""Fully connected layers and 1x1 convolutions whose activations are split at run time:
outlier/layer.c marks channels and quantizes, conv/i8_conv.c multiplies bytes and adds what the
outliers give."""

from __future__ import annotations

import numpy as np

from edgekit.host.align import ALIGN, round_up
from edgekit.host.graph import ops
from edgekit.host.graph.ops import OutlierFullyConnected
from edgekit.host.graph.types import Array, DType, Node, Tensor
from edgekit.host.lower.context import Context, Rules
from edgekit.host.lower.plan import Call, Field, Kernel, Value, Weights
from edgekit.host.lower.product_i8 import float_product
from edgekit.host.lower.window import Window, bias_vector
from edgekit.kb.isa import ByteProduct

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
    halve = bool(np.all((weights >= -8) & (weights <= 7)))
    made = [
        float_product(ctx, node, window, part, x1, (128 if unsigned else 0, 0), halve)
        for part in np.split(weights, slices, axis=1)
    ]
    slice_bytes = round_up(made[0].weights.nbytes, ALIGN)
    stored = ctx.weights.add(np.concatenate([_bytes(p.weights, slice_bytes) for p in made]))
    whole = np.zeros((slices, width), np.float32)
    whole[:, :n] = scale
    scales = ctx.weights.add(whole)
    residual = ctx.optional(node, 4)
    products = []
    for i, product in enumerate(made):
        last = i + 1 == slices
        bias = ctx.optional(node, 3) if last else None
        holds_some = i > 0 or residual is not None  # y, before this product
        fields: dict[str, Field] = {
            **product.fields,
            "x": Value(codes.tensor, i * m * depth),
            "weights": Weights(stored.offset + i * slice_bytes),
            "scale": Weights(scales.offset + i * whole[i].nbytes),
            "x_scale": row_scale,
            "x_scale_step": 1,
            "bias_f32": ctx.weights.add(bias_vector(bias, width, _F32)),
            "add": ctx.weights.add(np.ones(1, np.int32)) if holds_some else count,
            "low_f32": low if last else -float("inf"),
            "high_f32": high if last else float("inf"),
            "y": Value(node.outputs[0]),
        }
        products.append(Call(product.kernel, fields, product.tasks))
    fields = {
        "m": m, "n": n, "k": k,
        "threshold": op.threshold,
        "x": Value(x.name),
        "weights": stored,
        "scale": scales,
        "slice": depth,
        "slice_bytes": slice_bytes,
        "depth": made[0].depth,
        "group": ctx.isa.i8.group,
        "columns": made[0].columns,
        "n_padded": width,
        "bits": made[0].bits,
        "x1": codes,
        "row_scale": row_scale,
        "marks": ctx.scratch(node, round_up(k, _MARK_BITS) // 8),
        "channel": ctx.scratch(node, 4 * k),
        "count": count,
        "rows": codes if slices == 1 else ctx.scratch(node, m * k),
        "residual": None if residual is None else Value(residual.name),
        "y": Value(node.outputs[0]),
    }  # fmt: skip
    return [Call(_layer_kernel(ctx), fields, None), *products]


def _bytes(values: Array, size: int) -> Array:
    """The bytes of values as they lie in memory, and zeros up to `size`."""
    raw = values.reshape(-1).view(np.uint8)
    return np.concatenate([raw, np.zeros(size - raw.size, np.uint8)])


def _layer_kernel(ctx: Context) -> Kernel:
    simd = ctx.isa.simd
    parts = (Kernel(f"ek_outlier_mark_{simd}", "outlier/mark.c", "", ""),)
    return Kernel(
        f"ek_outlier_layer_{simd}", "outlier/layer.c", "outlier/layer.h", "ek_outlier_layer_args",
        (), parts,
    )  # fmt: skip


RULES: Rules = {
    ops.OutlierFullyConnected: lower_outlier,
}
