"""Weights that stay in floats take no more of a file than they did in the model they come from."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from edgekit.host.exporters.halves import as_halves
from edgekit.host.graph.types import DType, Graph, Tensor
from edgekit.host.quantize.rules import WEIGHTED


def is_halved(graph: Graph) -> bool:
    """Whether f16 holds most of the values of a graph's f32 constants: so they were stored."""
    constants = [(t, t.data) for t in graph.tensors.values() if t.dtype is DType.F32]
    halves = sum(t.elements for t, d in constants if d is not None and as_halves(d) is not None)
    return 2 * halves > sum(t.elements for t, d in constants if d is not None)


def with_halves(graph: Graph, coded: Collection[str]) -> Graph:
    """`graph`, the weights of all nodes but those named in `coded` rounded to f16: equalizing has
    made of halves what f16 does not hold. Those beyond its range stay."""
    rounded = dict(graph.tensors)
    for node in graph.nodes:
        if type(node.op) in WEIGHTED and node.name not in coded:
            name = node.inputs[1] or ""
            rounded[name] = _rounded(rounded[name])
    return replace(graph, tensors=rounded)


def _rounded(t: Tensor) -> Tensor:
    if t.data is None or t.dtype is not DType.F32:
        return t
    with np.errstate(over="ignore"):
        values = t.data.astype(np.float16).astype(np.float32)
    return replace(t, data=values) if np.isfinite(values).all() else t
