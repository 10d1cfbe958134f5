"""Import of TensorFlow Lite's reductions, softmax and normalizations."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from edgekit.host.compiler.frontends.tflite.call import Output, TfliteCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.fixed_point import is_fraction
from edgekit.host.compiler.ir.types import DType, Operator, Quant, ShapeError, Tensor

_LARGEST_STEP = 128  # LiteRT's limit on the rescaling factor
_TINY = 1e-12  # TFLite's L2 normalization divides by at least this square sum


def mean(call: TfliteCall) -> Tensor:
    """Means; integer means round toward zero."""
    x = call.tensor(0, "input")
    axes = _reduction_axes(call, x)
    if x.dtype in (DType.I32, DType.I64):
        count = prod(x.shape[a] for a in axes)
        return call.emit(ops.Div(), total(ops.ReduceSum)(call), call.scalar(count, x))
    return _of_neighbors(call, lambda near: ops.Mean(near))


def sum_(call: TfliteCall) -> Tensor:
    """Sums; quantized sums are rounded once, so one node reduces all axes."""
    if call.tensor(0, "input").is_quantized:
        return _of_neighbors(call, lambda near: ops.ReduceSum(near))
    return total(ops.ReduceSum)(call)


def total(op: type[ops.Total]) -> Callable[[TfliteCall], Tensor]:
    """One reduction node per run of adjacent axes, which is what kernels support."""

    def build(call: TfliteCall) -> Tensor:
        x = call.tensor(0, "input")
        rest, y = list(_reduction_axes(call, x)), x
        while rest:
            run = [rest.pop()]
            while rest and rest[-1] == run[0] - 1:
                run.insert(0, rest.pop())
            y = call.result(op(tuple(run), True), y)
        return _with_axes(call, x, y)

    return build


def _of_neighbors(call: TfliteCall, op: Callable[[tuple[int, ...]], Operator]) -> Tensor:
    """`op` on adjacent axes; if they are not adjacent, the reduced axes are moved to the end."""
    x = call.tensor(0, "input")
    axes = _reduction_axes(call, x)
    inside = range(axes[0], axes[-1] + 1) if axes else range(0)
    if all(i in axes or x.shape[i] == 1 for i in inside):
        return _with_axes(call, x, call.result(op(axes), x))
    order = [*(i for i in range(len(x.shape)) if i not in axes), *axes]
    moved = call.emit(ops.Transpose(tuple(order)), x, quant=x.quant)
    return _with_axes(
        call, x, call.result(op(tuple(range(len(order) - len(axes), len(order)))), moved)
    )


def _with_axes(call: TfliteCall, x: Tensor, y: Tensor) -> Tensor:
    """`y` with the reduced axes kept or dropped, as the options specify."""
    axes, keep = _reduction_axes(call, x), call.option("KeepDims")
    shape = [1 if i in axes else d for i, d in enumerate(x.shape) if keep or i not in axes]
    if y.shape == tuple(shape):
        return y
    return call.emit(ops.Reshape(tuple(shape)), y, quant=y.quant)


def _reduction_axes(call: TfliteCall, x: Tensor) -> tuple[int, ...]:
    rank = len(x.shape)
    return tuple(sorted({call.axis(a, rank) for a in call.integers(1, "axes")}))


def product(call: TfliteCall) -> Tensor:
    """Products; quantized ones are rescaled at each step, so one node reduces all axes."""
    x, quant = call.tensor(0, "input"), call.outputs[0].quant
    if not x.is_quantized:
        return total(ops.ReduceProduct)(call)
    if quant is not None and quant.scale.size == 1 and x.quant is not None:
        count = prod(x.shape[a] for a in _reduction_axes(call, x))
        largest = float(x.quant.scale.flat[0]) / float(quant.scale[0]) ** (1 / max(count, 1))
        if largest > _LARGEST_STEP:
            raise ShapeError(
                f"expected scales that grow a product by at most {_LARGEST_STEP} per step, "
                f"found {largest}"
            )
    return _of_neighbors(call, lambda near: ops.ReduceProduct(near))


def arg_extreme(smallest: bool) -> Callable[[TfliteCall], Tensor]:
    def build(call: TfliteCall) -> Tensor:
        x = call.tensor(0, "input")
        axis = call.axis(call.integer(1, "axis"), len(x.shape))
        found = call.emit(ops.ArgExtreme(axis, smallest=smallest), x)
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
        return call.convert(call.reshape(found, shape), call.out_dtype)

    return build


def softmax(call: TfliteCall) -> Tensor:
    x, out, beta = call.tensor(0, "input"), call.outputs[0], float(call.option("Beta"))
    if x.is_quantized and x.dtype.bytes == 1 and not _fraction(x, out):
        return _rescaled_softmax(call, x, beta)
    return call.result(ops.Softmax(beta), x)


def _fraction(x: Tensor, out: Output) -> bool:
    return out.dtype is x.dtype and (
        out.quant is None or is_fraction(Tensor("", (), out.dtype, out.quant))
    )


def _rescaled_softmax(call: TfliteCall, x: Tensor, beta: float) -> Tensor:
    """Softmax of 8-bit values in any unit, in the order of LiteRT's f32 kernel.

    Like there, the zero point of u8 results is ignored.
    """
    quant = call.outputs[0].quant
    if quant is None or quant.per_channel or x.quant is None or not x.shape:
        raise ShapeError(
            "expected an input of rank 1 or more with a scale and an output with one scale, found "
            f"{list(x.shape)} and {0 if quant is None else quant.scale.size} scales"
        )
    last = (len(x.shape) - 1,)
    stored = call.convert(x, DType.I32)
    below = call.emit(ops.Sub(), call.emit(ops.ReduceMax(last, True), stored), stored)
    step = -np.float32(x.quant.scale.flat[0]) * np.float32(beta)
    table = np.exp((step * np.arange(256, dtype=np.float32)).astype(np.float64))
    powers = call.emit(ops.Gather(0), call.constant(table.astype(np.float32)), below)
    total = call.emit(ops.ReduceSum(last, True), powers)
    unit = call.emit(ops.Mul(), total, call.scalar(float(quant.scale.flat[0]), total))
    share = call.emit(ops.Mul(), powers, call.emit(ops.Reciprocal(), unit))
    zero = 0 if call.out_dtype is DType.U8 else int(quant.zero_point.flat[0])
    grid = Quant(np.array([1.0]), np.array([zero]))
    y = call.emit(ops.Quantize(call.out_dtype), share, quant=grid)
    return call.emit(ops.BitCast(call.out_dtype), y, quant=quant)


def log_softmax(call: TfliteCall) -> Tensor:
    """Log-softmax; quantized inputs are computed in f32, like LiteRT's kernels."""
    x = call.tensor(0, "input")
    if x.is_quantized and x.dtype.bytes == 1:
        x = call.emit(ops.Cast(), x)
    if x.dtype is not DType.F32:
        raise ShapeError(f"expected an input of type f32, found {x.dtype.value}")
    last = (len(x.shape) - 1,)
    offset = call.emit(ops.Sub(), x, call.emit(ops.ReduceMax(last, True), x))
    total = call.emit(ops.ReduceSum(last, True), call.emit(ops.Exp(), offset))
    y = call.emit(ops.Sub(), offset, call.emit(ops.Log(), total))
    return y if call.out_dtype is DType.F32 else call.result(ops.Quantize(call.out_dtype), y)


def l2_normalization(call: TfliteCall) -> Tensor:
    x = call.tensor(0, "input")
    if x.is_quantized:
        return call.result(ops.UnitLength(), x)
    if x.dtype is not DType.F32:
        raise ShapeError(f"expected an input of type f32, found {x.dtype.value}")
    last = (len(x.shape) - 1,)
    squares = call.emit(ops.ReduceSum(last, True), call.emit(ops.Mul(), x, x))
    norm = call.emit(ops.Sqrt(), call.emit(ops.Maximum(), squares, call.scalar(_TINY, x)))
    return call.emit(ops.Div(), x, norm)


def across_channels(call: TfliteCall) -> Tensor:
    """x / (bias + alpha · Σ x²)^beta, with the sum over neighboring channels."""
    x, radius = call.tensor(0, "image"), call.option("Radius")
    alpha, beta, bias = (float(call.option(name)) for name in ("Alpha", "Beta", "Bias"))
    channels = x.shape[-1]
    if x.dtype is not DType.F32 or len(x.shape) != 4 or radius < 0:
        raise ShapeError(f"expected an f32 image, found {x.dtype.value}{list(x.shape)}")
    at = np.arange(channels)
    near = np.abs(at[:, None] - at[None, :]) <= radius
    squares = call.reshape(call.emit(ops.Mul(), x, x), (x.elements // channels, channels))
    band = call.constant(near.astype(np.float32) * np.float32(alpha))
    sums = call.reshape(call.emit(ops.MatMul(), squares, band), x.shape)
    base = call.emit(ops.Add(), sums, call.scalar(bias, x))
    return call.emit(ops.Mul(), x, call.emit(ops.Pow(), base, call.scalar(-beta, x)))


def cumsum(call: TfliteCall) -> Tensor:
    """Running sums as a product with a triangle of ones."""
    x = call.tensor(0, "input")
    if x.dtype not in (DType.F32, DType.I32, DType.I64):
        raise ShapeError(f"expected an input of type f32, s32 or s64, found {x.dtype.value}")
    axis = call.axis(call.integer(1, "axis"), len(x.shape))
    size = x.shape[axis]
    call.builder.need_room((size, size), x.dtype.numpy)
    ones = np.tri(size, size, -1 if call.option("Exclusive") else 0, dtype=x.dtype.numpy)
    rows = call.last(x, axis)
    shape = rows.shape
    flat = call.reshape(rows, (x.elements // size, size))
    weights = ones if not call.option("Reverse") else ones.T
    y = call.emit(ops.MatMul(), flat, call.constant(np.ascontiguousarray(weights.T)))
    return call.back(call.reshape(y, shape), axis)


def top_k(call: TfliteCall) -> list[Tensor]:
    x, k = call.tensor(0, "input"), call.integer(1, "k")
    index = call.outputs[-1].dtype
    if index not in (DType.I32, DType.I64):
        raise ShapeError(f"expected indices of type s32 or s64, found {index.value}")
    return call.results(ops.TopK(k, index=index), x)
