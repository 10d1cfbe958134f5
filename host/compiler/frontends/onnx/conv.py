"""Import of ONNX convolutions: NCHW outside, NHWC inside; 1-D ones become images of height 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.host.compiler.frontends.common.computed_weights import convolved
from edgekit.host.compiler.frontends.common.emitter import Emitter, need_axes, need_rank
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.reduce import average
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, MisfitError, Padding, Quant, ShapeError, Tensor
from edgekit.host.compiler.ir.windows import Pair


@dataclass(frozen=True)
class Sliding:
    """The attributes of a window, one entry per spatial axis; pads are resolved."""

    window: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


def sliding(
    call: OnnxCall, size: Sequence[int], window: tuple[int, ...], ceil: bool, pooled: bool = False
) -> Sliding:
    """The windows over axes of `size` elements.

    Automatic padding of pools does not count dilations, as in ONNX Runtime, so fewer windows fit.
    """
    rank = len(size)
    stride = call.list("strides", (1,) * rank)
    dilation = call.list("dilations", (1,) * rank)
    pads = call.list("pads", (0,) * (2 * rank))
    if not (len(window) == len(stride) == len(dilation) == rank and len(pads) == 2 * rank):
        raise ShapeError(
            f"expected a window, strides, dilations and pads for {rank} axes, found "
            f"{list(window[:9])}, {list(stride[:9])}, {list(dilation[:9])} and {list(pads[:9])}"
        )
    if min((*window, *stride, *dilation)) < 1 or min(pads) < 0:
        raise ShapeError(
            "expected positive windows, strides and dilations and pads of at least 0, found "
            f"{list(window[:9])}, {list(stride[:9])}, {list(dilation[:9])} and {list(pads[:9])}"
        )
    span = [(w - 1) * d + 1 for w, d in zip(window, dilation, strict=True)]
    kind = call.text("auto_pad", "NOTSET")
    before, after = list(pads[:rank]), list(pads[rank:])
    if kind in ("SAME_UPPER", "SAME_LOWER"):
        for i, reach in enumerate(window if pooled else span):
            total = max((-(-size[i] // stride[i]) - 1) * stride[i] + reach - size[i], 0)
            small, large = total // 2, total - total // 2
            before[i], after[i] = (small, large) if kind == "SAME_UPPER" else (large, small)
    elif kind == "VALID":
        before, after = [0] * rank, [0] * rank
    elif kind != "NOTSET":
        raise ShapeError(f"expected auto_pad of SAME_UPPER, SAME_LOWER or VALID, found {kind}")
    if ceil:
        for i in range(rank):
            rest = (size[i] + before[i] + after[i] - span[i]) % stride[i]
            more = (stride[i] - rest) % stride[i]
            last = size[i] + before[i] + after[i] + more - span[i]
            # A window that starts after the padded input does not count.
            after[i] += more if last < size[i] + before[i] else 0
    return Sliding(window, stride, dilation, tuple(before), tuple(after))


def sliding_over(call: OnnxCall, x: Tensor, window: tuple[int, ...]) -> tuple[Tensor, Sliding]:
    """The windows of a convolution, and `x` without what they leave out in front.

    Windows of automatic padding that end before the image does begin a little later, as ONNX
    Runtime's do: by half of what is left out but for one element.
    """
    kind = call.text("auto_pad", "NOTSET")
    size = x.shape[2:]
    s = sliding(call, size, window, ceil=False)
    if kind in ("SAME_UPPER", "SAME_LOWER"):
        for i, (n, step) in enumerate(zip(size, s.stride, strict=True)):
            span = (window[i] - 1) * s.dilation[i] + 1
            left = n - (-(-n // step) - 1) * step - span  # behind the last window
            begin = max(left - 1 - (kind == "SAME_LOWER"), 0) // 2
            x = call.part(x, 2 + i, begin, n - begin)
    return x, s


def as_image(call: Emitter, x: Tensor) -> Tensor:
    """[n, c, w] → [n, c, 1, w]; images are unchanged."""
    return x if len(x.shape) == 4 else call.reshape(x, (*x.shape[:2], 1, x.shape[2]))


def pair(values: tuple[int, ...], filler: int) -> Pair:
    return (values[0], values[1]) if len(values) == 2 else (filler, values[0])


def padding_of(s: Sliding) -> Padding:
    (top, left), (bottom, right) = pair(s.before, 0), pair(s.after, 0)
    return Padding(top, bottom, left, right)


def weights_of(call: OnnxCall, index: int, name: str) -> Array:
    data = call.value(index, name)
    if data.ndim not in (3, 4):
        raise ShapeError(f"expected weights of rank 3 or 4, found shape {list(data.shape)}")
    return data if data.ndim == 4 else data[:, :, None, :]


def conv(call: OnnxCall) -> Tensor:
    x, w, term = call.x(0), call.x(1), call.maybe(2)
    need_rank(x, 3, 4)
    need_rank(w, len(x.shape))
    spatial = w.shape[2:]
    window = call.list("kernel_shape", spatial)
    if window != spatial:
        raise ShapeError(f"expected a window of {list(spatial)}, found {list(window)}")
    x, s = sliding_over(call, x, window)
    image, groups = call.nhwc(as_image(call, x)), groups_of(call)
    if w.data is None or (term is not None and term.data is None):
        y = conv_computed_weights(call, image, call.nhwc(as_image(call, w)), term, groups, s)
    else:
        bias = None if term is None else call.value(2, "bias").reshape(-1)
        y = grouped(call, image, weights_of(call, 1, "weights"), bias, groups, s, call.quant(1))
    y = call.nchw(y)
    return y if len(x.shape) == 4 else call.reshape(y, (*y.shape[:2], y.shape[3]))


def conv_computed_weights(
    call: OnnxCall, x: Tensor, w: Tensor, bias: Tensor | None, groups: int, s: Sliding
) -> Tensor:
    """Weights [oc, kh, kw, ic/groups] on an NHWC image; at least one operand is computed."""
    stride, dilation = pair(s.stride, 1), pair(s.dilation, 1)
    oc, depth = w.shape[0], w.shape[3]
    need_groups(x, oc, depth, groups)
    if groups > 1 and depth == 1:
        op = ops.DepthwiseConv2D(stride, dilation, padding_of(s), oc // groups)
        return convolved(call, op, x, call.transpose(w, (3, 1, 2, 0)), bias)
    share = (oc // groups,) * groups
    parts = call.split(x, 3, (depth,) * groups)
    weights = call.split(w, 0, share)
    terms = [None] * groups if bias is None else call.split(bias, 0, share)
    conv_op = ops.Conv2D(stride, dilation, padding_of(s))
    made = [convolved(call, conv_op, *each) for each in zip(parts, weights, terms, strict=True)]
    return made[0] if groups == 1 else call.emit(ops.Concat(3), *made)


def need_groups(x: Tensor, oc: int, depth: int, groups: int) -> None:
    if x.shape[3] != depth * groups or oc % groups or not oc:
        raise MisfitError(
            f"expected {groups} groups of {x.shape[3] // groups} channels, "
            f"found weights of {depth} for {oc}"
        )


def groups_of(call: OnnxCall) -> int:
    groups = call.integer("group", 1)
    if groups < 1:
        raise ShapeError(f"expected at least one group, found {groups}")
    return groups


def grouped(
    call: Emitter,
    x: Tensor,
    w: Array,
    bias: Array | None,
    groups: int,
    s: Sliding,
    quant: Quant | None = None,
) -> Tensor:
    """Weights [oc, ic/groups, kh, kw] on an NHWC image; `quant`: quantization of w, if known."""
    stride, dilation = pair(s.stride, 1), pair(s.dilation, 1)
    oc, depth = w.shape[:2]
    need_groups(x, oc, depth, groups)
    if groups > 1 and depth == 1:
        data = call.quantized(w.transpose(1, 2, 3, 0), _of_channels(quant, slice(None), 3))
        op = ops.DepthwiseConv2D(stride, dilation, padding_of(s), oc // groups)
        return call.emit(op, x, data, None if bias is None else call.constant(bias))
    conv_op = ops.Conv2D(stride, dilation, padding_of(s))
    parts = [x]
    if groups > 1:
        split = ops.Split(3, (depth,) * groups)
        parts = call.builder.emit_all(split, [x])
    outs, share = [], oc // groups
    for i, part in enumerate(parts):
        own = slice(i * share, (i + 1) * share)
        data = call.quantized(w[own].transpose(0, 2, 3, 1), _of_channels(quant, own, 0))
        b = None if bias is None else call.constant(bias[own])
        outs.append(call.emit(conv_op, part, data, b))
    return outs[0] if groups == 1 else call.emit(ops.Concat(3), *outs)


def _of_channels(quant: Quant | None, own: slice, axis: int) -> Quant | None:
    """The quantization of some output channels, which are now on `axis`."""
    if quant is None or not quant.per_channel:
        return quant
    return Quant(quant.scale[own], quant.zero_point[own], axis) if quant.axis == 0 else None


def crop(call: Emitter, x: Tensor, before: Sequence[int], after: Sequence[int]) -> Tensor:
    """`x` without the first `before` and last `after` elements of each axis."""
    if not any((*before, *after)):
        return x
    extent = tuple(d - b - a for d, b, a in zip(x.shape, before, after, strict=True))
    return call.emit(ops.StridedSlice(tuple(before), (1,) * len(extent), extent, extent), x)


def surround(
    call: Emitter, x: Tensor, before: Sequence[int], after: Sequence[int], value: float
) -> Tensor:
    """`x` padded with any value: `Pad` for zero, concatenated constants otherwise."""
    if not any((*before, *after)):
        return x
    if value == 0:
        return call.emit(ops.Pad(tuple(before), tuple(after)), x)
    for axis in range(len(x.shape)):
        parts = []
        for count in (before[axis], 0, after[axis]):
            shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
            parts.append(call.filled(shape, value, x.dtype.numpy) if count else None)
        parts[1] = x
        present = [p for p in parts if p is not None]
        x = present[0] if len(present) == 1 else call.emit(ops.Concat(axis), *present)
    return x


def batch_normalization(call: OnnxCall) -> Tensor | list[Tensor]:
    """x · scale + shift per channel; a pass fuses it into a preceding convolution.

    In training mode, mean and variance are computed from x, and running averages are also returned.
    """
    mean, variance = call.x(3), call.x(4)
    if not call.integer("training_mode", 0):
        return _apply_batch_norm(call, mean, variance)
    x = call.x(0)
    need_axes(x, 2)
    axes = (0, *range(2, len(x.shape)))
    own = average(call, x, axes, True)
    centered = call.emit(ops.Sub(), x, own)
    squares = average(call, call.emit(ops.Mul(), centered, centered), axes, True)
    now = [call.reshape(t, mean.shape) for t in (own, squares)]
    momentum = call.number("momentum", 0.9)
    running = []
    for before, new in zip((mean, variance), now, strict=True):
        kept = call.emit(ops.Mul(), before, call.builder.floats(momentum))
        added = call.emit(ops.Mul(), new, call.builder.floats(1 - momentum))
        running.append(call.emit(ops.Add(), kept, added))
    return [_apply_batch_norm(call, *now), *running]


def _apply_batch_norm(call: OnnxCall, mean: Tensor, variance: Tensor) -> Tensor:
    x, scale, bias = (call.x(i) for i in range(3))
    epsilon = call.builder.floats(call.number("epsilon", 1e-5))
    root = call.emit(ops.Sqrt(), call.emit(ops.Add(), variance, epsilon))
    factor = call.emit(ops.Div(), scale, root)
    shift = call.emit(ops.Sub(), bias, call.emit(ops.Mul(), mean, factor))
    count = factor.elements if len(x.shape) > 1 else 1
    shape = (count, *(1,) * (len(x.shape) - 2))
    if len(factor.shape) > 1:  # `spatial` 0, before opset 9: one for each place of each channel
        shape = factor.shape
    y = call.emit(ops.Mul(), x, call.reshape(factor, shape))
    return call.emit(ops.Add(), y, call.reshape(shift, shape))
