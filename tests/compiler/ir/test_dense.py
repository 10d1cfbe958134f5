"""Fully connected layers against explicit sums."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir.ops import FullyConnected
from edgekit.host.compiler.ir.types import Activation, ShapeError


@pytest.mark.parametrize(("shape", "rows"), [((1, 7), 1), ((3, 7), 3), ((2, 2, 7), 4), ((7,), 1)])
def test_f32_equals_loops(apply, rng, shape, rows):
    x = rng.normal(size=shape).astype(np.float32)
    w = rng.normal(size=(5, 7)).astype(np.float32)
    bias = rng.normal(size=5).astype(np.float32)
    y = apply(FullyConnected(activation=Activation.RELU), x, w, bias)
    flat = x.reshape(rows, 7)
    expected = np.zeros((rows, 5))
    for r, o in np.ndindex(rows, 5):
        total = sum(float(flat[r, k]) * float(w[o, k]) for k in range(7)) + bias[o]
        expected[r, o] = max(total, 0)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


def test_leading_dimensions_stay_if_asked_for(apply):
    x, w = np.ones((2, 3, 4), np.float32), np.ones((5, 4), np.float32)
    assert apply(FullyConnected(keep_dims=True), x, w).shape == (2, 3, 5)
    assert apply(FullyConnected(), x, w).shape == (6, 5)


def test_quantized_rounds_the_real_result_once(apply, quantized, rng):
    x = quantized(rng.integers(-128, 128, (40, 30)).astype(np.int8), 0.04, -3)
    w = quantized(rng.integers(-127, 128, (50, 30)).astype(np.int8), 0.02)
    bias = rng.integers(-900, 900, 50).astype(np.int32)
    found = apply(FullyConnected(), x, w, bias, to=quantized(None, 0.11, 5))
    scale = np.float64(np.float32(0.04) * np.float32(0.02))
    real = x.real @ w.real.T + bias * scale
    stored = real / np.float64(np.float32(0.11)) + 5
    assert np.abs(found - np.clip(stored, -128, 127)).max() <= 0.5001


def test_rows_of_f32_under_s8_weights_have_their_own_scale(apply, quantized, rng):
    x = rng.normal(size=(3, 30)).astype(np.float32) * np.float32([[1], [100], [0]])
    w = quantized(rng.integers(-127, 128, (4, 30)).astype(np.int8), 0.02)
    y = apply(FullyConnected(), x, w)
    expected = x @ w.real.T
    for row in range(3):
        assert np.abs(y[row] - expected[row]).max() <= 0.02 * np.abs(expected[row]).max()


X, W = np.zeros((2, 6), np.float32), np.zeros((3, 4), np.float32)


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (FullyConnected(keep_dims=True), (X, W), "rows of 4"),
        (FullyConnected(), (np.zeros((2, 5), np.float32), W), "rows of 4"),
        (FullyConnected(), (X, W[0]), "weights of rank 2"),
        (FullyConnected(), (X, W, np.zeros(4, np.float32)), "bias of shape"),
        (FullyConnected(), (X, W.astype(np.uint8)), "weights of type"),
    ],
)
def test_misfits_are_refused(infer, op, operands, message):
    with pytest.raises(ShapeError, match=message):
        infer(op, *operands)
