"""8-bit additions on ARM: every pair of values, and sizes that are not a multiple of 16."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check
from tests.support.op_graphs import inputs_of
from tests.support.places import few_or_all
from tests.support.sums import every_pair, sums_graph

pytestmark = pytest.mark.cross


@pytest.mark.parametrize(
    ("board", "shape"),
    few_or_all(
        itertools.product(("a53", "a7"), ((256, 256), (3, 37, 41))),
        [("a53", (3, 37, 41)), ("a7", (256, 256))],
    ),
)
def test_every_pair_of_quantized_values_has_the_sum_of_the_reference(
    shape, board, virtual_board, tmp_path
):
    graph = sums_graph(shape)
    inputs = every_pair(graph) if shape == (256, 256) else inputs_of(graph)
    folder = build(graph, load_board(board), tmp_path / "release")
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    rows = virtual_board(board).run(folder, cases, tmp_path)
    check(graph, {n: r[0] for n, r in zip(graph.outputs, rows, strict=True)}, inputs)
    assert np.all([r.shape[0] == 1 for r in rows])
