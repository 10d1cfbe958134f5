"""MediaPipe's custom operators, which LiteRT lacks, against plain definitions."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from flatbuffers import flexbuffers

from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.errors import InputError
from tests.support.litert_cases import Single, given

_RNG = np.random.default_rng(8)


def _run(files, name, ins, options, outs=1, rank=4):
    custom = options if isinstance(options, bytes) else bytes(flexbuffers.Dumps(options))
    results = [given(np.zeros((1,) * rank, np.float32))] * outs
    single = Single(f"CUSTOM:{name}", [given(v) for v in ins], results, custom=custom)
    made = evaluate(graph_from_tflite(single.content(files), "m"), single.inputs()).outputs
    return [made[f"y{i}"] for i in range(outs)]


def _matrix(landmarks, left, right, subset, target, size, scale):
    """The crop's pixels → the image's: shift · rotation · scale · shift, in f64."""
    points = landmarks[0, :, :2].astype(np.float64)
    dx, dy = points[right] - points[left]
    r = target - np.arctan2(dy, dx)
    turn = np.array([[np.cos(r), -np.sin(r)], [np.sin(r), np.cos(r)]])
    rotated = points[subset] @ turn.T
    high, low = rotated.max(axis=0), rotated.min(axis=0)
    center = turn.T @ ((high + low) / 2)
    linear = turn.T @ np.diag(np.array(scale) * (high - low) / np.array(size))
    made = np.eye(4)
    made[:2, :2] = linear
    made[:2, 3] = center - linear @ (np.array(size) / 2)
    return made[None]


@pytest.mark.parametrize("target", [0.0, 0.7])
def test_a_crop_around_landmarks(files, target):
    x = _RNG.uniform(0, 192, (1, 30, 3)).astype(np.float32)
    subset = [3, 8, 1, 20, 17, 9]
    options = {
        "left_rotation_idx": 4, "right_rotation_idx": 11, "subset_idxs": subset,
        "output_width": 48, "output_height": 32, "scale_x": 1.5, "scale_y": 2.0,
        "target_rotation_radians": target,
    }  # fmt: skip
    (y,) = _run(files, "Landmarks2TransformMatrix", [x], options, rank=3)
    wanted = _matrix(x, 4, 11, subset, target, (48, 32), (1.5, 2.0))
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-3)


def test_landmarks_at_one_place_are_not_turned(files):
    x = np.full((1, 3, 3), 5, np.float32)
    options = {
        "left_rotation_idx": 0, "right_rotation_idx": 1, "subset_idxs": [0, 1],
        "output_width": 4, "output_height": 4, "scale_x": 1.0, "scale_y": 1.0,
    }  # fmt: skip
    (y,) = _run(files, "Landmarks2TransformMatrix", [x], options, rank=3)
    assert np.isfinite(y).all()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("old", [False, True])
def test_landmarks_are_moved(files, size, old):
    shape = (1, 1, 1, 7 * size) if old else (1, 7, size)
    x = _RNG.normal(0, 9, shape).astype(np.float32)
    matrix = _RNG.normal(0, 1, (1, 4, 4)).astype(np.float32)
    options = {"dimensions": size, "scale": 3.0} if old else {}
    (y,) = _run(files, "TransformLandmarks", [x, matrix], options, rank=len(shape))
    wanted = x.reshape(-1, size).astype(np.float64)
    shift = matrix[0, :2, 3] * (3.0 if old else 1.0)
    wanted[:, :2] = wanted[:, :2] @ matrix[0, :2, :2].T + shift
    np.testing.assert_allclose(y, wanted.reshape(shape), rtol=1e-5, atol=1e-4)


def _crop(x, matrix, height, width):
    h, w = x.shape[1:3]
    y = np.zeros((1, height, width, x.shape[3]))
    for row, column in np.ndindex(height, width):
        at = matrix[0, :2, :2].astype(float) @ (column + 0.5, row + 0.5) + matrix[0, :2, 3] - 0.5
        if not (0 <= at[0] <= w - 1 and 0 <= at[1] <= h - 1):
            continue
        left, top = np.floor(at).astype(int)
        a, b = at - np.floor(at)
        for i, j, weight in (
            (top, left, (1 - a) * (1 - b)), (top, left + 1, a * (1 - b)),
            (top + 1, left, (1 - a) * b), (top + 1, left + 1, a * b),
        ):  # fmt: skip
            if i < h and j < w:
                y[0, row, column] += weight * x[0, i, j]
    return y


def test_a_turned_crop_of_features(files):
    x = _RNG.normal(0, 1, (1, 9, 11, 3)).astype(np.float32)
    matrix = np.eye(4, dtype=np.float32)[None]
    matrix[0, :2, :2] = [[0.9, -0.4], [0.5, 1.1]]
    matrix[0, :2, 3] = [2.27, -1.31]
    options = {"output_height": 6, "output_width": 8}
    (y,) = _run(files, "TransformTensorBilinear", [x, matrix], options)
    wanted = _crop(x, matrix, 6, 8)
    assert (wanted == 0).any() and (wanted != 0).any()
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4)


def _pooled(x, window, stride, top, left, size):
    best, number = np.zeros((2, *x.shape[:1], *size, x.shape[3]))
    for n, i, j, c in np.ndindex(best.shape):
        found = [
            (x[n, i * stride - top + a, j * stride - left + b, c], -(a * window + b))
            for a in range(window) for b in range(window)
            if 0 <= i * stride - top + a < x.shape[1] and 0 <= j * stride - left + b < x.shape[2]
        ]  # fmt: skip
        best[n, i, j, c], k = max(found)
        number[n, i, j, c] = -k + 0.1
    return best, number


@pytest.mark.parametrize(("padding", "window", "stride"), [(1, 2, 2), (1, 3, 2), (2, 2, 1)])
def test_a_pool_that_says_where(files, padding, window, stride):
    x = _RNG.integers(-3, 3, (2, 5, 7, 3)).astype(np.float32)
    options = struct.pack("<10i", padding, stride, stride, window, window, 0, 0, 0, 0, 0)
    best, number = _run(files, "MaxPoolingWithArgmax2D", [x], options, 2)
    total = [max((-(-d // stride) - 1) * stride + window - d, 0) for d in (5, 7)]
    top, left = [t // 2 for t in total] if padding == 1 else (0, 0)
    wanted = _pooled(x, window, stride, top, left, best.shape[1:3])
    np.testing.assert_array_equal(best, wanted[0])
    np.testing.assert_allclose(number, wanted[1], rtol=1e-6)


def test_a_pool_is_undone(files):
    x = _RNG.normal(0, 1, (2, 3, 4, 5)).astype(np.float32)
    at = _RNG.integers(0, 6, x.shape)
    options = struct.pack("<10i", 1, 3, 2, 3, 2, 0, 0, 0, 0, 0)
    (y,) = _run(files, "MaxUnpooling2D", [x, (at + 0.1).astype(np.float32)], options)
    wanted = np.zeros((2, 6, 12, 5), np.float32)
    for n, i, j, c in np.ndindex(x.shape):
        row, column = divmod(at[n, i, j, c], 3)
        wanted[n, 2 * i + row, 3 * j + column, c] = x[n, i, j, c]
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("TransformLandmarks", {"dimensions": 5}, "landmarks of 5 values"),
        ("TransformTensorBilinear", {"output_height": 1 << 40, "output_width": 2}, "a crop of"),
        ("MaxUnpooling2D", b"short", "options of 24 bytes"),
        ("Landmarks2TransformMatrix", b"\x00\xff\x13\x37", "outside of it|expected"),
    ],
)
def test_bad_options_are_refused(files, name, options, message):
    with pytest.raises(InputError, match=message):
        _run(files, name, [np.zeros((1, 4, 4, 6), np.float32)] * 2, options)
