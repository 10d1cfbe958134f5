"""Expands TensorFlow Lite's sparse tensors.

A sparse tensor is a tree with one level per dimension in traversal order: a dense level has `size`
children under each node, a compressed level lists its children (CSR, level by level). With a block
map, the remaining levels are positions inside blocks of the mapped dimensions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.frontends.tflite.schema import FileDimension, FileSparsity
from edgekit.host.compiler.ir.types import Array, Shape
from edgekit.host.errors import InputError

I64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Children:
    """The nodes of one level: the parent index and coordinate of each."""

    parent: I64
    coordinate: I64


def to_dense(values: Array, shape: Shape, sparsity: FileSparsity) -> Array:
    """Expands `values`, in traversal order, into an array of `shape` that is zero elsewhere."""
    sizes = _level_sizes(shape, sparsity)
    nodes = 1
    coordinates: list[I64] = []
    stored = [len(d.segments) for d in sparsity.dimensions if d.segments is not None]
    most = max(len(values), *stored, 1)
    for size, dimension in zip(sizes, sparsity.dimensions, strict=True):
        children = _expand_level(dimension, nodes, most)
        place = children.coordinate
        outside = place[(place < 0) | (place >= size)]
        if outside.size:
            raise InputError(f"expected sparse indices from 0 to {size - 1}, found {outside[0]}")
        coordinates = [c[children.parent] for c in coordinates]
        coordinates.append(children.coordinate)
        nodes = children.coordinate.size
    if nodes != len(values):
        raise InputError(f"expected {nodes} values in a sparse tensor, found {len(values)}")
    dense = np.zeros(math.prod(shape), values.dtype)
    dense[np.ravel_multi_index(_dense_indices(coordinates, sizes, shape, sparsity), shape)] = values
    return dense.reshape(shape)


def _level_sizes(shape: Shape, sparsity: FileSparsity) -> list[int]:
    """The number of coordinates on each level; checks that the levels cover the shape."""
    rank, order, blocks = len(shape), sparsity.order, sparsity.block_map
    if sorted(order) != list(range(rank + len(blocks))) or len(order) != len(sparsity.dimensions):
        raise InputError(
            f"expected a traversal of {rank} dimensions and {len(blocks)} blocks, "
            f"found {list(order)} with {len(sparsity.dimensions)} levels"
        )
    if not all(0 <= b < rank for b in blocks) or len(set(blocks)) != len(blocks):
        raise InputError(f"expected a block map of distinct dimensions, found {list(blocks)}")
    sizes = list(shape)
    block_sizes = [0] * len(blocks)
    for level, dimension in zip(order, sparsity.dimensions, strict=True):
        if level >= rank:
            block_sizes[level - rank] = dimension.size
    for size, axis in zip(block_sizes, blocks, strict=True):
        if size < 1 or shape[axis] % size:
            raise InputError(f"expected blocks that divide {shape[axis]}, found {size}")
        sizes[axis] //= size
    all_sizes = sizes + block_sizes
    for level, dimension in zip(order, sparsity.dimensions, strict=True):
        if dimension.segments is None and dimension.size != all_sizes[level]:
            raise InputError(
                f"expected a dense level of {all_sizes[level]}, found {dimension.size}"
            )
    return [all_sizes[level] for level in order]


def _expand_level(dimension: FileDimension, nodes: int, most: int) -> _Children:
    """The next level's nodes; `most` bounds them, as each ends in a value or a segment."""
    if dimension.segments is None or dimension.indices is None:
        if nodes * dimension.size > most:
            raise InputError(
                f"expected at most {most} nodes in a sparse level, found {nodes * dimension.size}"
            )
        return _Children(
            np.repeat(np.arange(nodes), dimension.size),
            np.tile(np.arange(dimension.size), nodes),
        )
    segments, indices = dimension.segments, dimension.indices
    lengths = np.diff(segments)
    whole = len(segments) == nodes + 1 and segments[0] == 0 and segments[-1] == len(indices)
    if not whole or (lengths < 0).any():
        raise InputError(
            f"expected {nodes + 1} rising segments over {len(indices)} sparse indices, "
            f"found {len(segments)}"
        )
    return _Children(np.repeat(np.arange(nodes), lengths), indices)


def _dense_indices(
    coordinates: list[I64], sizes: list[int], shape: Shape, sparsity: FileSparsity
) -> tuple[I64, ...]:
    """The indices along each tensor dimension: block · block size + position in the block."""
    by_level = dict(zip(sparsity.order, coordinates, strict=True))
    size_of = dict(zip(sparsity.order, sizes, strict=True))
    index = [by_level[axis] for axis in range(len(shape))]
    for block, axis in enumerate(sparsity.block_map):
        level = len(shape) + block
        index[axis] = index[axis] * size_of[level] + by_level[level]
    return tuple(index)
