"""The outlier split of each board under qemu, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.kb.board import load_board
from tests.cross.conftest import RVV
from tests.support.outlier_cases import build, check, encoded, output_bytes, random_case

pytestmark = pytest.mark.cross


@pytest.mark.parametrize("board", ["a57", "a76", "a7", "rv64gc", *RVV])
def test_products_marks_and_rows_are_numpys(board, virtual_board, tmp_path):
    rng = np.random.default_rng(len(board))
    cases = [random_case(rng) for _ in range(150)]
    library = build(load_board(board), tmp_path / "products.so")
    made = virtual_board(board).run_cases(library, encoded(cases), output_bytes(cases), 2)
    check(cases, made)
