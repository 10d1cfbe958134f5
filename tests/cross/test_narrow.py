"""Weights stored as f16 or 8 bits are widened exactly on every core, under qemu."""

from __future__ import annotations

import pytest

from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check
from tests.support.narrow_cases import channels_first_cases, narrow_cases
from tests.support.op_graphs import graph_of, inputs_of
from tests.support.places import few_or_all

pytestmark = pytest.mark.cross


@pytest.mark.parametrize(
    "core", few_or_all(["a57", "a53", "a7", "rv64gc", "rv64gcv", "bpi-f3"], ["a57"])
)
def test_kernels_widen_weights_exactly(core, virtual_board, tmp_path):
    graph = graph_of(
        [c for k in ("f16", "s8") for c in (*narrow_cases(k), *channels_first_cases(k))]
    )
    inputs = inputs_of(graph)
    folder = build(graph, load_board(core), tmp_path / "release", threads=2)
    runs = Cases(tuple(inputs[n][None] for n in graph.inputs), steps=1)
    rows = virtual_board(core).run(folder, runs, tmp_path, 2)
    check(graph, {n: row[0] for n, row in zip(graph.outputs, rows, strict=True)}, inputs)
