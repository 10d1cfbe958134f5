"""The native emulator on every x86 instruction set of this machine."""

from __future__ import annotations

import pytest

from tests.support.cases_model import run_cases
from tests.support.kernel_runs import x86_params
from tests.support.nna_cases import build, check, encoded, output_bytes, random_cases


@pytest.mark.parametrize("board", x86_params())
def test_products_and_accounts_are_pythons(board, tmp_path):
    cases = random_cases()
    library = build(board, tmp_path / f"{board.name}.so")
    check(cases, run_cases(library, encoded(cases), output_bytes(cases), threads=1))
