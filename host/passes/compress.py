"""Weights of 8 or 4 bits, activations quantized at run time with their outliers apart."""

from __future__ import annotations

import dataclasses

import numpy as np

from edgekit.host.graph import ops
from edgekit.host.graph.types import Activation, Array, DType, Graph, Node, Tensor
from edgekit.host.options import WeightBits

THRESHOLD = 6.0
_SLICES = (128, 64, 32)  # values of k that share a scale of 4-bit weights: the first that divides k
_LEAST_CHANNELS = 64  # of an image: with fewer, its codes cost as much as products of bytes save
_MOST_CHANNELS = 1 << 17  # sums of more products of bytes would not fit 32 bits


def compress_weights(graph: Graph, bits: WeightBits) -> Graph:
    """Every product of computed floats with a constant matrix of floats gets weights of `bits`, and
    so do 1x1 convolutions of 64 channels and more.

    8-bit weights have a scale per output, 4-bit ones (-8 to 7) one per slice of k and output.
    """
    made: dict[str, Tensor] = {}
    nodes = tuple(_compressed(graph, node, bits, made) for node in graph.nodes)
    used = {t for n in nodes for t in (*n.inputs, *n.outputs) if t is not None}
    used |= {*graph.inputs, *graph.outputs}
    tensors = {name: t for name, t in {**graph.tensors, **made}.items() if name in used}
    return dataclasses.replace(graph, tensors=tensors, nodes=nodes)


def _compressed(graph: Graph, node: Node, bits: WeightBits, made: dict[str, Tensor]) -> Node:
    found = _matrix(graph, node)
    if found is None or not 0 < found.shape[1] <= _MOST_CHANNELS or not np.isfinite(found).all():
        return node
    op, name = node.op, str(node.inputs[1])
    values, scale = _quantized(found, bits)
    layout = "t" if isinstance(op, ops.MatMul) else ""
    stored = Tensor(f"{name}.{bits}{layout}", values.shape, DType.I8, None, values)
    scales = Tensor(f"{stored.name}.scale", scale.shape, DType.F32, None, scale)
    made |= {stored.name: stored, scales.name: scales}
    outlier = ops.OutlierFullyConnected(
        THRESHOLD,
        keep_dims=op.keep_dims if isinstance(op, ops.FullyConnected) else True,
        activation=(
            op.activation if isinstance(op, ops.FullyConnected | ops.Conv2D) else Activation.NONE
        ),
    )
    extra = node.inputs[2:]  # bias and residual
    return Node(
        node.name, outlier, (node.inputs[0], stored.name, scales.name, *extra), node.outputs
    )


def _matrix(graph: Graph, node: Node) -> Array | None:
    """Weights [n, k] of a product that can be compressed."""
    if not isinstance(node.op, ops.FullyConnected | ops.MatMul | ops.Conv2D):
        return None
    x, w = (graph.tensors[name or ""] for name in node.inputs[:2])
    if x.data is not None or x.dtype is not DType.F32 or len(x.shape) < 2:
        return None
    if w.data is None or w.dtype is not DType.F32:
        return None
    if isinstance(node.op, ops.Conv2D):
        rows_are_pixels = w.shape[1:3] == node.op.stride == (1, 1) and not node.op.padding.any
        pays = rows_are_pixels and w.shape[3] >= _LEAST_CHANNELS
        return w.data.reshape(w.shape[0], -1) if pays else None
    if len(w.shape) != 2:
        return None
    return w.data if isinstance(node.op, ops.FullyConnected) else np.ascontiguousarray(w.data.T)


def _quantized(weights: Array, bits: WeightBits) -> tuple[Array, Array]:
    """Codes s8 [n, k] and scales [slices, n]; the largest of a slice becomes 127, or 7."""
    n, k = weights.shape
    depth, most = k, 127
    if bits == "int4":
        depth, most = next((size for size in _SLICES if k % size == 0), k), 7
    parts = weights.reshape(n, k // depth, depth)
    largest = np.abs(parts).max(axis=2)
    scale = np.where(largest > 0, largest / np.float32(most), 1).astype(np.float32)
    scale = np.maximum(scale, np.finfo(np.float32).tiny)
    codes = np.clip(np.rint(parts / scale[:, :, None]), -most, most).astype(np.int8)
    return codes.reshape(n, k), np.ascontiguousarray(scale.T)
