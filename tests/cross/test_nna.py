"""The NNA's native emulator on each board under qemu: sums match NumPy, cycles match Python."""

from __future__ import annotations

import pytest

from edgekit.kb.targets.board import load_board
from tests.cross.conftest import RVV, cores
from tests.support.nna_cases import build, check, encoded, output_bytes, random_cases

pytestmark = pytest.mark.cross


@pytest.mark.parametrize("board", cores("a57", "a76", "a720", "a7", "rv64gc", *RVV))
def test_products_and_accounts_are_those_of_this_machine(board, virtual_board, tmp_path):
    cases = random_cases()
    library = build(load_board(board), tmp_path / "products.so")
    made = virtual_board(board).run_cases(library, encoded(cases), output_bytes(cases), 1)
    check(cases, made)
