"""Compresses weights to 2 to 8 bits; activations are quantized at run time, except outliers."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, Array, DType, Graph, Node, Tensor
from edgekit.host.compiler.options import WeightBits
from edgekit.host.compiler.transforms.passes.weight_scales import (
    MOST,
    byte_scales,
    rounded,
    scales_of,
    whole_scales_of,
)
from edgekit.host.errors import InputError

THRESHOLD = 6.0
# Values of k per weight scale: the first that divides k.
_SLICES = (128, 64, 32)
_SLICES_OF_FEWER_BITS = (64, 32)
_TABLE_SLICES = (16,)  # the same for rows of tables, whose scales take a byte
_LEAST_CHANNELS = 64  # with fewer, quantizing an image costs as much as byte products save
_MOST_CHANNELS = 1 << 17  # with more, sums of byte products overflow 32 bits


def compress_weights(
    graph: Graph,
    bits: WeightBits,
    group_size: int | None = None,
    eight: Collection[str] = (),
) -> Graph:
    """Compress the constant float matrices of products with computed floats to `bits`; likewise
    1x1 convolutions with at least 64 channels and embedding tables with rows of at least 64 values.

    Weights have a scale per output and slice of k. A slice has `group_size` values; by default
    8-bit weights (-127 to 127) have a single slice, 4-bit (-8 to 7), 3-bit (-4 to 3) and 2-bit
    weights (-2 to 1) several. Tables work the same, with slices of 16 and never less than 4 bits.
    Operators named in `eight` get 8 bits whatever `bits` is, with slices as for 4. Raises
    InputError for a group size that does not divide some k.
    """
    made: dict[str, Tensor] = {}
    nodes = tuple(
        _compress_node(graph, node, "int8", _slice_size(graph, node), made)
        if node.name in eight
        else _compress_node(graph, node, bits, group_size, made)
        for node in graph.nodes
    )
    used = {t for n in nodes for t in (*n.inputs, *n.outputs) if t is not None}
    used |= {*graph.inputs, *graph.outputs}
    tensors = {name: t for name, t in {**graph.tensors, **made}.items() if name in used}
    return dataclasses.replace(graph, tensors=tensors, nodes=nodes)


def _compress_node(
    graph: Graph, node: Node, bits: WeightBits, group_size: int | None, made: dict[str, Tensor]
) -> Node:
    if isinstance(node.op, ops.Gather):
        return _compress_table(graph, node, bits, group_size, made)
    found = matrix_of(graph, node)
    if found is None or not 0 < found.shape[1] <= _MOST_CHANNELS or not np.isfinite(found).all():
        return node
    op = node.op
    if group_size and found.shape[1] % group_size:
        raise InputError(
            f"--group-size: expected a size that divides the {found.shape[1]} values of k of "
            f"{node.name}, found {group_size}; choose another size, or leave it out"
        )
    stored, scales = _quantize_weights(node, found, bits, group_size, made)
    outlier = ops.OutlierFullyConnected(
        THRESHOLD,
        keep_dims=op.keep_dims if isinstance(op, ops.FullyConnected) else True,
        activation=(
            op.activation if isinstance(op, ops.FullyConnected | ops.Conv2D) else Activation.NONE
        ),
        share=ops.FEW_OUTLIERS,
    )
    extra = node.inputs[2:]  # bias and residual
    return Node(node.name, outlier, (node.inputs[0], stored, scales, *extra), node.outputs)


def _slice_size(graph: Graph, node: Node) -> int | None:
    """Values of k per weight scale if k is sliced as for 4 bits; None: one scale for all of k."""
    found = matrix_of(graph, node)
    k = 0 if found is None else found.shape[1]
    return next((size for size in _SLICES if k and k % size == 0), None)


def _quantize_weights(
    node: Node, found: Array, bits: WeightBits, group_size: int | None, made: dict[str, Tensor]
) -> tuple[str, str]:
    """Return the names of a product's quantized weights and scales, creating them if needed."""
    stored = f"{node.inputs[1]}.{bits}{'t' if isinstance(node.op, ops.MatMul) else ''}"
    if stored not in made:
        values, scale = _quantize_matrix(found, bits, group_size)
        _add_constant(made, stored, DType.I8, values)
        _add_constant(made, f"{stored}.scale", DType.F32, scale)
    return stored, f"{stored}.scale"


def _add_constant(made: dict[str, Tensor], name: str, dtype: DType, data: Array) -> None:
    made[name] = Tensor(name, data.shape, dtype, None, data)


def _compress_table(
    graph: Graph, node: Node, bits: WeightBits, group_size: int | None, made: dict[str, Tensor]
) -> Node:
    """Compress a table that is gathered by a computed index. It shares its data with a product by
    the same table (a language model's last layer) if both have 8 bits and a scale per row."""
    assert isinstance(node.op, ops.Gather)
    bits = bits if bits == "int8" else "int4"
    table, indices = (graph.tensors[name or ""] for name in node.inputs)
    fits = table.dtype is DType.F32 and len(table.shape) == 2 and node.op.axis == 0
    if table.data is None or indices.data is not None or not fits:
        return node
    run = table.shape[1]
    if run < _LEAST_CHANNELS or not table.elements or not np.isfinite(table.data).all():
        return node
    product = None if bits == "int4" or group_size else _product_by(graph, table.data)
    if product is not None:
        stored, scales = _quantize_weights(product, table.data, bits, None, made)
        scale = made[scales].data
        assert scale is not None
        _add_constant(made, f"{stored}.rows", DType.F32, np.ascontiguousarray(scale.T))
    else:
        stored = f"{table.name}.{bits}.picked"  # a product by it may be quantized differently
        sizes = _TABLE_SLICES if bits == "int4" else ()
        depth = next((size for size in sizes if run % size == 0), run)
        scale = scales_of(table.data, depth, MOST[bits])
        scale = byte_scales(scale) if bits == "int4" else scale
        _add_constant(made, stored, DType.I8, rounded(table.data, scale, MOST[bits]))
        _add_constant(made, f"{stored}.rows", DType.F32, scale)
    inputs = (stored, indices.name, f"{stored}.rows")
    return Node(node.name, ops.GatherQuantized(), inputs, node.outputs)


def _product_by(graph: Graph, table: Array) -> Node | None:
    """Find a product whose weights equal the table."""
    for node in graph.nodes:
        is_product = isinstance(node.op, ops.FullyConnected | ops.MatMul)
        if is_product and graph.tensors[node.inputs[1] or ""].elements == table.size:
            found = matrix_of(graph, node)
            if found is not None and np.array_equal(found, table):
                return node
    return None


def matrix_of(graph: Graph, node: Node) -> Array | None:
    """Weights [n, k] of a product that can be compressed, or None."""
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


def _quantize_matrix(
    weights: Array, bits: WeightBits, group_size: int | None
) -> tuple[Array, Array]:
    """Quantize to s8 [n, k] and scales [slices, n], without clipping, since an outlier may meet
    any weight; but 3 or 2 bits would then hold little else than the largest weights."""
    k = weights.shape[1]
    fewer = MOST[bits] < MOST["int4"]
    sizes = () if bits == "int8" else _SLICES_OF_FEWER_BITS if fewer else _SLICES
    depth = group_size or next((size for size in sizes if k % size == 0), k)
    of = scales_of if fewer else whole_scales_of
    scale = of(weights, depth, MOST[bits])
    return rounded(weights, scale, MOST[bits]), np.ascontiguousarray(scale.T)
