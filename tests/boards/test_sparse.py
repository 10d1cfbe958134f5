"""Sparse matrices on virtual boards: NumPy's products, and how many instructions they take, which
is recorded in spmv_instructions.json (EDGEKIT_RECORD=1 writes it)."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
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
_SECONDS = 900.0
_SHOWN_ABOVE = 0.01
_PROGRAM = b"""
import ctypes, sys
from pathlib import Path
path, given, made, size = sys.argv[1:]
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
        files = {"products.so": library, "in.bin": encoded(cases), "program.py": _PROGRAM}
        for file, data in files.items():
            board.put(data, f"sparse/{file}", deadline=_SECONDS)
        words = [f"sparse/{file}" for file in ("program.py", "products.so", "in.bin", "out.bin")]
        done = board.run([board.python, *words, str(output_bytes(cases))], deadline=_SECONDS)
        assert done.exit_code == 0, done.stderr.decode()
        check(cases, board.get("sparse/out.bin", deadline=_SECONDS))
        measurer = SpmvMeasurer(board, profile, emulated=True)
        found = {matrix: _instructions(measurer, profile, matrix) for matrix in _MATRICES}
    finally:
        down(name)
    _compare(name, found)


def _instructions(measurer, profile, name):
    matrix = open_matrix(name)
    measurer.send(matrix)
    (form,) = measurer.measure([settings_for(profile, matrix).settings]).forms
    measurer.forget()
    return int(form.median)


def _compare(name: str, found: dict[str, int]) -> None:
    record = json.loads(_RECORD.read_text()) if _RECORD.exists() else {}
    if os.environ.get("EDGEKIT_RECORD") == "1":
        record[name] = found
        _RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    assert set(record[name]) == set(found)
    for product, count in found.items():
        change = count / record[name][product] - 1
        if abs(change) > _SHOWN_ABOVE:
            warnings.warn(
                f"{product} on {name}: {count:,} instructions ({change:+.1%})", stacklevel=2
            )
        assert abs(change) < 0.5, "the record is of another program"
