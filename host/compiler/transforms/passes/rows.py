"""Lets what follows a convolution of rows run on its image, next to the convolution.

Importers reshape rows [n, w, c] to images [n, 1, w, c] before a convolution and back after it.
Operators between two convolutions work on the image instead: the reshapes disappear, and the
passes that follow find activations, padding, slices and residuals beside the convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.by_operator import ByOperator
from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.types import Graph, Node, Operator, Tensor

_SLIDING = (ops.Conv2D, ops.DepthwiseConv2D)


@dataclass(frozen=True)
class _Image:
    """The image of the same values as rows, whose axis i is axis axes[i] of the image."""

    tensor: Tensor
    axes: tuple[int, ...]

    def wide(self, values: Sequence[int], filler: int) -> tuple[int, ...]:
        """Values per axis of rows, the last ones if there are fewer, per axis of the image."""
        found = [filler] * len(self.tensor.shape)
        for axis, value in zip(self.axes[len(self.axes) - len(values) :], values, strict=True):
            found[axis] = value
        return tuple(found)


def lift_rows(graph: Graph) -> Graph:
    """Return an equivalent graph; without rows that a convolution made, it is returned as is."""
    producer = graph.producer()
    for node in graph.nodes:
        made = producer.get(node.inputs[0] or "") if isinstance(node.op, ops.Reshape) else None
        if made is not None and isinstance(made.op, _SLIDING) and _rows_of(graph.tensors, node):
            return _Lift(graph).run()
    return graph


def _rows_of(tensors: Mapping[str, Tensor], node: Node) -> _Image | None:
    """The image that a reshape makes rows of by dropping its height or width of 1."""
    image, rows = (tensors[name or ""] for name in (node.inputs[0], node.outputs[0]))
    for dropped in (1, 2):
        axes = tuple(axis for axis in range(4) if axis != dropped)
        whole = len(image.shape) == 4 and image.shape[dropped] == 1
        if whole and rows.shape == tuple(image.shape[axis] for axis in axes):
            return _Image(image, axes)
    return None


class _Lift:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.tensors = dict(graph.tensors)
        self._names = {*graph.tensors}
        self._node_names = {node.name for node in graph.nodes}
        self._nodes: list[Node] = []
        self._images: dict[str, _Image] = {}  # of rows
        self._missing: set[str] = set()  # rows that only exist as images
        self._same: dict[str, str] = {}  # images reshaped from rows, and the images of those
        self._reshaped: dict[str, str] = {}  # tensors, and what they are reshaped from

    def run(self) -> Graph:
        for node in self._graph.nodes:
            self._add_node(node)
        for name in self._graph.outputs:
            self._make(name)
        return replace(self._graph, tensors=self.tensors, nodes=tuple(self._nodes))

    def _add_node(self, node: Node) -> None:
        node = replace(node, inputs=tuple(self._same.get(t or "", t) for t in node.inputs))
        if isinstance(node.op, ops.Reshape) and self._add_reshape(node):
            return
        rule = _lift_elementwise if node.op.elementwise else _lifts.of(type(node.op))
        found = [self._images[t] for t in node.inputs if t in self._images]
        coded = (self.tensors[t].quant for t in (*node.inputs, *node.outputs) if t)
        if rule and found and not any(q is not None and q.per_channel for q in coded):
            made = rule(self, node, found[0])
            if made is not None:
                self._emit(node, found[0], *made)
                return
        self._keep(node)

    def _keep(self, node: Node) -> None:
        for name in node.inputs:
            self._make(name)
        self._nodes.append(node)

    def _add_reshape(self, node: Node) -> bool:
        """Whether the reshape is not needed, or not yet."""
        out = node.outputs[0]
        source = self._reshaped.get(node.inputs[0] or "", node.inputs[0] or "")
        self._reshaped[out] = source
        image = self._images.get(source)
        if image is not None and image.tensor.shape == self.tensors[out].shape:
            if out in self._graph.outputs or image.tensor.quant != self.tensors[out].quant:
                return False
            self._same[out] = image.tensor.name
            return True
        rows = _rows_of(self.tensors, node) if node.inputs[0] not in self._missing else None
        if rows is None or rows.tensor.data is not None:
            return False
        self._images[out] = rows
        self._missing.add(out)
        return True

    def _emit(self, node: Node, place: _Image, op: Operator, ins: Sequence[str | None]) -> None:
        shapes = op.infer([None if t is None else self.tensors[t] for t in ins])
        outs = []
        for name, (shape, dtype) in zip(node.outputs, shapes, strict=True):
            own = fresh_name(f"{name}.image", self._names)
            self.tensors[own] = Tensor(own, shape, dtype, self.tensors[name].quant)
            self._images[name] = _Image(self.tensors[own], place.axes)
            self._missing.add(name)
            outs.append(own)
        self._nodes.append(Node(node.name, op, tuple(ins), tuple(outs)))

    def _make(self, name: str | None) -> None:
        """Reshape rows that only exist as an image."""
        if name in self._missing:
            self._missing.remove(name)
            image, shape = self._images[name].tensor, self.tensors[name].shape
            own = fresh_name(f"{name}.rows", self._node_names)
            self._nodes.append(Node(own, ops.Reshape(shape), (image.name,), (name,)))

    def image_of(self, name: str | None, place: _Image) -> str | None:
        """An operand as an image; None unless it is one, or a constant."""
        if name is None:
            return None
        tensor, image = self.tensors[name], self._images.get(name)
        if image is not None:
            return image.tensor.name if image.axes == place.axes else None
        if tensor.data is None or len(tensor.shape) > len(place.axes):
            return None
        shape = place.wide(tensor.shape, 1)
        if shape == tensor.shape or not tensor.shape:
            return name
        own = fresh_name(f"{name}.image", self._names)
        self.tensors[own] = replace(tensor, name=own, shape=shape, data=tensor.data.reshape(shape))
        return own


_Made = tuple[Operator, list[str | None]]
_Rule = Callable[[_Lift, Node, _Image], _Made | None]
_lifts = ByOperator[_Rule]()

# Rules: each returns the operator on images and its operands, or None if it needs rows.


def _lift_elementwise(lift: _Lift, node: Node, place: _Image) -> _Made | None:
    ins = [lift.image_of(name, place) for name in node.inputs]
    ranks = {len(lift.tensors[name].shape) for name in node.outputs}
    lost = any(a is None and b is not None for a, b in zip(ins, node.inputs, strict=True))
    return None if lost or ranks != {len(place.axes)} else (node.op, ins)


@_lifts(ops.Pad)
def _lift_pad(_: _Lift, node: Node, place: _Image) -> _Made | None:
    op = node.op
    assert isinstance(op, ops.Pad)
    moved = replace(op, before=place.wide(op.before, 0), after=place.wide(op.after, 0))
    return moved, [place.tensor.name]


@_lifts(ops.StridedSlice)
def _lift_slice(_: _Lift, node: Node, place: _Image) -> _Made | None:
    op = node.op
    assert isinstance(op, ops.StridedSlice)
    if op.shape != op.extent:
        return None
    extent = place.wide(op.extent, 1)
    begin, stride = place.wide(op.begin, 0), place.wide(op.stride, 1)
    return ops.StridedSlice(begin, stride, extent, extent), [place.tensor.name]


@_lifts(ops.Concat)
def _lift_concat(lift: _Lift, node: Node, place: _Image) -> _Made | None:
    op = node.op
    assert isinstance(op, ops.Concat)
    ins = [lift.image_of(name, place) for name in node.inputs]
    return None if None in ins else (replace(op, axis=place.axes[op.axis]), ins)


@_lifts(ops.Split)
def _lift_split(_: _Lift, node: Node, place: _Image) -> _Made | None:
    op = node.op
    assert isinstance(op, ops.Split)
    return replace(op, axis=place.axes[op.axis]), [place.tensor.name]


@_lifts(ops.LayerNorm)
def _lift_norm(_: _Lift, node: Node, place: _Image) -> _Made | None:
    op = node.op
    assert isinstance(op, ops.LayerNorm)
    return (op, [place.tensor.name, *node.inputs[1:]]) if op.axes == 1 else None
