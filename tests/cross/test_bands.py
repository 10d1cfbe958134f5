"""Products whose rows exceed the cache are processed in bands of rows, under qemu."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import caches_of, load_board
from tests.support.kernel_runs import build, check
from tests.support.op_cases import Case, constant, tensor
from tests.support.op_graphs import graph_of, inputs_of

pytestmark = pytest.mark.cross

# The last band, tile, panel and step of k are partial.
_ROWS, _DEPTH, _CHANNELS = 131, 1538, 53


def _graph():
    weights = np.random.default_rng(1).standard_normal((_CHANNELS, _DEPTH)).astype(np.float32)
    operands = tensor((_ROWS, _DEPTH)), constant(weights / 64)
    return graph_of([Case(ops.FullyConnected(), operands)])


def test_bands_compute_the_same_with_any_number_of_threads(virtual_board, tmp_path):
    board, graph = load_board("a53"), _graph()
    (call,) = (c for step in lower(graph, board).lowered.steps for c in step.calls)
    band, rows = call.fields["band"], int(dict(call.kernel.macros)["MR"])
    assert call.fields["panel_outer"] == 1
    assert 1 < band < _ROWS // rows
    assert band * rows * _DEPTH * 4 <= caches_of(board).l2 // 2
    inputs = inputs_of(graph)
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    folder = build(graph, board, tmp_path / "release")
    one, three = (virtual_board("a53").run(folder, cases, tmp_path, n)[0] for n in (1, 3))
    check(graph, {graph.outputs[0]: one[0]}, inputs)
    np.testing.assert_array_equal(one, three)


def test_blocks_of_k_compute_the_same_with_any_number_of_threads(virtual_board, tmp_path):
    """Four threads share a block of k: partial sums are kept in y, each owned by one thread's
    tasks."""
    board, graph = load_board("a53"), _graph()
    (call,) = (c for step in lower(graph, board, threads=4).lowered.steps for c in step.calls)
    assert (call.fields["block_outer"], call.fields["band"]) == (1, 0)
    assert 1 < call.grain < call.tasks
    inputs = inputs_of(graph)
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    folder = build(graph, board, tmp_path / "release", threads=4)
    one, four = (virtual_board("a53").run(folder, cases, tmp_path, n)[0] for n in (1, 4))
    check(graph, {graph.outputs[0]: one[0]}, inputs)
    np.testing.assert_array_equal(one, four)
