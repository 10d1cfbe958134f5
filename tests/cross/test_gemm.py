"""The GEMM library of each board under qemu, against NumPy."""

from __future__ import annotations

import os

import numpy as np
import pytest

from edgekit.kb.targets.board import load_board
from tests.cross.conftest import CPUS, RVV
from tests.support.gemm_cases import (
    DTYPES,
    build,
    check,
    encoded,
    output_bytes,
    packed_panels,
    panels_of_bytes,
    random_product,
)
from tests.support.places import few_or_all

pytestmark = pytest.mark.cross


@pytest.mark.parametrize(
    "board", few_or_all(["a57", "a76", "a720", "a7", "rv64gc", *RVV], ["a57", "rv64gcv"])
)
def test_products_are_numpys(board, virtual_board, tmp_path):
    rng = np.random.default_rng(len(board))
    count = 120 if board not in RVV or "EDGEKIT_TEST_ALL" in os.environ else 30  # QEMU is slow
    products = [random_product(rng, dtype) for dtype in DTYPES for _ in range(count)]
    library = build(load_board(board), tmp_path / "products.so")
    made = virtual_board(board).run_cases(library, encoded(products), output_bytes(products), 2)
    check(products, made)


@pytest.mark.parametrize("board", few_or_all(["a53", "a55"], ["a53"]))
def test_panels_that_cores_in_order_pack_are_numpys(board, virtual_board, tmp_path):
    rng = np.random.default_rng(8)
    products = [*packed_panels(rng, 8, 8), *(random_product(rng, "f32") for _ in range(120))]
    library = build(load_board(board), tmp_path / "products.so")
    on = virtual_board(board, CPUS["a76" if board == "a55" else board])
    check(products, on.run_cases(library, encoded(products), output_bytes(products), 2))


@pytest.mark.parametrize("board", few_or_all(["a57", "a53", "a76", "a7"], ["a57", "a53"]))
def test_rows_by_several_panels_of_bytes_are_numpys(board, virtual_board, tmp_path):
    rng = np.random.default_rng(4)
    products = [p for dtype in ("s8", "u8") for p in panels_of_bytes(rng, dtype)]
    library = build(load_board(board), tmp_path / "products.so")
    made = virtual_board(board).run_cases(library, encoded(products), output_bytes(products), 2)
    check(products, made)
