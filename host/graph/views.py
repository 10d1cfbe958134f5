"""Which tensors share memory: what is only another view of the same bytes is not made anew."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from edgekit.host.graph import ops
from edgekit.host.graph.ops.layout import concat_rescale
from edgekit.host.graph.types import Graph, Node, Tensor


def view_sources(tensors: Mapping[str, Tensor], node: Node) -> dict[str, str]:
    """Output → input, where `node` makes no more than another view of that input."""
    op = node.op
    source = node.inputs[0] if node.inputs else None
    if source is None:
        return {}
    if isinstance(op, ops.Reshape):
        return {node.outputs[0]: source}
    if isinstance(op, ops.StridedSlice) and op.is_run(tensors[source].shape):
        return {node.outputs[0]: source}
    if isinstance(op, ops.Split) and math.prod(tensors[source].shape[: op.axis]) == 1:
        return dict.fromkeys(node.outputs, source)
    return {}


def joins_runs(node: Node, out: Tensor) -> bool:
    """Whether `node` only puts tensors one behind the other."""
    return isinstance(node.op, ops.Concat) and math.prod(out.shape[: node.op.axis]) == 1


def can_be_made_inside(graph: Graph, base: str, part: Tensor, whole: Tensor) -> bool:
    """Whether `part`, all of which is in the memory of tensor `base`, can be made within the join
    `whole` to begin with.

    Not what is elsewhere already (inputs, outputs, constants, views of part of a tensor), or what
    has other codes.
    """
    held = graph.tensors.get(base)
    if held is None or held.data is not None or held.bytes != part.bytes:
        return False
    if base in graph.inputs or base in graph.outputs:
        return False
    return not part.dtype.is_quantized or _same_codes(part, whole)


def _same_codes(x: Tensor, y: Tensor) -> bool:
    codes = np.arange(256, dtype=np.uint8).view(x.dtype.numpy)
    return bool(np.array_equal(concat_rescale(codes, x, y), codes))


def memory_bases(graph: Graph) -> dict[str, str]:
    """For each tensor that is not a constant: the tensor whose memory it is in, often its own."""
    found: dict[str, str] = {}

    def base(name: str) -> str:
        while name in found:
            name = found[name]
        return name

    for node in graph.nodes:
        found.update(view_sources(graph.tensors, node))
        whole = graph.tensors[node.outputs[0]] if node.outputs else None
        if whole is None or not joins_runs(node, whole):
            continue
        for name in node.inputs:
            if name is None:
                continue
            held = base(name)
            if held != whole.name and can_be_made_inside(graph, held, graph.tensors[name], whole):
                found[held] = whole.name
    return {t.name: base(t.name) for t in graph.tensors.values() if t.data is None}
