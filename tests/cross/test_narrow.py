"""Weights stored as f16 or 8 bits are widened exactly on every core, under qemu."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check
from tests.support.narrow_cases import channels_first_cases, narrow_cases, subnormal_cases
from tests.support.op_cases import Case
from tests.support.op_graphs import graph_of, inputs_of
from tests.support.places import few_or_all

pytestmark = pytest.mark.cross


@pytest.mark.parametrize(
    "core", few_or_all(["a57", "a53", "a7", "rv64gc", "rv64gcv", "bpi-f3"], ["a57"])
)
def test_kernels_widen_weights_exactly(core, virtual_board, tmp_path):
    kinds = ("f16", "s8")
    _agree(
        [c for k in kinds for c in (*narrow_cases(k), *channels_first_cases(k))],
        core,
        virtual_board,
        tmp_path,
    )


@pytest.mark.parametrize("core", few_or_all(["a57", "a7", "rv64gc", "rv64gcv"], ["a7"]))
def test_subnormal_weights_are_not_zero(core, virtual_board, tmp_path):
    """Sparse layers of an A7 took them for zero, which cost a pose detector two digits."""
    _agree(subnormal_cases(), core, virtual_board, tmp_path, 2.0**18)


def _agree(
    cases: list[Case], core: str, virtual_board: Any, tmp_path: Path, scale: float = 1.0
) -> None:
    graph = graph_of(cases)
    inputs = {n: x * x.dtype.type(scale) for n, x in inputs_of(graph).items()}
    folder = build(graph, load_board(core), tmp_path / "release", threads=2)
    runs = Cases(tuple(inputs[n][None] for n in graph.inputs), steps=1)
    rows = virtual_board(core).run(folder, runs, tmp_path, 2)
    check(graph, {n: row[0] for n, row in zip(graph.outputs, rows, strict=True)}, inputs)
