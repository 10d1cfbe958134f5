"""Operators that only move data: each against an index formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.host.compiler.ir.ops import (
    BatchToSpace,
    Concat,
    DepthToSpace,
    Pad,
    Reshape,
    Scatter,
    SpaceToBatch,
    Split,
    StridedSlice,
    Transpose,
)
from edgekit.host.compiler.ir.types import ShapeError


def counting(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_reshape_and_transpose(apply):
    x = counting(2, 3, 4)
    np.testing.assert_array_equal(apply(Reshape((4, 6)), x).reshape(-1), np.arange(24))
    y = apply(Transpose((2, 0, 1)), x)
    for i, j, k in np.ndindex(2, 3, 4):
        assert y[k, i, j] == x[i, j, k]


def test_pad_uses_the_zero_point(apply, quantized):
    x = quantized(np.int8([[1, 2]]), 0.5, -7)
    found = apply(Pad((1, 0), (0, 2)), x, to=x)
    np.testing.assert_array_equal(found, [[-7, -7, -7, -7], [1, 2, -7, -7]])
    np.testing.assert_array_equal(apply(Pad((1,), (0,)), np.float32([3])), [0, 3])


def test_concat_and_split_are_inverse(apply):
    x = counting(2, 5, 3)
    parts = apply(Split(1, (1, 3, 1)), x)
    assert [p.shape for p in parts] == [(2, 1, 3), (2, 3, 3), (2, 1, 3)]
    np.testing.assert_array_equal(apply(Concat(1), *parts), x)


def test_concat_rescales_what_differs(apply, quantized):
    a, b = quantized(np.uint8([10, 20]), 0.5, 0), quantized(np.uint8([10, 20]), 1.0, 10)
    np.testing.assert_array_equal(apply(Concat(0), a, b, to=a), [10, 20, 0, 20])


@given(data=st.data(), shape=st.lists(st.integers(1, 6), min_size=1, max_size=3))
def test_strided_slice_is_numpys(apply, data, shape):
    x = counting(*shape)
    picks = []
    for size in shape:
        begin = data.draw(st.integers(0, size - 1))
        stride = data.draw(st.sampled_from([-3, -1, 1, 2]))
        room = (size - 1 - begin) // stride if stride > 0 else begin // -stride
        picks.append((begin, stride, data.draw(st.integers(1, room + 1))))
    begin, stride, extent = zip(*picks, strict=True)
    y = apply(StridedSlice(begin, stride, extent, extent), x)
    for index in np.ndindex(*extent):
        source = tuple(b + s * i for b, s, i in zip(begin, stride, index, strict=True))
        assert y[index] == x[source]


def test_depth_to_space(apply):
    x = counting(1, 2, 3, 8)
    y = apply(DepthToSpace(2), x)
    for r, c, k in np.ndindex(4, 6, 2):
        assert y[0, r, c, k] == x[0, r // 2, c // 2, (r % 2 * 2 + c % 2) * 2 + k]


def test_space_to_batch_and_back(apply):
    x = counting(2, 5, 4, 3)
    y = apply(SpaceToBatch((2, 3), (0, 1, 1, 1)), x)
    assert y.shape == (12, 3, 2, 3)
    for block, n, r, c in np.ndindex(6, 2, 3, 2):
        row, column = r * 2 + block // 3, c * 3 + block % 3 - 1
        inside = row < 5 and 0 <= column < 4
        expected = x[n, row, column] if inside else np.zeros(3)
        np.testing.assert_array_equal(y[block * 2 + n, r, c], expected)
    np.testing.assert_array_equal(apply(BatchToSpace((2, 3), (0, 1, 1, 1)), y), x)


X, ROWS = counting(2, 3, 4), np.int32([0, 1])


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (Reshape((5, 5)), (X,), "24 elements"),
        (Reshape((-4, -6)), (X,), "24 elements"),
        (Transpose((0, 0, 1)), (X,), "permutation"),
        (Pad((1,), (1,)), (X,), "3 dimensions"),
        (Pad((0, 0, -1), (0, 0, 0)), (X,), "padding from 0"),
        (Pad((0, 0, 2**40), (0, 0, 0)), (X,), "padding from 0"),
        (Concat(3), (X, X), "axis from 0 to 2"),
        (Concat(0), (X, X[:, :2]), "equal sizes except on axis 0"),
        (Concat(0), (X, X[0]), "rank 3"),
        (Concat(0), (), "at least one"),
        (Split(1, (1, 1)), (X,), "add up to 3"),
        (Split(1, (4, -1)), (X,), "part sizes"),
        (StridedSlice((0,), (1,), (1,), (1,)), (X,), "3 dimensions"),
        (StridedSlice((0, 0, 0), (1, 1, 1), (2, 3, 5), (30,)), (X,), "within 4"),
        (StridedSlice((0, 0, 0), (1, 1, 0), (1, 1, 1), ()), (X,), "within 4"),
        (DepthToSpace(2), (X,), "rank 4"),
        (DepthToSpace(0), (counting(1, 1, 1, 4),), "block"),
        (DepthToSpace(2), (counting(1, 1, 1, 6),), "divisible by 4"),
        (SpaceToBatch((2, 2)), (counting(1, 3, 2, 1),), "divisible by 2x2"),
        (SpaceToBatch((0, 2)), (counting(1, 2, 2, 1),), "block"),
        (BatchToSpace((2, 2)), (counting(3, 2, 2, 1),), "divisible by 4"),
        (BatchToSpace((2, 2), (2, 2, 0, 0)), (counting(4, 2, 2, 1),), "cropped"),
        (Scatter("none"), (X, ROWS, X[:, :2]), "as many rows of updates"),
        (Scatter("none"), (X, ROWS, X[:1]), "as many rows of updates"),
        (Scatter("none"), (X, ROWS.reshape(1, 2), X[None]), "a vector of indices"),
        (Scatter("none"), (counting(), ROWS, counting(2)), "a vector of indices"),
        (Scatter("none"), (X, ROWS, X.astype(np.int32)), "updates"),
        (Scatter("xor"), (X, ROWS, X), "to join by none, add"),
        (Scatter("add"), (X > 3, ROWS, X > 3), "numbers to join"),
    ],
)
def test_misfits_are_refused(infer, op, operands, message):
    with pytest.raises(ShapeError, match=message):
        infer(op, *operands)
