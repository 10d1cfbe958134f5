"""Sparse matrices on virtual boards: their products match NumPy's.

Instruction counts are recorded in spmv_instructions.json and spmm_instructions.json
(EDGEKIT_RECORD=1 writes them).
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
from edgekit.device.runtime.arrays.sparse_input import checked_coo
from edgekit.device.runtime.arrays.sparse_pairs import pack_pairs
from edgekit.host import connect
from edgekit.host.lab.bench.spmv_matrices import open_matrix
from edgekit.host.lab.tune.spmv_board import SpmvMeasurer
from edgekit.host.virtual import BoardOptions, down, up
from edgekit.kb.targets.board import load_board
from tests.support.counted_on_board import compare, run_program
from tests.support.sparse_cases import STORED, build, check, encoded, output_bytes, random_case

pytestmark = [pytest.mark.boards, pytest.mark.long]

_RECORD = Path(__file__).with_name("spmv_instructions.json")
_PRODUCTS = Path(__file__).with_name("spmm_instructions.json")
_ON_BOARD = Path(__file__).parents[1] / "support" / "spmm_on_board.py"
_LAYERS = ((48, 64, 144), (128, 32, 144), (96, 384, 36))  # outputs, inputs, pixels
_PANEL = 192  # panel width of boards
# Settings with which instructions were recorded, whatever the tables say today.
_RECORDED = {
    "aarch64": {
        "random:1000:0.05": BlockSettings(100),
        "banded:5000:5": BlockSettings(4),
        "power:2000:10": BlockSettings(8),
        "dense:256:256:0.3": BlockSettings(156),
    },
    "riscv64": {
        "random:1000:0.05": BlockSettings(100),
        "banded:5000:5": BlockSettings(10, diagonal=False),
        "power:2000:10": BlockSettings(8),
        "dense:256:256:0.3": BlockSettings(10, diagonal=False),
    },
}
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
        given = (_ON_BOARD.read_bytes(), library, _layers(), 0)
        products = json.loads(run_program(board, *given)[1])["instructions"]
        measurer = SpmvMeasurer(device, profile, emulated=True)
        given = _RECORDED[profile.arch]
        found = {matrix: _instructions(measurer, profile, matrix) for matrix in given}
    finally:
        down(name)
    compare(_RECORD, name, found)
    compare(_PRODUCTS, name, products)
    for outputs, inputs, pixels in _LAYERS:
        layer = f"{outputs}x{inputs}x{pixels}"
        assert products[f"plan_{layer}"] < products[f"rows_{layer}"]


def _instructions(measurer, profile, name):
    measurer.send(open_matrix(name))
    (form,) = measurer.measure([_RECORDED[profile.arch][name]]).forms
    measurer.forget()
    return int(form.median)


def _layers() -> bytes:
    """An .npz file of pruned layers, as CSR rows and as packed plans."""
    rng = np.random.default_rng(0)
    arrays = {}
    for rows, cols, pixels in _LAYERS:
        places = np.nonzero(rng.random((rows, cols)) < 0.3)
        values = rng.standard_normal(len(places[0]), np.float32)
        csr = checked_coo(*places, values, (rows, cols))
        plan = pack_pairs(csr, _PANEL)
        parts = {
            "sizes": np.array([rows, cols, pixels, plan.panels, plan.pairs]),
            "start": csr.indptr,
            "index": csr.indices.astype(np.uint16).view(np.uint8),
            "values": csr.data,
            "pair": np.frombuffer(plan.pair.tobytes(), np.uint8),
            "columns": plan.columns.view(np.int32),
            "paired": plan.values,
        }
        layer = f"{rows}x{cols}x{pixels}"
        arrays |= {f"{layer}.{name}": part for name, part in parts.items()}
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()
