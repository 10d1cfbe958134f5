"""Costs of operators on channels-last and on channels-first images, from a table of measured ones.

All costs are in the table's unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.costs.layout_table import CHAIN, WINDOWS, KernelWork, LayoutTable
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.types import Array, Graph, Node, Operator, Shape, Tensor

# Kernels for images with a single row of points, usually fully connected layers
_ROWS = ("dense_rows", "sparse_rows")


@dataclass(frozen=True)
class LayoutCosts:
    """The costs of one operator in either layout."""

    channels_last: float
    channels_first: float


@dataclass(frozen=True)
class Saved:
    """Cost saved as long as all named operators stay channels-last."""

    names: frozenset[str]
    cost: float


def layout_costs(
    op: Operator,
    form: Operator,
    weights: Array,
    images: tuple[Shape, Shape],
    pixels: int,
    table: LayoutTable,
    vl: int,
) -> LayoutCosts:
    """The costs of a convolution `op` and of its channels-first variant `form`.

    `images` are the shapes of x and y, channels last. `pixels` is as in `channels_first_work`.
    """
    names = op.layout_kernels
    assert names is not None
    if isinstance(form, ops.ChannelsFirstConv2D):
        if not is_pointwise(form, weights.shape):
            names = WINDOWS
        elif images[1][1] == 1:
            names = _ROWS
    last = table.cost(names[0], channels_last_work(op, weights, *images, vl))
    first = table.cost(names[1], channels_first_work(form, weights, *images, pixels))
    return LayoutCosts(last, first)


def transpose_cost(tensor: Tensor, table: LayoutTable) -> float:
    """The cost of changing the layout of an image; 0 if that moves no value."""
    moves = tensor.shape[3] > 1 and math.prod(tensor.shape[1:3]) > 1
    return table.cost("transpose", KernelWork(0, tensor.elements)) if moves else 0.0


def saved_by_chain(graph: Graph, pair: Sequence[Node], table: LayoutTable, vl: int) -> Saved:
    """Savings from chaining a depthwise and a 1x1 convolution; negative if the chain costs more."""
    works = _pair_works(graph, pair, vl)
    alone = 0.0
    for node, work in zip(pair, works, strict=True):
        assert node.op.layout_kernels is not None
        alone += table.cost(node.op.layout_kernels[0], work)
    return Saved(
        frozenset(node.name for node in pair), alone - table.cost(CHAIN, _combine_works(works))
    )


def chain_work(graph: Graph, pair: Sequence[Node], vl: int) -> KernelWork:
    """The work of a chain: that of its members, where only the first one reads an image."""
    return _combine_works(_pair_works(graph, pair, vl))


def _pair_works(graph: Graph, pair: Sequence[Node], vl: int) -> list[KernelWork]:
    works = []
    for node in pair:
        x, weights, y = (graph.tensors[name or ""] for name in (*node.inputs[:2], node.outputs[0]))
        assert weights.data is not None
        works.append(channels_last_work(node.op, weights.data, x.shape, y.shape, vl))
    return works


def _combine_works(works: Sequence[KernelWork]) -> KernelWork:
    products, values = (sum(getattr(w, of) for w in works) for of in ("products", "values"))
    return KernelWork(products, values, works[0].pieces, works[0].inputs)


def channels_last_work(op: Operator, weights: Array, x: Shape, y: Shape, vl: int) -> KernelWork:
    """Work of a channels-last convolution, with channels rounded up to vectors.

    A depthwise convolution counts one piece per output row: each piece reads image lines again, and
    the line length determines how many of them a cache holds.
    """
    values, inputs = math.prod(y[:3]) * round_up(y[3], vl), math.prod(x)
    products = values * weights.shape[1] * weights.shape[2]
    if isinstance(op, ops.Conv2D):
        return KernelWork(products * weights.shape[3], values, inputs=inputs)
    return KernelWork(products, values, y[0] * y[1], inputs)


def channels_first_work(
    form: Operator, weights: Array, x: Shape, y: Shape, pixels: int
) -> KernelWork:
    """Work of a channels-first convolution, whose kernel computes `pixels` per channel.

    Only nonzero weights count, except those of a depthwise convolution.
    """
    (n, h, _, c), inputs = y, math.prod(x)
    values = c * pixels
    if isinstance(form, ops.ChannelsFirstConv2D):
        return KernelWork(int(np.count_nonzero(weights)) * pixels, values, inputs=inputs)
    return KernelWork(values * weights.shape[1] * weights.shape[2], values, n * c * h, inputs)


def is_pointwise(op: ops.Conv2D | ops.ChannelsFirstConv2D, weights: Shape) -> bool:
    """True if each output pixel depends on one input pixel at the same place."""
    return op.stride == (1, 1) and not op.padding.any and weights[1:3] == (1, 1)
