"""Divides the statistics of normalized images into rows, so that bands keep an image from existing.

Each row gives its mean and the squares around it; rows are then combined by Chan's formula.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node, Operator, Shape, Tensor
from edgekit.host.compiler.transforms.split.live import Live

_SMALL = 8  # images of less than this fraction of the peak stay whole


@dataclass(frozen=True)
class Norm:
    """A normalization of `source` as rows of `shape`, of which the last `axes` axes are normalized
    together; `nodes` compute it, `after` replaces them, and bands run along axis `along`."""

    nodes: tuple[Node, ...]
    source: str
    shape: Shape
    axes: int
    along: int
    after: tuple[Node, ...] = ()

    @property
    def norm(self) -> Node:
        return next(node for node in self.nodes if isinstance(node.op, ops.LayerNorm))


def with_norms_of_rows(graph: Graph) -> tuple[Graph, list[Norm]]:
    """Replace normalizations of large images; f32 differs by rounding."""
    peak = Live(graph).peak
    tensors = dict(graph.tensors)
    names = {node.name for node in graph.nodes}
    made: dict[str, Norm] = {}
    for norm in _norms(graph):
        if graph.tensors[norm.source].bytes * _SMALL >= peak:
            rows = _Rows(tensors, names, norm)
            made[norm.nodes[-1].name] = dataclasses.replace(norm, after=rows.nodes())
    gone = {node.name for norm in made.values() for node in norm.nodes}
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += made[node.name].after if node.name in made else ()
        nodes += () if node.name in gone else (node,)
    return dataclasses.replace(graph, nodes=tuple(nodes), tensors=tensors), [*made.values()]


def without_norms_of_rows(
    graph: Graph, whole: Graph, norms: Sequence[Norm], origin: Mapping[str, str]
) -> Graph:
    """Restore the normalizations of `whole` of which bands have divided and repeated nothing."""
    here, parts = {node.name for node in graph.nodes}, {*origin.values()}
    restored: dict[str, Norm] = {}
    gone: set[str] = set()
    for norm in norms:
        added = {node.name for node in norm.after}
        if added <= here and added.isdisjoint(parts):
            restored[norm.after[-1].name] = norm
            gone |= added
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += restored[node.name].nodes if node.name in restored else ()
        nodes += () if node.name in gone else (node,)
    used = {t for node in nodes for t in (*node.inputs, *node.outputs)}
    used |= {*graph.inputs, *graph.outputs}
    tensors = {n: t for n, t in {**whole.tensors, **graph.tensors}.items() if n in used}
    return dataclasses.replace(graph, nodes=tuple(nodes), tensors=tensors)


def _norms(graph: Graph) -> Iterator[Norm]:
    producer, consumers = graph.producer(), graph.consumers()
    for node in graph.nodes:
        x = graph.tensors[node.inputs[0] or ""] if isinstance(node.op, ops.LayerNorm) else None
        if x is None or x.dtype is not DType.F32:
            continue
        assert isinstance(node.op, ops.LayerNorm)
        before, after = producer.get(x.name), consumers[node.outputs[0]]
        inside = {x.name, node.outputs[0]}.isdisjoint(graph.outputs)
        single = inside and len(consumers[x.name]) == 1 and len(after) == 1
        found: Norm | None = None
        if single and isinstance(after[0].op, ops.Reshape) and before is not None:
            found = _of_groups(graph, before, node, after[0])
        if found is None:
            found = _with_axis(graph, Norm((node,), x.name, x.shape, node.op.axes, 0))
        if found is not None:
            yield found


def _of_groups(graph: Graph, before: Node, node: Node, after: Node) -> Norm | None:
    """Groups of channels [n, g, all values], reshaped from and to images [n, c, …]."""
    if not isinstance(before.op, ops.Reshape) or any(node.inputs[1:]):
        return None
    source = graph.tensors[before.inputs[0] or ""]
    shape, grouped = source.shape, graph.tensors[node.outputs[0]].shape
    same = graph.tensors[after.outputs[0]].shape == shape
    if not same or len(grouped) != 3 or len(shape) < 3 or grouped[0] != shape[0]:
        return None
    assert isinstance(node.op, ops.LayerNorm)
    if node.op.axes != 1 or shape[1] % grouped[1]:
        return None
    split = (*grouped[:2], shape[1] // grouped[1], *shape[2:])
    norm = Norm((before, node, after), source.name, split, len(split) - 2, 0)
    return _with_axis(graph, norm)


def _with_axis(graph: Graph, norm: Norm) -> Norm | None:
    """Bands run along the outermost axis of the image before it was transposed, if that is
    normalized; None if there is no other normalized axis."""
    source = graph.tensors[norm.source]
    long = [axis for axis, size in enumerate(source.shape) if size > 1]
    made = graph.producer().get(norm.source)
    if made is not None and isinstance(made.op, ops.Transpose):
        long.sort(key=made.op.permutation.__getitem__)
    added = len(norm.shape) - len(source.shape)  # the axis of groups
    first = len(norm.shape) - norm.axes + added
    along = next((axis + added for axis in long if axis + added >= first), None)
    if along is None:
        return None
    found = dataclasses.replace(norm, along=along)
    return found if any(norm.shape[axis] > 1 for axis in _others(found)) else None


def _others(norm: Norm) -> list[int]:
    """The normalized axes but the one of bands."""
    rank = len(norm.shape)
    return [axis for axis in range(rank - norm.axes, rank) if axis != norm.along]


class _Rows:
    """Makes the nodes of one normalization by rows."""

    def __init__(self, tensors: dict[str, Tensor], names: set[str], norm: Norm) -> None:
        self._tensors = tensors
        self._names = names
        self._norm = norm
        self._made: list[Node] = []

    def nodes(self) -> tuple[Node, ...]:
        mean, inverse = self._combined(self._rows())
        factor, shift = (*self._norm.norm.inputs[1:], None, None)[:2]
        y = self._add(ops.Mul(), self._add(ops.Sub(), self._image(), mean), inverse)
        for op, term in ((ops.Mul(), factor), (ops.Add(), shift)):
            if term is not None:
                y = self._add(op, y, self._in_row(term))
        out = self._norm.nodes[-1].outputs[0]
        if len(self._norm.nodes) > 1:
            y = self._add(ops.Reshape(self._tensors[out].shape), y)
        last = self._made.pop()
        del self._tensors[y]
        return (*self._made, dataclasses.replace(last, outputs=(out,)))

    def _rows(self) -> str:
        """The mean and the squares around it of each row; the rows come first."""
        norm, others = self._norm, _others(self._norm)
        image = self._image()
        mean = self._scaled(self._sums(image, others), 1 / self._row)
        centered = self._add(ops.Sub(), image, mean)
        squares = self._sums(self._add(ops.Mul(), centered, centered), others)
        both = self._add(ops.Concat(others[-1]), mean, squares)
        rest = (axis for axis in range(len(norm.shape)) if axis != norm.along)
        return self._add(ops.Transpose((norm.along, *rest)), both)

    def _combined(self, rows: str) -> tuple[str, str]:
        """The mean and 1 / √(variance + epsilon) of all rows."""
        op = self._norm.norm.op
        assert isinstance(op, ops.LayerNorm)
        count = self._norm.shape[self._norm.along]
        means, squares = (self._half(rows, at) for at in (0, 1))
        mean = self._scaled(self._sums(means, [0]), 1 / count)
        apart = self._add(ops.Sub(), means, mean)
        between = self._sums(self._add(ops.Mul(), apart, apart), [0])
        total = self._add(ops.Add(), self._sums(squares, [0]), self._scaled(between, self._row))
        variance = self._scaled(total, 1 / (count * self._row))
        shifted = self._add(ops.Add(), variance, self._number(op.epsilon))
        inverse = self._add(ops.Reciprocal(), self._add(ops.Sqrt(), shifted))
        kept = len(self._norm.shape) - self._norm.axes
        single = (*self._norm.shape[:kept], *(1,) * self._norm.axes)
        return self._add(ops.Reshape(single), mean), self._add(ops.Reshape(single), inverse)

    @property
    def _row(self) -> int:
        return math.prod(self._norm.shape[axis] for axis in _others(self._norm))

    def _image(self) -> str:
        """The source in the shape of the normalization: a view for each reader."""
        norm = self._norm
        same = self._tensors[norm.source].shape == norm.shape
        return norm.source if same else self._add(ops.Reshape(norm.shape), norm.source)

    def _half(self, rows: str, at: int) -> str:
        shape = list(self._tensors[rows].shape)
        last = _others(self._norm)[-1]
        axis = last + (last < self._norm.along)  # the rows are in front of it
        begin = [0] * len(shape)
        begin[axis], shape[axis] = at, 1
        op = ops.StridedSlice(tuple(begin), (1,) * len(shape), tuple(shape), tuple(shape))
        return self._add(op, rows)

    def _in_row(self, term: str) -> str:
        """A factor or shift in the shape of the normalized axes."""
        row, data = self._norm.shape[-self._norm.axes :], self._tensors[term].data
        if data is None:
            return self._add(ops.Reshape(row), term)
        return self._constant(data.reshape(row))

    def _sums(self, x: str, axes: Sequence[int]) -> str:
        """Kernels reduce adjacent axes only."""
        left = list(axes)
        while left:
            run = [left.pop()]
            while left and left[-1] == run[0] - 1:
                run.insert(0, left.pop())
            x = self._add(ops.ReduceSum(tuple(run), keep_dims=True), x)
        return x

    def _scaled(self, x: str, factor: float) -> str:
        return self._add(ops.Mul(), x, self._number(factor))

    def _number(self, value: float) -> str:
        return self._constant(np.full((1,), value, np.float32))

    def _constant(self, data: Array) -> str:
        name = self._fresh("constant")
        self._tensors[name] = Tensor(name, data.shape, DType.F32, None, data)
        return name

    def _add(self, op: Operator, *ins: str) -> str:
        ((shape, dtype),) = op.infer([self._tensors[name] for name in ins])
        name = self._fresh(op.kind)
        self._tensors[name] = Tensor(name, shape, dtype)
        self._made.append(Node(name, op, ins, (name,)))
        return name

    def _fresh(self, what: str) -> str:
        """A name that neither a tensor nor a node has."""
        stem = f"{self._norm.norm.name}/{what}"
        name, n = stem, 1
        while name in self._tensors or name in self._names:
            n += 1
            name = f"{stem}_{n}"
        self._names.add(name)
        return name
