"""Costs of operators in either image layout, and which operators support channel-major images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.ops.planar import TO_PIXELS, TO_PLANES
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node, Operator, Shape, Tensor
from edgekit.host.compiler.lowering.channels_first.channels_first import band_of, planar_window
from edgekit.host.compiler.lowering.conv.window import Window
from edgekit.host.compiler.lowering.sparse.sparse_window import bands_of
from edgekit.host.compiler.tables.layout_table import CHAIN, WINDOWS, LayoutTable, Work

# Kernel names in the table, channels-last and channels-first, per operator.
_KERNELS: dict[type[Operator], tuple[str, str]] = {
    ops.Conv2D: ("dense", "sparse"),
    ops.DepthwiseConv2D: ("depthwise", "planar_depthwise"),
}
# Kernels for images with a single row of points, usually fully connected layers
_ROWS = ("dense_rows", "sparse_rows")


@dataclass(frozen=True)
class Costs:
    """The costs of one operator in either layout, in the table's unit."""

    pixels: float
    planes: float


@dataclass(frozen=True)
class Saved:
    """Cost saved, in the table's unit, as long as all named operators stay channels-last."""

    names: frozenset[str]
    cost: float


def costs(graph: Graph, node: Node, table: LayoutTable, vl: int) -> Costs | None:
    """Returns the costs of a node; None for an operator that supports channels-last only."""
    form = measured_form(graph, node, table, vl)
    if form is None:
        return None
    names = _KERNELS.get(type(node.op))
    if names is None:
        return Costs(0.0, 0.0)
    x, y = graph.tensors[node.inputs[0] or ""].shape, graph.tensors[node.outputs[0]].shape
    data = graph.tensors[node.inputs[1] or ""].data
    assert data is not None
    if isinstance(form, ops.PlanarConv2D):
        if not _is_pointwise(form, data.shape):
            names = WINDOWS
        elif y[1] == 1:
            names = _ROWS
    works = (_on_pixels(node.op, data, x, y, vl), _on_planes(form, data, x, y, vl))
    pixels, planes = (table.cost(name, work) for name, work in zip(names, works, strict=True))
    return Costs(pixels, planes)


def saved_by_chain(graph: Graph, pair: Sequence[Node], table: LayoutTable, vl: int) -> Saved:
    """Savings from chaining a depthwise and a 1x1 convolution; negative if the chain costs more."""
    alone = sum(table.cost(_KERNELS[type(node.op)][0], work_of(graph, node, vl)) for node in pair)
    chain = table.cost(CHAIN, work_of_chain(graph, pair, vl))
    return Saved(frozenset(node.name for node in pair), alone - chain)


def work_of_chain(graph: Graph, pair: Sequence[Node], vl: int) -> Work:
    """The work of a chain: that of its members, where only the first one reads an image."""
    works = [work_of(graph, node, vl) for node in pair]
    products, values = (sum(getattr(w, of) for w in works) for of in ("products", "values"))
    return Work(products, values, works[0].pieces, works[0].inputs)


def transpose_cost(tensor: Tensor, table: LayoutTable) -> float:
    moves = tensor.shape[3] > 1 and math.prod(tensor.shape[1:3]) > 1
    return table.cost("transpose", Work(0, tensor.elements)) if moves else 0.0


def is_sparse(graph: Graph, node: Node, table: LayoutTable) -> bool:
    """True for a convolution with some zero weights, of a kind that was measured."""
    if not isinstance(node.op, ops.Conv2D) or measured_form(graph, node, table, 1) is None:
        return False
    data = graph.tensors[node.inputs[1] or ""].data
    return data is not None and _has_zeros(data)


def tenths(weights: Array) -> int:
    """Tenths of the weights that are zero, as an integer."""
    return round(10 * (1 - np.count_nonzero(weights) / weights.size))


def _has_zeros(weights: Array) -> bool:
    return int(np.count_nonzero(weights)) < weights.size


def _is_pointwise(op: ops.Conv2D | ops.PlanarConv2D, weights: Shape) -> bool:
    return op.stride == (1, 1) and not op.padding.any and weights[1:3] == (1, 1)


def work_of(graph: Graph, node: Node, vl: int) -> Work:
    """The work of a convolution in either layout, or of a transpose."""
    y = graph.tensors[node.outputs[0]].shape
    if isinstance(node.op, ops.Transpose):
        return Work(0, math.prod(y))
    data = graph.tensors[node.inputs[1] or ""].data
    assert data is not None
    x = graph.tensors[node.inputs[0] or ""].shape
    if isinstance(node.op, ops.Planar):
        x, y = (tuple(shape[p] for p in TO_PIXELS) for shape in (x, y))
        return _on_planes(node.op, data, x, y, vl)
    return _on_pixels(node.op, data, x, y, vl)


def _on_pixels(op: Operator, weights: Array, x: Shape, y: Shape, vl: int) -> Work:
    """Work of a channels-last convolution, with channels rounded up to vectors.

    A depthwise convolution counts one piece per output row: each piece reads image lines again, and
    the line length determines how many of them a cache holds.
    """
    values, inputs = math.prod(y[:3]) * _whole(y[3], vl), math.prod(x)
    products = values * weights.shape[1] * weights.shape[2]
    if isinstance(op, ops.Conv2D):
        return Work(products * weights.shape[3], values, inputs=inputs)
    return Work(products, values, y[0] * y[1], inputs)


def _on_planes(op: Operator, weights: Array, x: Shape, y: Shape, vl: int) -> Work:
    """Work of a channels-first convolution, with pixels rounded up to vectors.

    Pixels are those of a row for depthwise windows, of a band for others. Only nonzero weights
    count.
    """
    (n, h, w, c), inputs = y, math.prod(x)
    if isinstance(op, ops.PlanarConv2D):
        pixels = n * _whole(h * w, vl)
        if not _is_pointwise(op, weights.shape):
            bands = bands_of(_window(op, x, weights.shape, y))
            assert bands is not None
            pixels = bands.all_pixels(vl)
        return Work(int(np.count_nonzero(weights)) * pixels, c * pixels, inputs=inputs)
    values = n * c * h * _whole(w, vl)
    return Work(values * weights.shape[1] * weights.shape[2], values, n * c * h, inputs)


def _whole(length: int, vl: int) -> int:
    return -(-length // vl) * vl


def planar_form(graph: Graph, node: Node, vl: int) -> Operator | None:
    """The channel-major variant of an operator; None if no kernel supports it."""
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


def _conv_form(op: ops.Conv2D, x: Tensor, w: Tensor, y: Tensor) -> Operator | None:
    """The planar convolution; windows larger than 1x1 are supported only with pruned weights, whose
    nonzero values are read one by one."""
    form = ops.PlanarConv2D(op.stride, op.dilation, op.padding, op.activation)
    if _is_pointwise(op, w.shape):
        return form
    assert w.data is not None
    fits = _has_zeros(w.data) and bands_of(_window(form, x.shape, w.shape, y.shape))
    return form if fits else None


def measured_form(graph: Graph, node: Node, table: LayoutTable, vl: int) -> Operator | None:
    """As `planar_form`, but only for kinds that were measured."""
    form = planar_form(graph, node, vl)
    if not isinstance(form, ops.PlanarConv2D) or table.knows(WINDOWS[1]):
        return form
    return form if _is_pointwise(form, graph.tensors[node.inputs[1] or ""].shape) else None


def _depthwise_form(
    op: ops.DepthwiseConv2D, x: Tensor, w: Tensor, y: Tensor, vl: int
) -> Operator | None:
    if op.multiplier != 1 or x.shape[3] == 1:
        return None
    form = ops.PlanarDepthwiseConv2D(op.stride, op.dilation, op.padding, op.activation)
    return form if band_of(_window(form, x.shape, w.shape, y.shape), vl) else None


def _window(
    op: ops.PlanarConv2D | ops.PlanarDepthwiseConv2D, x: Shape, weights: Shape, y: Shape
) -> Window:
    """The planar window for images whose shapes are given as [n, h, w, c]."""
    x, y = (tuple(shape[p] for p in TO_PLANES) for shape in (x, y))
    return planar_window(op, x, weights, y)


def runs_anywhere(op: Operator) -> bool:
    """True for element-wise f32 arithmetic or comparison, which works in any layout."""
    changes_type = ops.Cast | ops.Convert | ops.Quantize
    return op.elementwise and not isinstance(op, changes_type | ops.Where)


def _moving_form(
    op: Operator, shapes: list[tuple[int, ...]], y: tuple[int, ...]
) -> Operator | None:
    """The channel-major variant of operators whose kernels do not depend on axis order."""
    if runs_anywhere(op):
        return op if all(shape == y for shape in shapes) else None
    if isinstance(op, ops.Concat):
        return ops.Concat(TO_PLANES.index(op.axis))
    if isinstance(op, ops.Pad):
        before, after = ([v[p] for p in TO_PLANES] for v in (op.before, op.after))
        return ops.Pad(tuple(before), tuple(after))
    return None
