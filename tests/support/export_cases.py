"""Operators of odd sizes that other engines' formats can express, each with separate operands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, DType, Padding
from tests.support.op_cases import Case, constant, quant, tensor

_RNG = np.random.default_rng(7)
_X = quant(0.05, 3)
_Y = quant(0.08, -7)


def floats(*shape):
    return constant(_RNG.normal(0, 1, shape).astype(np.float32))


def unary(op, *shape):
    return Case(op, (tensor(shape or (3, 5, 7)),))


def _layer(op, shape, weights, channels, dtype=DType.F32, bias=True):
    """A float layer, or an 8-bit one with per-channel weight scales and a bias without a scale."""
    axis = 3 if isinstance(op, ops.DepthwiseConv2D) else 0
    if dtype is DType.F32:
        return Case(op, (tensor(shape), floats(*weights), floats(channels) if bias else None))
    scales = _RNG.uniform(0.005, 0.02, channels)
    w = constant(_RNG.integers(-127, 128, weights), DType.I8, quant(scales, 0, axis))
    b = constant(_RNG.integers(-5000, 5000, channels), DType.I32) if bias else None
    return Case(op, (tensor(shape, DType.I8, _X), w, b), quant(0.3, -4))


def _sparse(data, q=None):
    """A constant marked as sparse, with few or no nonzeros."""
    dtype = DType.F32 if q is None else DType.I8
    return replace(constant(data * (_RNG.random(data.shape) < 0.2), dtype, q), sparse=True)


def _sparse_layers():
    image, weights = tensor((1, 5, 4, 300)), _RNG.normal(0, 1, (7, 1, 1, 300))
    for data in (weights, weights.astype(np.float16), weights * 0):
        yield Case(ops.Conv2D(), (image, _sparse(data), None))
    quantized = _RNG.integers(-127, 128, (7, 9))
    q = quant(_RNG.uniform(0.005, 0.02, 7))
    yield Case(
        ops.FullyConnected(), (tensor((3, 9), DType.I8, _X), _sparse(quantized, q), None), _Y
    )


def _layers(dtype):
    uneven, even = Padding(1, 0, 2, 1), Padding(1, 1, 1, 1)
    image = (1, 9, 8, 5)
    yield _layer(ops.Conv2D(), image, (4, 3, 2, 5), 4, dtype)
    yield _layer(ops.Conv2D((2, 1), (1, 2), uneven), image, (4, 3, 2, 5), 4, dtype, False)
    relu = Activation.RELU_0_TO_1
    yield _layer(ops.Conv2D((2, 2), padding=even, activation=relu), image, (4, 3, 3, 5), 4, dtype)
    deep = ops.DepthwiseConv2D((2, 2), padding=uneven, multiplier=2, activation=Activation.RELU6)
    yield _layer(deep, image, (1, 3, 3, 10), 10, dtype)
    apart = ops.DepthwiseConv2D(dilation=(2, 2), padding=Padding(2, 2, 2, 2))
    yield _layer(apart, image, (1, 3, 3, 5), 5, dtype, False)
    yield _layer(ops.FullyConnected(), (3, 2, 7), (6, 7), 6, dtype)
    yield _layer(ops.FullyConnected(True, Activation.RELU), (3, 2, 7), (6, 7), 6, dtype, False)
    back = ops.TransposeConv2D((2, 2), Padding(0, 1, 1, 1), (10, 7), Activation.RELU)
    yield _layer(back, (1, 5, 4, 3), (4, 3, 3, 3), 4, dtype)
    whole = ops.TransposeConv2D((2, 2), Padding(), (10, 8))
    yield _layer(whole, (1, 5, 4, 3), (4, 2, 2, 3), 4, dtype, False)


def _pools(x, y):
    image = tensor((2, 9, 8, 5), x[0], x[1])
    yield Case(ops.MaxPool2D((3, 2), (2, 2), Padding(1, 1, 1, 0)), (image,), y)
    yield Case(ops.MaxPool2D((2, 2), (2, 2), activation=Activation.RELU6), (image,), y)
    yield Case(ops.AveragePool2D((3, 3), (1, 1), Padding(1, 1, 1, 1)), (image,), y)


def _moves(dtype, q):
    x = tensor((2, 3, 4, 6), dtype, q)
    yield Case(ops.Reshape((6, 24)), (x,), q)
    yield Case(ops.Transpose((0, 3, 1, 2)), (x,), q)
    yield Case(ops.Pad((0, 1, 0, 2), (1, 0, 0, 3)), (x,), q)
    # Zeros between pixels, as in transposed convolutions, on more axes than LiteRT's PAD supports.
    spread = tensor((2, 3, 1, 4, 1, 5), dtype, q)
    yield Case(ops.Pad((0, 0, 0, 0, 0, 0), (0, 0, 1, 0, 2, 0)), (spread,), q)
    yield Case(ops.Split(3, (2, 2, 2)), (x,), q)
    yield Case(ops.Split(3, (1, 5)), (x,), q)
    yield Case(ops.Concat(3), (x, tensor((2, 3, 4, 1), dtype, q)), q)
    yield Case(ops.StridedSlice((0, 1, 0, 2), (1,) * 4, (2, 1, 4, 3), (2, 4, 3)), (x,), q)
    back = ops.StridedSlice((1, 2, 0, 5), (-1, -2, 3, -2), (2, 2, 2, 3), (2, 2, 2, 3))
    yield Case(back, (x,), q)
    yield Case(ops.BroadcastTo((2, 3, 5, 2)), (tensor((3, 1, 2), dtype, q),), q)
    yield Case(ops.Gather(2), (x, constant(np.array([3, -4, 0, 0]), DType.I32)), q)
    yield Case(ops.ResizeBilinear((7, 5), half_pixel_centers=True), (x,), q)
    yield Case(ops.ResizeBilinear((5, 9), align_corners=True), (x,), q)
    yield Case(ops.DepthToSpace(2), (tensor((1, 3, 2, 8), dtype, q),), q)
    yield Case(ops.SpaceToBatch((2, 2), (1, 0, 0, 2)), (x,), q)
    yield Case(ops.BatchToSpace((2, 1), (1, 0, 0, 2)), (x,), q)


def _functions():
    for op in (ops.Abs(), ops.Ceil(), ops.Cos(), ops.Exp(), ops.Floor(), ops.HardSwish()):
        yield unary(op)
    for op in (ops.Logistic(), ops.Neg(), ops.RoundEven(), ops.Sign(), ops.Sin(), ops.Tanh()):
        yield unary(op)
    for op in (ops.Log(), ops.Sqrt(), ops.Rsqrt(), ops.Reciprocal()):
        yield Case(ops.Exp(), (tensor((3, 5)),), None, Case(op, ()))
    for op in (ops.Elu(), ops.Elu(1.67, 1.05), ops.LeakyRelu(0.2), ops.Gelu(), ops.GeluTanh()):
        yield unary(op)
    for op in (ops.Silu(), ops.Silu(1.7), ops.Softplus(), ops.HardSigmoid(0.3, 0.4)):
        yield unary(op)
    for op in (ops.Clip(-1, 2), ops.Clip(0, 6), ops.Clip(low=-0.5), ops.Clip(high=0.5)):
        yield unary(op)
    for activation in Activation:
        yield unary(ops.Clamp(activation))
    yield unary(ops.Softmax(1.5))
    yield unary(ops.Mean((1,), True), 2, 3, 4, 5)
    yield unary(ops.Mean((1, 2)), 2, 3, 4, 5)
    for op in (ops.ReduceSum, ops.ReduceMax, ops.ReduceMin, ops.ReduceProduct):
        yield unary(op((0, 2), True))
    yield unary(ops.ArgExtreme(1))
    yield unary(ops.ArgExtreme(2, True))
    yield unary(ops.TopK(3))
    yield unary(ops.SoftmaxMean((0, 1.5, -2, 3, 4), 0.5), 3, 4, 5)
    yield unary(ops.SoftmaxMean((0, 1, 2, 3, 4), keep_dims=False), 3, 4, 5)
    yield unary(ops.LayerNorm(2), 3, 4, 5)
    yield Case(ops.LayerNorm(1, 1e-3), (tensor((3, 4, 5)), floats(5), floats(1, 5)))


def _operands():
    pair = (tensor((2, 3, 1, 5)), tensor((4, 1)))
    for op in (ops.Add(Activation.RELU6), ops.Mul(Activation.RELU_0_TO_1), ops.Sub(), ops.Div()):
        yield Case(op, pair)
    for op in (ops.Maximum(), ops.Minimum(), ops.SquaredDifference()):
        yield Case(op, pair)
    for op in (ops.Equal(), ops.Less(), ops.LessOrEqual()):
        yield Case(op, pair, None, Case(ops.Not(), ()))
    yield Case(ops.PRelu(), (tensor((2, 3, 4, 5)), floats(1, 1, 5)))
    yield Case(ops.MatMul(), (tensor((2, 3, 5)), tensor((2, 5, 4))))
    yield Case(ops.MatMul(), (tensor((2, 3, 5)), floats(5, 4)))
    mask = constant(_RNG.random((3, 5)) < 0.5, DType.BOOL)
    yield Case(ops.Where(), (mask, tensor((3, 5)), tensor((3, 5))))
    yield unary(ops.Convert(DType.I32, True))
    yield Case(ops.Convert(DType.F32), (tensor((3, 5), DType.I32),))


def _logic():
    flags = (tensor((3, 1, 5), DType.BOOL), tensor((4, 1), DType.BOOL))
    for op in (ops.And(), ops.Or(), ops.Xor(), ops.Equal()):
        yield Case(op, flags)
    yield Case(ops.ReduceMax((1,)), (tensor((3, 4, 5), DType.BOOL),))
    yield Case(ops.ReduceMin((0, 2), True), (tensor((3, 4, 5), DType.BOOL),))
    whole = tensor((3, 5), DType.I32)
    yield Case(ops.Modulo(), (whole, constant(np.array([3, -7, 11, 2, -5]), DType.I32)))
    yield Case(ops.Modulo(), (tensor((3, 5)), floats(5)))
    yield Case(ops.FloorDiv(), (tensor((3, 5)), floats(5)))
    yield Case(ops.Pow(), (constant(np.abs(_RNG.normal(1, 0.2, (3, 5)))), tensor((3, 5))))


def _quantized():
    x, other = tensor((2, 3, 4, 5), DType.I8, _X), tensor((2, 3, 4, 5), DType.I8, quant(0.03, -9))
    for op in (ops.Add(), ops.Mul(Activation.RELU), ops.Sub()):
        yield Case(op, (x, other), _Y)
    yield Case(ops.Concat(3), (x, other), _X)
    yield Case(ops.AveragePool2D((3, 2), (2, 1), Padding(1, 1, 1, 0)), (x,), _X)
    for op in (ops.HardSwish(), ops.Tanh(), ops.LeakyRelu(0.2), ops.Clamp(Activation.RELU6)):
        yield Case(op, (x,), quant(1 / 128, 0) if isinstance(op, ops.Tanh) else _Y)
    yield Case(ops.PRelu(), (x, constant(_RNG.integers(-127, 128, 5), DType.I8, quant(0.01))), _Y)
    for op in (ops.Abs(), ops.Elu(), ops.Exp(), ops.Gelu(), ops.GeluTanh(), ops.Elu(1.67, 1.05)):
        yield Case(op, (x,), _Y)
    for op in (ops.HardSigmoid(0.3, 0.4), ops.Silu(1.7), ops.Softplus(), ops.Clip(-1, 2)):
        yield Case(op, (x,), _Y)
    for op in (ops.Log(), ops.Rsqrt(), ops.Sqrt(), ops.Reciprocal()):
        yield Case(op, (tensor((3, 5), DType.I8, quant(0.02, -128)),), _Y)
    for op in (ops.Maximum(), ops.Minimum()):
        yield Case(op, (x, tensor((4, 1), DType.I8, _X)), _X)
    yield Case(ops.SquaredDifference(), (x, other), _Y)
    yield Case(ops.Div(), (x, constant(np.array(100), DType.I8, quant(0.02, 3))), _Y)
    yield Case(ops.Less(), (x, other), None)
    yield Case(ops.ReduceSum((1, 3), True), (x,), quant(1.1, 4))
    yield Case(ops.ReduceMax((1,)), (x,), _X)
    yield Case(ops.UnitLength(), (x,), quant(1 / 128, 0))
    fraction = quant(1 / 256, -128)
    yield Case(ops.Logistic(), (x,), fraction)
    yield Case(ops.Softmax(), (x,), fraction)
    yield Case(ops.Mean((1, 2)), (x,), _Y)
    yield Case(ops.Quantize(DType.U8), (x,), quant(0.04, 131))
    yield Case(ops.Quantize(DType.I8), (tensor((3, 5)),), _Y, Case(ops.Cast(), ()))
    yield Case(ops.AveragePool2D((2, 2), (1, 2)), (x,), _X)
    yield Case(ops.MaxPool2D((3, 2), (2, 2), Padding(1, 1, 1, 0)), (x,), _X)
    yield Case(ops.MatMul(), (x, tensor((2, 3, 5, 2), DType.I8, quant(0.03, 0))), quant(0.2, 1))


CASES = [
    *_sparse_layers(), *_layers(DType.F32), *_layers(DType.I8), *_pools((DType.F32, None), None),
    *_moves(DType.F32, None), *_moves(DType.I8, _X), *_functions(), *_operands(), *_logic(),
    *_quantized(),
]  # fmt: skip


def shown(cases):
    """The classes of the operators in cases."""
    every = [*cases, *(case.after for case in cases if case.after)]
    return {type(case.op) for case in every}


def name_of(case):
    """The operator kind and the dtype of its first operand."""
    given = next(t for t in case.ins if t is not None)
    return f"{case.op.kind}-{given.dtype.value}"
