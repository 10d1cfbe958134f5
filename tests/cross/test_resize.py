"""Bilinear resizing of quantized images: places are rounded as LiteRT rounds them, on every
processor."""

from __future__ import annotations

import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.cross.conftest import cores
from tests.support.kernel_runs import build, check, run_here, x86_params
from tests.support.op_cases import Case, quant, tensor
from tests.support.op_graphs import graph_of, inputs_of


def _graph():
    """Sizes whose scale is no binary fraction."""
    pairs = [(12, 18), (7, 17), (11, 14), (9, 15), (13, 39), (14, 21)]
    return graph_of(
        [
            Case(
                ops.ResizeBilinear((rows, columns), half_pixel_centers=True),
                (tensor((1, height, width, 16), DType.U8, quant(0.03, 116)),),
            )
            for height, rows in pairs
            for width, columns in pairs
        ]
    )


@pytest.mark.parametrize("board", x86_params())
def test_places_equal_the_reference(board, tmp_path):
    graph = _graph()
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, board, tmp_path), inputs), inputs)


@pytest.mark.cross
@pytest.mark.parametrize("board", cores("a57", "a7", "rv64gcv"))
def test_places_equal_the_reference_on_other_cores(board, virtual_board, tmp_path):
    graph = _graph()
    inputs = inputs_of(graph)
    folder = build(graph, load_board(board), tmp_path / "release")
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    rows = virtual_board(board).run(folder, cases, tmp_path)
    check(graph, {n: r[0] for n, r in zip(graph.outputs, rows, strict=True)}, inputs)
