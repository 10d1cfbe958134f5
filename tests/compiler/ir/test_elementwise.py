"""Element-wise operators against arithmetic on real values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgekit.host.compiler.ir.ops import Add, Cast, Clamp, Clip, HardSwish, Logistic, Mul, Quantize
from edgekit.host.compiler.ir.types import Activation, DType, ShapeError

SHAPES = [((2, 3, 5), (2, 3, 5)), ((2, 3, 5), (5,)), ((2, 1, 5), (1, 3, 1)), ((3,), ())]


@pytest.mark.parametrize(("a_shape", "b_shape"), SHAPES)
@pytest.mark.parametrize(("op", "reals"), [(Add, np.add), (Mul, np.multiply)])
def test_f32_broadcasts(apply, rng, op, reals, a_shape, b_shape):
    a = rng.normal(size=a_shape).astype(np.float32)
    b = np.asarray(rng.normal(size=b_shape), np.float32)
    y = apply(op(Activation.RELU6), a, b)
    np.testing.assert_array_equal(y, np.clip(reals(a, b), 0, 6))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(("a_shape", "b_shape"), SHAPES)
@pytest.mark.parametrize(("op", "reals"), [(Add, np.add), (Mul, np.multiply)])
def test_quantized_is_within_a_step(apply, quantized, rng, dtype, op, reals, a_shape, b_shape):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    a = quantized(np.asarray(rng.integers(low, high + 1, a_shape), dtype), 0.05, low + 30)
    b = quantized(np.asarray(rng.integers(low, high + 1, b_shape), dtype), 0.02, low + 200)
    found = apply(op(), a, b, to=quantized(None, 0.1, low + 90))
    stored = reals(a.real, b.real) / np.float64(np.float32(0.1)) + low + 90
    assert np.abs(found - np.clip(stored, low, high)).max() <= 0.52


def test_s32_adds_as_integers(apply):
    y = apply(Add(), np.int32([3, -4]), np.int32([10, 2]))
    np.testing.assert_array_equal(y, [13, -2])


@pytest.mark.parametrize("activation", list(Activation))
def test_clamp(apply, quantized, rng, activation):
    x = rng.normal(0, 6, 40).astype(np.float32)
    np.testing.assert_array_equal(apply(Clamp(activation), x), np.clip(x, *activation.bounds))
    stored = quantized(np.arange(-128, 128, dtype=np.int8), 0.1, -20)
    found = apply(Clamp(activation), stored, to=quantized(None, 0.1, -20))
    real = np.clip(stored.real, *activation.bounds)
    np.testing.assert_allclose(0.1 * (found.astype(float) + 20), real, atol=1e-6)


def test_a_bound_that_is_left_out_clips_nothing(apply):
    x = np.float32([-9, 0.2, 9])
    np.testing.assert_array_equal(apply(Clip(high=0.5), x), np.float32([-9, 0.2, 0.5]))
    np.testing.assert_array_equal(apply(Clip(low=-0.5), x), np.float32([-0.5, 0.2, 9]))


def test_logistic(apply, quantized):
    x = np.float32([-200, -20, -1, 0, 1, 20, 200])
    expected = [1 / (1 + math.exp(-v)) if v > -100 else 0.0 for v in x]
    np.testing.assert_allclose(apply(Logistic(), x), expected, rtol=1e-6)
    stored = quantized(np.arange(-128, 128, dtype=np.int8), 0.06, 10)
    found = apply(Logistic(), stored, to=quantized(None, 1 / 256, -128))
    assert np.abs((found + 128.0) / 256 - 1 / (1 + np.exp(-stored.real))).max() <= 1.5 / 256


def test_hard_swish(apply):
    x = np.float32([-4, -3, -1.5, 0, 1, 3, 9])
    np.testing.assert_allclose(apply(HardSwish(), x), [0, 0, -0.375, 0, 2 / 3, 3, 9], rtol=1e-6)


def test_quantize_rounds_halves_away_from_zero(apply, quantized):
    x = np.float32([-0.75, -0.25, 0.25, 0.75, 0.7499, 100, -100])
    found = apply(Quantize(DType.I8), x, to=quantized(None, 0.5, 0))
    np.testing.assert_array_equal(found, [-2, -1, 1, 2, 1, 127, -128])


def test_quantize_moves_between_quantized_values(apply, quantized):
    x = quantized(np.arange(256, dtype=np.uint8), 0.1, 128)
    found = apply(Quantize(DType.I8), x, to=quantized(None, 0.1, 0))
    np.testing.assert_array_equal(found, np.arange(-128, 128))


@pytest.mark.parametrize("per_channel", [False, True])
def test_cast_gives_real_values(apply, quantized, rng, per_channel):
    scale = [0.1, 0.3, 2.0] if per_channel else 0.1
    x = quantized(rng.integers(-128, 128, (2, 3, 4)).astype(np.int8), scale, 5, axis=1)
    np.testing.assert_allclose(apply(Cast(), x), x.real, rtol=1e-6)
    half = np.float16([1.5, -2.25])
    np.testing.assert_array_equal(apply(Cast(), half), half.astype(np.float32))


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (Add(), (np.zeros(3, np.float32), np.zeros(4, np.float32)), "broadcast"),
        (Add(), (np.zeros(3, np.float32), np.zeros(3, np.int32)), "second operand of type"),
        (Add(), (np.zeros(3, np.float32),), "input 1"),
        (Logistic(), (np.zeros(3, np.int8),), "one scale"),
        (HardSwish(), (np.zeros(3, np.int8),), "one scale"),
        (Logistic(), (np.zeros(3, np.int32),), "input of type"),
        (Quantize(DType.F32), (np.zeros(3, np.float32),), "s8, u8 or s16"),
        (Cast(DType.I8), (np.zeros(3, np.float32),), "type f32"),
    ],
)
def test_misfits_are_refused(infer, op, operands, message):
    with pytest.raises(ShapeError, match=message):
        infer(op, *operands)
