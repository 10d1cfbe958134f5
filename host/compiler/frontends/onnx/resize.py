"""Import of ONNX Resize and Upsample: gathers, bilinear images, or interpolation matrices.

Sizes and positions are computed in f32, in the order of ONNX Runtime: 10 · 2.3 is 23 there, but 22
in f64, and exporters computed the shapes in files in f32.

Nearest is a gather. Anything `ResizeBilinear` cannot compute is a product with a matrix of
interpolation weights along each axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, ShapeError, Tensor

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
_SIZE_LIMIT = 1 << 16
_SCALE_LIMIT = 1e6
_HALFWAY = 0.5 + 1e-6  # ONNX Runtime counts positions this close to halfway as halfway
_NEAREST: dict[str, Callable[[F64], F64]] = {
    "round_prefer_floor": lambda x: np.ceil(x - _HALFWAY),
    "round_prefer_ceil": lambda x: np.floor(x + _HALFWAY),
    "floor": np.floor,
    "ceil": np.ceil,
}
_INTEGERS = (DType.U8, DType.I8, DType.I32)
_BY_DIRECTION = "ceil if smaller"  # nearest_mode before opset 11, where it is no attribute


def upsample(call: OnnxCall) -> Tensor:
    x, kind = call.x(0), call.text("mode", "nearest")
    scales = (
        call.numbers(1, "scales")
        if call.opset >= 7
        else (1.0, 1.0, call.number("height_scale"), call.number("width_scale"))
    )
    if len(scales) != len(x.shape):
        raise ShapeError(
            f"expected a scale per axis of {list(x.shape)}, found {len(scales)} scales"
        )
    sizes = [_scaled_size(d, s) for d, s in zip(x.shape, scales, strict=True)]
    kind = "linear" if kind == "bilinear" else kind  # its name before opset 7
    return _resize_axes(call, x, sizes, list(scales), "asymmetric", kind, _BY_DIRECTION)


def resize(call: OnnxCall) -> Tensor:
    x = call.x(0)
    at = 1 if call.opset < 11 else 2
    axes = call.list("axes", tuple(range(len(x.shape))))
    sizes, scales = list(x.shape), [1.0] * len(x.shape)
    has_sizes = call.opset >= 11 and call.maybe(3) is not None
    given = call.integers(3, "sizes") if has_sizes else call.numbers(at, "scales")
    if len(given) != len(axes) or not axes:
        raise ShapeError(f"expected {len(axes)} sizes or scales, found {len(given)}")
    axes = tuple(call.axis(axis, len(x.shape)) for axis in axes)
    if x.elements == 0:
        raise ShapeError(f"expected sizes of at least 1 to resize, found {list(x.shape)}")
    if has_sizes and call.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        ratios = [np.float32(g) / np.float32(x.shape[a]) for g, a in zip(given, axes, strict=True)]
        larger = call.text("keep_aspect_ratio_policy") == "not_larger"
        ratio = min(ratios) if larger else max(ratios)
        for axis in axes:
            product = float(np.float32(x.shape[axis]) * ratio)
            sizes[axis], scales[axis] = math.floor(product + 0.5), float(ratio)
    else:
        for axis, value in zip(axes, given, strict=True):
            sizes[axis] = int(value) if has_sizes else _scaled_size(x.shape[axis], value)
            scales[axis] = value / x.shape[axis] if has_sizes else float(value)
    mode = "asymmetric" if call.opset < 11 else call.text(
        "coordinate_transformation_mode", "half_pixel"
    )  # fmt: skip
    nearest = call.text("nearest_mode", "round_prefer_floor") if call.opset >= 11 else _BY_DIRECTION
    kind = call.text("mode", "nearest")
    if mode == "tf_crop_and_resize":
        return _crop_and_resize(
            call, x, [call.axis(a, len(x.shape)) for a in axes], sizes, scales, kind, nearest
        )
    return _resize_axes(call, x, sizes, scales, mode, kind, nearest)


def _crop_and_resize(
    call: OnnxCall,
    x: Tensor,
    axes: Sequence[int],
    sizes: list[int],
    scales: list[float],
    kind: str,
    nearest: str,
) -> Tensor:
    """The part of x given by `roi` (input 1: starts, then ends, as fractions of the axes);
    positions outside x become `extrapolation_value`.

    As in ONNX Runtime, an axis with a scale of 1 is not cropped, and nothing is if all axes keep
    their sizes.
    """
    roi = call.numbers(1, "roi")
    if len(roi) != 2 * len(axes) or not all(map(math.isfinite, roi)):
        raise ShapeError(f"expected {2 * len(axes)} finite numbers as roi, found {len(roi)}")
    y, outside = x, np.zeros((1,) * len(x.shape), np.bool_)
    _check_sizes(sizes, [1.0] * len(sizes), kind)
    if sizes == list(x.shape):
        return x
    if kind != "nearest" and x.dtype in _INTEGERS:
        y = call.convert(x, DType.F32)
        y = _crop_and_resize(call, y, axes, sizes, scales, kind, nearest)
        return call.emit(ops.Convert(x.dtype), y, quant=x.quant)
    for i, axis in enumerate(axes):
        if scales[axis] == 1.0:
            continue
        last, size = np.float32(x.shape[axis] - 1), sizes[axis]
        start, end = np.float32(roi[i]), np.float32(roi[i + len(axes)])
        position = np.full(1, 0.5 * float(start + end) * float(last), np.float32)
        if size > 1:
            steps = np.arange(size, dtype=np.float32)
            position = start * last + steps * (end - start) * last / np.float32(size - 1)
        beyond = ((position < 0) | (position > last)).reshape(-1, *(1,) * (len(x.shape) - 1 - axis))
        outside = outside | beyond
        y = _resample_axis(call, y, axis, np.clip(position, 0, last), 1.0, kind, nearest)
    if not outside.any():
        return y
    value = call.scalar(call.number("extrapolation_value", 0.0), y)
    return call.emit(ops.Where(), call.constant(outside), value, y)


def _check_sizes(sizes: Sequence[int], scales: Sequence[float], kind: str) -> None:
    if any(not 1 <= s <= _SIZE_LIMIT for s in sizes) or not all(
        0 < s < _SCALE_LIMIT for s in scales
    ):
        raise ShapeError(f"expected sizes from 1 to {_SIZE_LIMIT}, found {list(sizes)}")
    if kind not in ("nearest", "linear", "cubic"):
        raise ShapeError(f"expected mode nearest, linear or cubic, found {kind}")


def _scaled_size(source: int, scale: float) -> int:
    """The output size of an axis of `source` elements."""
    if not 0 < scale < _SCALE_LIMIT:  # false for NaN
        raise ShapeError(f"expected scales above 0 and below {_SCALE_LIMIT:g}, found {scale}")
    return math.floor(np.float32(source) * np.float32(scale))


def _resize_axes(
    call: OnnxCall,
    x: Tensor,
    sizes: list[int],
    scales: list[float],
    mode: str,
    kind: str,
    nearest: str,
) -> Tensor:
    _check_sizes(sizes, scales, kind)
    if sizes == list(x.shape):  # copied, as in ONNX Runtime, even where a scale is 1.1
        return x
    antialias = bool(call.integer("antialias", 0))
    if kind != "nearest" and x.dtype in _INTEGERS:
        return _resize_integers(call, x, sizes, scales, mode, kind, nearest)
    if kind == "linear" and _is_image(call, x, sizes, scales, mode):
        op = ops.ResizeBilinear((sizes[2], sizes[3]), mode == "align_corners", mode == "half_pixel")
        return call.nchw(call.emit(op, call.nhwc(x)))
    y = x
    for axis, size in enumerate(sizes):
        source, scale = x.shape[axis], scales[axis]
        # With antialiasing ONNX Runtime copies an axis that keeps its size, even by a scale of 1.1.
        if size != source or (scale != 1.0 and not antialias):
            y = _resample_axis(
                call, y, axis, _source_positions(mode, source, size, scale), scale, kind, nearest
            )
    return y


def _resize_integers(
    call: OnnxCall,
    x: Tensor,
    sizes: list[int],
    scales: list[float],
    mode: str,
    kind: str,
    nearest: str,
) -> Tensor:
    """Like ONNX Runtime in f32, truncated; with antialiasing axes are rounded, the last first.
    Quantized values are integers, too."""
    y = call.convert(x, DType.F32)
    if not call.integer("antialias", 0):
        y = _resize_axes(call, y, sizes, scales, mode, kind, nearest)
        return call.emit(ops.Convert(x.dtype), y, quant=x.quant)
    ends = np.iinfo(x.dtype.numpy)  # cubic weights overshoot
    for axis in reversed(range(len(sizes))):
        some, ratios = list(y.shape), [1.0] * len(sizes)
        some[axis], ratios[axis] = sizes[axis], scales[axis]
        resized = _resize_axes(call, y, some, ratios, mode, kind, nearest)
        if resized is not y:
            y = call.emit(ops.Clip(ends.min, ends.max), call.emit(ops.RoundEven(), resized))
    return call.emit(ops.Convert(x.dtype), y, quant=x.quant)


def _resample_axis(
    call: OnnxCall, x: Tensor, axis: int, places: F32, scale: float, kind: str, nearest: str
) -> Tensor:
    """x resampled along `axis` at `places`."""
    source, position = x.shape[axis], places.astype(np.float64)
    if nearest == _BY_DIRECTION:
        nearest = "ceil" if scale < 1.0 else "floor"
    if kind == "nearest":
        if nearest not in _NEAREST:
            raise ShapeError(f"expected a known nearest_mode, found {nearest}")
        index = np.clip(_NEAREST[nearest](position), 0, source - 1).astype(np.int64)
        return call.emit(ops.Gather(axis), x, call.constant(index))
    matrix = _interpolation_weights(call, kind, position, source, scale)
    moved = call.emit(ops.FullyConnected(True), call.last(x, axis), call.constant(matrix), None)
    return call.back(moved, axis)


def _is_image(call: OnnxCall, x: Tensor, sizes: list[int], scales: list[float], mode: str) -> bool:
    """Whether `ResizeBilinear` computes the same result."""
    if len(x.shape) != 4 or x.dtype is not DType.F32 or sizes[:2] != list(x.shape[:2]):
        return False
    exact = mode == "align_corners" or all(
        np.float32(s) * np.float32(d) == n for s, d, n in zip(scales, x.shape, sizes, strict=True)
    )
    plain = not call.integer("antialias", 0) and not call.integer("exclude_outside", 0)
    return exact and plain and mode in ("half_pixel", "asymmetric", "align_corners")


def _source_positions(mode: str, source: int, size: int, scale: float) -> F32:
    """The input coordinate of each output element."""
    half, factor, i = np.float32(0.5), np.float32(scale), np.arange(size, dtype=np.float32)
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and size > 1):
        return (i + half) / factor - half
    if mode == "asymmetric":
        return i / factor
    if mode == "tf_half_pixel_for_nn":
        return (i + half) / factor
    if mode == "align_corners" and size > 1:
        return i * np.float32(source - 1) / np.float32(size - 1)
    if mode in ("align_corners", "pytorch_half_pixel"):
        return np.zeros(1, np.float32)
    if mode == "half_pixel_symmetric":
        adjustment = np.float32(size) / (factor * np.float32(source))
        offset = float(np.float32(source) * half * (np.float32(1) - adjustment))
        places: F64 = offset + (i.astype(np.float64) + 0.5) / float(factor) - 0.5
        return places.astype(np.float32)
    raise ShapeError(f"expected a known coordinate_transformation_mode, found {mode}")


def _interpolation_weights(
    call: OnnxCall, kind: str, position: F64, source: int, scale: float
) -> F64:
    """Interpolation weights [size, source]; positions outside read the nearest edge."""
    antialias = bool(call.integer("antialias", 0)) and scale < 1.0
    stretch = scale if antialias else 1.0
    radius = (1.0 if kind == "linear" else 2.0) / stretch
    reach = math.ceil(radius) + 1
    call.builder.need_room((len(position), max(source, 2 * reach)), np.float32)
    base = np.floor(position)[:, None] + np.arange(-reach + 1, reach + 1)
    distance = np.abs(position[:, None] - base) * stretch
    if kind == "linear":
        taps = np.maximum(1.0 - distance, 0.0)
    else:
        taps = _cubic_kernel(distance, call.number("cubic_coeff_a", -0.75))
    inside = (base >= 0) & (base < source)
    if call.integer("exclude_outside", 0):
        taps = np.where(inside, taps, 0.0)
    taps = taps / taps.sum(axis=1, keepdims=True)
    matrix = np.zeros((len(position), source))
    columns = np.clip(base, 0, source - 1).astype(np.int64)
    np.add.at(matrix, (np.arange(len(position))[:, None], columns), taps)
    return matrix.astype(np.float32)


def _cubic_kernel(d: F64, a: float) -> F64:
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
