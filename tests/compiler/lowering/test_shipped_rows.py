"""The tables that edgekit ships affect compilation: removing a row changes the code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.host.compiler.driver import prepare
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.lowering.compiled import CompiledProduct
from edgekit.host.compiler.options import DEFAULT_OPTIONS
from edgekit.host.compiler.tables.gemm import kit_table
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase, OperatorRow
from edgekit.kb.targets.board import load_board
from tests.support.places import few_or_all

_MODELS = Path(__file__).parents[3] / "models"
_USUAL = ("face_detection_short_range", "selfie_segmentation", "face_detection_back")
_BOARDS = ("rpi3", "rk3566", "jetson-nano", "rpi4", "orangepi-pc", "rpi5", "bpi-f3")


def _compiled(model: str, board: str, table: KnowledgeBase) -> dict[str, CompiledProduct]:
    """The compiled operators, by name."""
    profile = load_board(board)
    made = prepare(_MODELS / f"{model}.tflite", profile)
    _, plan = plan_of(made.graph, profile, replace(DEFAULT_OPTIONS, threads=1), table=table)
    return {step.name: step.compiled for step in plan.lowered.steps if step.compiled is not None}


@pytest.mark.slow
@pytest.mark.parametrize("board", few_or_all(_BOARDS, _BOARDS[::2]))
def test_without_a_row_another_kernel_is_called(board: str) -> None:
    table = kit_table(load_board(board))
    assert table is not None
    for model in _USUAL:
        before = _compiled(model, board, table)
        for name, each in before.items():
            row, usual = each.choice.row, each.choice.default
            if isinstance(row, OperatorRow) and usual and usual.method != each.method:
                rows = tuple(r for r in table.operators if r != row)
                assert len(rows) == len(table.operators) - 1
                after = _compiled(model, board, replace(table, operators=rows))
                if after[name].kernel != each.kernel:
                    return
    pytest.fail(f"no model of {', '.join(_USUAL)} calls another kernel without some row of {board}")
