"""ONNX operators that order values."""

from __future__ import annotations

from edgekit.host.graph import ops
from edgekit.host.graph.types import Tensor
from edgekit.host.importers.onnx_call import Call


def top_k(call: Call) -> list[Tensor]:
    """[values, indices]; always sorted, which `sorted` = 0 allows."""
    x = call.x(0)
    axis = call.axis(call.integer("axis", -1), len(x.shape))
    k = call.single(1, "k") if call.opset >= 10 else call.integer("k")
    op = ops.TopK(k, not call.integer("largest", 1))
    made = call.builder.emit_all(op, [call.last(x, axis)], x.quant)
    return [call.back(t, axis) for t in made]
