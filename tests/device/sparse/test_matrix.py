"""SparseMatrix and SparseWeights against NumPy, through their public API."""

from __future__ import annotations

import os
import subprocess
import sys
from array import array
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgekit.device import SparseMatrix, SparseWeights
from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
from edgekit.device.runtime.arrays.sparse_buffers import csr_of_buffers
from edgekit.device.runtime.errors import InputError

_DTYPES = ("float32", "float64", "float16", "int8")
_OPERAND = {"float16": "float32"}
_SLOW = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)


def _extra_matrices() -> list[Path]:
    """Matrices that we may not redistribute, from the folder EDGEKIT_EXTRA_DATA if it is set."""
    folder = os.environ.get("EDGEKIT_EXTRA_DATA")
    return sorted(Path(folder).rglob("*.mtx")) if folder else []


def _dense(rng: np.random.Generator, rows: int, cols: int, density: float, dtype: str) -> NDArray:
    values = (
        rng.integers(-60, 60, (rows, cols)).astype(dtype)
        if dtype == "int8"
        else rng.standard_normal((rows, cols)).astype(dtype)
    )
    return np.where(rng.random((rows, cols)) < density, values, 0).astype(dtype)


def _x(rng: np.random.Generator, dtype: str, *shape: int) -> NDArray:
    values = rng.integers(-100, 100, shape) if dtype == "int8" else rng.standard_normal(shape)
    return values.astype(_OPERAND.get(dtype, dtype))


def _close(found: NDArray, wanted: NDArray) -> None:
    small = {"float32": 1e-4, "float64": 1e-11, "int32": 0}[found.dtype.name]
    np.testing.assert_allclose(found, wanted, rtol=small, atol=small * 10)


@given(
    st.integers(0, 70),
    st.integers(0, 70),
    st.sampled_from([0.0, 0.02, 0.3, 1.0]),
    st.sampled_from(_DTYPES),
)
@_SLOW
def test_products_and_arithmetic_are_numpys(rows, cols, density, dtype):
    rng = np.random.default_rng(rows * 71 + cols)
    a, b = (_dense(rng, rows, cols, density, dtype) for _ in range(2))
    m, n = SparseMatrix.from_dense(a), SparseMatrix.from_dense(b)
    x, many = _x(rng, dtype, cols), _x(rng, dtype, cols, 5)
    for threads in (1, 2):
        _close(m.matvec(x, threads), a.astype("f8") @ x.astype("f8"))
    _close(m @ many, a.astype("f8") @ many.astype("f8"))
    for found, wanted in ((m + n, a + b), (m - n, a - b), (-m, -a), (2 * m, a * 2), (m.T, a.T)):
        assert found.dtype == a.dtype
        np.testing.assert_array_equal(found.to_dense(), wanted)
    assert m == m.T.T and (m == n) == np.array_equal(a, b)


def test_rows_without_padding_and_stored_zeros_come_back():
    start, cols, values = np.array([0, 2, 2, 5]), np.array([0, 3, 1, 2, 4]), np.arange(5.0)
    csr = SparseMatrix.from_csr(start, cols, values, (3, 5)).to_csr()
    for found, wanted in ((csr.indptr, start), (csr.indices, cols), (csr.data, values)):
        np.testing.assert_array_equal(found, wanted)


def test_duplicates_are_summed_and_columns_sorted():
    m = SparseMatrix.from_coo([1, 0, 1, 1], [2, 1, 0, 2], np.array([1.0, 2, 3, 4]), (2, 3))
    assert m.nnz == 3
    np.testing.assert_array_equal(m.to_dense(), [[0, 2, 0], [3, 0, 5]])
    unsorted = SparseMatrix.from_csr([0, 3], [2, 0, 2], np.array([1, 2, 3], np.int8), (1, 3))
    np.testing.assert_array_equal(unsorted.to_dense(), [[2, 0, 4]])


def test_what_cancels_may_stay_and_is_equal_to_nothing():
    m = SparseMatrix.from_dense(np.eye(3))
    assert (m - m) == SparseMatrix.from_coo([], [], np.zeros(0), (3, 3))


def test_saved_matrices_are_scipys_and_fit_every_board(tmp_path):
    m = SparseMatrix.from_dense(np.diag(np.arange(6, dtype=np.float32)), BlockSettings(3, window=0))
    m.save(tmp_path / "m.npz")
    found = SparseMatrix.load(tmp_path / "m.npz")
    assert found == m and found.dtype == m.dtype
    with np.load(tmp_path / "m.npz") as file:
        assert file["format"].item() == b"csr"


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"not an archive"])
def test_damaged_files_are_refused(data, tmp_path):
    path = tmp_path / "m.npz"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"m\.npz: expected a sparse matrix"):
        SparseMatrix.load(path)


def test_banded_matrices_store_diagonals_and_power_laws_pad_little():
    n = 5000
    at = np.arange(n - 2)
    rows, cols = np.concatenate([at, at, at]), np.concatenate([at, at + 1, at + 2])
    band = SparseMatrix.from_coo(rows, cols, np.ones(len(rows), np.float32), (n, n))
    assert band.form.strips["diagonal"] > 0.98 * sum(band.form.strips.values())
    rng = np.random.default_rng(0)
    lengths = np.minimum((rng.pareto(1.1, n) * 3).astype(int), n)
    rows = np.repeat(np.arange(n), lengths)
    law = SparseMatrix.from_coo(rows, rng.integers(0, n, len(rows)), np.ones(len(rows)), (n, n))
    assert law.form.strips["wide"] > 0 and law.form.padding <= 1.3


@pytest.mark.parametrize("dtype", _DTYPES)
def test_parts_of_the_columns_change_nothing_but_the_order_of_sums(dtype, tmp_path):
    rng = np.random.default_rng(3)
    a = _dense(rng, 500, 900, 0.3, dtype)
    a[7], a[:, 450:600] = 0, 0  # an empty row and an empty column part
    m = SparseMatrix.from_dense(a, BlockSettings(8, columns=150))
    assert m.form.parts == 6
    x = _x(rng, dtype, 900)
    for threads in (1, 2, 3):
        first = m.matvec(x, threads)
        _close(first, a.astype("f8") @ x.astype("f8"))
        assert all(np.array_equal(m.matvec(x, threads), first) for _ in range(5))
    m.save(tmp_path / "m.npz")
    np.testing.assert_array_equal(SparseMatrix.load(tmp_path / "m.npz").to_dense(), a)
    if dtype != "int8":
        x[0] = np.inf
        with pytest.raises(InputError, match=r"finite x, found inf at \[0\]"):
            m.matvec(x)


def test_products_with_several_vectors_refuse_what_is_not_finite():
    a = np.zeros((8, 4), np.float32)
    a[::2, 1] = a[1::2, 2] = 1  # pairs of rows with weights in different columns
    a[1, 1] = 1
    m, x = SparseMatrix.from_dense(a), np.ones((4, 16), np.float32)
    np.testing.assert_array_equal(m @ x, a @ x)
    for value in (np.nan, np.inf):
        x[1, 5] = value
        with pytest.raises(InputError, match=rf"finite x, found {value} at \[1, 5\]"):
            m.matmul(x)
    x[:] = np.finfo(np.float32).max  # an overflow of finite values is a result
    assert np.isinf((m @ x)[1]).all()


def test_rows_too_short_for_parts_have_fewer():
    eye = SparseMatrix.from_dense(np.eye(60), BlockSettings(8, columns=4))
    assert eye.form.parts == 1
    band = SparseMatrix.from_dense(np.tri(60), BlockSettings(8, columns=4))
    assert band.form.parts == 15


@given(st.lists(st.integers(0, 40), min_size=1, max_size=40), st.sampled_from(_DTYPES))
@_SLOW
def test_few_rows_pad_little_too(lengths, dtype):
    rng = np.random.default_rng(len(lengths))
    a = np.zeros((len(lengths), 40), dtype)
    for row, count in enumerate(lengths):
        a[row, rng.choice(40, count, replace=False)] = rng.integers(1, 9, count)
    m = SparseMatrix.from_dense(a)
    form = m.form
    rest = (form.height - 1) * sum(form.strips.values())  # padding of the last slots
    assert form.slots * form.height <= 1.3 * m.nnz + rest
    np.testing.assert_array_equal(m.to_dense(), a)
    x = _x(rng, dtype, 40)
    _close(m.matvec(x), a.astype("f8") @ x.astype("f8"))


@pytest.mark.parametrize("density", [0.03, 0.06, 0.1, 0.3, 0.6])
def test_pruned_layers_pad_little(density):
    dense = _dense(np.random.default_rng(2), 512, 1024, density, "float32")
    assert SparseMatrix.from_dense(dense).form.padding <= 1.3


@pytest.mark.slow
def test_one_dense_row_is_shared_by_threads():
    rng = np.random.default_rng(1)
    a = _dense(rng, 300, 70_000, 0.003, "float32")
    a[123] = rng.standard_normal(70_000)
    m, x = SparseMatrix.from_dense(a), _x(rng, "float32", 70_000)
    assert m.nnz > 100_000
    assert m.form.padding <= 1.3
    for threads in (1, 2, 3):
        first = m.matvec(x, threads)
        _close(first, a.astype("f8") @ x)
        assert all(np.array_equal(m.matvec(x, threads), first) for _ in range(5))


def _wrong_csr(start=(0, 1), cols=(0,), values=(1.0,), shape=(1, 2)):
    return SparseMatrix.from_csr(np.array(start), np.array(cols), np.array(values), shape)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: _wrong_csr(start=(0, 1, 1)), "expected indptr of 2 offsets for 1 rows, found 3"),
        (lambda: _wrong_csr(start=(1, 1)), "expected indptr from 0 to 1, found 1 to 1"),
        (lambda: _wrong_csr((0, 2, 1), (0,), (1.0,), (2, 2)), "ascending offsets, found 2 before"),
        (lambda: _wrong_csr(cols=(2,)), "row 0: expected columns from 0 to 1, found 2"),
        (lambda: _wrong_csr(cols=(-1,)), "found -1"),
        (lambda: _wrong_csr(cols=(2**40,)), "expected indices below 2^31"),
        (lambda: _wrong_csr(cols=(0.5,)), "expected indices of whole numbers"),
        (lambda: _wrong_csr(values=(np.nan,)), "found nan at row 0, column 0"),
        (lambda: _wrong_csr(values=(-np.inf,)), "found -inf at row 0, column 0"),
        (lambda: _wrong_csr(values=(1.0, 2.0)), "as many indices as values, found 1 and 2"),
        (lambda: _wrong_csr(values=(1j,)), "expected values of float32"),
        (lambda: _wrong_csr(shape=(1, -2)), "a shape of two sizes"),
        (lambda: _wrong_csr(shape=(1,)), "a shape of two sizes"),
        (
            lambda: SparseMatrix.from_coo([0, 3], [0, 0], np.ones(2), (3, 1)),
            r"entry 1: expected a row below 3 and a column below 1, found (3, 0)",
        ),
        (
            lambda: SparseMatrix.from_coo([0, 0], [1, 1], np.array([100, 100], np.int8), (1, 2)),
            "expected sums within int8, found 200 at row 0, column 1",
        ),
        (lambda: SparseMatrix.from_scipy(np.eye(2)), "expected a SciPy sparse matrix"),
        (lambda: SparseMatrix.from_dense(np.ones(3)), "expected 2 dimensions"),
        (
            lambda: _wrong_csr() + _wrong_csr(shape=(1, 3)),
            "expected a second matrix of float64 [1, 2]",
        ),
        (lambda: _wrong_csr().matvec(np.ones(3)), "expected x of float64 [2], found float64 [3]"),
        (lambda: _wrong_csr().matvec(np.ones(2, "f4")), "found float32 [2]"),
        (lambda: _wrong_csr().matvec([1.0, 2.0]), "x: expected an array, found list"),
        (lambda: _wrong_csr().matvec(np.array([np.nan, 1])), "finite x, found nan at [0]"),
        (lambda: _wrong_csr().matvec(np.ones(2), 0), "expected 1 to 256 threads, found 0"),
        (lambda: _wrong_csr().matvec(np.ones(2), out=np.ones(2)), "expected out to be a writable"),
        (
            lambda: _wrong_csr().matvec(np.ones(2), out=np.broadcast_to(1.0, 1)),
            "expected out to be writable, found a read-only array",
        ),
        (
            lambda: SparseMatrix.from_dense(np.eye(2)).matvec(np.ones(2), out=np.ones(4)[::2]),
            "expected out with adjacent, aligned elements, found strides [16]; use an array",
        ),
        (lambda: _wrong_csr() @ np.ones((3, 2)), "expected X of float64 [2, 2]"),
        (lambda: _wrong_csr() * np.inf, "products with inf within float64, found others"),
        (lambda: _wrong_csr() * 10**400, "000 within float64, found others"),
        (lambda: SparseMatrix.from_dense(np.eye(2), {"width": 8}), "settings as BlockSettings"),
        (lambda: _wrong_csr().matvec(np.ones(2), 1.0), "expected 1 to 256 threads, found 1.0"),
        (lambda: _wrong_csr().save("/nonexistent/x.npz"), "/nonexistent/x.npz: expected to write"),
    ],
)
def test_an_invalid_argument_is_one_line(call, words):
    with pytest.raises(InputError) as caught:
        call()
    assert words in str(caught.value) and "\n" not in str(caught.value)


@given(st.integers(1, 40), st.integers(1, 300), st.sampled_from(["f32", "f16", "s8"]))
@_SLOW
def test_weights_keep_their_accuracy(outputs, pixels, storage):
    rng = np.random.default_rng(outputs)
    w, x = _dense(rng, outputs, 37, 0.3, "float32"), _x(rng, "float32", 37, pixels)
    bias = rng.standard_normal(outputs).astype(np.float32)
    weights = SparseWeights.from_dense(w, storage)
    wanted = np.clip(w.astype("f8") @ x + bias[:, None], 0, 6)
    kept = {"f32": 1e-5, "f16": 1e-2, "s8": 0.3}[storage]
    for threads in (1, 2):
        found = weights.matmul(x, threads, bias=bias, low=0, high=6)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=kept)


def test_rows_without_numpy_ascend():
    offsets, values = array("q", [0, 1, 3, 4]), array("f", [1, 2, 3, 4])
    for columns, found in (([0, 1, 0, 1], 0), ([0, 1, 1, 1], 1)):
        with pytest.raises(InputError, match=f"row 1: expected columns that .*, found {found}$"):
            csr_of_buffers(offsets, array("i", columns), values, (3, 2))


def test_an_array_times_a_matrix_is_no_array_of_matrices():
    m = SparseMatrix.from_dense(np.eye(2))
    np.testing.assert_array_equal((np.float64(2) * m).to_dense(), 2 * np.eye(2))
    for product in (lambda: np.ones((2, 2)) @ m, lambda: np.ones(2) * m):
        with pytest.raises(TypeError, match="unsupported operand"):
            product()


def test_weights_that_do_not_fit_are_refused():
    w = np.ones((2, 3), np.float32)
    w[1, 2] = 1e6
    with pytest.raises(InputError, match="found 1e\\+06 at output 1, input 2"):
        SparseWeights.from_dense(w, "f16")
    w[1, 2] = np.nan
    with pytest.raises(InputError, match="found nan at row 1, column 2"):
        SparseWeights.from_dense(w)
    with pytest.raises(InputError, match="expected storage"):
        SparseWeights.from_dense(np.ones((2, 2)), "f16")
    with pytest.raises(InputError, match="expected bias of float32"):
        SparseWeights.from_dense(np.ones((2, 2), "f4")).matmul(np.ones((2, 2), "f4"), bias=w[0])


_LARGE = """
import sys
import numpy as np
from edgekit.device import SparseMatrix
from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings

rows, each = (int(word) for word in sys.argv[1:])
rng = np.random.default_rng(0)
start = np.arange(rows + 1, dtype=np.int64) * each
index = rng.integers(0, rows // each, rows * each, np.int32)
index += np.tile(np.arange(each, dtype=np.int32) * (rows // each), rows)
data = np.ones(rows * each, np.float32)
# In one part: in how many it is by default depends on the core's caches.
matrix = SparseMatrix.from_csr(start, index, data, (rows, rows), BlockSettings(8))
size = sum(a.nbytes for a in (start, index, data))
del start, index, data
y = matrix.matvec(np.ones(rows, np.float32), 2)
assert matrix.nnz == rows * each and np.all(y == each)
held = int(open("/proc/self/statm").read().split()[1]) * 4096
print(matrix.form.bytes / size, held, size)
"""


@pytest.mark.long
def test_a_hundred_million_nonzeros_in_the_memory_of_the_matrix(record_property):
    done = subprocess.run(
        [sys.executable, "-c", _LARGE, "10000000", "10"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ratio, held, size = (float(word) for word in done.stdout.split())
    record_property("count", f"10^8 non-zeros: {ratio:.3f} of the rows' memory, {held:.3g} bytes")
    assert ratio <= 1.1
    assert held <= 1.1 * size + 250e6  # plus Python, NumPy and both vectors


def test_files_are_numpys(tmp_path):
    own = tmp_path / "own.mtx"
    own.write_text("%%MatrixMarket matrix coordinate real symmetric\n3 3 2\n2 1 5\n3 3 1\n")
    for path in (own, *_extra_matrices()):
        m = SparseMatrix.from_matrix_market(path, "float64")
        x = np.linspace(-1, 1, m.shape[1])
        wanted = m.to_dense() @ x
        np.testing.assert_allclose(m @ x, wanted, atol=1e-9 * (np.abs(wanted).max() + 1))
