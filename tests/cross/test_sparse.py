"""Sparse matrices on each board under qemu, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.kb.board import load_board
from tests.support.sparse_cases import STORED, build, check, encoded, output_bytes, random_case

pytestmark = pytest.mark.cross


@pytest.mark.parametrize("board", ["a57", "a76", "a7", "rv64gc", "rv64gcv"])
def test_products_and_rows_are_numpys(board, virtual_board, tmp_path):
    rng = np.random.default_rng(len(board))
    cases = [random_case(rng, stored) for stored in STORED for _ in range(30)]
    library = build(load_board(board), tmp_path / "products.so")
    made = virtual_board(board).run_cases(library, encoded(cases), output_bytes(cases), 3)
    check(cases, made)
