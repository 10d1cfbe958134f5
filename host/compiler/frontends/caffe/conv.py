"""Import of Caffe's sliding-window layers: NCHW outside, NHWC inside."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.frontends.caffe.call import CaffeCall
from edgekit.host.compiler.frontends.common.emitter import need_rank
from edgekit.host.compiler.frontends.onnx.conv import Sliding, grouped, padding_of
from edgekit.host.compiler.frontends.onnx.reduce import across_channels
from edgekit.host.compiler.frontends.onnx.transposed_conv import transposed
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, ShapeError, Tensor
from edgekit.host.compiler.ir.windows import Pair

_AREA_LIMIT = 1 << 16  # elements of a window


def _read_pair(
    call: CaffeCall, name: str, row: str, column: str, default: int | None, low: int
) -> Pair:
    """A parameter's values for rows and columns: `name`, given once for both or for each, or `row`
    and `column`."""
    if call.has(row) or call.has(column):
        return call.integer(row, low), call.integer(column, low)
    if isinstance(getattr(call.layer.parameters, name), int):  # a scalar, in pooling layers
        values = [call.integer(name, low)] if call.has(name) else []
    else:
        values = call.integers(name, low)
    if not values and default is not None:
        values = [default]
    if len(values) not in (1, 2):
        raise ShapeError(f"expected 1 or 2 values of {name}, found {len(values)}")
    return values[0], values[-1]


def _window_params(call: CaffeCall) -> tuple[Pair, Pair, Pair]:
    """Kernel, stride and padding."""
    kernel = _read_pair(call, "kernel_size", "kernel_h", "kernel_w", None, 1)
    if kernel[0] * kernel[1] > _AREA_LIMIT:
        raise ShapeError(f"expected a kernel of at most {_AREA_LIMIT} elements, found {kernel}")
    stride = _read_pair(call, "stride", "stride_h", "stride_w", 1, 1)
    return kernel, stride, _read_pair(call, "pad", "pad_h", "pad_w", 0, 0)


def _convolution_params(call: CaffeCall) -> tuple[Tensor, Sliding, int, int]:
    """Image, window, groups and output channels of a (transposed) convolution."""
    x = call.only()
    need_rank(x, 4)
    if call.axis(x) != 1:
        raise ShapeError(f"expected channels on axis 1, found axis {call.integer('axis')}")
    kernel, stride, pad = _window_params(call)
    spread = call.integers("dilation", 1) or [1]
    if len(spread) > 2:
        raise ShapeError(f"expected 1 or 2 values of dilation, found {len(spread)}")
    groups = x.shape[1] if _is_depthwise(call) else call.integer("group", 1)
    outputs = call.integer("num_output", 1)
    if x.shape[1] % groups or outputs % groups:
        raise ShapeError(
            f"expected groups that divide {x.shape[1]} channels and {outputs} outputs, "
            f"found {groups}"
        )
    return x, Sliding(kernel, stride, (spread[0], spread[-1]), pad, pad), groups, outputs


def _is_depthwise(call: CaffeCall) -> bool:
    return "Depthwise" in call.layer.kind


def _optional_bias(call: CaffeCall, outputs: int) -> Array | None:
    return call.blob(1, (outputs,), "bias") if call.flag("bias_term") else None


def convolution(call: CaffeCall) -> Tensor:
    x, s, groups, outputs = _convolution_params(call)
    w = call.blob(0, (outputs, x.shape[1] // groups, *s.window), "weights")
    return call.nchw(grouped(call, call.nhwc(x), w, _optional_bias(call, outputs), groups, s))


def deconvolution(call: CaffeCall) -> Tensor:
    x, s, groups, outputs = _convolution_params(call)
    w = call.blob(0, (x.shape[1], outputs // groups, *s.window), "weights")
    return call.nchw(transposed(call, call.nhwc(x), w, _optional_bias(call, outputs), groups, s))


def pooling(call: CaffeCall) -> Tensor:
    x, method = call.only(), call.choice("pool")
    need_rank(x, 4)
    if method == "STOCHASTIC":
        raise ShapeError("expected MAX or AVE pooling, found STOCHASTIC")
    if call.flag("global_pooling"):
        axes = (2, 3)
        return call.emit(ops.ReduceMax(axes, True) if method == "MAX" else ops.Mean(axes, True), x)
    s = _pool_window(call, x)
    image = call.nhwc(x)
    (kh, kw), (sh, sw) = s.window, s.stride
    if method == "MAX":
        return call.nchw(call.emit(ops.MaxPool2D((kh, kw), (sh, sw), padding_of(s)), image))
    return call.nchw(_average_pool(call, image, s))


def _pool_window(call: CaffeCall, x: Tensor) -> Sliding:
    """The window with end padding for Caffe's output size, whose last window may be partial."""
    kernel, stride, pad = _window_params(call)
    ceil = call.flag("ceil_mode") and call.choice("round_mode") == "CEIL"
    after = []
    for size, k, step, p in zip(x.shape[2:], kernel, stride, pad, strict=True):
        room = size + 2 * p - k
        last = -(-room // step) if ceil else room // step
        if p >= k or last < 0:
            raise ShapeError(
                f"expected a kernel larger than its padding and no larger than the image, "
                f"found {k}, padding {p} and {size}"
            )
        if p and last * step >= size + p:
            last -= 1
        if last * step - p >= size:
            raise ShapeError(
                f"expected windows that overlap the image, found one beyond it (kernel {k}, "
                f"stride {step}, size {size})"
            )
        after.append(max(last * step + k - size - p, 0))
    return Sliding(kernel, stride, (1, 1), pad, (after[0], after[1]))


def _average_pool(call: CaffeCall, image: Tensor, s: Sliding) -> Tensor:
    """Caffe divides by the window area within the padded image, the graph's operator by the area
    within the image, so the result is rescaled."""
    (kh, kw), (sh, sw) = s.window, s.stride
    y = call.emit(ops.AveragePool2D((kh, kw), (sh, sw), padding_of(s)), image)
    inside: Array = np.ones(())
    whole: Array = np.ones(())
    for size, count, k, step, pad in zip(
        image.shape[1:3], y.shape[1:3], s.window, s.stride, s.before, strict=True
    ):
        start = np.arange(count) * step - pad
        end = np.minimum(start + k, size + pad)
        covered = np.minimum(end, size) - np.maximum(start, 0)
        inside, whole = inside[..., None] * covered, whole[..., None] * (end - start)
    if np.array_equal(inside, whole):
        return y
    share = (inside / whole)[None, ..., None]
    return call.emit(ops.Mul(), y, call.floats(share))


def lrn(call: CaffeCall) -> Tensor:
    x, size = call.only(), call.integer("local_size", 1)
    need_rank(x, 4)
    if size % 2 == 0 or size > 1024:
        raise ShapeError(f"expected an odd local_size of at most 1023, found {size}")
    alpha, beta = call.number("alpha"), call.number("beta")
    if call.choice("norm_region") == "ACROSS_CHANNELS":
        return across_channels(call, x, size, alpha, beta, call.number("k"))
    pad = (size // 2, size // 2)
    image = call.nhwc(x)
    s = Sliding((size, size), (1, 1), (1, 1), pad, pad)
    mean = _average_pool(call, call.emit(ops.Mul(), image, image), s)
    scaled = call.emit(ops.Mul(), mean, call.builder.floats(alpha))
    base = call.emit(ops.Add(), scaled, call.builder.floats(1.0))
    power = call.emit(ops.Pow(), base, call.builder.floats(beta))
    return call.nchw(call.emit(ops.Div(), image, power))
