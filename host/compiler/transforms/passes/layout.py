"""Pushes transposes down the graph until they cancel or reach an operator with a fixed layout.

Each tensor of the old graph is a `View`: a tensor of the new graph with an order of axes. A
transpose only changes the order. Element-wise operators, pools, concatenations, reductions and
reshapes that keep neighboring axes together run in the order of their operand. Only an operator
that requires another order inserts a transpose, once per tensor and order. So the NCHW
convolutions of an ONNX model, which the importer puts between transposes, follow each other
without any.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.by_operator import ByOperator
from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.types import Graph, Node, Operator, Shape, Tensor
from edgekit.host.compiler.transforms.passes.regroup import order_within_groups, regroup

Order = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class View:
    """A permuted tensor: axis i is axis order[i] of `tensor`."""

    tensor: Tensor
    order: Order

    @property
    def shape(self) -> Shape:
        return tuple(self.tensor.shape[p] for p in self.order)

    @property
    def plain(self) -> bool:
        return self.order == _identity_order(len(self.order))


def _identity_order(rank: int) -> Order:
    return tuple(range(rank))


def push_transposes(graph: Graph) -> Graph:
    """Return an equivalent graph with fewer transposes; graphs without any are returned as is."""
    if not any(isinstance(n.op, ops.Transpose) for n in graph.nodes):
        return graph
    return _Push(graph).run()


class _Push:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._outputs = set(graph.outputs)
        self._tensors = {n: graph.tensors[n] for n in graph.inputs}
        self._names = set(graph.tensors)
        self._node_names = {n.name for n in graph.nodes}
        self._nodes: list[Node] = []
        self._views: dict[str, View] = {}
        self._ordered: dict[tuple[str, Order], Tensor] = {}

    def run(self) -> Graph:
        for node in self._graph.nodes:
            self._add_node(node)
        for name in self._graph.outputs:
            self._add_output(name)
        return replace(self._graph, tensors=self._tensors, nodes=tuple(self._nodes))

    def _add_node(self, node: Node) -> None:
        ins = [None if n is None else self._view_of(n) for n in node.inputs]
        op = node.op
        if isinstance(op, ops.Transpose) and ins[0] is not None:
            order = tuple(ins[0].order[p] for p in op.permutation)
            self._views[node.outputs[0]] = View(ins[0].tensor, order)
            return
        views = [v for v in ins if v is not None]
        if all(v.plain for v in views):
            self._emit_plain(node, op, ins)
            return
        rule = _push_elementwise if op.elementwise else _pushes_through.of(type(op))
        if rule is not None and rule(self, node, op, views):
            return
        self._emit_plain(node, op, [None if v is None else self.plain(v) for v in ins])

    def _view_of(self, name: str) -> View:
        """Return the view of a tensor; constants and inputs have the identity order."""
        if name not in self._views:
            tensor = self._graph.tensors[name]
            self._tensors[name] = tensor
            self._views[name] = View(tensor, _identity_order(len(tensor.shape)))
        return self._views[name]

    def plain(self, view: View) -> View:
        return self.ordered(view, _identity_order(len(view.order)))

    def ordered(self, view: View, order: Order) -> View:
        """Return the same values in another order of axes; moving axes of size 1 is free."""
        if view.order == order:
            return view
        key = (view.tensor.name, _permutation(view, order))
        if key not in self._ordered:
            self._ordered[key] = self._add_transpose(view.tensor, key[1])
        return View(self._ordered[key], order)

    def common_order(self, views: Sequence[View], rank: int) -> Order:
        """The axis order for which the fewest computed elements have to be transposed; if several,
        one that some views have, so that the transposes behind may cancel."""
        computed = [v for v in views if v.tensor.data is None and len(v.order) == rank]
        plain = _identity_order(rank)

        def moved(order: Order) -> int:
            return sum(v.tensor.elements for v in computed if not self._has(v, order))

        return min((v.order for v in computed), key=lambda o: (moved(o), o == plain), default=plain)

    def _has(self, view: View, order: Order) -> bool:
        """Whether the values exist in an order already."""
        return view.order == order or (view.tensor.name, _permutation(view, order)) in self._ordered

    def _add_transpose(self, t: Tensor, permutation: Order) -> Tensor:
        shape = tuple(t.shape[p] for p in permutation)
        name = fresh_name(f"{t.name}.{''.join(str(p) for p in permutation)}", self._names)
        if t.data is not None:
            data = np.ascontiguousarray(t.data.transpose(permutation))
            return self._add_tensor(Tensor(name, shape, t.dtype, t.quant, data, t.sparse))
        made = self._add_tensor(Tensor(name, shape, t.dtype, t.quant))
        self._nodes.append(
            Node(
                fresh_name(name, self._node_names),
                _transpose_op(t, permutation),
                (t.name,),
                (name,),
            )
        )
        return made

    def emit(
        self, node: Node, op: Operator, ins: Sequence[View | None], orders: Sequence[Order]
    ) -> None:
        """Add `op` on the stored tensors; `orders` are the axis orders of its outputs."""
        tensors = [None if v is None else v.tensor for v in ins]
        outs = []
        for name, order, (shape, dtype) in zip(
            node.outputs, orders, op.infer(tensors), strict=True
        ):
            old = self._graph.tensors[name]
            moved = order != _identity_order(len(order))
            own = (
                fresh_name(f"{name}.inner", self._names)
                if moved and name in self._outputs
                else name
            )
            made = self._add_tensor(Tensor(own, shape, dtype, old.quant))
            self._views[name] = View(made, order)
            outs.append(own)
        names = tuple(None if t is None else t.name for t in tensors)
        self._nodes.append(Node(node.name, op, names, tuple(outs)))

    def _emit_plain(self, node: Node, op: Operator, ins: Sequence[View | None]) -> None:
        ranks = [len(self._graph.tensors[n].shape) for n in node.outputs]
        self.emit(node, op, ins, [_identity_order(r) for r in ranks])

    def keeps_type(self, node: Node, view: View) -> bool:
        """Whether the node's output is quantized as `view` is: the readers of a graph input say
        what its stored values mean."""
        return self._graph.tensors[node.outputs[0]].is_quantized == view.tensor.is_quantized

    def reuse(self, node: Node, view: View) -> None:
        """Make `view` the node's output, without adding a node."""
        self._views[node.outputs[0]] = view

    def constant(self, t: Tensor, shape: Shape) -> View:
        """Return the constant `t` with another shape."""
        assert t.data is not None
        name = fresh_name(f"{t.name}.shaped", self._names)
        data = t.data.reshape(shape)
        made = self._add_tensor(Tensor(name, shape, t.dtype, t.quant, data, t.sparse))
        return View(made, _identity_order(len(shape)))

    def reshaped(self, t: Tensor, shape: Shape) -> View:
        """Reshape `t` in its stored order."""
        if t.data is not None:
            return self.constant(t, shape)
        name = fresh_name(f"{t.name}.shaped", self._names)
        made = self._add_tensor(Tensor(name, shape, t.dtype, t.quant))
        node = Node(fresh_name(name, self._node_names), ops.Reshape(shape), (t.name,), (name,))
        self._nodes.append(node)
        return View(made, _identity_order(len(shape)))

    def _add_output(self, name: str) -> None:
        """Add a graph output under its name."""
        view = self._view_of(name)
        if view.tensor.name == name and view.plain:
            return
        old = self._graph.tensors[name]
        permutation = view.order
        self._add_tensor(replace(old, data=None))
        op = _transpose_op(view.tensor, permutation)
        self._nodes.append(
            Node(fresh_name(name, self._node_names), op, (view.tensor.name,), (name,))
        )

    def _add_tensor(self, t: Tensor) -> Tensor:
        self._tensors[t.name] = t
        self._names.add(t.name)
        return t


def _permutation(view: View, order: Order) -> Order:
    """The permutation of the stored axes that gives a view another order."""
    permutation = [0] * len(order)
    for mine, wanted in zip(view.order, order, strict=True):
        permutation[wanted] = mine
    return tuple(permutation)


def _transpose_op(t: Tensor, permutation: Order) -> Operator:
    """Return a transpose, or a reshape if only axes of size 1 move."""
    long = [p for p in permutation if t.shape[p] != 1]
    if long == sorted(long):
        return ops.Reshape(tuple(t.shape[p] for p in permutation))
    return ops.Transpose(permutation)


_Rule = Callable[[_Push, Node, Operator, list[View]], bool]
_pushes_through = ByOperator[_Rule]()

# Rules: each emits the node in the axis order of its operands and returns True, or returns False
# if it requires plain operands.


def _push_elementwise(push: _Push, node: Node, op: Operator, views: list[View]) -> bool:
    if len(views) == 1:
        push.emit(node, op, views, [views[0].order])
        return True
    rank = max(len(v.order) for v in views)
    order = push.common_order(views, rank)
    aligned = []
    for v in views:
        if len(v.order) < rank and v.tensor.elements > 1:
            whole = push.plain(v)
            v = push.reshaped(whole.tensor, (1,) * (rank - len(v.order)) + whole.shape)
        aligned.append(push.ordered(v, order) if len(v.order) == rank else v)
    push.emit(node, op, aligned, [order])
    return True


@_pushes_through(ops.Concat)
def _push_concat(push: _Push, node: Node, op: Operator, views: list[View]) -> bool:
    assert isinstance(op, ops.Concat)
    order = push.common_order(views, len(views[0].order))
    moved = ops.Concat(order[op.axis])
    push.emit(node, moved, [push.ordered(v, order) for v in views], [order])
    return True


@_pushes_through(ops.Split)
def _push_split(push: _Push, node: Node, op: Operator, views: list[View]) -> bool:
    assert isinstance(op, ops.Split)
    order = views[0].order
    push.emit(node, ops.Split(order[op.axis], op.sizes), views, [order] * len(node.outputs))
    return True


def _to_tensor_axes(values: Sequence[int], order: Order) -> tuple[int, ...]:
    """Convert per-axis values of a view to the axes of its tensor."""
    out = [0] * len(order)
    for value, axis in zip(values, order, strict=True):
        out[axis] = value
    return tuple(out)


@_pushes_through(ops.Pad)
def _push_pad(push: _Push, node: Node, op: Operator, views: list[View]) -> bool:
    assert isinstance(op, ops.Pad)
    order = views[0].order
    moved = ops.Pad(_to_tensor_axes(op.before, order), _to_tensor_axes(op.after, order))
    push.emit(node, moved, views, [order])
    return True


@_pushes_through(ops.StridedSlice)
def _push_slice(push: _Push, node: Node, op: Operator, views: list[View]) -> bool:
    """Apply a slice before the transpose, followed by a reshape if the slice drops axes."""
    assert isinstance(op, ops.StridedSlice)
    order = views[0].order
    extent = _to_tensor_axes(op.extent, order)
    kept = regroup(op.extent, order, op.shape)
    if kept is None:
        return False
    moved = ops.StridedSlice(
        _to_tensor_axes(op.begin, order), _to_tensor_axes(op.stride, order), extent, kept.shape
    )
    push.emit(node, moved, views, [kept.order])
    return True


@_pushes_through(ops.Reshape)
def _push_reshape(push: _Push, node: Node, op: Operator, views: list[View]) -> bool:
    assert isinstance(op, ops.Reshape)
    view = views[0]
    order = order_within_groups(view.shape, view.order, op.shape)
    if order is not None:
        view = push.ordered(view, order)
    kept = regroup(view.shape, view.order, op.shape)
    if kept is None:
        return False
    if kept.shape == view.tensor.shape and push.keeps_type(node, view):
        push.reuse(node, View(view.tensor, kept.order))
    else:
        push.emit(node, ops.Reshape(kept.shape), [view], [kept.order])
    return True


@_pushes_through(ops.Mean, ops.Total)
def _push_reduce(push: _Push, node: Node, op: Operator, views: list[View]) -> bool:
    assert isinstance(op, ops.Mean | ops.Total)
    view = views[0]
    axes = tuple(sorted(view.order[a] for a in op.axes))
    inside = range(axes[0], axes[-1] + 1) if axes else range(0)
    if any(i not in axes and view.tensor.shape[i] != 1 for i in inside):
        return False  # kernels reduce only adjacent axes
    order = view.order
    if not op.keep_dims:
        rest = [p for i, p in enumerate(view.order) if i not in op.axes]
        order = tuple(sorted(rest).index(p) for p in rest)
    push.emit(node, dataclasses.replace(op, axes=axes), views, [order])
    return True


@_pushes_through(ops.Softmax, ops.FullyConnected, ops.LayerNorm)
def _last_axis(push: _Push, node: Node, op: Operator, views: list[View]) -> bool:
    """Handle operators that work on the last axis and keep the others, like softmax."""
    return op.works_by_rows() and _push_rows(push, node, op, views)


@_pushes_through(ops.Conv2D)
def _push_pointwise(push: _Push, node: Node, op: Operator, views: list[View]) -> bool:
    """A convolution of single pixels does not care how these are arranged."""
    assert isinstance(op, ops.Conv2D)
    single = views[1].shape[1:3] == (1, 1) and op.stride == (1, 1) and not op.padding.any
    return single and _push_rows(push, node, op, views)


def _push_rows(push: _Push, node: Node, op: Operator, views: list[View]) -> bool:
    view = views[0]
    if view.order[-1] != len(view.order) - 1 or not all(v.plain for v in views[1:]):
        return False
    given = iter(views)
    ins = [None if name is None else next(given) for name in node.inputs]
    push.emit(node, op, ins, [view.order])
    return True


@_pushes_through(ops.Gather)
def _push_gather(push: _Push, node: Node, op: Operator, views: list[View]) -> bool:
    assert isinstance(op, ops.Gather)
    if not views[1].plain or len(views[1].order) != 1:
        return False
    order = views[0].order
    push.emit(node, ops.Gather(order[op.axis]), views, [order])
    return True
