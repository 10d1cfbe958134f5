"""Values of one byte that are transposed, and quotients that are quantized without a division."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check
from tests.support.op_cases import Case, quant, tensor
from tests.support.op_graphs import graph_of, inputs_of

pytestmark = pytest.mark.cross

_BOARDS = ("a53", "a57", "a7", "rv64gcv")
# Three rows or columns are the channels of a picture; two and four are groups of channels.
_SHAPES = (
    *((1, 3, 700), (2, 513, 3), (7, 2, 58), (3, 4, 300), (2, 58, 2), (1, 3, 5)),
    *((1, 5, 31), (2, 8, 8), (1, 300, 9), (3, 17, 270), (1, 64, 512)),
)
_HALVES = np.arange(-140, 140, dtype=np.float32) + np.float32(0.5)
_ENDS = np.array([3e38, -3e38, np.inf, -np.inf, 1e-42], np.float32)
_VALUES = 5 * _HALVES.size + _ENDS.size
_SCALES = (0.0123, 1 / 3, 1.0, 8388607 / 8388608, 1e-30, 3e25)


def _run(graph, board, inputs, virtual_board, folder):
    release = build(graph, load_board(board), folder / "release")
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    rows = virtual_board(board).run(release, cases, folder)
    check(graph, {n: r[0] for n, r in zip(graph.outputs, rows, strict=True)}, inputs)


@pytest.mark.parametrize("board", _BOARDS)
def test_transposes_of_bytes_move_every_value(board, virtual_board, tmp_path):
    q = quant(0.5)
    cases = [Case(ops.Transpose((0, 2, 1)), (tensor(s, DType.I8, q),), q) for s in _SHAPES]
    graph = graph_of(cases)
    _run(graph, board, inputs_of(graph), virtual_board, tmp_path)


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("board", _BOARDS)
def test_quantized_quotients_are_those_of_a_division(board, even, virtual_board, tmp_path):
    """Around every half (none is zero) and at both ends; scales may underflow or overflow."""
    graph = graph_of(
        [
            Case(ops.Quantize(DType.I8, even), (tensor((_VALUES,)),), quant(scale, 3))
            for scale in _SCALES
        ]
    )
    inputs = {}
    for name, scale in zip(graph.inputs, _SCALES, strict=True):
        near = (_HALVES * np.float32(scale)).view(np.int32)[:, None] + np.arange(-2, 3)
        inputs[name] = np.concatenate([near.astype(np.int32).view(np.float32).ravel(), _ENDS])
    _run(graph, board, inputs, virtual_board, tmp_path)
