"""Convolutions and fully connected layers, each lowered to one matrix product."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.ops import Conv2D, FullyConnected, OutlierFullyConnected
from edgekit.host.compiler.ir.types import Activation, Array, DType, Node, Tensor
from edgekit.host.compiler.lowering.common.window import Window, window_of
from edgekit.host.compiler.lowering.context import Context, lowers
from edgekit.host.compiler.lowering.gemm.outlier import lower_outlier
from edgekit.host.compiler.lowering.gemm.product_f32 import f32_product
from edgekit.host.compiler.lowering.gemm.product_i8 import hybrid_product, i8_product
from edgekit.host.compiler.lowering.plan import KernelCall


@lowers(ops.Conv2D)
def lower_conv2d(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, Conv2D)
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    w = ctx.tensor(node.inputs[1])
    window = window_of(op, x, w, y)
    data = ctx.constant(node, 1, "weights")
    return product(ctx, node, window, data.reshape(data.shape[0], -1), op.activation)


@lowers(ops.FullyConnected)
def lower_fully_connected(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, FullyConnected)
    x = ctx.tensor(node.inputs[0])
    data = ctx.constant(node, 1, "weights")
    if x.dtype is DType.F32 and data.dtype == np.int8:
        return _by_rows(ctx, node, op)
    n, k = data.shape
    m = x.elements // k if k else 0
    window = Window((1, 1, m, k), (1, 1, m, n), (1, 1))
    return product(ctx, node, window, data, op.activation)


def _by_rows(ctx: Context, node: Node, op: FullyConnected) -> list[KernelCall]:
    """A product of f32 rows, quantized at run time, and s8 weights, without separate outlier
    channels."""
    w = ctx.tensor(node.inputs[1])
    assert w.quant is not None
    scale = np.broadcast_to(w.quant.scale, w.shape[:1])[None]
    scales = Tensor(f"{w.name}:scales", scale.shape, DType.F32, data=scale)
    rows = OutlierFullyConnected(math.inf, op.keep_dims, op.activation)
    inner = Node(
        node.name, rows, (*node.inputs[:2], scales.name, *node.inputs[2:]), node.outputs
    )  # fmt: skip
    tensors = {**ctx.graph.tensors, scales.name: scales}
    graph = dataclasses.replace(ctx.graph, tensors=tensors)
    return lower_outlier(dataclasses.replace(ctx, graph=graph), inner)


def product(
    ctx: Context, node: Node, window: Window, weights: Array, activation: Activation
) -> list[KernelCall]:
    """One GEMM with m = pixels, n = output channels, k = window size; weights are [n, k]."""
    x, w = ctx.tensor(node.inputs[0]), ctx.tensor(node.inputs[1])
    types = (x.dtype, w.dtype, ctx.tensor(node.outputs[0]).dtype)
    if types in ((DType.F32,) * 3, (DType.F16,) * 3):
        return f32_product(ctx, node, window, weights, activation)
    if types in ((DType.I8,) * 3, (DType.U8,) * 3):
        return [i8_product(ctx, node, window, weights, activation)]
    if types == (DType.F32, DType.I8, DType.F32) and isinstance(node.op, Conv2D):
        return hybrid_product(ctx, node, window, weights, activation)
    names = ", ".join(t.value for t in types)
    raise ctx.unsupported(node, f"the combination of types {names}")
