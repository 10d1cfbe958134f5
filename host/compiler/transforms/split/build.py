"""Inserts parts of operators into a graph, with slices before and joins after them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from edgekit.host.compiler.ir.ops import Concat, StridedSlice
from edgekit.host.compiler.ir.types import Array, Graph, Node, Quant, Tensor
from edgekit.host.compiler.transforms.split.cut import Cut, Piece, Site, cut_shape


class SplitBuilder:
    """A graph under construction; existing pieces are reused instead of being sliced again."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors: dict[str, Tensor] = dict(graph.tensors)
        self.nodes: list[Node] = []
        self.origin: dict[str, str] = {}
        self._taken = {n.name for n in graph.nodes}
        self._cuts: dict[str, tuple[str, Cut]] = {}  # piece → original tensor and its cut
        self._pieces: dict[tuple[str, Cut], str] = {}  # pieces that this builder has added

    def draft(self) -> SplitBuilder:
        """Return a builder for nodes that will later be added here, possibly changed."""
        other = SplitBuilder(self.graph)
        other.tensors, other._taken, other._cuts = self.tensors, self._taken, self._cuts
        other._pieces = dict(self._pieces)
        return other

    def finish(self) -> Graph:
        used = {t for n in self.nodes for t in (*n.inputs, *n.outputs) if t is not None}
        used |= {*self.graph.inputs, *self.graph.outputs}
        tensors = {name: t for name, t in self.tensors.items() if name in used}
        return dataclasses.replace(self.graph, nodes=tuple(self.nodes), tensors=tensors)

    def add(self, node: Node, origin: str | None = None) -> Node:
        self.nodes.append(node)
        for name in node.outputs:
            if name in self._cuts:
                self._pieces[self._cuts[name]] = name
        if origin is not None:
            self.origin[node.name] = origin
        return node

    def part(self, site: Site, part: Piece, cut: Cut, label: str, origin: str) -> Node:
        """Add a node that computes `cut` of the outputs, preceded by the slices it reads."""
        pairs = zip(site.ins, part.inputs, strict=True)
        inputs = tuple(
            self._constant(t, part.constants[i], label)
            if t is not None and i in part.constants
            else self.piece(t, c, origin)
            for i, (t, c) in enumerate(pairs)
        )
        outputs = tuple(self._add_output(t, cut, label) for t in site.outs)
        name = self._fresh_node(f"{site.node.name}/{label}")
        return self.add(Node(name, part.op, inputs, outputs), origin)

    def piece(self, tensor: Tensor | None, cut: Cut | None, origin: str) -> str | None:
        """Return the name of a piece of `tensor`, slicing it unless the piece exists."""
        if tensor is None or cut is None or cut.size == tensor.shape[cut.axis]:
            return None if tensor is None else tensor.name
        known = self._pieces.get((tensor.name, cut))
        if known is not None:
            return known
        name = self._fresh_tensor(f"{tensor.name}[{cut.axis}:{cut.begin}:{cut.end}]")
        self.tensors[name] = piece = _cut_tensor(tensor, cut, name)
        self._cuts[name] = (tensor.name, cut)
        if piece.data is not None:
            self._pieces[tensor.name, cut] = name
            return name
        begin = [0] * len(tensor.shape)
        begin[cut.axis] = cut.begin
        op = StridedSlice(tuple(begin), (1,) * len(begin), piece.shape, piece.shape)
        self.add(Node(self._fresh_node(name), op, (tensor.name,), (name,)), origin)
        return name

    def _constant(self, tensor: Tensor, data: Array, label: str) -> str:
        name = self._fresh_tensor(f"{tensor.name}/{label}")
        self.tensors[name] = dataclasses.replace(tensor, name=name, shape=data.shape, data=data)
        return name

    def join(
        self, parts: Sequence[Node], axis: int, outs: Iterable[Tensor], origin: str
    ) -> list[Node]:
        """Add one Concat per output of the parts."""
        joins = []
        for i, out in enumerate(outs):
            name = self._fresh_node(f"{origin}/join{i or ''}")
            inputs = tuple(p.outputs[i] for p in parts)
            joins.append(self.add(Node(name, Concat(axis), inputs, (out.name,)), origin))
        return joins

    def joined(self, parts: Sequence[str], axis: int, label: str, origin: str) -> Tensor:
        """Add the concatenation of tensors of the same kind; returns it."""
        pieces = [self.tensors[name] for name in parts]
        last = pieces[-1]
        whole = cut_shape(last.shape, Cut(axis, 0, sum(t.shape[axis] for t in pieces)))
        name = self._fresh_tensor(f"{last.name}/{label}")
        self.tensors[name] = made = dataclasses.replace(last, name=name, shape=whole)
        self.add(Node(self._fresh_node(name), Concat(axis), tuple(parts), (name,)), origin)
        return made

    def _add_output(self, tensor: Tensor, cut: Cut, label: str) -> str:
        name = self._fresh_tensor(f"{tensor.name}/{label}")
        self.tensors[name] = dataclasses.replace(
            tensor, name=name, shape=cut_shape(tensor.shape, cut)
        )
        return name

    def _fresh_node(self, name: str) -> str:
        while name in self._taken:
            name += "'"
        self._taken.add(name)
        return name

    def _fresh_tensor(self, name: str) -> str:
        while name in self.tensors:
            name += "'"
        return name


def even_cuts(axis: int, size: int, chunk: int) -> list[Cut]:
    """Divide an axis into pieces of `chunk` elements; the last one may be smaller."""
    return [Cut(axis, at, min(at + chunk, size)) for at in range(0, size, chunk)]


def _cut_tensor(tensor: Tensor, cut: Cut, name: str) -> Tensor:
    quant, data = tensor.quant, tensor.data
    if quant is not None and quant.per_channel and quant.axis == cut.axis:
        part = slice(cut.begin, cut.end)
        quant = Quant(quant.scale[part], quant.zero_point[part], quant.axis)
    if data is not None:
        picks = [slice(None)] * cut.axis + [slice(cut.begin, cut.end)]
        data = np.ascontiguousarray(data[tuple(picks)])
    return dataclasses.replace(
        tensor, name=name, shape=cut_shape(tensor.shape, cut), quant=quant, data=data
    )
