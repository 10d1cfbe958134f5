"""Instruction counts of products on virtual boards with the knowledge base's method.

Recorded in gemm_instructions.json (EDGEKIT_RECORD=1 writes it).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.host import connect
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.lab.bench.gemm import DTYPES, measure_cases
from edgekit.host.lab.bench.gemm_cases import GemmCase, standard_cases
from edgekit.host.lab.tune.measure import BoardMeasurer
from edgekit.host.virtual import BoardOptions, down, up
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import load_board
from tests.support.counted_on_board import compare

pytestmark = [pytest.mark.boards, pytest.mark.long]

_RECORD = Path(__file__).with_name("gemm_instructions.json")
_LARGEST_SQUARE = 256
_LANES = 4  # multiply-adds per 128-bit fmla
_HOT = (GemmShape(m=256, k=256, n=256), GemmShape(m=128, k=1152, n=784))


def _cases() -> list[GemmCase]:
    """Squares small enough for an emulator to run in seconds, and all products of networks."""
    cases = standard_cases(random_count=0)
    return [c for c in cases if c.group != "square" or c.shape.m <= _LARGEST_SQUARE]


@pytest.mark.parametrize("name", ["a53", "a57", "rv64v"])
def test_instructions_of_products_are_as_recorded(name, own_home):
    up(name, options=BoardOptions(counting=True))
    try:
        device = connect(name)
        board = load_board(device.profile)
        found = measure_cases(
            [(case, dtype) for dtype in DTYPES for case in _cases()],
            board,
            table_of(board),
            1,
            BoardMeasurer(device, board, emulated=True),
            lambda done, total: None,
        )
    finally:
        down(name)
    counts = {_name(each.dtype, each.case.shape): int(each.cost) for each in found}
    compare(_RECORD, name, counts)
    if name == "a57":  # large products: two thirds of the instructions are fmla
        for shape in _HOT:
            assert shape.operations / 2 / _LANES > 0.65 * counts[_name("f32", shape)]


def _name(dtype: str, shape: GemmShape) -> str:
    return f"{dtype}:{shape.m}x{shape.k}x{shape.n}"
