"""Import of MediaPipe's custom operators: landmarks, feature crops and unpooling."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.frontends.tflite.call import ACTIVATIONS, TfliteCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, DType, ShapeError, Tensor
from edgekit.host.compiler.ir.windows import Pair, same_padding

_SAME, _VALID = 1, 2
_TAPS = 64  # elements of a window that is searched tap by tap
_PIXELS = 1 << 16  # per side of a crop
_LOWEST = float(np.finfo(np.float32).min)


def transform_matrix(call: TfliteCall) -> Tensor:
    """Landmarks [1, n, 3] → [1, 4, 4]: maps crop pixels to image pixels. The crop contains all
    landmarks of a subset, rotated so that two given landmarks are level."""
    x = call.tensor(0, "landmarks")
    if len(x.shape) != 3 or x.shape[0] != 1 or x.shape[2] != 3:
        raise ShapeError(f"expected landmarks [1, n, 3], found {list(x.shape)}")
    points = call.reshape(x, x.shape[1:])
    ends = [int(call.custom_number(f"{side}_rotation_idx")) for side in ("left", "right")]
    subset = [int(i) for i in call.custom_map().get("subset_idxs", ())]
    if not subset or not all(0 <= i < x.shape[1] for i in (*ends, *subset)):
        raise ShapeError(f"expected landmarks from 0 to {x.shape[1] - 1}, found others")
    size = [call.custom_number(f"output_{side}") for side in ("width", "height")]
    scale = [call.custom_number(f"scale_{axis}") for axis in "xy"]
    if min(*size, *scale) <= 0:
        raise ShapeError(f"expected sizes and scales above 0, found {size} and {scale}")
    turn = _landmark_rotation(
        call, points, ends, call.custom_number("target_rotation_radians", 0.0)
    )
    chosen = call.emit(ops.Gather(0), points, call.constant(np.array(subset, np.int32)))
    px, py = (_slice_column(call, chosen, i) for i in (0, 1))
    rotated = turn.forward(call, px, py)
    high = [call.emit(ops.ReduceMax((0,)), v) for v in rotated]
    low = [call.emit(ops.ReduceMin((0,)), v) for v in rotated]
    middle = [
        _mul_scalar(call, call.emit(ops.Add(), a, b), 0.5) for a, b in zip(high, low, strict=True)
    ]
    center = turn.backward(call, middle[0], middle[1])
    step = [
        _mul_scalar(call, call.emit(ops.Sub(), a, b), factor / pixels)
        for a, b, factor, pixels in zip(high, low, scale, size, strict=True)
    ]
    rows = (
        (call.emit(ops.Mul(), turn.cosine, step[0]), call.emit(ops.Mul(), turn.sine, step[1])),
        (
            call.emit(ops.Neg(), call.emit(ops.Mul(), turn.sine, step[0])),
            call.emit(ops.Mul(), turn.cosine, step[1]),
        ),
    )
    zero, cells = call.constant(np.zeros(1, np.float32)), []
    for (a, b), c in zip(rows, center, strict=True):
        start = call.emit(
            ops.Add(), _mul_scalar(call, a, -size[0] / 2), _mul_scalar(call, b, -size[1] / 2)
        )
        cells += [a, b, zero, call.emit(ops.Add(), c, start)]
    cells.append(call.constant(np.array([0, 0, 1, 0, 0, 0, 0, 1], np.float32)))
    flat = [call.reshape(t, (t.elements,)) for t in cells]
    return call.reshape(call.emit(ops.Concat(0), *flat), (1, 4, 4))


@dataclass(frozen=True, eq=False)
class _Rotation:
    cosine: Tensor
    sine: Tensor

    def forward(self, call: TfliteCall, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        across = call.emit(ops.Sub(), _mul(call, x, self.cosine), _mul(call, y, self.sine))
        return across, call.emit(ops.Add(), _mul(call, x, self.sine), _mul(call, y, self.cosine))

    def backward(self, call: TfliteCall, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        across = call.emit(ops.Add(), _mul(call, x, self.cosine), _mul(call, y, self.sine))
        return across, call.emit(ops.Sub(), _mul(call, y, self.cosine), _mul(call, x, self.sine))


def _landmark_rotation(
    call: TfliteCall, points: Tensor, ends: Sequence[int], target: float
) -> _Rotation:
    """A rotation by `target` minus the angle of the line between two landmarks."""
    pair = call.emit(ops.Gather(0), points, call.constant(np.array(ends, np.int32)))
    left, right = (
        call.emit(ops.StridedSlice((i, 0), (1, 1), (1, 2), (1, 2)), pair) for i in (0, 1)
    )
    line = call.emit(ops.Sub(), right, left)
    dx, dy = _slice_column(call, line, 0), _slice_column(call, line, 1)
    length = call.emit(ops.Sqrt(), call.emit(ops.Add(), _mul(call, dx, dx), _mul(call, dy, dy)))
    level = call.emit(ops.Equal(), length, call.scalar(0, length))
    cosine = call.emit(ops.Where(), level, call.scalar(1, dx), call.emit(ops.Div(), dx, length))
    sine = call.emit(ops.Where(), level, call.scalar(0, dy), call.emit(ops.Div(), dy, length))
    c, s = math.cos(target), math.sin(target)
    return _Rotation(
        call.emit(ops.Add(), _mul_scalar(call, cosine, c), _mul_scalar(call, sine, s)),
        call.emit(ops.Sub(), _mul_scalar(call, cosine, s), _mul_scalar(call, sine, c)),
    )


def transform_landmarks(call: TfliteCall) -> Tensor:
    """Transforms x and y of each landmark by the first two rows of a matrix [4, 4]; z is unchanged.
    In version 1 files (rank-4 landmarks), translations have a separate scale. Without options, the
    last dimension is one landmark."""
    x, matrix = call.tensor(0, "landmarks"), call.tensor(1, "matrix")
    size = int(call.custom_number("dimensions", x.shape[-1] if x.shape else 0))
    scale = call.custom_number("scale", 1.0) if len(x.shape) == 4 else 1.0
    if size not in (2, 3) or not x.shape or x.shape[-1] % size or matrix.elements != 16:
        raise ShapeError(f"expected landmarks of {size} values, found {list(x.shape)}")
    points = call.reshape(x, (x.elements // size, size))
    moved = _transform_points(
        call, matrix, _slice_column(call, points, 0), _slice_column(call, points, 1), (0, 0), scale
    )
    parts = [call.reshape(v, (points.shape[0], 1)) for v in moved]
    if size == 3:
        parts.append(call.reshape(_slice_column(call, points, 2), (points.shape[0], 1)))
    return call.reshape(call.emit(ops.Concat(1), *parts), x.shape)


def _transform_points(
    call: TfliteCall,
    matrix: Tensor,
    x: Tensor,
    y: Tensor,
    offset: tuple[float, float],
    scale: float,
) -> list[Tensor]:
    """The first two rows of `matrix` · (x + offset, y + offset, 0, 1), minus the offset."""
    cells = call.builder.emit_all(ops.Split(0, (1,) * 16), [call.reshape(matrix, (16,))])
    found = []
    for row, back in enumerate(offset):
        a, b, shift = (
            cells[4 * row],
            cells[4 * row + 1],
            _mul_scalar(call, cells[4 * row + 3], scale),
        )
        if back:
            ahead = _mul_scalar(call, call.emit(ops.Add(), a, b), back)
            shift = call.emit(ops.Add(), shift, ahead)
            shift = call.emit(ops.Sub(), shift, call.scalar(back, shift))
        total = call.emit(ops.Add(), _mul(call, x, a), _mul(call, y, b))
        found.append(call.emit(ops.Add(), total, shift))
    return found


def transform_tensor(call: TfliteCall) -> Tensor:
    """A bilinear crop of an image [1, h, w, c]: maps pixel centers by a matrix [4, 4]; 0
    outside."""
    x, matrix = call.tensor(0, "image"), call.tensor(1, "matrix")
    height, width = (int(call.custom_number(f"output_{s}")) for s in ("height", "width"))
    if not (1 <= height <= _PIXELS and 1 <= width <= _PIXELS):
        raise ShapeError(f"expected a crop of 1 to {_PIXELS} pixels, found {height}x{width}")
    if len(x.shape) != 4 or x.shape[0] != 1 or matrix.elements != 16:
        raise ShapeError(f"expected one image and one matrix, found {list(x.shape)}")
    _, h, w, c = x.shape
    call.builder.need_room((height, width), np.int64)
    rows, columns = np.divmod(np.arange(height * width), width)
    across, down = (call.constant(v.astype(np.float32)) for v in (columns, rows))
    at_x, at_y = _transform_points(call, matrix, across, down, (0.5, 0.5), 1.0)
    inside = call.emit(ops.And(), _is_in_range(call, at_x, w - 1), _is_in_range(call, at_y, h - 1))
    flat, corners = call.reshape(x, (h * w, c)), []
    left, right = _neighbors(call, at_x, w)
    above, below = _neighbors(call, at_y, h)
    for row in (above, below):
        for column in (left, right):
            start = call.emit(ops.Mul(), row, call.scalar(w, row))
            corners.append(call.emit(ops.Gather(0), flat, call.emit(ops.Add(), start, column)))
    part_x, part_y = (_fractional_part(call, v) for v in (at_x, at_y))
    upper = _lerp(call, corners[0], corners[1], part_x)
    lower = _lerp(call, corners[2], corners[3], part_x)
    y = _lerp(call, upper, lower, part_y)
    shown = call.reshape(inside, (height * width, 1))
    y = call.emit(ops.Where(), shown, y, call.scalar(0, y))
    return call.reshape(y, (1, height, width, c))


def _is_in_range(call: TfliteCall, x: Tensor, last: int) -> Tensor:
    low = call.emit(ops.LessOrEqual(), call.scalar(0, x), x)
    return call.emit(ops.And(), low, call.emit(ops.LessOrEqual(), x, call.scalar(last, x)))


def _neighbors(call: TfliteCall, x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The pixels before and after a position, clamped to the image."""
    clipped = call.emit(ops.Clip(0.0, float(size - 1)), call.emit(ops.Floor(), x))
    first = call.convert(clipped, DType.I32)
    second = call.emit(ops.Add(), first, call.scalar(1, first))
    return first, call.emit(ops.Minimum(), second, call.scalar(size - 1, first))


def _fractional_part(call: TfliteCall, x: Tensor) -> Tensor:
    rest = call.emit(ops.Sub(), x, call.emit(ops.Floor(), x))
    return call.reshape(rest, (x.elements, 1))


def _lerp(call: TfliteCall, a: Tensor, b: Tensor, part: Tensor) -> Tensor:
    keep = call.emit(ops.Sub(), call.scalar(1, part), part)
    return call.emit(ops.Add(), _mul(call, a, keep), _mul(call, b, part))


def max_pool_with_argmax(call: TfliteCall) -> list[Tensor]:
    """[maxima, their positions in the window + 0.1], both f32; the first of equal maxima. The
    options are TensorFlow Lite's own pool parameters."""
    x = call.tensor(0, "image")
    if len(x.shape) != 4:
        raise ShapeError(f"expected an image of rank 4, found shape {list(x.shape)}")
    same, stride, window, activation = _pool_options(call)
    size = x.shape[1:3]
    borders = [
        same_padding(d, k, s) if same else (0, 0)
        for d, k, s in zip(size, window, stride, strict=True)
    ]
    out = [
        (d + sum(b) - k) // s + 1 for d, b, k, s in zip(size, borders, window, stride, strict=True)
    ]
    if min(out) < 1:
        raise ShapeError(f"expected an image of at least {window}, found {list(size)}")
    for axis, border in zip((1, 2), borders, strict=True):
        x = _pad_axis(call, x, axis, border)
    n, _, _, c = x.shape
    best = number = None
    for k in range(math.prod(window)):
        begin = (0, k // window[1], k % window[1], 0)
        extent = (n, out[0], out[1], c)
        tap = call.emit(ops.StridedSlice(begin, (1, *stride, 1), extent, extent), x)
        here = call.scalar(k + 0.1, tap)
        if best is None or number is None:
            best, number = tap, call.filled(extent, 0.1, np.float32)
        else:
            number = call.emit(ops.Where(), call.emit(ops.Less(), best, tap), here, number)
            best = call.emit(ops.Maximum(), best, tap)
    assert best is not None and number is not None
    if activation is not Activation.NONE:
        best = call.emit(ops.Clamp(activation), best)
    return [best, number]


def _pad_axis(call: TfliteCall, x: Tensor, axis: int, border: Pair) -> Tensor:
    """x padded with the lowest value on both sides of `axis`."""
    parts = [x]
    for at, size in zip((0, 2), border, strict=True):
        if size:
            shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
            parts.insert(at, call.filled(shape, _LOWEST, np.float32))
    return x if len(parts) == 1 else call.emit(ops.Concat(axis), *parts)


def max_unpool(call: TfliteCall) -> Tensor:
    """Each value at its pooled position in the window, 0 elsewhere."""
    x, numbers = call.tensor(0, "image"), call.tensor(1, "numbers")
    _, stride, (kh, kw), _ = _pool_options(call)
    if stride != (kh, kw) or len(x.shape) != 4 or numbers.shape != x.shape:
        raise ShapeError(f"expected windows side by side, found {kh}x{kw} by {stride}")
    n, h, w, c = x.shape
    at = call.reshape(call.convert(numbers, DType.I32), (n, h, w, 1, c))
    taps = call.counting((kh * kw, 1), np.int32)
    values = call.reshape(x, (n, h, w, 1, c))
    spread = call.emit(ops.Where(), call.emit(ops.Equal(), at, taps), values, call.scalar(0, x))
    moved = call.transpose(call.reshape(spread, (n, h, w, kh, kw, c)), (0, 1, 3, 2, 4, 5))
    return call.reshape(moved, (n, h * kh, w * kw, c))


def _pool_options(call: TfliteCall) -> tuple[bool, Pair, Pair, Activation]:
    content = call.operator.custom_options
    if len(content) < 24:
        raise ShapeError(f"expected options of 24 bytes, found {len(content)}")
    kind, sw, sh, kw, kh, activation = struct.unpack("<6i", content[:24])
    if kind not in (_SAME, _VALID) or activation not in ACTIVATIONS:
        raise ShapeError(f"expected padding SAME or VALID, found number {kind}")
    if min(sw, sh, kw, kh) < 1 or kw * kh > _TAPS or max(sw, sh) > _TAPS:
        raise ShapeError(f"expected a window of 1 to {_TAPS} pixels, found {kh}x{kw}")
    return kind == _SAME, (sh, sw), (kh, kw), ACTIVATIONS[activation]


def _slice_column(call: TfliteCall, x: Tensor, index: int) -> Tensor:
    op = ops.StridedSlice((0, index), (1, 1), (x.shape[0], 1), (x.shape[0],))
    return call.emit(op, x)


def _mul(call: TfliteCall, a: Tensor, b: Tensor) -> Tensor:
    return call.emit(ops.Mul(), a, b)


def _mul_scalar(call: TfliteCall, x: Tensor, factor: float) -> Tensor:
    return x if factor == 1.0 else call.emit(ops.Mul(), x, call.scalar(factor, x))
