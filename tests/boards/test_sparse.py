"""Sparse matrices on virtual boards: NumPy's products, and how many instructions they take, which
is recorded in spmv_instructions.json (EDGEKIT_RECORD=1 writes it)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from counted_on_board import compare, run_program
from sparse_cases import STORED, build, check, encoded, output_bytes, random_case

from edgekit.host import connect
from edgekit.host.bench.spmv_matrices import open_matrix
from edgekit.host.boards import BoardOptions, down, up
from edgekit.host.tune.spmv import settings_for
from edgekit.host.tune.spmv_board import SpmvMeasurer
from edgekit.kb.board import load_board

pytestmark = [pytest.mark.boards, pytest.mark.long]

_RECORD = Path(__file__).with_name("spmv_instructions.json")
_MATRICES = ("random:1000:0.05", "banded:5000:5", "power:2000:10", "dense:256:256:0.3")
_PROGRAM = b"""
import ctypes, sys
from pathlib import Path
_, path, given, made, size = sys.argv[1:]
library = ctypes.CDLL(str(Path(path).resolve()))
library.ek_missing_feature.restype = ctypes.c_char_p
library.ek_pool_create.restype = ctypes.c_void_p
assert library.ek_missing_feature() is None
cases, sums = Path(given).read_bytes(), ctypes.create_string_buffer(int(size))
model = (ctypes.c_void_p * 5)(None, None, None, library.ek_pool_create(3), None)
library.ek_run(model, ctypes.byref(ctypes.c_char_p(cases)),
               ctypes.byref(ctypes.c_void_p(ctypes.addressof(sums))))
Path(made).write_bytes(sums.raw)
"""


@pytest.mark.parametrize("name", ["a57", "rv64v"])
def test_products_are_numpys_and_instructions_as_recorded(name, own_home, tmp_path):
    rng = np.random.default_rng(len(name))
    cases = [random_case(rng, stored) for stored in STORED for _ in range(20)]
    up(name, options=BoardOptions(counting=True))
    try:
        device = connect(name)
        board, profile = device.transport, load_board(device.profile)
        library = build(profile, tmp_path / "products.so").read_bytes()
        made, _ = run_program(board, _PROGRAM, library, encoded(cases), output_bytes(cases))
        check(cases, made)
        measurer = SpmvMeasurer(board, profile, emulated=True)
        found = {matrix: _instructions(measurer, profile, matrix) for matrix in _MATRICES}
    finally:
        down(name)
    compare(_RECORD, name, found)


def _instructions(measurer, profile, name):
    matrix = open_matrix(name)
    measurer.send(matrix)
    (form,) = measurer.measure([settings_for(profile, matrix).settings]).forms
    measurer.forget()
    return int(form.median)
