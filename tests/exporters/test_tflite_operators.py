"""Operators of odd sizes as LiteRT runs what was written of them, against their references."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.errors import InputError
from edgekit.host.exporters import write_tflite
from edgekit.host.graph import ops
from edgekit.host.graph.evaluate import evaluate
from edgekit.host.graph.types import Activation, DType, Padding
from tests.support.op_cases import Case, constant, quant, tensor
from tests.support.op_graphs import graph_of, inputs_of

_RNG = np.random.default_rng(7)
_X = quant(0.05, 3)
_Y = quant(0.08, -7)


def _floats(*shape):
    return constant(_RNG.normal(0, 1, shape).astype(np.float32))


def _unary(op, *shape):
    return Case(op, (tensor(shape or (3, 5, 7)),))


def _layer(op, shape, weights, channels, dtype=DType.F32, bias=True):
    """A layer of floats, or of codes with a scale for each channel and a bias without one."""
    axis = 3 if isinstance(op, ops.DepthwiseConv2D) else 0
    if dtype is DType.F32:
        return Case(op, (tensor(shape), _floats(*weights), _floats(channels) if bias else None))
    scales = _RNG.uniform(0.005, 0.02, channels)
    w = constant(_RNG.integers(-127, 128, weights), DType.I8, quant(scales, 0, axis))
    b = constant(_RNG.integers(-5000, 5000, channels), DType.I32) if bias else None
    return Case(op, (tensor(shape, DType.I8, _X), w, b), quant(0.3, -4))


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
        yield _unary(op)
    for op in (ops.Logistic(), ops.Neg(), ops.RoundEven(), ops.Sign(), ops.Sin(), ops.Tanh()):
        yield _unary(op)
    for op in (ops.Log(), ops.Sqrt(), ops.Rsqrt(), ops.Reciprocal()):
        yield Case(ops.Exp(), (tensor((3, 5)),), None, Case(op, ()))
    for op in (ops.Elu(), ops.Elu(1.67, 1.05), ops.LeakyRelu(0.2), ops.Gelu(), ops.GeluTanh()):
        yield _unary(op)
    for op in (ops.Silu(), ops.Silu(1.7), ops.Softplus(), ops.HardSigmoid(0.3, 0.4)):
        yield _unary(op)
    for op in (ops.Clip(-1, 2), ops.Clip(0, 6), ops.Clip(low=-0.5), ops.Clip(high=0.5)):
        yield _unary(op)
    for activation in Activation:
        yield _unary(ops.Clamp(activation))
    yield _unary(ops.Softmax(1.5))
    yield _unary(ops.Mean((1,), True), 2, 3, 4, 5)
    yield _unary(ops.Mean((1, 2)), 2, 3, 4, 5)
    for op in (ops.ReduceSum, ops.ReduceMax, ops.ReduceMin, ops.ReduceProduct):
        yield _unary(op((0, 2), True))
    yield _unary(ops.ArgExtreme(1))
    yield _unary(ops.ArgExtreme(2, True))
    yield _unary(ops.TopK(3))
    yield _unary(ops.LayerNorm(2), 3, 4, 5)
    yield Case(ops.LayerNorm(1, 1e-3), (tensor((3, 4, 5)), _floats(5), _floats(1, 5)))


def _operands():
    pair = (tensor((2, 3, 1, 5)), tensor((4, 1)))
    for op in (ops.Add(Activation.RELU6), ops.Mul(Activation.RELU_0_TO_1), ops.Sub(), ops.Div()):
        yield Case(op, pair)
    for op in (ops.Maximum(), ops.Minimum(), ops.SquaredDifference()):
        yield Case(op, pair)
    for op in (ops.Equal(), ops.Less(), ops.LessOrEqual()):
        yield Case(op, pair, None, Case(ops.Not(), ()))
    yield Case(ops.PRelu(), (tensor((2, 3, 4, 5)), _floats(1, 1, 5)))
    yield Case(ops.MatMul(), (tensor((2, 3, 5)), tensor((2, 5, 4))))
    yield Case(ops.MatMul(), (tensor((2, 3, 5)), _floats(5, 4)))
    mask = constant(_RNG.random((3, 5)) < 0.5, DType.BOOL)
    yield Case(ops.Where(), (mask, tensor((3, 5)), tensor((3, 5))))
    yield _unary(ops.Convert(DType.I32, True))
    yield Case(ops.Convert(DType.F32), (tensor((3, 5), DType.I32),))


def _coded():
    x, other = tensor((2, 3, 4, 5), DType.I8, _X), tensor((2, 3, 4, 5), DType.I8, quant(0.03, -9))
    for op in (ops.Add(), ops.Mul(Activation.RELU), ops.Sub()):
        yield Case(op, (x, other), _Y)
    yield Case(ops.Concat(3), (x, other), _X)
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
    *_layers(DType.F32), *_layers(DType.I8), *_pools((DType.F32, None), None),
    *_moves(DType.F32, None), *_moves(DType.I8, _X), *_functions(), *_operands(), *_coded(),
]  # fmt: skip


_FAST_ONLY = (ops.Ceil, ops.RoundEven, ops.Elu)  # no reference kernel, nor one for sums of s8
# On codes: what several operators, or an error function of f32, make of them may be the other one
# of the two nearest.
_BY_OTHERS = (
    ops.Clip, ops.Concat, ops.Div, ops.Elu, ops.Gelu, ops.HardSigmoid,
    ops.Reciprocal, ops.Silu, ops.Softplus,
)  # fmt: skip


def _name(case):
    given = next(t for t in case.ins if t is not None)
    return f"{case.op.kind}-{given.dtype.value}"


_REFUSED = [
    (_unary(ops.Erf()), "an operator that TensorFlow Lite has, found none"),
    (_unary(ops.TopK(2, smallest=True)), "the largest values, found the smallest"),
    (Case(ops.Conv2D(), (tensor((1, 3, 3, 2)), _floats(2, 1, 1, 2), None, tensor((1, 3, 3, 2)))),
     "one with an operator fused into it"),
    (Case(ops.MatMul(), (tensor((2, 3), DType.I32), tensor((3, 2), DType.I32))), "found s32"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "message"), _REFUSED, ids=["erf", "top_k", "fused", "s32"])
def test_what_the_format_lacks_is_refused_by_name(case, message):
    with pytest.raises(InputError, match=f"node n0 \\({case.op.kind}\\) cannot.*{message}"):
        write_tflite(graph_of([case]))


@pytest.mark.peers
@pytest.mark.parametrize("case", CASES, ids=_name)
def test_litert_computes_the_reference(case, litert):
    graph = graph_of([case])
    inputs = inputs_of(graph, 3)
    fast = isinstance(case.op, _FAST_ONLY) or _name(case) == "reduce_sum-s8"
    expected, found = evaluate(graph, inputs).outputs, litert(write_tflite(graph), inputs, fast)
    assert set(found) == set(graph.outputs)
    for name, value in expected.items():
        assert found[name].shape == value.shape and found[name].dtype == value.dtype
        if value.dtype == np.float32:
            limit = 1e-5 * max(np.abs(value).max(), 1)
            np.testing.assert_allclose(found[name], value, rtol=0, atol=limit)
        elif isinstance(case.op, _BY_OTHERS):
            np.testing.assert_allclose(found[name].astype(int), value.astype(int), rtol=0, atol=1)
        else:
            np.testing.assert_array_equal(found[name], value)
