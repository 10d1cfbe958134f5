"""The native emulator for every x86 instruction set that this machine can run."""

from __future__ import annotations

import ctypes

import pytest

from tests.support.kernel_runs import x86_params
from tests.support.nna_cases import build, check, encoded, output_bytes, random_cases


@pytest.mark.parametrize("board", x86_params())
def test_products_and_accounts_are_pythons(board, tmp_path):
    cases = random_cases()
    library = ctypes.CDLL(str(build(board, tmp_path / f"{board.name}.so")))
    made = ctypes.create_string_buffer(output_bytes(cases))
    given = encoded(cases)
    library.ek_run(
        None,
        ctypes.byref(ctypes.c_char_p(given)),
        ctypes.byref(ctypes.c_void_p(ctypes.addressof(made))),
    )
    check(cases, made.raw)
