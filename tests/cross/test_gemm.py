"""The GEMM library of each board under qemu, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.kb.targets.board import load_board
from tests.cross.conftest import RVV, cores
from tests.support.gemm_cases import DTYPES, build, check, encoded, output_bytes, random_product

pytestmark = pytest.mark.cross


@pytest.mark.parametrize("board", cores("a57", "a76", "a720", "a7", "rv64gc", *RVV))
def test_products_are_numpys(board, virtual_board, tmp_path):
    rng = np.random.default_rng(len(board))
    products = [random_product(rng, dtype) for dtype in DTYPES for _ in range(120)]
    library = build(load_board(board), tmp_path / "products.so")
    made = virtual_board(board).run_cases(library, encoded(products), output_bytes(products), 2)
    check(products, made)
