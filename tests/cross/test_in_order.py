"""Tiles whose loads and products are ordered by hand."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Padding, Tensor
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.cross.conftest import CPUS, half_board
from tests.support.half_graphs import check_half, in_half
from tests.support.kernel_runs import build, check
from tests.support.op_cases import Case, constant, tensor
from tests.support.op_graphs import graph_of, inputs_of
from tests.support.places import few_or_all

pytestmark = pytest.mark.cross


def _weights(*shape: int) -> Tensor:
    return constant(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32))


@pytest.mark.parametrize(
    ("core", "half"),
    few_or_all(
        [("a53", False), ("a55", False), ("a55", True), ("a57", False)],
        [("a53", False), ("a55", True), ("a57", False)],
    ),
)
def test_sums_of_any_length_are_near_the_reference(virtual_board, tmp_path, core, half):
    """35 and 36 pixels are tiles of six or eight rows and a rest, which may be a tile of four;
    channels are full and partial panels."""
    cases = [
        Case(ops.Conv2D(), (tensor((1, 5, 7, k)), _weights(32, 1, 1, k)))
        for k in (1, 3, 4, 7, 8, 9, 16, 43, 64, 70)
    ]
    cases += [Case(ops.Conv2D(), (tensor((1, 6, 6, k)), _weights(20, 1, 1, k))) for k in (4, 8, 43)]
    around = ops.Conv2D(padding=Padding(1, 1, 1, 1))
    cases.append(Case(around, (tensor((2, 5, 7, 24)), _weights(19, 3, 3, 24))))
    point = (tensor((1, 5, 7, 8)), _weights(20, 1, 1, 8))  # rows of two vectors, of one
    cases += [Case(ops.Conv2D(epilogue=end), point) for end in (ops.Silu(), ops.Logistic())]
    graph = in_half(graph_of(cases)) if half else graph_of(cases)
    board, inputs = half_board(core) if half else load_board(core), inputs_of(graph)
    folder = build(graph, board, tmp_path / "release")
    given = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    rows = virtual_board(core, CPUS["a76" if core == "a55" else core]).run(folder, given, tmp_path)
    made = {n: r[0] for n, r in zip(graph.outputs, rows, strict=True)}
    (check_half if half else check)(graph, made, inputs)
