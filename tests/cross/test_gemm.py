"""The GEMM library of each board under qemu, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.kb.targets.board import load_board
from tests.support.gemm_cases import DTYPES, build, check, encoded, output_bytes, random_product

pytestmark = pytest.mark.cross


# Without vectors, and with the longest, there is nothing that other boards have not.
_OTHERS = [pytest.param(b, marks=pytest.mark.exhaustive) for b in ("rv64gc", "rv64gcv-zvl512b")]


@pytest.mark.parametrize("board", ["a57", "a76", "a720", "a7", "rv64gcv", "bpi-f3", *_OTHERS])
def test_products_are_numpys(board, virtual_board, tmp_path):
    rng = np.random.default_rng(len(board))
    products = [random_product(rng, dtype) for dtype in DTYPES for _ in range(120)]
    library = build(load_board(board), tmp_path / "products.so")
    made = virtual_board(board).run_cases(library, encoded(products), output_bytes(products), 2)
    check(products, made)
