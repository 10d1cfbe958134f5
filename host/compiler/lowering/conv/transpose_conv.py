"""Transposed convolutions with non-overlapping windows: a GEMM, then a rearrangement of pixels."""

from __future__ import annotations

import dataclasses

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import strides_of
from edgekit.host.compiler.ir.checks import FLOATS
from edgekit.host.compiler.ir.ops import Conv2D, TransposeConv2D
from edgekit.host.compiler.ir.types import Array, DType, Node, Quant, Tensor
from edgekit.host.compiler.lowering.common.copies import strided_copy
from edgekit.host.compiler.lowering.common.window import Window
from edgekit.host.compiler.lowering.context import Context, lowers
from edgekit.host.compiler.lowering.conv.conv import product
from edgekit.host.compiler.lowering.gemm.epilogues import tiled_operand
from edgekit.host.compiler.lowering.plan import KernelCall, Value


@lowers(ops.TransposeConv2D)
def lower_transpose_conv(ctx: Context, node: Node) -> list[KernelCall]:
    """x [n,h,w,ic] · W [kh·kw·oc, ic] yields each pixel's window; windows are adjacent in y."""
    op = node.op
    assert isinstance(op, TransposeConv2D)
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    data = ctx.constant(node, 1, "weights")
    oc, kh, kw, ic = data.shape
    n, h, w, _ = x.shape
    if op.stride != (kh, kw) or op.padding.any or y.shape != (n, h * kh, w * kw, oc):
        raise ctx.unsupported(node, "a transposed convolution with overlapping windows")
    if x.dtype not in (*FLOATS, DType.I8, DType.U8):
        raise ctx.unsupported(node, f"type {x.dtype.value}")
    wide = kh * kw * oc
    target = ctx.scratch(node, n * h * w * wide * x.dtype.bytes)
    weights, tiled = _row_weights(ctx, node, data), _repeat_bias(ctx, node, kh * kw, oc)
    rows = weights.data
    assert rows is not None
    operand = tiled_operand(ctx, node, kh * kw)
    inner = Node(
        node.name,
        Conv2D(activation=op.activation, epilogue=op.epilogue),
        (x.name, weights.name, tiled.name, *([None, operand.name] if operand else [])),
        (target.tensor,),
    )
    tensors = dict(ctx.graph.tensors) | {
        weights.name: weights,
        tiled.name: tiled,
        **({operand.name: operand} if operand else {}),
        target.tensor: Tensor(target.tensor, (n, h, w, wide), x.dtype, y.quant),
    }
    nested = dataclasses.replace(ctx, graph=dataclasses.replace(ctx.graph, tensors=tensors))
    window = Window((n, h, w, ic), (n, h, w, wide), (1, 1))
    gemm = product(nested, inner, window, rows, op.activation)
    source = strides_of((n, h, w, kh, kw, oc), x.dtype.bytes)
    order = (0, 1, 3, 2, 4, 5)
    shape = [(n, h, w, kh, kw, oc)[i] for i in order]
    place = strided_copy(
        ctx,
        shape,
        [source[i] for i in order],
        strides_of(shape, x.dtype.bytes),
        x.dtype.bytes,
        target,
        Value(y.name),
    )
    return [*gemm, place]


def _row_weights(ctx: Context, node: Node, data: Array) -> Tensor:
    """Weights [oc, kh, kw, ic] as rows [kh·kw·oc, ic], with a scale per row."""
    oc, kh, kw, ic = data.shape
    rows = np.ascontiguousarray(data.transpose(1, 2, 0, 3)).reshape(kh * kw * oc, ic)
    w = ctx.tensor(node.inputs[1])
    quant = w.quant
    if quant is not None and quant.per_channel:
        zeros = np.resize(quant.zero_point, quant.scale.size)
        quant = Quant(np.tile(quant.scale, kh * kw), np.tile(zeros, kh * kw), 0)
    return Tensor(f"{node.name}:weights", rows.shape, w.dtype, quant, rows)


def _repeat_bias(ctx: Context, node: Node, count: int, channels: int) -> Tensor:
    """The bias repeated for the `count` pixels of a window; zeros if there is none."""
    x, bias = ctx.tensor(node.inputs[0]), ctx.optional(node, 2)
    dtype = x.dtype if x.dtype in FLOATS else DType.I32
    values = np.zeros(channels, dtype.numpy) if bias is None or bias.data is None else bias.data
    return Tensor(f"{node.name}:bias", (count * channels,), dtype, data=np.tile(values, count))
