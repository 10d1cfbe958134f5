"""Matrix Market files: accepted input, and a clear error for every wrong field."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgekit.device import SparseMatrix
from edgekit.device.runtime.arrays.matrix_market import read_matrix_market
from edgekit.device.runtime.arrays.sparse_input import checked_coo
from edgekit.device.runtime.errors import InputError
from edgekit.device.runtime.features import MemoryBytes
from tests.support.patience import ends_by_itself

_HEAD = "%%MatrixMarket matrix coordinate real general\n"


def _file(folder: Path, text: str) -> Path:
    path = folder / "m.mtx"
    path.write_bytes(text.encode("latin-1"))
    return path


def _dense(folder: Path, text: str, dtype: str = "float64"):
    return SparseMatrix.from_matrix_market(_file(folder, text), dtype).to_dense()


def test_general_files_with_comments_and_blank_lines(tmp_path):
    text = _HEAD + "% a comment\n\n 2 3  3 \n1 1 1.5\n\n2 3 -2e1\n1 2 4\n"
    np.testing.assert_array_equal(_dense(tmp_path, text), [[1.5, 4, 0], [0, 0, -20]])


def test_words_of_the_header_may_be_in_capitals(tmp_path):
    text = "%%matrixmarket MATRIX Coordinate Integer GENERAL\n1 1 1\n1 1 7\n"
    assert _dense(tmp_path, text, "int8")[0, 0] == 7


def test_symmetric_files_are_mirrored(tmp_path):
    body = "3 3 2\n2 1 5\n3 3 1\n"
    symmetric = _dense(tmp_path, _HEAD.replace("general", "symmetric") + body)
    np.testing.assert_array_equal(symmetric, [[0, 5, 0], [5, 0, 0], [0, 0, 1]])
    skew = _HEAD.replace("general", "skew-symmetric") + "2 2 1\n2 1 5\n"
    np.testing.assert_array_equal(_dense(tmp_path, skew), [[0, -5], [5, 0]])


def test_patterns_hold_ones_and_duplicates_are_summed(tmp_path):
    text = _HEAD.replace("real", "pattern") + "2 2 3\n1 1\n1 1\n2 2\n"
    np.testing.assert_array_equal(_dense(tmp_path, text), [[2, 0], [0, 1]])


def test_files_without_entries(tmp_path):
    assert _dense(tmp_path, _HEAD + "0 3 0\n").shape == (0, 3)
    assert _dense(tmp_path, _HEAD + "2 2 0").sum() == 0


_WRONG = {
    "no banner": ("matrix\n1 1 0\n", "line 1: expected %%MatrixMarket"),
    "empty": ("", "line 1: expected %%MatrixMarket"),
    "object": (_HEAD.replace(" matrix", " vector"), "the object matrix"),
    "format": (_HEAD.replace("coordinate", "array"), "the format coordinate"),
    "field": (_HEAD.replace("real", "complex"), "the field real or integer or pattern"),
    "symmetry": (_HEAD.replace("general", "hermitian"), "the symmetry general"),
    "skew pattern": (
        _HEAD.replace("real", "pattern").replace("general", "skew-symmetric"),
        "general or symmetric",
    ),
    "no sizes": (_HEAD + "% only a comment\n", "the end of the file"),
    "two sizes": (_HEAD + "1 1\n", "line 2: expected three sizes"),
    "rows": (_HEAD + "-1 1 0\n", "a number of rows"),
    "columns": (_HEAD + "1 x 0\n", "a number of columns"),
    "entries": (_HEAD + "1 1 1.5\n", "a number of entries"),
    "too many rows": (_HEAD + "2147483648 1 0\n", "at most 2147483647 rows"),
    "not square": (_HEAD.replace("general", "symmetric") + "2 3 0\n", "as many columns"),
    "too few entries": (_HEAD + "2 2 2\n1 1 1\n", "expected 2 entries as line 2 says, found 1"),
    "too many entries": (_HEAD + "2 2 1\n1 1 1\n2 2 1\n", "expected 1 entries"),
    "short entry": (_HEAD + "2 2 2\n1 1 1\n2 2\n", "line 4: expected row, column and value"),
    "split entry": (_HEAD + "2 2 2\n1 1 1 2\n2 1\n", "line 3: expected row, column and value"),
    "word": (_HEAD + "2 2 1\n1 1 one\n", "line 3: expected a number, found 'one'"),
    "row 0": (_HEAD + "2 2 1\n0 1 1\n", "line 3: expected a row from 1 to 2, found '0'"),
    "row beyond": (_HEAD + "2 2 1\n3 1 1\n", "a row from 1 to 2"),
    "column beyond": (_HEAD + "2 2 1\n1 9 1\n", "a column from 1 to 2, found '9'"),
    "half a column": (_HEAD + "2 2 1\n1 1.5 1\n", "a column from 1 to 2, found '1.5'"),
    "fraction": (_HEAD.replace("real", "integer") + "1 1 1\n1 1 1.5\n", "a whole value"),
    "nan": (_HEAD + "2 2 1\n2 1 nan\n", "found nan at row 1, column 0"),
    "infinite": (_HEAD + "2 2 1\n1 2 inf\n", "found inf at row 0, column 1"),
    "diagonal": (
        _HEAD.replace("general", "skew-symmetric") + "2 2 1\n1 1 3\n",
        "zeros on the diagonal",
    ),
    "bytes": (_HEAD + "1 1 1\n1 1 \xff\n", "expected text, found the byte 0xff"),
}


@pytest.mark.parametrize("name", _WRONG)
def test_an_invalid_file_is_named(name, tmp_path):
    text, words = _WRONG[name]
    with pytest.raises(InputError) as caught:
        SparseMatrix.from_matrix_market(_file(tmp_path, text))
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_values_must_fit_the_type(tmp_path):
    with pytest.raises(
        InputError, match=r"line 3: expected a whole value within int8, found '300'"
    ):
        _dense(tmp_path, _HEAD + "1 1 1\n1 1 300\n", "int8")
    with pytest.raises(InputError, match=r"within float16, found '100000'"):
        _dense(tmp_path, _HEAD + "1 1 1\n1 1 1e5\n", "float16")
    with pytest.raises(InputError, match=r"expected a type of float32"):
        _dense(tmp_path, _HEAD + "1 1 0\n", "complex64")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        SparseMatrix.from_matrix_market(tmp_path / "none.mtx")


def test_a_shape_that_memory_has_no_room_for(tmp_path):
    def memory():
        return MemoryBytes(8 << 30, 4 << 30)

    wide = read_matrix_market(_file(tmp_path, _HEAD + "3 2147483647 1\n1 1 1\n"))
    with pytest.raises(
        InputError, match=r"shape \[3, 2147483647\]: .* free bytes of memory, found 171798"
    ):
        checked_coo(wide.rows, wide.cols, wide.values, wide.shape, memory)
    with pytest.raises(InputError, match=r"shape \[2147483647, 3\]"):
        checked_coo([0], [0], np.ones(1), (2**31 - 1, 3), memory)
    sparse = SparseMatrix(checked_coo([9], [5], np.ones(1), (1000, 1000), memory))
    assert sparse.to_dense()[9, 5] == 1


def test_many_comments_take_as_long_as_they_are_long(tmp_path):
    """Reading is linear in the comments; copying the rest for each would take minutes."""
    text = _HEAD + "%\n" * 1_000_000 + "2 2 1\n1 1 5\n"
    with ends_by_itself():
        assert _dense(tmp_path, text).tolist() == [[5, 0], [0, 0]]


def test_files_that_have_no_end(tmp_path):
    with pytest.raises(InputError, match="expected a Matrix Market file, found no regular file"):
        read_matrix_market(Path("/dev/zero"))


@given(st.binary(max_size=80))
@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=200)
def test_any_bytes_are_read_or_refused(tmp_path, tail):
    path = tmp_path / "m.mtx"
    path.write_bytes(_HEAD.encode() + b"3 3 2\n1 1 1\n" + tail)
    try:
        entries = read_matrix_market(path)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert len(entries.rows) == 2
