"""Models whose inputs and outputs are f16: results are made of f32."""

from __future__ import annotations

from dataclasses import replace

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Tensor
from edgekit.host.compiler.tasks.prepared import free_name


def widened(graph: Graph) -> Graph:
    """The graph with f32 inputs and outputs instead of f16 ones, which have the same values."""
    half = [n for n in (*graph.inputs, *graph.outputs) if graph.tensors[n].dtype is DType.F16]
    inner = {name: free_name(graph, f"{name}/half") for name in half}
    if not inner:
        return graph
    tensors = dict(graph.tensors)
    for name, own in inner.items():
        tensors[own] = replace(tensors[name], name=own)
        tensors[name] = Tensor(name, tensors[name].shape, DType.F32)
    first, last = (
        [n for n in dict.fromkeys(names) if n in inner] for names in (graph.inputs, graph.outputs)
    )
    nodes = (
        *(
            Node(free_name(graph, f"{n}/narrow"), ops.Convert(DType.F16), (n,), (inner[n],))
            for n in first
        ),
        *(
            replace(
                node,
                inputs=tuple(n if n is None else inner.get(n, n) for n in node.inputs),
                outputs=tuple(inner.get(n, n) for n in node.outputs),
            )
            for node in graph.nodes
        ),
        *(
            Node(free_name(graph, f"{n}/wide"), ops.Convert(DType.F32), (inner[n],), (n,))
            for n in last
            if n not in first
        ),
    )
    return replace(graph, tensors=tensors, nodes=nodes)
