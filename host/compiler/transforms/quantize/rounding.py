"""Codes of weights that keep a layer's outputs, not the weights themselves.

What counts is how inputs meet: errors of weights that see little cost little, and the error of one
weight can be made up for by those that see about the same. So the scale of a channel is chosen by
errors weighted with the power of each input, and weights are rounded one input after the other,
each error taken on by the inputs still to come, in proportion to the inverse of the matrix of
second moments: the greedy form of Frantar et al., GPTQ (2022), after LeCun's optimal brain surgeon.
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

MOST = 127  # of weights: −128 has no counterpart
DEEPEST = 2304  # inputs of an output: beyond, the matrix takes too much memory
_ROWS = 2048  # of a sample that are looked at
_DAMPING = 0.01  # of the mean power
_FRACTIONS = np.geomspace(1.0, 0.02, 48)  # of the largest weight, that the largest code stands for


def moments_of(graph: Graph, node: Node, values: Mapping[str, Array]) -> Array | None:
    """The sum of outer products of what each output sees in one sample, f32: [k, k], of a depthwise
    convolution [c, taps, taps]; None where the node has no such form."""
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
    """What some outputs of a convolution or fully connected layer see of the image or rows x,
    f32 [some, k]; None where k is too many inputs for a matrix of their moments."""
    if math.prod(weights[1:]) > DEEPEST:
        return None
    if isinstance(node.op, ops.FullyConnected):
        return _some(x.reshape(-1, weights[1]))
    assert isinstance(node.op, ops.Conv2D)
    return _some(_windows(node.op, weights, x))


def seen_taps(op: ops.DepthwiseConv2D, weights: Shape, x: Array) -> Array:
    """What some outputs of each channel see of the image x, f32 [c, some, taps]."""
    seen = _windows(op, weights, x).reshape(-1, math.prod(image_size(weights)), x.shape[3])
    return np.repeat(_some(seen), op.multiplier, axis=2).transpose(2, 0, 1)


def _windows(op: ops.Conv2D | ops.DepthwiseConv2D, weights: Shape, x: Array) -> Array:
    window = image_size(weights)
    size = window_positions(image_size(x.shape), span(window, op.dilation), op.stride, op.padding)
    return patches(pad_image(x, op.padding), window, op.stride, op.dilation, size)


def _some(rows: Array) -> Array:
    return rows[:: max(len(rows) // _ROWS, 1)].astype(np.float32)


def scales_by_power(rows: F64, moments: Array | None) -> F64:
    """The scale of each row of weights [n, k], of least error of what it makes."""
    largest = np.abs(rows).max(axis=1)
    if moments is None:
        return np.asarray(largest / MOST, np.float64)
    power = _power(moments)
    best, least = largest / MOST, np.full(len(rows), np.inf)
    for fraction in _FRACTIONS:
        scale = np.maximum(largest * fraction / MOST, 1e-30)[:, None]
        off = np.clip(np.rint(rows / scale), -MOST, MOST) * scale - rows
        error = (off * off * power).sum(axis=1)
        better = error < least
        best, least = np.where(better, scale[:, 0], best), np.where(better, error, least)
    return np.asarray(best, np.float64)


def rounded(rows: F64, scale: F64, moments: Array | None) -> NDArray[np.int8]:
    """The codes of rows of weights [n, k] with these scales; weights of 0 stay so, since zeros are
    what makes pruned layers fast."""
    if moments is None:
        return _nearest(rows, scale[:, None])
    share = shares(moments + damping(moments))
    if share is None:
        return _nearest(rows, scale[:, None])
    left, codes = rows.copy(), np.empty(rows.shape, np.int8)
    for i in range(rows.shape[1]):
        codes[:, i] = np.where(rows[:, i] != 0, _nearest(left[:, i], scale), 0)
        error = (left[:, i] - codes[:, i] * scale) / share[..., i, i]
        left[:, i + 1 :] -= error[:, None] * share[..., i, i + 1 :]
    return codes


def damping(moments: Array) -> F64:
    """A diagonal to add to moments [.., k, k]: samples do not show all."""
    mean = _power(moments).mean(axis=-1)
    found: F64 = np.eye(moments.shape[-1]) * np.maximum(_DAMPING * mean, 1e-12)[..., None, None]
    return found


def shares(damped: F64) -> F64 | None:
    """Row i: how the error of weight i is shared among those after it, [.., k, k]; None where the
    moments, already damped, cannot be inverted."""
    try:
        found: F64 = np.linalg.cholesky(np.linalg.inv(damped)).swapaxes(-1, -2)
    except np.linalg.LinAlgError:
        return None
    return found


def _power(moments: Array) -> F64:
    """The power of each input: [k], or [n, k]."""
    found: F64 = np.diagonal(moments, axis1=-2, axis2=-1).astype(np.float64)
    return found


def _nearest(values: F64, scale: F64) -> NDArray[np.int8]:
    return np.clip(np.rint(values / scale), -MOST, MOST).astype(np.int8)
