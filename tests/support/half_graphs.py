"""Graphs whose operators compute in half precision."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from edgekit.host.compiler.golden.noise import terms_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Array, DType, Graph
from edgekit.host.compiler.ir.views import view_sources
from edgekit.host.compiler.transforms.passes.half import to_half

UNIT = 2.0**-11  # unit roundoff of f16
HALF_FAMILIES = (
    "conv_f32", "large_window", "depthwise_f32", "depthwise_windows", "pool", "binary", "unary",
    "mean", "softmax", "resize", "movement", "dense_f32", "transpose_conv", "matmul",
    "viewed_matmul", "layer_norm", "softmax_mean", "recurrent",
)  # fmt: skip


def in_half(graph: Graph) -> Graph:
    """Convert `graph` so that only conversions, and what only moves its inputs, use f32."""
    made = to_half(_of_floats(graph), conversion=0)
    moves = ("convert", "transpose")
    computed = [n for n in made.nodes if not (n.op.kind in moves or view_sources(made.tensors, n))]
    assert {made.tensors[n.outputs[0]].dtype for n in computed} == {DType.F16}
    return made


def check_half(graph: Graph, made: Mapping[str, Array], inputs: dict[str, Array]) -> None:
    """Outputs match the reference within the rounding error of f16 sums."""
    want, producer = evaluate(graph, inputs).outputs, graph.producer()
    for name in graph.outputs:
        node = producer[name]
        if isinstance(node.op, ops.Convert):
            node = producer[node.inputs[0]]
        allowed = 8 * UNIT * terms_of(node, graph.tensors) ** 0.5
        largest = float(np.max(np.abs(want[name])))
        assert np.max(np.abs(made[name] - want[name])) <= allowed * max(largest, 1), name


def _of_floats(graph: Graph) -> Graph:
    """Drop operators without an f16 kernel, so that all remaining ones compute in f16."""
    names = {n for n, t in graph.tensors.items() if t.dtype is not DType.F32}
    nodes = tuple(
        n
        for n in graph.nodes
        if isinstance(n.op, ops.Recurrent) or names.isdisjoint((*n.inputs, *n.outputs))
    )
    names = {name for n in nodes for name in (*n.inputs, *n.outputs)}
    kept = {
        "inputs": tuple(n for n in graph.inputs if n in names),
        "outputs": tuple(n for n in graph.outputs if n in names),
    }
    tensors = {n: t for n, t in graph.tensors.items() if n in names}
    return dataclasses.replace(graph, nodes=nodes, tensors=tensors, **kept)
