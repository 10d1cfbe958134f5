"""Additions of bytes whose every pair of codes is computed."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, Array, DType, Graph, Shape
from tests.support.op_cases import Case, quant, tensor
from tests.support.op_graphs import graph_of

# Scales of a, b and y: as models have them, and such that sums lie halfway between codes.
_SCALES = [
    (0.0121, 0.0273, 0.0301),
    (0.5, 0.031, 0.27),
    (0.002, 0.9, 0.7),
    (1.0, 1.0, 2.0),
    (1e-7, 2e-7, 0.3),
    (14.5, 14.9, 1.0),
]


def sums_graph(shape: Shape) -> Graph:
    """An addition for each of the scales, without and with an activation."""
    cases = []
    for number, (a, b, y) in enumerate(_SCALES):
        for activation in (Activation.NONE, Activation.RELU):
            dtype, zero = (DType.I8, -5) if number % 2 else (DType.U8, 130)
            xs = tensor(shape, dtype, quant(a, zero)), tensor(shape, dtype, quant(b, zero - 9))
            cases.append(Case(ops.Add(activation), xs, quant(y, zero + 4)))
    return graph_of(cases)


def every_pair(graph: Graph) -> dict[str, Array]:
    """Inputs of 256 x 256 codes for a graph of two-input operators."""
    inputs = {}
    for name in graph.inputs:
        info = np.iinfo(graph.tensors[name].dtype.numpy)
        codes = np.arange(info.min, info.max + 1).astype(info.dtype)
        pairs = np.meshgrid(codes, codes, indexing="ij")
        inputs[name] = pairs[int(name.endswith("in1"))].copy()
    return inputs
