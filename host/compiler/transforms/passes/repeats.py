"""Stores large constant operands once along the axes that they repeat on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.types import Array, Graph, Node, Tensor

_LEAST_BYTES = 1 << 14  # smaller constants are not worth a kernel that broadcasts
_MOST_DIMS = 4  # that every kernel broadcasts over


def share_repeats(graph: Graph) -> Graph:
    """Replace constant operands of element-wise operators by parts that broadcast to the same
    values. Files expand masks and zeros to the shape of the tensors that they are added to."""
    tensors, names = dict(graph.tensors), set(graph.tensors)
    nodes = []
    for node in graph.nodes:
        if node.op.elementwise and len(tensors[node.outputs[0]].shape) <= _MOST_DIMS:
            for at, name in enumerate(node.inputs):
                part = _repeated_part(tensors, node, at)
                if part is None:
                    continue
                made = fresh_name(f"{name}.part", names)
                tensors[made] = replace(part, name=made)
                node = replace(node, inputs=(*node.inputs[:at], made, *node.inputs[at + 1 :]))
        nodes.append(node)
    return replace(graph, tensors=tensors, nodes=tuple(nodes))


def _repeated_part(tensors: dict[str, Tensor], node: Node, at: int) -> Tensor | None:
    """A smaller constant that gives the same result as operand `at`, if there is one."""
    operands = [None if name is None else tensors[name] for name in node.inputs]
    whole = operands[at]
    if whole is None or whole.data is None or whole.bytes < _LEAST_BYTES:
        return None
    if whole.quant is not None and whole.quant.per_channel:
        return None
    part, data = whole, whole.data
    for axis, size in enumerate(whole.shape):
        first = _first_of(data, axis) if size > 1 else None
        if first is None:
            continue
        shorter = replace(part, shape=first.shape, data=first)
        operands[at] = shorter
        if node.op.infer(operands)[0][0] == tensors[node.outputs[0]].shape:
            part, data = shorter, first
    return part if part is not whole else None


def _first_of(data: Array, axis: int) -> Array | None:
    """The first of equal slices along an axis; None if they differ in a bit."""
    first = data.take([0], axis)
    bits = np.dtype(f"u{data.itemsize}")
    same = np.array_equal(np.broadcast_to(first.view(bits), data.shape), data.view(bits))
    return first if same else None
