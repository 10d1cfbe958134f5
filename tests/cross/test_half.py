"""Half precision: models and operators of f16, compiled for A76 and run under qemu."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.compiler import compile_artifact
from edgekit.host.golden.noise import terms_of
from edgekit.host.graph import ops
from edgekit.host.graph.evaluate import evaluate
from edgekit.host.options import CompileOptions
from edgekit.host.passes.half import to_half
from edgekit.host.zoo.cases import Cases
from edgekit.kb.board import load_board
from tests.support.kernel_runs import build
from tests.support.op_graphs import inputs_of, random_graph

pytestmark = pytest.mark.cross
_MODEL = Path(__file__).parents[2] / "models" / "face_detection_short_range.tflite"
_UNIT = 2.0**-11


@pytest.mark.parametrize("family", ["conv_f32", "large_window", "depthwise_f32", "pool"])
def test_operators_of_f16_are_near_the_reference(family, virtual_board, tmp_path):
    graph = to_half(_of_floats(random_graph(family, 24, seed=len(family))), conversion=0)
    assert any(t.dtype.value == "f16" for t in graph.tensors.values())
    inputs = inputs_of(graph)
    folder = build(graph, load_board("a76"), tmp_path / "release")
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    rows = virtual_board("a76").run(folder, cases, tmp_path)
    want, producer = evaluate(graph, inputs).outputs, graph.producer()
    for name, row in zip(graph.outputs, rows, strict=True):
        node = producer[name]
        if isinstance(node.op, ops.Convert):
            node = producer[node.inputs[0]]
        allowed = 8 * _UNIT * terms_of(node, graph.tensors) ** 0.5
        largest = float(np.max(np.abs(want[name])))
        assert np.max(np.abs(row[0] - want[name])) <= allowed * max(largest, 1), name


def test_a_model_in_half_precision_passes_its_health_check(virtual_board, tmp_path):
    made = compile_artifact(_MODEL, load_board("a76"), options=CompileOptions(precision="f16"))
    golden = made.golden
    assert {each["precision"] for each in made.explain["operators"]} == {"f16", "f32"}
    assert made.notes[-1].startswith("half precision: 58 of 60 operators, ")
    (tmp_path / "model.so").write_bytes(made.library)
    (tmp_path / "weights.bin").write_bytes(made.weights)
    cases = Cases(tuple(x[None] for x in golden.inputs), steps=1)
    rows = virtual_board("a76").run(tmp_path, cases, tmp_path)
    for row, want, tolerance in zip(rows, golden.outputs, golden.tolerances, strict=True):
        off, largest = np.max(np.abs(row[0] - want)), np.max(np.abs(want))
        assert 0 < off <= min(tolerance, 0.02 * largest)


def _of_floats(graph):
    """Without what has no kernel for f16, so that all that is left computes in it."""
    nodes = tuple(n for n in graph.nodes if getattr(n.op, "epilogue", None) is None)
    names = {name for n in nodes for name in (*n.inputs, *n.outputs)}
    kept = {
        "inputs": tuple(n for n in graph.inputs if n in names),
        "outputs": tuple(n for n in graph.outputs if n in names),
    }
    tensors = {n: t for n, t in graph.tensors.items() if n in names}
    return dataclasses.replace(graph, nodes=nodes, tensors=tensors, **kept)
