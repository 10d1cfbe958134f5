"""Graphs with branches, and random assignments of their nodes to compute units."""

from __future__ import annotations

import itertools

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, DType, Graph, Node, Tensor

_SHAPE = (1, 5, 7, 8)


def branchy_graph(count: int, seed: int) -> Graph:
    """`count` nodes, each reading one or two earlier tensors; tensors without readers are
    outputs."""
    rng = np.random.default_rng(seed)
    tensors = {"x": Tensor("x", _SHAPE, DType.F32)}
    nodes, unread = [], {"x"}
    for i in range(count):
        known = list(tensors)[-6:]
        a, b = (str(rng.choice([n for n in known if tensors[n].data is None])) for _ in "ab")
        name = f"t{i}"
        kind = rng.integers(4)
        if kind == 0:
            weights = rng.normal(0, 0.3, (8, 1, 1, 8)).astype(np.float32)
            tensors[f"w{i}"] = Tensor(f"w{i}", weights.shape, DType.F32, data=weights)
            nodes.append(Node(name, ops.Conv2D(), (a, f"w{i}", None), (name,)))
            used = {a}
        elif kind == 1:
            nodes.append(Node(name, ops.Clamp(Activation.RELU6), (a,), (name,)))
            used = {a}
        else:
            op = ops.Add() if kind == 2 else ops.Sub()
            nodes.append(Node(name, op, (a, b), (name,)))
            used = {a, b}
        tensors[name] = Tensor(name, _SHAPE, DType.F32)
        unread = (unread - used) | {name}
    outputs = tuple(n for n in tensors if n in unread and n != "x")
    return Graph("branchy", tensors, tuple(nodes), ("x",), outputs)


def random_units(graph: Graph, seed: int) -> tuple[list[list[str]], dict[str, str]]:
    """Subgraphs (contiguous in node order) and a unit for every node."""
    rng = np.random.default_rng(seed)
    names = [node.name for node in graph.nodes]
    cuts = sorted(rng.choice(len(names), size=rng.integers(3), replace=False))
    bounds = [0, *map(int, cuts), len(names)]
    subgraphs = [names[a:b] for a, b in itertools.pairwise(bounds) if a < b]
    kinds = ["cpu", "little", "least"][: int(rng.integers(2, 4))]
    return subgraphs, {name: str(rng.choice(kinds)) for name in names}
