"""The look-up of a matrix's storage gives the same answers in C and in Python."""

from __future__ import annotations

import ctypes
from dataclasses import astuple

import numpy as np
import pytest

from edgekit.device.runtime.arrays.find import find_library
from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
from edgekit.device.runtime.arrays.sparse_library import CsrRows, SparseLibrary, _Settings
from edgekit.device.runtime.arrays.sparse_table import SPREADS, Key, SpmvRow, SpmvTable
from edgekit.device.runtime.shared_library import open_library
from edgekit.host.compiler.toolchain.kernels import build_kernels
from edgekit.kb.targets.board import load_board

_TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "s8": np.int8}
_RULES = ("exact", "nearest", "patent")


class _Answer(ctypes.Structure):
    """ek_sparse_answer of sparse_table.h."""

    _fields_ = (("how", _Settings), ("rule", ctypes.c_int), ("why", ctypes.c_char * 240))


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("kernels") / "kernels.so"
    path.write_bytes(build_kernels(load_board("local"), c_api=True))
    found = open_library(path)
    found.ek_sparse_table_open.restype = ctypes.c_void_p
    found.ek_sparse_table_close.argtypes = (ctypes.c_void_p,)
    found.ek_sparse_table_find.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    found.ek_sparse_table_find.restype = _Answer
    return found


@pytest.mark.slow
def test_answers_are_those_of_python(lib: ctypes.CDLL) -> None:
    rng, library, rules = np.random.default_rng(0), SparseLibrary(find_library()[0]), set()
    for _ in range(12):
        table = random_table(rng)
        opened = lib.ek_sparse_table_open(table.text().encode())
        assert opened
        for _ in range(25):
            rows, *kept = random_rows(rng)
            features = library.features(rows)
            wanted = table.lookup(features, library.default_settings(features))
            found = lib.ek_sparse_table_find(opened, ctypes.byref(rows.in_c()))
            settings = [getattr(found.how, name) for name, _ in _Settings._fields_]
            assert settings == list(astuple(wanted.settings))
            assert (_RULES[found.rule], found.why.decode()) == (wanted.rule, wanted.why)
            rules.add(wanted.rule)
            del kept
        lib.ek_sparse_table_close(opened)
    assert rules == {*_RULES}


def test_a_cut_or_changed_table_is_refused(lib: ctypes.CDLL) -> None:
    text = random_table(np.random.default_rng(1)).text().encode()
    cuts = [text[:i] for i in range(0, len(text), 7)]
    changed = [text.replace(b'"width"', b'"depth"'), text.replace(b"spmv/1", b"spmv/9")]
    for each in (*cuts, *changed, text[:-1], text + b"\n"):
        assert not lib.ek_sparse_table_open(each)


def random_table(rng: np.random.Generator) -> SpmvTable:
    rows = {}
    for _ in range(rng.integers(3, 30)):
        spread, band = rng.choice(SPREADS), rng.choice(["narrow", "banded", "wide"])
        sizes = int(rng.integers(0, 3)), int(rng.integers(0, 5))
        key = Key(rng.choice([*_TYPES]), *sizes, str(spread), str(band))
        flags = bool(rng.integers(2)), bool(rng.integers(2))
        widths = (int(rng.integers(1, 99)), int(rng.integers(0, 5000)), int(rng.integers(0, 9)))
        how = BlockSettings(*widths, *flags, int(rng.choice([0, 1, 2, 4])), int(rng.integers(9)))
        kept, by_rule = None if rng.random() < 0.3 else how, bool(rng.integers(2))
        rows[key] = SpmvRow(key, kept, f"power:{len(rows)}", 0.5, by_rule)
    return SpmvTable("cortex-a57", tuple(rows.values()))


def random_rows(rng: np.random.Generator) -> tuple[object, ...]:
    """A matrix in rows, and the arrays that hold it."""
    shape, stored = (int(rng.integers(1, 1500)), int(rng.integers(1, 900))), rng.choice([*_TYPES])
    most = int(rng.integers(1, min(shape[1], 60) + 1))
    lengths = np.minimum(rng.choice([1, most], shape[0], p=[0.5, 0.5]), shape[1])
    if rng.random() < 0.5:
        lengths[:] = most
    start = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    if rng.random() < 0.5:
        index = np.concatenate([np.arange(n) for n in lengths])
    else:
        index = np.concatenate([np.sort(rng.choice(shape[1], n, False)) for n in lengths])
    index = index.astype(np.int32)
    values = np.ones(len(index), _TYPES[stored])
    places = (each.ctypes.data for each in (start, index, values))
    return CsrRows(str(stored), *shape, *places), start, index, values
