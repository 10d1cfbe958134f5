"""How much an operator has to do: what the cost model multiplies with a unit's speed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from edgekit.host.graph import ops
from edgekit.host.graph.types import DType, Graph, Node

Kind = Literal["matrix", "window", "function", "simple", "move", "none"]

_MATRIX = (ops.Conv2D, ops.FullyConnected, ops.TransposeConv2D, ops.MatMul)
_WINDOW = (ops.DepthwiseConv2D, ops.AveragePool2D, ops.MaxPool2D, ops.ResizeBilinear)
_CURVES = (ops.Function, ops.Logistic, ops.HardSwish, ops.Softmax, ops.Pow, ops.Div)
_MOVES = (
    ops.Transpose, ops.Pad, ops.Concat, ops.Split, ops.StridedSlice, ops.DepthToSpace,
    ops.SpaceToBatch, ops.BatchToSpace, ops.Gather, ops.BroadcastTo, ops.ReadState, ops.WriteState,
)  # fmt: skip
_BILINEAR_TAPS = 4


@dataclass(frozen=True)
class Work:
    """Of one operator: `operations` (multiply-adds, or elements) of a kind in a type, and bytes.

    `loaded` are the bytes of constants, which no other operator has to make first; `moved` those
    of computed tensors, read and written.
    """

    kind: Kind
    dtype: str
    operations: int
    loaded: int
    moved: int


def work_of(graph: Graph, node: Node) -> Work:
    """What `node` has to do; nothing for one that only renames its input."""
    tensors = graph.tensors
    named = [tensors[t] for t in dict.fromkeys((*node.inputs, *node.outputs)) if t is not None]
    loaded = sum(t.bytes for t in named if t.data is not None)
    moved = sum(t.bytes for t in named if t.data is None)
    kind = _kind(node)
    dtypes = [tensors[t].dtype for t in node.inputs if t is not None] or [DType.F32]
    # Weights of 8 bits make a product one of 8 bits, whatever its other operand comes in.
    dtype = min(dtypes[:2], key=lambda d: d.bytes) if kind == "matrix" else dtypes[0]
    if kind == "none":
        return Work(kind, dtype.value, 0, 0, 0)
    return Work(kind, dtype.value, _operations(graph, node), loaded, moved)


def _kind(node: Node) -> Kind:
    for types, kind in (
        (_MATRIX, "matrix"), (_WINDOW, "window"), (_CURVES, "function"), (_MOVES, "move"),
    ):  # fmt: skip
        if isinstance(node.op, types):
            return kind  # type: ignore[return-value]
    return "none" if isinstance(node.op, ops.Reshape) else "simple"


def _operations(graph: Graph, node: Node) -> int:
    out = max((graph.tensors[t].elements for t in node.outputs), default=0)
    shapes = [graph.tensors[t].shape if t is not None else () for t in node.inputs]
    op = node.op
    if isinstance(op, ops.TransposeConv2D):
        return math.prod(shapes[0]) * math.prod(shapes[1][:3])
    if isinstance(op, ops.Conv2D):
        return out * math.prod(shapes[1][1:])
    if isinstance(op, ops.FullyConnected):
        return out * shapes[1][1]
    if isinstance(op, ops.MatMul):
        return out * shapes[0][-1]
    if isinstance(op, ops.DepthwiseConv2D):
        return out * math.prod(shapes[1][1:3])
    if isinstance(op, ops.AveragePool2D | ops.MaxPool2D):
        return out * math.prod(op.window)
    if isinstance(op, ops.ResizeBilinear):
        return out * _BILINEAR_TAPS
    return max([out, *(math.prod(shape) for shape in shapes)])
