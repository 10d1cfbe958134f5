"""8-bit additions tested on every pair of quantized values."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, Array, DType, Graph, Shape
from tests.support.op_cases import Case, quant, tensor
from tests.support.op_graphs import graph_of

# Scales of a, b and y: typical ones, and ones for which sums are ties.
_SCALES = [
    (0.0121, 0.0273, 0.0301),
    (0.5, 0.031, 0.27),
    (0.002, 0.9, 0.7),
    (1.0, 1.0, 2.0),
    (1e-7, 2e-7, 0.3),
    (14.5, 14.9, 1.0),
]


def sums_graph(shape: Shape) -> Graph:
    """An addition for each set of scales, without and with an activation."""
    cases = []
    for number, (a, b, y) in enumerate(_SCALES):
        for activation in (Activation.NONE, Activation.RELU):
            dtype, zero = (DType.I8, -5) if number % 2 else (DType.U8, 130)
            xs = tensor(shape, dtype, quant(a, zero)), tensor(shape, dtype, quant(b, zero - 9))
            cases.append(Case(ops.Add(activation), xs, quant(y, zero + 4)))
    return graph_of(cases)


def every_pair(graph: Graph) -> dict[str, Array]:
    """All 256 x 256 pairs of values as inputs of a graph of binary operators."""
    inputs = {}
    for name in graph.inputs:
        info = np.iinfo(graph.tensors[name].dtype.numpy)
        stored = np.arange(info.min, info.max + 1).astype(info.dtype)
        pairs = np.meshgrid(stored, stored, indexing="ij")
        inputs[name] = pairs[int(name.endswith("in1"))].copy()
    return inputs
