"""Divides means of images into rows and the rest, so that bands keep the image from existing.

Means along one axis, as of frames of sound, are divided into blocks of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Operator, Quant, Tensor

_MOST_BLOCKS = 64
_QUANTIZED_TYPES = (DType.I8, DType.U8, DType.I16)


def with_means_of_rows(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """Reduce each row before all of them. Returns the nodes added, with the mean they belong to.

    Quantized results are the same, because their sums are exact; f32 is rounded once more.
    """
    tensors = dict(graph.tensors)
    nodes: list[Node] = []
    means: dict[str, str] = {}
    for node in graph.nodes:
        steps = _divided(tensors, node)
        means.update((step.name, node.name) for step in steps[:-1])
        nodes += steps or (node,)
    return dataclasses.replace(graph, nodes=tuple(nodes), tensors=tensors), means


def without_means_of_rows(graph: Graph, whole: Graph, means: Mapping[str, str]) -> Graph:
    """Replace what no band has divided by the means of `whole`."""
    consumers, originals = graph.consumers(), {node.name: node for node in whole.nodes}
    here = {
        node.name: node.outputs[0]
        for node in graph.nodes
        if node.name in means and len(consumers[node.outputs[0]]) == 1
    }
    divided = {mean for name, mean in means.items() if name not in here}
    gone = {name: rows for name, rows in here.items() if means[name] not in divided}
    restored = {means[name] for name in gone}
    nodes = tuple(
        originals[node.name] if node.name in restored else node
        for node in graph.nodes
        if node.name not in gone
    )
    rows = {*gone.values()}
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name not in rows}
    return dataclasses.replace(graph, nodes=nodes, tensors=tensors)


def _divided(tensors: dict[str, Tensor], node: Node) -> tuple[Node, ...]:
    """Add tensors and return the nodes, the last of which gives the mean; none unless the outermost
    axis is reduced."""
    op = node.op
    if not isinstance(op, ops.Mean):
        return ()
    x = tensors[node.inputs[0] or ""]
    long = [axis for axis, size in enumerate(x.shape) if size > 1]
    if not long or long[0] not in op.axes or x.dtype not in (DType.F32, *_QUANTIZED_TYPES):
        return ()
    steps = _Steps(tensors, node, x)
    inner = tuple(axis for axis in op.axes if axis in long[1:])
    if inner:
        return steps.along(inner)
    size = x.shape[long[0]]
    blocks = max(count for count in range(1, _MOST_BLOCKS + 1) if size % count == 0)
    return steps.in_blocks(long[0], blocks) if 1 < blocks < size else ()


class _Steps:
    """The nodes that compute one mean in two steps."""

    def __init__(self, tensors: dict[str, Tensor], node: Node, x: Tensor) -> None:
        assert isinstance(node.op, ops.Mean)
        self._tensors = tensors
        self._node = node
        self._op = node.op
        self._x = x
        self._made: list[Node] = []

    def along(self, axes: tuple[int, ...]) -> tuple[Node, ...]:
        """First along `axes`."""
        return self._rest(self._reduced(self._x.name, axes))

    def in_blocks(self, axis: int, count: int) -> tuple[Node, ...]:
        """First in `count` blocks of the only long axis among the reduced ones."""
        shape = self._x.shape
        split = (*shape[:axis], count, shape[axis] // count, *shape[axis + 1 :])
        blocks = self._add("blocks", ops.Reshape(split), self._x.name, self._x.quant)
        sums = self._reduced(blocks, (axis + 1,))
        flat = ops.Reshape((*shape[:axis], count, *shape[axis + 1 :]))
        return self._rest(self._add("flat", flat, sums, self._tensors[sums].quant))

    def _reduced(self, source: str, axes: tuple[int, ...]) -> str:
        if self._x.quant is None:
            return self._add("rows", ops.Mean(axes, keep_dims=True), source, None)
        quant = Quant(self._x.quant.scale, np.zeros_like(self._x.quant.zero_point))
        return self._add("rows", ops.QuantizedSum(axes), source, quant)

    def _rest(self, rows: str) -> tuple[Node, ...]:
        op, node = self._op, self._node
        step: Operator = op
        if self._x.quant is not None:
            count = int(np.prod([self._x.shape[axis] for axis in op.axes]))
            dtype = self._tensors[node.outputs[0]].dtype
            step = ops.MeanOfSums(op.axes, op.keep_dims, count, dtype)
        return (*self._made, Node(node.name, step, (rows,), node.outputs))

    def _add(self, what: str, op: Operator, source: str, quant: Quant | None) -> str:
        name = f"{self._node.outputs[0]}/{what}"
        while name in self._tensors:
            name += "'"
        ((shape, dtype),) = op.infer([self._tensors[source]])
        self._tensors[name] = Tensor(name, shape, dtype, quant)
        self._made.append(Node(f"{self._node.name}/{what}", op, (source,), (name,)))
        return name
