"""The outlier split on virtual boards: its products match NumPy's.

Instruction counts are recorded in outlier_instructions.json (EDGEKIT_RECORD=1 writes it).
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edgekit.host import connect
from edgekit.host.virtual import BoardOptions, down, up
from edgekit.kb.targets.board import load_board
from tests.support.counted_on_board import compare, run_program
from tests.support.outlier_cases import build, check, encoded, output_bytes, random_case

pytestmark = [pytest.mark.boards, pytest.mark.long]

_PROGRAM = Path(__file__).parents[1] / "support" / "outlier_on_board.py"
_RECORD = Path(__file__).with_name("outlier_instructions.json")


@pytest.mark.parametrize("name", ["a57", "rv64v"])
def test_products_are_numpys_and_instructions_as_recorded(name, own_home, tmp_path):
    rng = np.random.default_rng(len(name))
    cases = [random_case(rng) for _ in range(60)]
    up(name, options=BoardOptions(counting=True))
    try:
        device = connect(name)
        library = build(load_board(device.profile), tmp_path / "products.so").read_bytes()
        size = output_bytes(cases)
        given = (_PROGRAM.read_bytes(), library, encoded(cases), size)
        made, printed = run_program(device.transport, *given)
        check(cases, made)
    finally:
        down(name)
    compare(_RECORD, name, json.loads(printed)["instructions"])
