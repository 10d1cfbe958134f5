"""Decides which operators are quantized."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.traits import OnQuantized
from edgekit.host.compiler.ir.types import DType, Graph, Node, Quant, Tensor
from edgekit.host.compiler.transforms.quantize.ranges import quant_of


def fixed_quant(node: Node) -> Quant | None:
    """The quantization that all engines' kernels require for functions with a known range."""
    return None if node.op.fixed_quantization is None else quant_of(*node.op.fixed_quantization)


def computed_floats(graph: Graph, names: tuple[str | None, ...]) -> list[str]:
    """The distinct non-constant f32 tensors among `names`."""
    tensors = graph.tensors
    return [
        name
        for name in dict.fromkeys(names)
        if name and tensors[name].dtype is DType.F32 and tensors[name].data is None
    ]


def can_be_quantized(graph: Graph, node: Node, broken: Collection[str]) -> bool:
    """Whether a float node has a quantized form."""
    tensors = [graph.tensors[name] for name in node.outputs]
    if any(t.dtype is not DType.F32 or t.name in broken for t in tensors):
        return False
    if any(name in broken for name in node.inputs) or not node.inputs or node.inputs[0] is None:
        return False
    on_quantized = node.op.on_quantized
    if on_quantized is OnQuantized.SUMS:
        return has_weights(graph, node)
    if on_quantized.keeps_scale:
        return graph.tensors[node.inputs[0]].data is None
    if on_quantized is not OnQuantized.RESCALES or None in node.inputs:
        return False
    ins = [graph.tensors[name or ""] for name in node.inputs]
    floats = all(t.dtype is DType.F32 for t in ins) and any(t.data is None for t in ins)
    return floats and all(t.data is None or np.isfinite(t.data).all() for t in ins)


def rounded_layers(graph: Graph, floats: Collection[str]) -> set[str]:
    """Names of recurrent layers, except `floats`, whose weights are rounded to 8 bits; they compute
    in float."""
    found = set()
    for node in graph.nodes:
        weights = (
            graph.tensors[node.inputs[1] or ""] if isinstance(node.op, ops.Recurrent) else None
        )
        if weights is not None and weights.data is not None and np.isfinite(weights.data).all():
            found.add(node.name)
    return found - {*floats}


def has_weights(graph: Graph, node: Node) -> bool:
    """Whether weights are f32 constants and nothing but an activation is fused after the sum."""
    if len(node.inputs) > 3 or getattr(node.op, "epilogue", None) is not None:
        return False
    x, w, *bias = [None if name is None else graph.tensors[name] for name in node.inputs]
    constants: list[Tensor] = [t for t in (w, *bias) if t is not None]
    fixed = all(t.data is not None and t.dtype is DType.F32 for t in constants)
    if w is None or not fixed or not all(np.isfinite(t.data).all() for t in constants):  # type: ignore[arg-type]
        return False
    return x is not None and x.data is None and x.dtype is DType.F32


def quantized_nodes(graph: Graph, floats: Collection[str], broken: Collection[str]) -> set[str]:
    """Names of the nodes to quantize, except `floats`.

    Products with weights are quantized wherever possible, other operators if an input is quantized.
    Operators that only move values are also quantized if all their readers are.
    """
    able = [n for n in graph.nodes if n.name not in floats and can_be_quantized(graph, n, broken)]
    chosen = {n.name for n in able if n.op.on_quantized is OnQuantized.SUMS}
    producer, consumers = graph.producer(), graph.consumers()
    grown = True
    while grown:
        grown = False
        for node in able:
            if node.name in chosen:
                continue
            before = [producer.get(name) for name in computed_floats(graph, node.inputs)]
            after = [c for name in node.outputs for c in consumers[name]]
            fed = any(n is not None and n.name in chosen for n in before)
            moves = node.op.on_quantized.keeps_scale and not {*node.outputs} & {*graph.outputs}
            read = moves and bool(after) and all(n.name in chosen for n in after)
            if fed or read:
                chosen.add(node.name)
                grown = True
    return chosen
