"""Sparse matrices on each board under qemu, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.kb.targets.board import load_board
from tests.support.sparse_cases import STORED, build, check, encoded, output_bytes, random_case

pytestmark = pytest.mark.cross


@pytest.mark.parametrize(
    ("board", "runs_on"),
    [
        pytest.param("a53", "a57", marks=pytest.mark.exhaustive),
        ("a57", "a57"),
        *(
            pytest.param(core, core, marks=pytest.mark.exhaustive)
            for core in ("a76", "a7", "rv64gc", "rv64gcv", "bpi-f3", "rv64gcv-zvl512b")
        ),
    ],
)
def test_products_and_rows_are_numpys(board, runs_on, virtual_board, tmp_path):
    rng = np.random.default_rng(len(board))
    cases = [random_case(rng, stored) for stored in STORED for _ in range(30)]
    library = build(load_board(board), tmp_path / "products.so")
    made = virtual_board(runs_on).run_cases(library, encoded(cases), output_bytes(cases), 3)
    check(cases, made)
