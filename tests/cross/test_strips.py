"""Depthwise convolutions whose rows exceed L1 are tiled by columns, under qemu."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Padding
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check
from tests.support.op_cases import Case, constant, quant, tensor
from tests.support.op_graphs import graph_of, inputs_of
from tests.support.places import few_or_all

pytestmark = pytest.mark.cross

# Image height and width, channels, window size, stride: the last strip, tile, channel block and row
# are partial.
_FLOATS = ((5, 131, 37, 3, 1), (7, 130, 42, 5, 2), (4, 99, 50, 3, 2))
_CODES = ((5, 259, 75, 3, 1), (7, 262, 90, 5, 2))
_PAD = Padding(1, 1, 1, 1)


def _floats(height, width, channels, window, stride):
    weights = np.random.default_rng(1).standard_normal((1, window, window, channels))
    op = ops.DepthwiseConv2D((stride, stride), padding=_PAD)
    return Case(op, (tensor((2, height, width, channels)), constant(weights)))


def _codes(height, width, channels, window, stride):
    weights = np.random.default_rng(1).integers(-127, 128, (1, window, window, channels))
    op, x = ops.DepthwiseConv2D((stride, stride), padding=_PAD), (2, height, width, channels)
    inputs = tensor(x, DType.I8, quant(0.1, 3)), constant(weights, DType.I8, quant(0.01))
    return Case(op, (*inputs, None), quant(0.5, -4))


def _strips(graph, board):
    calls = [c for step in lower(graph, board).lowered.steps for c in step.calls]
    return [call.fields["strip"] for call in calls if "strip" in call.fields]


@pytest.mark.parametrize("name", few_or_all(["a57", "a53", "a7"], ["a57"]))
def test_strips_compute_the_same_as_whole_rows(name, virtual_board, tmp_path):
    board = load_board(name)
    unknown = dataclasses.replace(board, core="")  # full rows
    cases = [*(_floats(*form) for form in _FLOATS), *(_codes(*form) for form in _CODES)]
    for i, case in enumerate(cases):
        graph = graph_of([case])
        ((strip,), (whole,)) = (_strips(graph, b) for b in (board, unknown))
        assert 1 <= strip < whole // 2, case
        inputs = inputs_of(graph)
        given = Cases(tuple(inputs[n][None] for n in graph.inputs), steps=1)
        made = [
            virtual_board(name).run(build(graph, b, tmp_path / f"{i}{b.core}"), given, tmp_path, t)
            for b, t in ((board, 1), (board, 3), (unknown, 1))
        ]
        check(graph, {graph.outputs[0]: made[0][0][0]}, inputs)
        for other in made[1:]:
            np.testing.assert_array_equal(made[0][0], other[0])


def test_several_channel_blocks_at_once_are_right_on_threads_too(virtual_board, tmp_path):
    """Partial tiles at the right, a row left over, and a group that overlaps its predecessor."""
    board = load_board("a57")
    graph = graph_of([_floats(5, 11, 172, 3, 1), _floats(4, 10, 256, 5, 2)])
    assert all("_blocks_" in step.kernel for step in lower(graph, board).lowered.steps)
    inputs = inputs_of(graph)
    given = Cases(tuple(inputs[n][None] for n in graph.inputs), steps=1)
    release = build(graph, board, tmp_path / "m")
    one, three = (virtual_board("a57").run(release, given, tmp_path, t) for t in (1, 3))
    check(graph, dict(zip(graph.outputs, (y[0] for y in one), strict=True)), inputs)
    for a, b in zip(one, three, strict=True):
        np.testing.assert_array_equal(a, b)
