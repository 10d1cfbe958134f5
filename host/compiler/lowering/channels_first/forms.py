"""Which operators support channels-first images, in which form, and at what cost."""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.costs.layout_table import WINDOWS, KernelWork, LayoutTable
from edgekit.host.compiler.costs.layouts import (
    LayoutCosts,
    channels_first_work,
    channels_last_work,
    is_pointwise,
    layout_costs,
)
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.ops.channels_first import TO_NCHW, TO_NHWC
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node, Operator, Shape, Tensor
from edgekit.host.compiler.lowering.channels_first.channels_first import (
    band_of,
    channels_first_window,
)
from edgekit.host.compiler.lowering.common.window import Window
from edgekit.host.compiler.lowering.sparse.sparse_window import bands_of


def channels_first_form(graph: Graph, node: Node, vl: int) -> Operator | None:
    """The channels-first variant of an operator; None if no kernel supports it."""
    op = node.op
    named = [None if t is None else graph.tensors[t] for t in node.inputs]
    y = graph.tensors[node.outputs[0]] if node.outputs else None
    if y is None or len(y.shape) != 4 or y.dtype is not DType.F32 or not named or not named[0]:
        return None
    if named[0].dtype is not DType.F32:
        return None
    if isinstance(op, ops.Conv2D | ops.DepthwiseConv2D):
        w = named[1]
        if w is None or w.data is None or w.dtype is not DType.F32:
            return None
        if isinstance(op, ops.Conv2D):
            return _conv_form(op, named[0], w, y)
        return _depthwise_form(op, named[0], w, y, vl)
    if any(t is None or t.dtype is not DType.F32 or t.data is not None for t in named):
        return None
    return _moving_form(op, [t.shape for t in named if t is not None], y.shape)


def measured_form(graph: Graph, node: Node, table: LayoutTable, vl: int) -> Operator | None:
    """As `channels_first_form`, but only for kinds that were measured."""
    form = channels_first_form(graph, node, vl)
    if not isinstance(form, ops.ChannelsFirstConv2D) or table.knows(WINDOWS[1]):
        return form
    return form if is_pointwise(form, graph.tensors[node.inputs[1] or ""].shape) else None


def costs(graph: Graph, node: Node, table: LayoutTable, vl: int) -> LayoutCosts | None:
    """Returns the costs of a node; None for an operator that supports channels-last only."""
    form = measured_form(graph, node, table, vl)
    if form is None:
        return None
    if node.op.layout_kernels is None:
        return LayoutCosts(0.0, 0.0)
    x, y = graph.tensors[node.inputs[0] or ""].shape, graph.tensors[node.outputs[0]].shape
    weights = _constant_weights(graph, node)
    pixels = _computed_pixels(form, weights, x, y, vl)
    return layout_costs(node.op, form, weights, (x, y), pixels, table, vl)


def work_of(graph: Graph, node: Node, vl: int) -> KernelWork:
    """The work of a convolution in either layout, or of a transpose."""
    y = graph.tensors[node.outputs[0]].shape
    if isinstance(node.op, ops.Transpose):
        return KernelWork(0, math.prod(y))
    weights, x = _constant_weights(graph, node), graph.tensors[node.inputs[0] or ""].shape
    if isinstance(node.op, ops.ChannelsFirst):
        x, y = (tuple(shape[p] for p in TO_NHWC) for shape in (x, y))
        pixels = _computed_pixels(node.op, weights, x, y, vl)
        return channels_first_work(node.op, weights, x, y, pixels)
    return channels_last_work(node.op, weights, x, y, vl)


def is_sparse(graph: Graph, node: Node, table: LayoutTable) -> bool:
    """True for a convolution with some zero weights, of a kind that was measured."""
    if not isinstance(node.op, ops.Conv2D) or measured_form(graph, node, table, 1) is None:
        return False
    data = graph.tensors[node.inputs[1] or ""].data
    return data is not None and _has_zeros(data)


def runs_anywhere(op: Operator) -> bool:
    """True for element-wise f32 arithmetic or comparison, which works in any layout."""
    changes_type = ops.Cast | ops.Convert | ops.Quantize
    return op.elementwise and not isinstance(op, changes_type | ops.Where)


def _constant_weights(graph: Graph, node: Node) -> Array:
    data = graph.tensors[node.inputs[1] or ""].data
    assert data is not None
    return data


def _has_zeros(weights: Array) -> bool:
    return int(np.count_nonzero(weights)) < weights.size


def _computed_pixels(form: Operator, weights: Array, x: Shape, y: Shape, vl: int) -> int:
    """Pixels per channel that the kernel of a channels-first convolution computes, in vectors.

    Vectors hold pixels of an image for pointwise convolutions, of a band for other pruned ones, of
    a row for depthwise ones. Shapes are [n, h, w, c].
    """
    n, h, w, _ = y
    if not isinstance(form, ops.ChannelsFirstConv2D):
        return n * h * round_up(w, vl)
    if is_pointwise(form, weights.shape):
        return n * round_up(h * w, vl)
    bands = bands_of(_window_from_nhwc(form, x, weights.shape, y))
    assert bands is not None
    return bands.all_pixels(vl)


def _conv_form(op: ops.Conv2D, x: Tensor, w: Tensor, y: Tensor) -> Operator | None:
    """The channels-first convolution; windows larger than 1x1 need pruned weights, whose nonzero
    values are read one by one."""
    form = ops.ChannelsFirstConv2D(op.stride, op.dilation, op.padding, op.activation)
    if is_pointwise(op, w.shape):
        return form
    assert w.data is not None
    fits = _has_zeros(w.data) and bands_of(_window_from_nhwc(form, x.shape, w.shape, y.shape))
    return form if fits else None


def _depthwise_form(
    op: ops.DepthwiseConv2D, x: Tensor, w: Tensor, y: Tensor, vl: int
) -> Operator | None:
    if op.multiplier != 1 or x.shape[3] == 1:
        return None
    form = ops.ChannelsFirstDepthwiseConv2D(op.stride, op.dilation, op.padding, op.activation)
    return form if band_of(_window_from_nhwc(form, x.shape, w.shape, y.shape), vl) else None


def _window_from_nhwc(
    op: ops.ChannelsFirstConv2D | ops.ChannelsFirstDepthwiseConv2D,
    x: Shape,
    weights: Shape,
    y: Shape,
) -> Window:
    """The channels-first window for images whose shapes are given as [n, h, w, c]."""
    x, y = (tuple(shape[p] for p in TO_NCHW) for shape in (x, y))
    return channels_first_window(op, x, weights, y)


def _moving_form(op: Operator, shapes: list[Shape], y: Shape) -> Operator | None:
    """The channels-first variant of operators whose kernels do not depend on axis order."""
    if runs_anywhere(op):
        return op if all(shape == y for shape in shapes) else None
    if isinstance(op, ops.Concat):
        return ops.Concat(TO_NCHW.index(op.axis))
    if isinstance(op, ops.Pad):
        before, after = ([v[p] for p in TO_NCHW] for v in (op.before, op.after))
        return ops.Pad(tuple(before), tuple(after))
    return None
