"""Cutting rules per operator family, which derive input pieces from output pieces; none cuts an
axis that the operator sums over."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.by_operator import ByOperator
from edgekit.host.compiler.ir.types import DType, Operator, Padding, Shape, Tensor
from edgekit.host.compiler.ir.windows import span
from edgekit.host.compiler.transforms.split.cut import (
    Cut,
    Cutter,
    Piece,
    Site,
    aligned_from_the_right,
    cut_shape,
)

N, H, W, C = 0, 1, 2, 3  # axes of images
_cuts = ByOperator[Cutter]()


def _input_lines(
    cut: Cut, size: int, window: int, stride: int, before: int
) -> tuple[Cut, int, int]:
    """Rows (or columns) of an image of `size` rows needed for output rows, and the remaining
    padding."""
    first = cut.begin * stride - before
    last = (cut.end - 1) * stride - before + window
    top, bottom = max(0, -first), max(0, last - size)
    # A window entirely in the padding still needs one row, since images cannot be empty.
    begin = min(max(first, 0), size - 1)
    end = max(min(last, size), begin + 1)
    return Cut(cut.axis, begin, end), top, bottom


@_cuts(ops.Conv2D)
def _cut_conv(site: Site, cut: Cut) -> Piece | None:
    op = site.node.op
    assert isinstance(op, ops.Conv2D)
    rest = _cut_other_inputs(site, cut)
    if cut.axis == N:
        return Piece(op, (cut, None, *rest))
    if cut.axis == C:
        return Piece(op, (None, Cut(0, cut.begin, cut.end), *rest))
    return _windows_of_lines(site, cut, rest)


def _windows_of_lines(site: Site, cut: Cut, rest: tuple[Cut | None, ...]) -> Piece | None:
    """Cut rows or columns of a convolution."""
    op, x, w = site.node.op, site.operand(0), site.operand(1)
    assert isinstance(op, ops.Conv2D | ops.DepthwiseConv2D)
    lines = _line_part(op.padding, cut, x, span((w.shape[1], w.shape[2]), op.dilation), op.stride)
    if lines is None or _quantizes_its_input(x, w):
        return None
    return Piece(dataclasses.replace(op, padding=lines[1]), (lines[0], None, *rest))


def _cut_other_inputs(site: Site, cut: Cut) -> tuple[Cut | None, ...]:
    """Cut the bias, residuals and epilogue operand of a product."""
    wide = cut.axis != len(site.outs[0].shape) - 1

    def of_channels(values: Tensor | None) -> Cut | None:
        if wide or values is None or values.elements == 1:
            return None
        return Cut(len(values.shape) - 1, cut.begin, cut.end)

    bias, residual, operand, added = (*site.ins[2:6], None, None, None, None)[:4]
    cuts = (
        of_channels(bias),
        cut if residual is not None else None,
        of_channels(operand),
        cut if added is not None else None,
    )
    return cuts[: len(site.ins) - 2]


def _quantizes_its_input(x: Tensor, w: Tensor) -> bool:
    """Whether a product quantizes its input by the range of a complete image or row, which differs
    for a part of it."""
    return x.dtype is DType.F32 and w.dtype is not DType.F32


def _line_part(
    padding: Padding, cut: Cut, x: Tensor, window: tuple[int, int], stride: tuple[int, int]
) -> tuple[Cut, Padding] | None:
    """The rows or columns that windows read, and the padding that remains."""
    along = cut.axis - H
    size, step = window[along], stride[along]
    pad = padding.top if cut.axis == H else padding.left
    lines, before, after = _input_lines(cut, x.shape[cut.axis], size, step, pad)
    # The operator's shape arithmetic must yield exactly the rows of the cut.
    if (lines.size + before + after - size) // step + 1 != cut.size:
        return None
    if cut.axis == H:
        return lines, dataclasses.replace(padding, top=before, bottom=after)
    return lines, dataclasses.replace(padding, left=before, right=after)


@_cuts(ops.DepthwiseConv2D)
def _cut_depthwise(site: Site, cut: Cut) -> Piece | None:
    op = site.node.op
    assert isinstance(op, ops.DepthwiseConv2D)
    rest = _cut_other_inputs(site, cut)
    if cut.axis == N:
        return Piece(op, (cut, None, *rest))
    if cut.axis == C:
        if cut.begin % op.multiplier or cut.end % op.multiplier:
            return None
        source = Cut(C, cut.begin // op.multiplier, cut.end // op.multiplier)
        return Piece(op, (source, cut, *rest))
    return _windows_of_lines(site, cut, rest)


@_cuts(ops.TransposeConv2D)
def _transpose_conv(site: Site, cut: Cut) -> Piece | None:
    op = site.node.op
    rest = _cut_other_inputs(site, cut)
    if cut.axis == N:
        return Piece(op, (cut, None, *rest))
    if cut.axis == C:
        return Piece(op, (None, Cut(0, cut.begin, cut.end), *rest))
    return _transposed_lines(site, cut, rest)


def _transposed_lines(site: Site, cut: Cut, rest: tuple[Cut | None, ...]) -> Piece | None:
    """Cut rows or columns where whole windows make them up, as the kernel needs."""
    op, along = site.node.op, cut.axis - H
    assert isinstance(op, ops.TransposeConv2D)
    step = op.stride[along]
    if op.padding.any or site.operand(1).shape[1 + along] != step:
        return None
    if cut.begin % step or cut.end % step or _quantizes_its_input(*map(site.operand, (0, 1))):
        return None
    size = (cut.size, op.out_size[1]) if cut.axis == H else (op.out_size[0], cut.size)
    source = Cut(cut.axis, cut.begin // step, cut.end // step)
    return Piece(dataclasses.replace(op, out_size=size), (source, None, *rest))


@_cuts(ops.FullyConnected)
def _fully_connected(site: Site, cut: Cut) -> Piece | None:
    """Cut rows, which the input may have along another axis, or channels."""
    x, out = site.operand(0), site.outs[0]
    if cut.axis == len(out.shape) - 1:
        return Piece(
            site.node.op, (None, Cut(0, cut.begin, cut.end), *_cut_other_inputs(site, cut))
        )
    if x.shape[:-1] == out.shape[:-1]:
        return Piece(site.node.op, (cut, None, *_cut_other_inputs(site, cut)))
    rows = [axis for axis, size in enumerate(x.shape[:-1]) if size > 1]
    if len(rows) != 1 or x.shape[rows[0]] != out.shape[cut.axis]:
        return None
    source = Cut(rows[0], cut.begin, cut.end)
    return Piece(site.node.op, (source, None, *_cut_other_inputs(site, cut)))


@_cuts(ops.OutlierFullyConnected)
def _cut_outlier(site: Site, cut: Cut) -> Piece | None:
    """Cut output channels only: all rows determine which input channels are outliers."""
    if cut.axis != len(site.outs[0].shape) - 1:
        return None
    channels = Cut(0, cut.begin, cut.end)
    rest = (channels, cut)  # bias, residual
    held = [
        c if site.ins[3 + i] is not None else None for i, c in enumerate(rest[: len(site.ins) - 3])
    ]
    return Piece(site.node.op, (None, channels, Cut(1, cut.begin, cut.end), *held))


@_cuts(ops.AveragePool2D, ops.MaxPool2D)
def _cut_pool(site: Site, cut: Cut) -> Piece | None:
    """Cut images, channels, or rows or columns (reading all of each window)."""
    op = site.node.op
    assert isinstance(op, ops.AveragePool2D | ops.MaxPool2D)
    if cut.axis in (N, C):
        return Piece(op, (cut,))
    lines = _line_part(op.padding, cut, site.operand(0), op.window, op.stride)
    if lines is None:
        return None
    return Piece(dataclasses.replace(op, padding=lines[1]), (lines[0],))


@_cuts(ops.ResizeBilinear)
def _cut_resize(site: Site, cut: Cut) -> Piece | None:
    """Cut images, channels, or rows or columns (reading the two neighbors of each). A single one,
    as of a pooled image, is read in full."""
    op, x = site.node.op, site.operand(0)
    assert isinstance(op, ops.ResizeBilinear)
    if cut.axis in (N, C):
        return Piece(op, (cut,))
    part, begin, end = op.band(cut.axis - H, x, site.outs[0], cut.begin, cut.end)
    return Piece(part, (Cut(cut.axis, begin, end) if x.shape[cut.axis] > 1 else None,))


@_cuts(ops.Reshape)
def _cut_reshape(site: Site, cut: Cut) -> Piece | None:
    """Cut an axis with the same elements before and after it, in whole steps of an input's axis."""
    out = site.outs[0].shape
    axis = same_axis(site.operand(0).shape, out, cut.axis)
    if axis is None:
        return None
    step, inner = math.prod(out[cut.axis + 1 :]), math.prod(site.operand(0).shape[axis + 1 :])
    if cut.begin * step % inner or cut.end * step % inner:
        return None
    source = Cut(axis, cut.begin * step // inner, cut.end * step // inner)
    return Piece(ops.Reshape(cut_shape(out, cut)), (source,))


def same_axis(source: Shape, out: Shape, axis: int) -> int | None:
    """The axis of `source` with the same elements before it and in it as `axis` of `out`."""
    before, rest = math.prod(out[:axis]), math.prod(out[axis:])
    for found, size in enumerate(source):
        if size > 1 and math.prod(source[:found]) == before and math.prod(source[found:]) == rest:
            return found
    return None


@_cuts(ops.DepthToSpace)
def _cut_depth_to_space(site: Site, cut: Cut) -> Piece | None:
    op = site.node.op
    assert isinstance(op, ops.DepthToSpace)
    if cut.axis == N:
        return Piece(op, (cut,))
    if cut.axis == C or cut.begin % op.block or cut.end % op.block:
        return None
    return Piece(op, (Cut(cut.axis, cut.begin // op.block, cut.end // op.block),))


@_cuts(ops.UnitLength)
def _cut_unit_length(site: Site, cut: Cut) -> Piece | None:
    op, rank = site.node.op, len(site.outs[0].shape)
    return Piece(op, (cut,)) if cut.axis < rank - 1 else None


def _cut_elementwise(site: Site, cut: Cut) -> Piece | None:
    if any(t is not None and t.quant is not None and t.quant.per_channel for t in site.ins):
        return None
    return Piece(site.node.op, aligned_from_the_right(site, cut, range(len(site.ins))))


@_cuts(ops.Transpose)
def _cut_transpose(site: Site, cut: Cut) -> Piece | None:
    op = site.node.op
    assert isinstance(op, ops.Transpose)
    return Piece(op, (Cut(op.permutation[cut.axis], cut.begin, cut.end),))


@_cuts(ops.Pad)
def _cut_pad(site: Site, cut: Cut) -> Piece | None:
    """Pieces that consist only of padding are not cut: their input would be empty."""
    op = site.node.op
    assert isinstance(op, ops.Pad)
    size, before = site.operand(0).shape[cut.axis], op.before[cut.axis]
    begin, end = max(cut.begin - before, 0), min(cut.end - before, size)
    if begin >= end:
        return None
    befores, afters = list(op.before), list(op.after)
    befores[cut.axis] = max(before - cut.begin, 0)
    afters[cut.axis] = max(cut.end - before - size, 0)
    part = dataclasses.replace(op, before=tuple(befores), after=tuple(afters))
    return Piece(part, (Cut(cut.axis, begin, end),))


@_cuts(ops.Concat)
def _cut_concat(site: Site, cut: Cut) -> Piece | None:
    op = site.node.op
    assert isinstance(op, ops.Concat)
    return None if cut.axis == op.axis else Piece(op, (cut,) * len(site.ins))


@_cuts(ops.Split)
def _cut_split(site: Site, cut: Cut) -> Piece | None:
    op = site.node.op
    assert isinstance(op, ops.Split)
    return None if cut.axis == op.axis else Piece(op, (cut,))


@_cuts(ops.StridedSlice)
def _strided_slice(site: Site, cut: Cut) -> Piece | None:
    """Cut an axis with the same elements before it and in it as one of the input."""
    op = site.node.op
    assert isinstance(op, ops.StridedSlice)
    axis = same_axis(op.extent, op.shape, cut.axis)
    if axis is None or op.extent[axis] != op.shape[cut.axis]:
        return None
    begin, stride = op.begin[axis], op.stride[axis]
    ends = (begin + cut.begin * stride, begin + (cut.end - 1) * stride)
    source = Cut(axis, min(ends), max(ends) + 1)
    begins, extents = list(op.begin), list(op.extent)
    begins[axis], extents[axis] = ends[0] - source.begin, cut.size
    shape = cut_shape(op.shape, cut)
    part = dataclasses.replace(op, begin=tuple(begins), extent=tuple(extents), shape=shape)
    return Piece(part, (source,))


@_cuts(ops.QuantizedSum, ops.Mean, ops.Total)
def _cut_reduction(site: Site, cut: Cut) -> Piece | None:
    """Cut axes that are not reduced; `cut` refers to output axes."""
    op = site.node.op
    assert isinstance(op, ops.QuantizedSum | ops.Mean | ops.Total)
    rank = len(site.operand(0).shape)
    keeps = isinstance(op, ops.QuantizedSum) or op.keep_dims
    kept = range(rank) if keeps else [a for a in range(rank) if a not in op.axes]
    axis = kept[cut.axis]
    return None if axis in op.axes else Piece(op, (Cut(axis, cut.begin, cut.end),))


@_cuts(ops.ArgExtreme)
def _arg_extreme(site: Site, cut: Cut) -> Piece | None:
    op = site.node.op
    assert isinstance(op, ops.ArgExtreme)
    return None if cut.axis == op.axis else Piece(op, (cut,))


@_cuts(ops.Softmax, ops.SoftmaxMean)
def _cut_softmax(site: Site, cut: Cut) -> Piece | None:
    last = len(site.operand(0).shape) - 1
    return None if cut.axis == last else Piece(site.node.op, (cut,))


@_cuts(ops.LayerNorm)
def _layer_norm(site: Site, cut: Cut) -> Piece | None:
    """Cut rows; factor and shift are not cut."""
    op, rank = site.node.op, len(site.outs[0].shape)
    assert isinstance(op, ops.LayerNorm)
    rest = (None,) * (len(site.ins) - 1)
    return Piece(op, (cut, *rest)) if cut.axis < rank - op.axes else None


@_cuts(ops.Gather)
def _cut_gather(site: Site, cut: Cut) -> Piece | None:
    op = site.node.op
    assert isinstance(op, ops.Gather)
    among = len(site.operand(1).shape)
    if cut.axis < op.axis:
        return Piece(op, (cut, None))
    if cut.axis < op.axis + among:
        return _picked(site, Cut(cut.axis - op.axis, cut.begin, cut.end))
    return Piece(op, (Cut(cut.axis - among + 1, cut.begin, cut.end), None))


def _picked(site: Site, picks: Cut) -> Piece:
    """Cut the indices; if they are constant, read only the range that they refer to."""
    op, data = site.node.op, site.operand(1).data
    assert isinstance(op, ops.Gather)
    if data is None:
        return Piece(op, (None, picks))
    size = site.operand(0).shape[op.axis]
    chosen = np.take(data, range(picks.begin, picks.end), picks.axis)
    chosen = np.where(chosen < 0, chosen + size, chosen)
    begin = int(chosen.min())
    source = Cut(op.axis, begin, int(chosen.max()) + 1)
    return Piece(op, (source, picks), {1: (chosen - begin).astype(data.dtype)})


@_cuts(ops.GatherQuantized)
def _gather_quantized(site: Site, cut: Cut) -> Piece | None:
    """Cut the indices only: table rows are read in full."""
    among = len(site.operand(1).shape)
    return Piece(site.node.op, (None, cut, None)) if cut.axis < among else None


@_cuts(ops.BroadcastTo)
def _cut_broadcast(site: Site, cut: Cut) -> Piece | None:
    op = site.node.op
    assert isinstance(op, ops.BroadcastTo)
    shape = (*op.shape[: cut.axis], cut.size, *op.shape[cut.axis + 1 :])
    inputs = aligned_from_the_right(site, cut, (0,))
    return Piece(dataclasses.replace(op, shape=shape), inputs)


@_cuts(ops.MatMul)
def _cut_matmul(site: Site, cut: Cut) -> Piece | None:
    if isinstance(site.node.op, ops.ViewedMatMul):  # made after splitting
        return None
    rank = len(site.outs[0].shape)
    if cut.axis < rank - 2:
        return Piece(site.node.op, aligned_from_the_right(site, cut, (0, 1)))
    matrix = 0 if cut.axis == rank - 2 else 1
    axis = len(site.operand(matrix).shape) - (2 if matrix == 0 else 1)
    cuts: list[Cut | None] = [None, None]
    cuts[matrix] = Cut(axis, cut.begin, cut.end)
    return Piece(site.node.op, tuple(cuts))


def cut_node(site: Site, cut: Cut) -> Piece | None:
    """Return the part of `site` that computes `cut` of its outputs; None if it cannot be cut."""
    op = site.node.op
    cutter = _cut_elementwise if op.elementwise else _cuts.of(type(op))
    return None if cutter is None else cutter(site, cut)


def can_be_cut(op: Operator) -> bool:
    """Whether there is a rule for an operator; its results depend on nothing but its inputs."""
    return op.elementwise or _cuts.of(type(op)) is not None
