"""Convolutions with every method of a core match the reference, under qemu."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.cross.conftest import cores
from tests.support.kernel_runs import build
from tests.support.method_cases import every_method
from tests.support.op_graphs import inputs_of
from tests.support.places import few_or_all

pytestmark = pytest.mark.cross


@pytest.mark.parametrize("dtype", few_or_all(["f32", "s8"], ["s8"]))
@pytest.mark.parametrize("name", cores("a53", "a57", "a76", "a720"))
def test_all_methods_compute_what_the_reference_computes(name, dtype, virtual_board, tmp_path):
    board = load_board(name)
    graph, table, _ = every_method(board, dtype)
    inputs = inputs_of(graph)
    folder = build(graph, board, tmp_path / "release", table=table)
    cases = Cases(tuple(inputs[n][None] for n in graph.inputs), steps=1)
    rows = virtual_board(name).run(folder, cases, tmp_path)
    want = evaluate(graph, inputs).outputs
    for output, row in zip(graph.outputs, rows, strict=True):
        if dtype == "s8":
            np.testing.assert_array_equal(row[0], want[output])
        else:
            np.testing.assert_allclose(row[0], want[output], atol=1e-3, err_msg=output)
