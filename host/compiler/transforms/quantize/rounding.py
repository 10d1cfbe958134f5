"""Rounds weights so as to preserve a layer's outputs, not the weights themselves.

The correlation of inputs matters: errors of weights with small inputs cost little, and the error of
one weight can be compensated by weights with correlated inputs. A channel's scale minimizes the
error weighted by the power of each input. Weights are rounded input by input, and each error is
distributed over the remaining inputs in proportion to the inverse of the second-moment matrix: the
greedy form of Frantar et al., GPTQ (2022), after LeCun's optimal brain surgeon.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, Graph, Node, Shape
from edgekit.host.compiler.ir.windows import image_size, pad_image, patches, span, window_positions

F64 = NDArray[np.float64]

MOST = 127  # largest quantized weight: −128 has no counterpart
DEEPEST = 2304  # maximum inputs per output: beyond, the moment matrix takes too much memory
_ROWS = 2048  # rows of a sample that are used
_DAMPING = 0.01  # of the mean power
_TOGETHER = 32  # inputs whose errors are distributed over later blocks by one product
_FRACTIONS = np.geomspace(1.0, 0.02, 48)  # candidate limits, relative to the largest weight


class WeightRounding:
    """Rounds the weights of one float graph, once for the same scales. Where second `moments` of a
    node's inputs are known (see `moments_of`), they guide it."""

    def __init__(self, moments: Mapping[str, Array]) -> None:
        self._moments = moments
        self._scales: dict[str, F64] = {}
        self._rounded: dict[tuple[str, bytes], NDArray[np.int8]] = {}

    def scales(self, node: str, rows: F64) -> F64:
        """`scales_by_power` of a node's weights [n, k]."""
        if node not in self._scales:
            self._scales[node] = scales_by_power(rows, self._moments.get(node))
        return self._scales[node]

    def rounded(self, node: str, rows: F64, scale: F64) -> NDArray[np.int8]:
        """`rounded` weights [n, k] of a node, which callers must not change."""
        key = node, scale.tobytes()
        if key not in self._rounded:
            self._rounded[key] = rounded(rows, scale, self._moments.get(node))
        return self._rounded[key]


def moments_of(graph: Graph, node: Node, values: Mapping[str, Array]) -> Array | None:
    """Second moments of a layer's inputs in one sample, f32: [k, k], or [c, taps, taps] for a
    depthwise convolution; None for other operators and for more than DEEPEST inputs."""
    w = graph.tensors[node.inputs[1] or ""]
    x = values[node.inputs[0] or ""]
    if isinstance(node.op, ops.FullyConnected | ops.Conv2D):
        rows = seen_rows(node, w.shape, x)
        return None if rows is None else np.asarray(rows.T @ rows)
    if not isinstance(node.op, ops.DepthwiseConv2D):
        return None
    seen = seen_taps(node.op, w.shape, x)
    made: Array = seen.transpose(0, 2, 1) @ seen
    return made


def seen_rows(node: Node, weights: Shape, x: Array) -> Array | None:
    """Inputs of a subset of a layer's outputs (convolution or fully connected) on the image or
    rows x, f32 [some, k]; None if k is too large for a moment matrix."""
    if math.prod(weights[1:]) > DEEPEST:
        return None
    if isinstance(node.op, ops.FullyConnected):
        return _subsample_rows(x.reshape(-1, weights[1]))
    assert isinstance(node.op, ops.Conv2D)
    return _subsample_rows(_extract_patches(node.op, weights, x))


def seen_taps(op: ops.DepthwiseConv2D, weights: Shape, x: Array) -> Array:
    """Inputs of a subset of each channel's outputs on the image x, f32 [c, some, taps]."""
    seen = _extract_patches(op, weights, x).reshape(-1, math.prod(image_size(weights)), x.shape[3])
    return np.repeat(_subsample_rows(seen), op.multiplier, axis=2).transpose(2, 0, 1)


def _extract_patches(op: ops.Conv2D | ops.DepthwiseConv2D, weights: Shape, x: Array) -> Array:
    window = image_size(weights)
    size = window_positions(image_size(x.shape), span(window, op.dilation), op.stride, op.padding)
    return patches(pad_image(x, op.padding), window, op.stride, op.dilation, size)


def _subsample_rows(rows: Array) -> Array:
    return rows[:: max(len(rows) // _ROWS, 1)].astype(np.float32)


def scales_by_power(rows: F64, moments: Array | None) -> F64:
    """Scale for each row of weights [n, k] that minimizes the error of its outputs."""
    largest = np.abs(rows).max(axis=1)
    if moments is None:
        return np.asarray(largest / MOST, np.float64)
    power = _input_power(moments)
    best, least = largest / MOST, np.full(len(rows), np.inf)
    for fraction in _FRACTIONS:
        scale = np.maximum(largest * fraction / MOST, 1e-30)[:, None]
        off = np.clip(np.rint(rows / scale), -MOST, MOST) * scale - rows
        error = (off * off * power).sum(axis=1)
        better = error < least
        best, least = np.where(better, scale[:, 0], best), np.where(better, error, least)
    return np.asarray(best, np.float64)


def rounded(rows: F64, scale: F64, moments: Array | None) -> NDArray[np.int8]:
    """Quantize rows of weights [n, k] with these scales. Zeros stay zero, since they make pruned
    layers fast."""
    if moments is None:
        return _round_to_nearest(rows, scale[:, None])
    share = shares(moments + damping(moments))
    if share is None:
        return _round_to_nearest(rows, scale[:, None])
    left, quantized = rows.copy(), np.empty(rows.shape, np.int8)
    count = rows.shape[1]
    step = _TOGETHER if share.ndim == 2 else count
    for start in range(0, count, step):
        end = min(start + step, count)
        errors = np.empty((len(rows), end - start))
        for i in range(start, end):
            quantized[:, i] = np.where(rows[:, i] != 0, _round_to_nearest(left[:, i], scale), 0)
            error = (left[:, i] - quantized[:, i] * scale) / share[..., i, i]
            left[:, i + 1 : end] -= error[:, None] * share[..., i, i + 1 : end]
            errors[:, i - start] = error
        if end < count:
            left[:, end:] -= errors @ share[start:end, end:]
    return quantized


def damping(moments: Array) -> F64:
    """Diagonal to add to moments [.., k, k], since samples do not cover all inputs."""
    mean = _input_power(moments).mean(axis=-1)
    found: F64 = np.eye(moments.shape[-1]) * np.maximum(_DAMPING * mean, 1e-12)[..., None, None]
    return found


def shares(damped: F64) -> F64 | None:
    """Matrix [.., k, k] whose row i distributes the error of weight i over later weights; None if
    the damped moments cannot be inverted."""
    try:
        found: F64 = np.linalg.cholesky(np.linalg.inv(damped)).swapaxes(-1, -2)
    except np.linalg.LinAlgError:
        return None
    return found


def _input_power(moments: Array) -> F64:
    """Power of each input: [k], or [n, k]."""
    found: F64 = np.diagonal(moments, axis1=-2, axis2=-1).astype(np.float64)
    return found


def _round_to_nearest(values: F64, scale: F64) -> NDArray[np.int8]:
    return np.clip(np.rint(values / scale), -MOST, MOST).astype(np.int8)
