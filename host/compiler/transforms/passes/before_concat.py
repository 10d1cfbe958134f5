"""Moves what follows a concatenation before it: a function into the products that make its parts,
and a transpose after which the parts are runs of memory, so that nothing copies them."""

from __future__ import annotations

import dataclasses
import math

from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.ops import Concat, Reshape, Transpose, Weighted
from edgekit.host.compiler.ir.traits import Epilogue
from edgekit.host.compiler.ir.types import Activation, DType, Graph, Node, Operator, Tensor
from edgekit.host.compiler.transforms.passes.rewrite import Users

_FEW = 8  # channels: functions of fewer are not part of a product


@dataclasses.dataclass(frozen=True)
class _Move:
    """A node after a concatenation, which becomes one node per part: what `readers` read from
    `parts`."""

    node: Node
    concat: Node
    axis: int
    parts: tuple[str, ...]
    readers: tuple[str, ...]


def move_before_concat(graph: Graph) -> Graph:
    """Apply functions and transposes of f32 concatenations to their parts where that saves
    copies."""
    while True:
        users = Users(graph)
        moves = (_match(users, node) for node in graph.nodes)
        move = next((each for each in moves if each is not None), None)
        if move is None:
            return graph
        graph = _moved(graph, move)


def _match(users: Users, node: Node) -> _Move | None:
    concat = users.single(node.inputs[0]) if len(node.inputs) == 1 else None
    if concat is None or not isinstance(concat.op, Concat):
        return None
    tensors, names = users.graph.tensors, [name or "" for name in concat.inputs]
    whole, made = tensors[concat.outputs[0]], tensors[node.outputs[0]]
    if {whole.dtype, made.dtype} != {DType.F32} or len({*names}) < len(names):
        return None
    if any(tensors[name].data is not None for name in names):
        return None
    if isinstance(node.op, Transpose):
        axis = node.op.permutation.index(concat.op.axis)
        runs = [math.prod(t.shape[:at]) == 1 for t, at in ((made, axis), (whole, concat.op.axis))]
        readers = (concat.name,) * len(names)
        return _Move(node, concat, axis, tuple(names), readers) if runs == [True, False] else None
    if node.op.epilogue_form is Epilogue.NO:
        return None
    found = [_made_by_product(users, name, concat) for name in names]
    if not all(found):
        return None
    parts, readers = zip(*(each for each in found if each), strict=True)
    return _Move(node, concat, concat.op.axis, parts, readers)


def _made_by_product(users: Users, name: str, reader: Node) -> tuple[str, str] | None:
    """The output of a product that takes a function, of which `name` is a view, and its reader."""
    maker = users.single(name)
    while maker is not None and isinstance(maker.op, Reshape):
        name, reader = maker.inputs[0] or "", maker
        maker = users.single(name)
    op = None if maker is None else maker.op
    if not isinstance(op, Weighted) or not op.takes_epilogue or op.epilogue is not None:
        return None
    wide = users.graph.tensors[name].shape[-1] >= _FEW
    return (name, reader.name) if wide and op.activation is Activation.NONE else None


def _moved(graph: Graph, move: _Move) -> Graph:
    tensors = dict(graph.tensors)
    taken = {*tensors, *(node.name for node in graph.nodes)}
    before: dict[str, list[Node]] = {}
    renamed: dict[str, str] = {}
    for part, reader in zip(move.parts, move.readers, strict=True):
        name = fresh_name(f"{part}.{move.node.op.kind}", taken)
        tensors[name] = _result(move.node.op, name, tensors[part])
        before.setdefault(reader, []).append(Node(name, move.node.op, (part,), (name,)))
        renamed[part] = name
    nodes = []
    for node in graph.nodes:
        nodes += before.get(node.name, [])
        if node.name in before:
            inputs = tuple(renamed.get(name or "", name) for name in node.inputs)
            node = dataclasses.replace(node, inputs=inputs)
        if node.name == move.concat.name:
            node = dataclasses.replace(node, op=Concat(move.axis), outputs=move.node.outputs)
        if node.name != move.node.name:
            nodes.append(node)
    del tensors[move.concat.outputs[0]]
    return dataclasses.replace(graph, nodes=tuple(nodes), tensors=tensors)


def _result(op: Operator, name: str, x: Tensor) -> Tensor:
    ((shape, dtype),) = op.infer([x])
    return Tensor(name, shape, dtype)
