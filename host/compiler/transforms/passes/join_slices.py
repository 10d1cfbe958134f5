"""Joins the slices of a tensor that a concatenation puts side by side again, as in the CSP blocks
of detectors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.host.compiler.ir.ops import Concat, Split, StridedSlice
from edgekit.host.compiler.ir.quantization import same_quantization
from edgekit.host.compiler.ir.types import Graph, Node
from edgekit.host.compiler.transforms.passes.rewrite import Users, until_stable


@dataclass(frozen=True)
class _Slice:
    """Elements `begin` to `end` of an axis of `source`, and all of its other axes."""

    source: str
    begin: int
    end: int


def join_slices(graph: Graph) -> Graph:
    """Concatenate a tensor instead of all its slices, and do not copy parts that nothing reads."""

    def match(users: Users, node: Node) -> dict[str, Node | None] | None:
        if isinstance(node.op, Concat):
            inputs = _joined(users, node.inputs, node.op.axis)
            return None if inputs is None else {node.name: dataclasses.replace(node, inputs=inputs)}
        if isinstance(node.op, Split):
            return _only_part(users, node)
        return None

    return until_stable(graph, match)


def _joined(users: Users, names: Sequence[str | None], axis: int) -> tuple[str | None, ...] | None:
    """The inputs of a concatenation with sources in place of their slices; None if they stay."""
    tensors = users.graph.tensors
    found: list[str | None] = []
    at = 0
    while at < len(names):
        count, first = 0, _slice(users, names[at], axis)
        if first is not None and first.begin == 0:
            size, end = tensors[first.source].shape[axis], 0
            for count, name in enumerate(names[at:], 1):
                piece = _slice(users, name, axis)
                if piece is None or (piece.source, piece.begin) != (first.source, end):
                    count = 0
                    break
                end = piece.end
                if end == size:
                    break
            count = count if end == size else 0
        found.append(first.source if first is not None and count else names[at])
        at += max(count, 1)
    return tuple(found) if 1 < len(found) < len(names) else None


def _slice(users: Users, name: str | None, axis: int) -> _Slice | None:
    """The slice of an axis that a tensor is, if its values are stored as its source's are."""
    node = users.producer.get(name or "")
    if node is None or not isinstance(node.op, Split | StridedSlice):
        return None
    source, part = (users.graph.tensors[t or ""] for t in (node.inputs[0], name))
    if not same_quantization(source, part):
        return None
    op = node.op
    if isinstance(op, Split):
        at = node.outputs.index(part.name)
        begin, size = sum(op.sizes[:at]), op.sizes[at]
        return _Slice(source.name, begin, begin + size) if op.axis == axis else None
    others = source.shape[:axis] + source.shape[axis + 1 :]
    entire = op.extent[:axis] + op.extent[axis + 1 :] == others
    if axis >= len(op.begin) or not entire or {*op.stride} != {1} or op.shape != op.extent:
        return None
    return _Slice(source.name, op.begin[axis], op.begin[axis] + op.extent[axis])


def _only_part(users: Users, node: Node) -> dict[str, Node | None] | None:
    """A slice instead of a split of which only one part is read."""
    assert isinstance(node.op, Split)
    read = [name for name in node.outputs if users.is_read(name)]
    if len(read) != 1 or len(node.outputs) == 1:
        return None
    source, part = (users.graph.tensors[name or ""] for name in (node.inputs[0], read[0]))
    begin = [0] * len(source.shape)
    begin[node.op.axis] = sum(node.op.sizes[: node.outputs.index(part.name)])
    ones = (1,) * len(source.shape)
    op = StridedSlice(tuple(begin), ones, part.shape, part.shape)
    return {node.name: dataclasses.replace(node, op=op, outputs=(part.name,))}
