"""Every kernel, compiled for each board's core and run under qemu, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.zoo.cases import Cases
from edgekit.kb.board import load_board
from tests.support.kernel_runs import build, check
from tests.support.op_graphs import FAMILIES, inputs_of, random_graph

pytestmark = pytest.mark.cross


@pytest.mark.parametrize("board", ["a57", "a76", "a7", "rv64gc", "rv64gcv"])
@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_equal_the_reference(family, board, virtual_board, tmp_path):
    graph = random_graph(family, 16, seed=len(family) + 1)
    inputs = inputs_of(graph)
    folder = build(graph, load_board(board), tmp_path / "release")
    cases = Cases(tuple(inputs[name][None] for name in graph.inputs), steps=1)
    rows = virtual_board(board).run(folder, cases, tmp_path)
    check(graph, {n: r[0] for n, r in zip(graph.outputs, rows, strict=True)}, inputs)
    assert np.all([r.shape[0] == 1 for r in rows])
