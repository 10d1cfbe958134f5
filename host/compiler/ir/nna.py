"""Defines which operators a convolution accelerator (NNA) can run."""

from __future__ import annotations

import math
from typing import Literal

from edgekit.host.compiler.ir.ops import Conv2D, DepthwiseConv2D, FullyConnected, MatMul
from edgekit.host.compiler.ir.quantization import zero_points_of
from edgekit.host.compiler.ir.types import DType, Graph, Node, Tensor

# Use of the nine taps: a 3x3 window; a 3x3 window with diagonal weights (depthwise); or nine groups
# of 32 input channels of one point.
NnaForm = Literal["windows", "diagonal", "points"]

SIDE = 3  # of the NNA's window

_DEPTH = (2**31 - 1) // 255**2  # products whose sum fits 32 bits, without zero points


def is_layer(node: Node) -> bool:
    """Whether a node is of a kind the NNA supports: a convolution, a fully connected layer, or a
    product of two computed matrices."""
    return node.op.on_nna


def fits_nna(graph: Graph, node: Node) -> bool:
    """Whether the NNA can run a node."""
    return is_layer(node) and misfit(graph, node) is None


def misfit(graph: Graph, node: Node) -> str | None:
    """Return why the NNA cannot run a node that `is_layer`, or None. It requires s8, weights
    without zero point, one image, and windows of at most 3x3 with stride 1 or 2."""
    op = node.op
    x, w = (graph.tensors[name or ""] for name in node.inputs[:2])
    if w.data is None and not isinstance(op, MatMul):
        return "expected constant weights, found computed ones"
    types = (x.dtype, w.dtype, graph.tensors[node.outputs[0]].dtype)
    if set(types) != {DType.I8}:
        return (
            f"expected s8 throughout, found {' and '.join(dict.fromkeys(t.value for t in types))}"
        )
    if isinstance(op, MatMul):
        return _product_misfit(graph, node)
    if (points := zero_points_of(w)).any():
        return f"expected weights with zero point 0, found {points[points != 0].flat[0]}"
    if isinstance(op, Conv2D | DepthwiseConv2D):
        return _window_misfit(op, x, w)
    return None


def _window_misfit(op: Conv2D | DepthwiseConv2D, x: Tensor, w: Tensor) -> str | None:
    kernel = w.shape[1:3]
    if x.shape[0] != 1:
        return f"expected one image, found {x.shape[0]}"
    if max(kernel) > SIDE:
        return f"expected windows of at most 3x3, found {kernel[0]}x{kernel[1]}"
    if isinstance(op, DepthwiseConv2D) and op.multiplier != 1:
        return f"expected one output for each channel, found {op.multiplier}"
    if form_of_layer(op, w) == "points":
        return None
    if op.stride not in ((1, 1), (2, 2)):
        return f"expected stride 1 or 2, found {op.stride[0]}x{op.stride[1]}"
    if op.dilation != (1, 1):
        return f"expected no dilation, found {op.dilation[0]}x{op.dilation[1]}"
    return None


def _product_misfit(graph: Graph, node: Node) -> str | None:
    _, _, k, _ = product_of(graph, node)
    if k > _DEPTH:
        return f"expected sums of at most {_DEPTH} products, found {k}"
    several = [i for i in node.inputs if i and (q := graph.tensors[i].quant) and q.per_channel]
    return "expected one scale, found one for each channel" if several else None


def product_of(graph: Graph, node: Node) -> tuple[int, int, int, int]:
    """Return (matrices, m, k, n) of a `MatMul`."""
    a, y = graph.tensors[node.inputs[0] or ""], graph.tensors[node.outputs[0]]
    return math.prod(y.shape[:-2]), y.shape[-2], a.shape[-1], y.shape[-1]


def form_of_layer(op: Conv2D | DepthwiseConv2D | FullyConnected, w: Tensor) -> NnaForm:
    """How a supported layer uses the taps."""
    if isinstance(op, FullyConnected):
        return "points"
    if isinstance(op, DepthwiseConv2D):
        return "diagonal"
    return "points" if w.shape[1:3] == (1, 1) else "windows"
