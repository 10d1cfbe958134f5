"""Multiplies by the reciprocal of a constant divisor, which is faster, except in front of a step.

49 · (1 / 49) is below 1 in f32: behind it, rounding, casts and comparisons would see another
integer. In front of sums and functions the difference is one rounding.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from edgekit.host.compiler.ir.exact import is_power_of_two
from edgekit.host.compiler.ir.ops import Div, Mul, Quantize
from edgekit.host.compiler.ir.traits import Arithmetic
from edgekit.host.compiler.ir.types import DType, Graph, Node
from edgekit.host.compiler.transforms.passes.rewrite import Users, rewrite

_LEAST = 1e-30  # smaller divisors have no accurate reciprocal
_SUMS = (Arithmetic.SUMMED, Arithmetic.QUANTIZED)


def use_reciprocals(graph: Graph) -> Graph:
    """Replace f32 divisions by constants by multiplications."""
    stepping = _tensors_before_steps(graph)

    def match(users: Users, node: Node) -> dict[str, Node | None] | None:
        divisor = graph.tensors[node.inputs[1] or ""] if isinstance(node.op, Div) else None
        if divisor is None or divisor.data is None or divisor.dtype is not DType.F32:
            return None
        if not np.all(np.abs(divisor.data) > _LEAST):
            return None
        if node.outputs[0] in stepping and not is_power_of_two(divisor.data):
            return None
        inverse = np.asarray(np.float32(1) / divisor.data)
        name = users.constant(f"{divisor.name}.reciprocal", divisor, inverse)
        return {node.name: dataclasses.replace(node, op=Mul(), inputs=(node.inputs[0], name))}

    return rewrite(graph, match)


def _tensors_before_steps(graph: Graph) -> set[str]:
    """Tensors from whose values a step is reached without a sum in between. Quantization is none:
    quantized kernels replace it and the functions before it."""
    found: set[str] = set()
    for node in reversed(graph.nodes):
        ins = [graph.tensors[name].dtype for name in node.inputs if name is not None]
        ends = not all(graph.tensors[name].dtype.is_float for name in node.outputs)
        ends = ends and any(dtype.is_float for dtype in ins) and not isinstance(node.op, Quantize)
        passes_on = node.op.arithmetic not in _SUMS and not found.isdisjoint(node.outputs)
        if node.op.jumps or ends or passes_on:
            found |= {name for name in node.inputs if name is not None}
    return found
