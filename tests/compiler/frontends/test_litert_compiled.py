"""TensorFlow Lite operators as imported, compiled and run on this machine.

The neighboring tests compare the references with LiteRT; this one compares kernels with the
references on the same files, with all operators of a table in one library.
"""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pytest

from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.quantization import quantized_range
from edgekit.host.compiler.ir.types import Graph, Node, Operator
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check, run_here

pytestmark = pytest.mark.slow

_TABLES = ("operators", "recurrent", "scales")
_OTHERS = (
    "moves", "blocks", "bounded", "boxes", "quantized_recurrent", "fourier", "index", "micro",
    "packed", "stablehlo", "stablehlo_index", "types", "wide",
)  # fmt: skip


def _named(graph: Graph, prefix: str) -> Graph:
    """The graph with `prefix` prepended to all names."""

    def names(of):
        return tuple(None if name is None else prefix + name for name in of)

    def op(old: Operator) -> Operator:
        if isinstance(old, ops.ReadState | ops.WriteState):
            return dataclasses.replace(old, state=prefix + old.state)
        return old

    nodes = (
        Node(prefix + n.name, op(n.op), names(n.inputs), names(n.outputs)) for n in graph.nodes
    )
    return Graph(
        graph.name,
        {prefix + n: dataclasses.replace(t, name=prefix + n) for n, t in graph.tensors.items()},
        tuple(nodes),
        names(graph.inputs),
        names(graph.outputs),
        {prefix + n: dataclasses.replace(s, name=prefix + n) for n, s in graph.states.items()},
    )  # fmt: skip


def _together(graphs: list[Graph]) -> Graph:
    parts = [_named(graph, f"g{i}_") for i, graph in enumerate(graphs)]
    return Graph(
        "together",
        {name: t for part in parts for name, t in part.tensors.items()},
        tuple(node for part in parts for node in part.nodes),
        tuple(name for part in parts for name in part.inputs),
        tuple(name for part in parts for name in part.outputs),
        {name: s for part in parts for name, s in part.states.items()},
    )


def _inputs(graph: Graph):
    rng = np.random.default_rng(1)
    made = {}
    for name in graph.inputs:
        t = graph.tensors[name]
        if t.dtype.is_float:
            value = rng.uniform(0.1, 3, t.shape)
        elif t.is_quantized:
            low, high = quantized_range(t.dtype)
            value = rng.integers(low, high + 1, t.shape)
        else:
            value = rng.integers(0, 2 if t.dtype.numpy == np.bool_ else 5, t.shape)
        made[name] = value.astype(t.dtype.numpy)
    return made


@pytest.mark.parametrize(
    "table", [*_TABLES, *(pytest.param(t, marks=pytest.mark.exhaustive) for t in _OTHERS)]
)
def test_kernels_equal_the_references(files, table, tmp_path):
    module = importlib.import_module(f"tests.compiler.frontends.test_litert_{table}")
    imported = [graph_from_tflite(content, "m") for content in module.contents(files)]
    graph = _together([run_passes(one)[0] for one in imported if one.inputs])
    inputs = _inputs(graph)
    outputs = run_here(build(graph, load_board("local"), tmp_path / "release"), inputs)
    check(graph, outputs, inputs)
