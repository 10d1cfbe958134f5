"""Weights of 8 or 4 bits, activations quantized at run time with their outliers apart."""

from __future__ import annotations

import dataclasses

import numpy as np

from edgekit.host.errors import InputError
from edgekit.host.graph import ops
from edgekit.host.graph.types import Activation, Array, DType, Graph, Node, Tensor
from edgekit.host.options import WeightBits
from edgekit.host.passes.codes import MOST, byte_scales, rounded, scales_of, whole_scales_of

THRESHOLD = 6.0
_SLICES = (128, 64, 32)  # values of k that share a scale of 4-bit weights: the first that divides k
_TABLE_SLICES = (16,)  # the same of a row of a table, whose scales take a byte
_LEAST_CHANNELS = 64  # of an image: with fewer, its codes cost as much as products of bytes save
_MOST_CHANNELS = 1 << 17  # sums of more products of bytes would not fit 32 bits


def compress_weights(graph: Graph, bits: WeightBits, group_size: int | None = None) -> Graph:
    """Every product of computed floats with a constant matrix of floats gets weights of `bits`, and
    so do 1x1 convolutions of 64 channels and more, and tables that rows of 64 values and more are
    picked from (embeddings).

    Weights have a scale per output and slice of k, of `group_size` values if that is given. If not,
    8-bit ones (-127 to 127) have one slice, and 4-bit ones (-8 to 7) some. So have rows of tables,
    of 4 bits in slices of 16. InputError for a size that does not divide some k.
    """
    made: dict[str, Tensor] = {}
    nodes = tuple(_compressed(graph, node, bits, group_size, made) for node in graph.nodes)
    used = {t for n in nodes for t in (*n.inputs, *n.outputs) if t is not None}
    used |= {*graph.inputs, *graph.outputs}
    tensors = {name: t for name, t in {**graph.tensors, **made}.items() if name in used}
    return dataclasses.replace(graph, tensors=tensors, nodes=nodes)


def _compressed(
    graph: Graph, node: Node, bits: WeightBits, group_size: int | None, made: dict[str, Tensor]
) -> Node:
    if isinstance(node.op, ops.Gather):
        return _table(graph, node, bits, made)
    found = matrix_of(graph, node)
    if found is None or not 0 < found.shape[1] <= _MOST_CHANNELS or not np.isfinite(found).all():
        return node
    op, name = node.op, str(node.inputs[1])
    if group_size and found.shape[1] % group_size:
        raise InputError(
            f"--group-size: expected a size that divides the {found.shape[1]} values of k of "
            f"{node.name}, found {group_size}; take another one, or leave it out"
        )
    values, scale = _quantized(found, bits, group_size)
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


def _table(graph: Graph, node: Node, bits: WeightBits, made: dict[str, Tensor]) -> Node:
    """Rows of floats that a computed index picks, as codes."""
    assert isinstance(node.op, ops.Gather)
    table, indices = (graph.tensors[name or ""] for name in node.inputs)
    fits = table.dtype is DType.F32 and len(table.shape) == 2 and node.op.axis == 0
    if table.data is None or indices.data is not None or not fits:
        return node
    run = table.shape[1]
    if run < _LEAST_CHANNELS or not table.elements or not np.isfinite(table.data).all():
        return node
    sizes = _TABLE_SLICES if bits == "int4" else ()
    depth = next((size for size in sizes if run % size == 0), run)
    scale = scales_of(table.data, depth, MOST[bits])
    scale = byte_scales(scale) if bits == "int4" else scale
    codes = rounded(table.data, scale, MOST[bits])
    stored = Tensor(f"{table.name}.{bits}", codes.shape, DType.I8, None, codes)
    scales = Tensor(f"{stored.name}.rows", scale.shape, DType.F32, None, scale)
    made |= {stored.name: stored, scales.name: scales}
    return Node(
        node.name, ops.GatherCodes(), (stored.name, indices.name, scales.name), node.outputs
    )


def matrix_of(graph: Graph, node: Node) -> Array | None:
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


def _quantized(weights: Array, bits: WeightBits, group_size: int | None) -> tuple[Array, Array]:
    """Codes s8 [n, k] and scales [slices, n]. None is clipped: it may be what an outlier meets."""
    k = weights.shape[1]
    usual = next((size for size in _SLICES if k % size == 0), k) if bits == "int4" else k
    depth = group_size or usual
    scale = whole_scales_of(weights, depth, MOST[bits])
    return rounded(weights, scale, MOST[bits]), np.ascontiguousarray(scale.T)
