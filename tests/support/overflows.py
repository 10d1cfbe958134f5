"""Outputs of a network that depend on an overflow of f32.

LiteRT clamps results of layers without an activation to the finite range of f32; the kit's kernels
keep infinity, as IEEE 754 has it. What follows cannot be compared.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Array, Graph

# Their results are infinite for finite operands only by overflow: divisions and logarithms are
# infinite at a pole, which every peer gives, and padding may be with infinity.
_OVERFLOWING = (
    ops.Add, ops.AveragePool2D, ops.Conv2D, ops.DepthwiseConv2D, ops.DynamicConv2D,
    ops.DynamicFullyConnected, ops.Exp, ops.FullyConnected, ops.MatMul, ops.Mean, ops.Mul,
    ops.Sub, ops.TransposeConv2D,
)  # fmt: skip


def overflows(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, str]:
    """The outputs that depend on an overflow, by the NumPy references, each with the node that
    causes it. `inputs` may have those of other networks."""
    own = {name: inputs[name] for name in graph.inputs}
    values = evaluate(graph, own, keep_tensors=True).tensors
    causes: dict[str, str] = {}
    for node in graph.nodes:
        operands = [name for name in node.inputs if name is not None]
        cause = next((causes[name] for name in operands if name in causes), None)
        if cause is None and isinstance(node.op, _OVERFLOWING):
            finite = all(np.isfinite(values[name]).all() for name in operands)
            count = sum(int(np.isinf(values[name]).sum()) for name in node.outputs)
            if finite and count:
                kind = type(node.op).__name__
                cause = f"{kind} {node.outputs[0]}: {count} infinite values of finite operands"
        if cause is not None:
            causes |= dict.fromkeys(node.outputs, cause)
    return {name: causes[name] for name in graph.outputs if name in causes}
