"""Random operators on 8- and 16-bit quantized tensors, for `op_graphs`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, DType, Operator, Padding, Quant
from tests.support.op_cases import Case, Rng, constant, pick, quant, tensor

_FUNCTIONS: tuple[Operator, ...] = (
    ops.Abs(), ops.Elu(), ops.Exp(), ops.Gelu(), ops.LeakyRelu(0.2), ops.Log(),
    ops.Rsqrt(), ops.Sqrt(), ops.Tanh(),
)  # fmt: skip
_OPERANDS: tuple[Operator, ...] = (
    ops.Div(), ops.Equal(), ops.Less(), ops.LessOrEqual(), ops.Maximum(), ops.Minimum(),
    ops.PRelu(), ops.SquaredDifference(), ops.Sub(),
)  # fmt: skip


def scale(rng: Rng, dtype: DType) -> Quant:
    info = np.iinfo(dtype.numpy)
    zero = 0 if dtype is DType.I16 else int(rng.integers(info.min, info.max + 1))
    return quant(float(rng.uniform(0.01, 0.1)) * 255 / (info.max - info.min), zero)


def function(rng: Rng, dtype: DType) -> Case:
    op = _FUNCTIONS[int(rng.integers(len(_FUNCTIONS)))]
    x = tensor((pick(rng, (1, 5, 4097)),), dtype, scale(rng, dtype))
    return Case(op, (x,), scale(rng, dtype))


def operands(rng: Rng, dtype: DType) -> Case:
    """The second operand may be a constant, with one value or one per channel."""
    op = _OPERANDS[int(rng.integers(len(_OPERANDS)))]
    shape = [pick(rng, (1, 2, 3, 5, 17)) for _ in range(int(rng.integers(1, 6)))]
    other = [1 if rng.random() < 0.4 else d for d in shape[int(rng.integers(len(shape))) :]]
    constants, first = rng.random() < 0.5, scale(rng, dtype)
    if constants:
        info = np.iinfo(dtype.numpy)
        data = rng.integers(info.min, info.max + 1, other)
        second = constant(data, dtype, _second(rng, op, first, dtype))
    else:
        second = tensor(other, dtype, _second(rng, op, first, dtype))
    return Case(op, (tensor(shape, dtype, first), second), scale(rng, dtype))


def _second(rng: Rng, op: Operator, first: Quant, dtype: DType) -> Quant:
    """The quantization of a second operand: that of the first if the operator needs it."""
    drawn = scale(rng, dtype)
    return first if isinstance(op, ops.Maximum | ops.Minimum) else drawn


def behind(rng: Rng, dtype: DType, channels: int, before: Quant) -> Case | None:
    """An optional operator that fuses into a product with results of quantization `before`: unary,
    or binary with a per-channel constant."""
    if rng.random() < 0.5:
        return None
    q = scale(rng, dtype)
    if rng.random() < 0.5:
        functions = (*_FUNCTIONS, ops.HardSwish(), ops.Logistic(), ops.Quantize(DType.I8))
        return Case(functions[int(rng.integers(len(functions)))], (), q)
    info = np.iinfo(dtype.numpy)
    data = rng.integers(info.min, info.max + 1, pick(rng, (1, channels)))
    op = _OPERANDS[int(rng.integers(len(_OPERANDS)))]
    return Case(op, (constant(data, dtype, _second(rng, op, before, dtype)),), q)


def transpose_conv(rng: Rng, dtype: DType) -> Case:
    """Non-overlapping windows; per-channel scales for s8, nonzero weight zero points for u8."""
    kh, kw = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    h, w, ic, oc = (pick(rng, (1, 2, 3, 5, 17)) for _ in range(4))
    info = np.iinfo(dtype.numpy)
    signed = dtype is DType.I8
    weights = rng.integers(-127 if signed else 0, info.max + 1, (oc, kh, kw, ic))
    scales = rng.uniform(0.005, 0.02, oc if signed else 1)
    q = quant(scales, 0 if signed else int(rng.integers(100, 156)))
    bias = constant(rng.integers(-9999, 9999, oc), DType.I32) if rng.random() < 0.8 else None
    activation = (Activation.NONE, Activation.RELU, Activation.RELU6)[int(rng.integers(3))]
    op = ops.TransposeConv2D((kh, kw), Padding(), (h * kh, w * kw), activation)
    x = tensor((1, h, w, ic), dtype, scale(rng, dtype))
    far = quant(float(scale(rng, dtype).scale[0]) * ic**0.5, int(rng.integers(0, 9)))
    return Case(op, (x, constant(weights, dtype, q), bias), far)


def totals(rng: Rng, dtype: DType) -> Case:
    x = tensor([pick(rng, (1, 2, 7, 65, 129)) for _ in range(3)], dtype, scale(rng, dtype))
    axes = ((0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2))[int(rng.integers(6))]
    if rng.random() < 0.3:
        if rng.random() < 0.3:
            x = tensor((3, 2500), dtype, x.quant)
        axis = int(rng.integers(len(x.shape)))
        return Case(ops.ArgExtreme(axis, bool(rng.random() < 0.5)), (x,))
    if rng.random() < 0.4:
        return Case((ops.ReduceMax if rng.random() < 0.5 else ops.ReduceMin)(axes), (x,), x.quant)
    q = quant(float(scale(rng, dtype).scale[0]) * 20, int(rng.integers(0, 9)))
    if rng.random() < 0.3:
        return Case(ops.ReduceProduct(axes), (x,), quant(0.5, int(rng.integers(0, 9))))
    return Case((ops.ReduceSum if rng.random() < 0.7 else ops.Mean)(axes), (x,), q)


def unit_length(rng: Rng, dtype: DType) -> Case:
    x = tensor((pick(rng, (1, 3, 9)), pick(rng, (1, 4, 33, 300))), dtype, scale(rng, dtype))
    return Case(ops.UnitLength(), (x,), quant(1 / 128, 0 if dtype is DType.I8 else 128))


def mean_of_sums(rng: Rng, dtype: DType) -> Case:
    """A mean of sums of rows."""
    q = scale(rng, dtype)
    x = tensor([pick(rng, (1, 2, 7, 65)) for _ in range(4)], dtype, q)
    count = x.shape[1] * x.shape[2]
    mean = ops.MeanOfSums((1, 2), bool(rng.random() < 0.5), count, dtype)
    return Case(ops.QuantizedSum((2,)), (x,), quant(q.scale), Case(mean, (), scale(rng, dtype)))


def wide(rng: Rng, dtype: DType) -> Case:
    """Every operator with a 16-bit kernel."""
    shape = tuple(pick(rng, (1, 2, 5, 17)) for _ in range(3))
    x, q = tensor(shape, dtype, scale(rng, dtype)), scale(rng, dtype)
    other = tensor(shape[-1:] if rng.random() < 0.5 else shape, dtype, scale(rng, dtype))
    cases = (
        Case(ops.Add(), (x, other), q),
        Case(ops.Sub(), (x, other), q),
        Case(ops.Mul(), (x, other), q),
        Case(ops.Div(), (x, other), q),
        Case(
            ops.PRelu(), (x, constant(rng.integers(-128, 128, shape[-1:]), dtype, quant(0.01))), q
        ),
        Case(ops.Quantize(dtype), (tensor(shape),), q),
        Case(ops.Cast(), (x,)),
        Case(ops.Logistic(), (x,), quant(1 / 32768)),
        Case(ops.Clamp(), (x,), q),
        Case(ops.Softmax(0.7), (x,), quant(1 / 32768)),
        Case(ops.MaxPool2D((2, 1)), (tensor((1, 4, *shape[1:]), dtype, x.quant),), x.quant),
        Case(ops.AveragePool2D((2, 1)), (tensor((1, 4, *shape[1:]), dtype, x.quant),), x.quant),
    )
    return cases[int(rng.integers(len(cases)))]


def nearest(rng: Rng, dtype: DType) -> Case:
    """Operators that round as ONNX does, most with scales that make ties."""
    rows, columns = pick(rng, (1, 5, 64)), pick(rng, (1, 3, 16, 65))
    shape = (rows, columns)
    other = (shape, shape, shape[-1:], (rows, 1), (1,))[int(rng.integers(5))]
    from_u8, unit = bool(rng.random() < 0.5), float(rng.uniform(0.01, 0.1))
    ends = []
    for _ in range(3):
        q = quant(unit * 2.0 ** int(rng.integers(-2, 3)), int(rng.integers(-128, 128)))
        ends.append(replace(q, rounds_once=True, from_u8=from_u8))
    if rng.random() < 0.2:  # the file has values of two types
        ends[1] = replace(ends[1], from_u8=not from_u8)
    if rng.random() < 0.25:
        return _nearest_pool(rng, dtype, ends[0], ends[0] if rng.random() < 0.5 else ends[2])
    a, b = tensor(shape, dtype, ends[0]), tensor(other, dtype, ends[1])
    activation = Activation.RELU6 if rng.random() < 0.2 else Activation.NONE
    op = (ops.Add(activation), ops.Add(), ops.Mul(activation), ops.Sub())[int(rng.integers(4))]
    if isinstance(op, ops.Mul) and rng.random() < 0.9:  # else some products exceed the kernel's
        ends[2] = replace(ends[2], scale=ends[2].scale * np.float32(unit * 2.0**5))
    return Case(op, (a, b), ends[2])


def _nearest_pool(rng: Rng, dtype: DType, q: Quant, out: Quant) -> Case:
    window = (pick(rng, (1, 2, 3)), pick(rng, (2, 3)))
    padding = Padding(window[0] // 2, window[0] // 2, 1, 0)
    x = tensor((1, 7, 6, pick(rng, (1, 3, 5, 17, 64, 70))), dtype, q)
    return Case(ops.AveragePool2D(window, (pick(rng, (1, 2)), 2), padding), (x,), out)


def wide_conv(rng: Rng) -> Case:
    """s16 images and s8 weights: ungrouped, grouped, or depthwise."""
    groups = pick(rng, (1, 1, 2, 19))
    depth = 1 if groups == 19 else pick(rng, (1, 3, 300))
    share, window = pick(rng, (1, 2, 17)), (pick(rng, (1, 3)), pick(rng, (1, 2)))
    oc = groups * share
    rounding = list(ops.Rounding)[int(rng.integers(3))]
    bias = DType.I64 if rounding is ops.Rounding.SHORT else DType.I32
    weights = constant(
        rng.integers(-128, 128, (oc, *window, depth)), DType.I8,
        quant(rng.uniform(0.001, 0.01, oc)),
    )  # fmt: skip
    op = ops.Conv2D16x8(
        (1, pick(rng, (1, 2))), (pick(rng, (1, 2)), 1), Padding(1, 0, 0, 2), groups,
        Activation.RELU if rng.random() < 0.3 else Activation.NONE, rounding,
    )  # fmt: skip
    x = tensor((1, 5, 4, groups * depth), DType.I16, quant(2e-4))
    term = constant(rng.integers(-(2**20), 2**20, oc), bias) if rng.random() < 0.8 else None
    return Case(op, (x, weights, term), quant(float(rng.uniform(1e-4, 1e-2))))


def quantize_even(rng: Rng, dtype: DType) -> Case:
    """Every other constant lies halfway between two quantized values."""
    halves = np.arange(-300, 300, dtype=np.float32) * np.float32(0.25)
    x = constant(halves) if rng.random() < 0.7 else tensor((257,))
    q = quant(0.5, int(rng.integers(0, 100)))
    return Case(ops.Quantize(dtype, True), (x,), q)


_8BIT = (DType.I8, DType.U8)


def quantize_rows(rng: Rng) -> Case:
    """Rows of zeros, of values that are too small, with halves between steps, and as inputs."""
    n = pick(rng, (1, 5, 16, 33, 300))
    if rng.random() < 0.3:
        return Case(ops.QuantizeRows(), (tensor((3, n)),))
    halves = rng.integers(-254, 255, n) / 2
    halves[0] = 127
    rows = [halves, np.zeros(n), np.full(n, 1e-31), rng.standard_normal(n) * 1e-20]
    return Case(ops.QuantizeRows(), (constant(np.array(rows)),))


FAMILIES = {
    "quantize_rows": (quantize_rows, (None,)),
    "quantized_function": (function, (*_8BIT, DType.I16)),
    "quantized_operands": (operands, _8BIT),
    "nearest": (nearest, (DType.I8,)),
    "unit_length": (unit_length, _8BIT),
    "mean_of_sums": (mean_of_sums, (*_8BIT, DType.I16)),
    "wide": (wide, (DType.I16,)),
    "wide_conv": (wide_conv, (None,)),
    "quantized_totals": (totals, (*_8BIT, DType.I16)),
    "quantize_even": (quantize_even, (DType.I8, DType.U8)),
}
