"""Pools, reductions and resizing against loops."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir.ops import AveragePool2D, MaxPool2D, Mean, ResizeBilinear, Softmax
from edgekit.host.compiler.ir.types import Activation, Padding, ShapeError

CASES = [((1, 1), (1, 1), Padding()), ((3, 2), (2, 1), Padding(1, 1, 0, 1)),
         ((2, 3), (1, 2), Padding(0, 1, 2, 0))]  # fmt: skip


def pool_loops(x, window, stride, padding, pick):
    n, height, width, c = x.shape
    rows = (height + padding.top + padding.bottom - window[0]) // stride[0] + 1
    columns = (width + padding.left + padding.right - window[1]) // stride[1] + 1
    y = np.zeros((n, rows, columns, c))
    for b, r, k, ch in np.ndindex(*y.shape):
        top, left = r * stride[0] - padding.top, k * stride[1] - padding.left
        inside = x[b, max(top, 0) : top + window[0], max(left, 0) : left + window[1], ch]
        y[b, r, k, ch] = pick(inside.astype(np.float64))
    return y


@pytest.mark.parametrize(("window", "stride", "padding"), CASES)
@pytest.mark.parametrize(("op", "pick"), [(AveragePool2D, np.mean), (MaxPool2D, np.max)])
def test_f32_equals_loops(apply, rng, op, pick, window, stride, padding):
    x = rng.normal(size=(2, 5, 7, 3)).astype(np.float32)
    y = apply(op(window, stride, padding), x)
    np.testing.assert_allclose(
        y, pool_loops(x, window, stride, padding, pick), rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize(("window", "stride", "padding"), CASES)
@pytest.mark.parametrize(("op", "pick"), [(AveragePool2D, np.mean), (MaxPool2D, np.max)])
def test_quantized_values_are_pooled_as_integers(
    apply, quantized, rng, op, pick, window, stride, padding
):
    x = quantized(rng.integers(-128, 128, (2, 5, 7, 3)).astype(np.int8), 0.1, 4)
    found = apply(op(window, stride, padding), x, to=x)
    expected = pool_loops(x.values, window, stride, padding, pick)
    assert np.abs(found - expected).max() <= 0.5
    clamped = apply(op(window, stride, padding, Activation.RELU), x, to=x)
    np.testing.assert_array_equal(clamped, np.maximum(found, 4))


def test_halves_are_rounded_away_from_zero(apply, quantized):
    x = quantized(np.int8([[[[-3]], [[-2]]], [[[3]], [[2]]]]), 1.0)
    found = apply(AveragePool2D((2, 1)), x, to=x)
    np.testing.assert_array_equal(found.reshape(-1), [-3, 3])


@pytest.mark.parametrize("axes", [(1,), (1, 2), (0, 3), (2, 1)])
@pytest.mark.parametrize("keep", [False, True])
def test_mean(apply, quantized, rng, axes, keep):
    x = rng.normal(size=(2, 3, 4, 5)).astype(np.float32)
    expected = x.astype(np.float64).mean(axis=axes, keepdims=keep)
    np.testing.assert_allclose(apply(Mean(axes, keep), x), expected, rtol=1e-5, atol=1e-7)
    stored = quantized(rng.integers(0, 256, (2, 3, 4, 5)).astype(np.uint8), 0.1, 100)
    found = apply(Mean(axes, keep), stored, to=quantized(None, 0.07, 90))
    real = stored.real.mean(axis=axes, keepdims=keep) / np.float64(np.float32(0.07)) + 90
    assert np.abs(found - np.clip(real, 0, 255)).max() <= 0.75


def test_softmax(apply, quantized, rng):
    x = rng.normal(0, 4, (3, 11)).astype(np.float32)
    powers = np.exp(0.5 * x.astype(np.float64))
    expected = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(apply(Softmax(0.5), x), expected, rtol=1e-5)
    huge = apply(Softmax(), np.float32([[1e4, 1e4, -1e4]]))
    np.testing.assert_array_equal(huge, [[0.5, 0.5, 0]])
    stored = quantized(rng.integers(-128, 128, (5, 17)).astype(np.int8), 0.05, 3)
    powers = np.exp(stored.real)
    found = apply(Softmax(), stored, to=quantized(None, 1 / 256, -128))
    assert np.abs((found + 128.0) / 256 - powers / powers.sum(1, keepdims=True)).max() <= 1.5 / 256


def bilinear_loops(x, size, align, half):
    n, height, width, c = x.shape
    y = np.zeros((n, *size, c))

    def place(index, source, target):
        if align and target > 1:
            return index * (source - 1) / (target - 1)
        return max((index + 0.5) * source / target - 0.5, 0) if half else index * source / target

    for b, r, k, ch in np.ndindex(*y.shape):
        row, column = place(r, height, size[0]), place(k, width, size[1])
        i, j = min(int(row), height - 1), min(int(column), width - 1)
        di, dj = row - i, column - j
        ii, jj = min(i + 1, height - 1), min(j + 1, width - 1)
        y[b, r, k, ch] = (
            x[b, i, j, ch] * (1 - di) * (1 - dj) + x[b, ii, j, ch] * di * (1 - dj)
            + x[b, i, jj, ch] * (1 - di) * dj + x[b, ii, jj, ch] * di * dj
        )  # fmt: skip
    return y


@pytest.mark.parametrize(("align", "half"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("size", [(3, 5), (6, 10), (7, 4), (1, 1)])
def test_resize(apply, quantized, rng, size, align, half):
    x = rng.normal(size=(2, 3, 5, 2)).astype(np.float32)
    op = ResizeBilinear(size, align, half)
    np.testing.assert_allclose(apply(op, x), bilinear_loops(x, size, align, half), atol=1e-5)
    for dtype in (np.int8, np.uint8):
        stored = quantized(rng.integers(0, 128, (1, 3, 5, 2)).astype(dtype), 0.1)
        expected = bilinear_loops(stored.values.astype(np.float64), size, align, half)
        assert np.abs(apply(op, stored, to=stored) - expected).max() <= 0.75


X = np.zeros((1, 4, 4, 2), np.float32)


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (AveragePool2D((0, 1)), "window"),
        (AveragePool2D((5, 1)), "one window"),
        (MaxPool2D((2, 2), (0, 1)), "stride"),
        (MaxPool2D((2, 2), padding=Padding(2)), "smaller than the window"),
        (MaxPool2D((1 << 9, 1 << 9)), "at most"),
        (Mean((4,)), "axis"),
        (Mean((1, 1)), "distinct"),
        (Softmax(float("nan")), "beta"),
        (ResizeBilinear((0, 3)), "size"),
        (ResizeBilinear((3, 3), True, True), "both"),
    ],
)
def test_misfits_are_refused(infer, op, message):
    with pytest.raises(ShapeError, match=message):
        infer(op, X)
