"""Validates the arrays of a sparse matrix; the result is sorted, unique and finite."""

from __future__ import annotations

import functools
import os
import threading
from dataclasses import dataclass
from typing import Any, Callable, Dict, Tuple

from edgekit.device.runtime.arrays.buffers import (
    as_array,
    dense_array,
    enough_memory,
    refuse_masked,
)
from edgekit.device.runtime.arrays.sparse_library import CsrRows, SparseLibrary
from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.device.runtime.errors import IncompatibleError, InputError
from edgekit.device.runtime.features import MemoryBytes, memory_bytes

DTYPES = {"float32": "f32", "float64": "f64", "float16": "f16", "int8": "s8"}
ALONE = threading.Lock()  # the library's scratch and threads serve one product at a time
_LARGEST = (1 << 31) - 1
# Duplicates are summed in these types, then rounded to the stored type or rejected as too large.
_SUMMED = {"float32": "float32", "float64": "float64", "float16": "float32", "int8": "float64"}


@dataclass(frozen=True)
class Csr:
    """A CSR matrix like SciPy's: int64 offsets [rows + 1], int32 columns and values."""

    shape: Tuple[int, int]
    indptr: Any
    indices: Any
    data: Any

    @property
    def dtype(self) -> Any:
        return self.data.dtype

    @property
    def stored(self) -> str:
        return DTYPES[self.dtype.name]

    def rows(self) -> CsrRows:
        """The arrays' addresses, valid while this object is alive."""
        arrays = (self.indptr, self.indices, self.data)
        return CsrRows(self.stored, *self.shape, *(a.ctypes.data for a in arrays))


@functools.lru_cache(maxsize=None)  # small products take about as long as an import statement
def numpy_if_any() -> Any:
    """Returns NumPy, or None on a board without."""
    try:
        import numpy as np
    except ImportError:
        return None
    return np


def numpy() -> Any:
    """Returns NumPy, or raises IncompatibleError."""
    if (found := numpy_if_any()) is None:
        raise IncompatibleError(
            "sparse matrix: expected NumPy on this board, found none; install python3-numpy, or "
            "use from_csr and matvec with buffers"
        )
    return found


_OPENED: Dict[int, SparseLibrary] = {}


def library() -> SparseLibrary:
    """Returns this machine's library, opened once per process: a fork lacks its parent's
    threads."""
    return _OPENED.get(os.getpid()) or _open_library()


def _open_library() -> SparseLibrary:
    from edgekit.device.runtime.arrays.find import find_library, find_spmv_table

    path, _ = find_library()
    _OPENED[os.getpid()] = opened = SparseLibrary(path, find_spmv_table(path))
    return opened


def checked_csr(indptr: Any, indices: Any, data: Any, shape: Any) -> Csr:
    """Builds CSR from offsets, columns and values; sorts, and sums duplicates. InputError
    otherwise."""
    np = numpy()
    shape = checked_shape(shape)
    data = _check_values(np, data)
    offsets = _whole_numbers(np, "indptr", indptr, np.int64)
    columns = _whole_numbers(np, "indices", indices, np.int32)
    if offsets.shape != (shape[0] + 1,):
        raise InputError(
            f"sparse matrix: expected indptr of {shape[0] + 1} offsets for {shape[0]} rows, "
            f"found {offsets.size}"
        )
    if len(columns) != len(data):
        raise InputError(
            f"sparse matrix: expected as many indices as values, found {len(columns)} "
            f"and {len(data)}"
        )
    if offsets[0] != 0 or offsets[-1] != len(data):
        raise InputError(
            f"sparse matrix: expected indptr from 0 to {len(data)}, found {offsets[0]} to "
            f"{offsets[-1]}"
        )
    csr = Csr(shape, offsets, columns, data)
    if _check_order(csr) == "good":
        return csr
    rows = np.repeat(np.arange(shape[0], dtype=np.int32), np.diff(offsets))
    return checked_coo(rows, columns, data, shape)


def checked_coo(
    rows: Any,
    cols: Any,
    values: Any,
    shape: Any,
    memory: Callable[[], MemoryBytes] = memory_bytes,
) -> Csr:
    """Builds CSR from entries in any order; duplicates are summed in their order. `memory` returns
    this machine's memory, which must have room for the result."""
    np = numpy()
    shape = checked_shape(shape)
    values = _check_values(np, values)
    rows = _whole_numbers(np, "rows", rows, np.int32)
    cols = _whole_numbers(np, "cols", cols, np.int32)
    if not len(rows) == len(cols) == len(values):
        raise InputError(
            f"sparse matrix: expected as many rows, columns and values, found {len(rows)}, "
            f"{len(cols)} and {len(values)}"
        )
    # Offsets, counters, and each entry twice: large dims are easily written in a small file.
    need = 8 * (shape[0] + shape[1]) + 40 * len(values)
    check_memory(f"sparse matrix: shape {list(shape)}", need, memory)
    exact = values.astype(_SUMMED[values.dtype.name], copy=False)
    csr = _sort_entries(np, Csr(shape, rows, cols, exact))
    if _check_order(csr) != "good":
        raise InputError("sparse matrix: expected sorted rows, found others; please report this")
    return Csr(shape, csr.indptr, csr.indices, _convert_to_stored(np, csr, values.dtype))


def _sort_entries(np: Any, entries: Csr) -> Csr:
    """Sorts entries into CSR; `entries.indptr` holds the row of each entry."""
    n, (rows, cols) = len(entries.data), entries.shape
    start, index = np.empty(rows + 1, np.int64), np.empty(n, np.int32)
    summed = np.empty(n, entries.data.dtype)
    shape = CsrRows(DTYPES[summed.dtype.name], rows, cols, 0, 0, entries.data.ctypes.data)
    kept = library().sort_entries(
        shape,
        n,
        *(a.ctypes.data for a in (entries.indptr, entries.indices, start, index, summed)),
    )
    if kept < 0:
        at = -1 - kept
        raise InputError(
            f"sparse matrix: entry {at}: expected a row below {rows} and a column below {cols}, "
            f"found ({entries.indptr[at]}, {entries.indices[at]})"
        )
    return Csr(entries.shape, start, index[:kept], summed[:kept])


def _convert_to_stored(np: Any, csr: Csr, dtype: Any) -> Any:
    """Converts sums to the stored type; InputError if one does not fit."""
    if csr.data.dtype == dtype:
        return csr.data
    limit = np.finfo(dtype).max if dtype.kind == "f" else np.iinfo(dtype).max
    least = -limit if dtype.kind == "f" else -limit - 1
    bad = np.flatnonzero((csr.data > limit) | (csr.data < least))
    if len(bad):
        row = int(np.searchsorted(csr.indptr, bad[0], side="right")) - 1
        raise InputError(
            f"sparse matrix: expected sums within {dtype}, found {csr.data[bad[0]]:g} at "
            f"row {row}, column {csr.indices[bad[0]]}; use a wider type"
        )
    return csr.data.astype(dtype)


def _check_order(csr: Csr) -> str:
    """Returns "good" or "unsorted"; InputError for an unrecoverable fault."""
    fault = library().check(csr.rows())
    if fault.kind == "start":
        raise InputError(
            f"sparse matrix: expected ascending offsets, found {csr.indptr[fault.row]} before "
            f"{csr.indptr[fault.row + 1]} at row {fault.row}"
        )
    if fault.kind == "index":
        raise InputError(
            f"sparse matrix: row {fault.row}: expected columns from 0 to {csr.shape[1] - 1}, "
            f"found {csr.indices[fault.at]}"
        )
    if fault.kind == "finite":
        raise InputError(
            f"sparse matrix: expected finite values, found {csr.data[fault.at]} at row "
            f"{fault.row}, column {csr.indices[fault.at]}"
        )
    return fault.kind


def numpy_type(name: str) -> Any:
    """The NumPy dtype of an element type."""
    return numpy().dtype(BY_NAME[name].npy)


def checked_operand(name: str, value: Any, shape: Tuple[int, ...], dtype: Any) -> Any:
    """Returns the array in C order; InputError for another shape or type."""
    np = numpy()
    refuse_masked(value, f"sparse matrix: {name}")
    if not isinstance(value, np.ndarray):
        raise InputError(
            f"sparse matrix: expected {name} to be an array, found {type(value).__name__}"
        )
    if value.dtype != dtype or value.shape != shape:
        raise InputError(
            f"sparse matrix: expected {name} of {dtype} {list(shape)}, "
            f"found {value.dtype} {list(value.shape)}"
        )
    return dense_array(np, value, "sparse matrix")


def checked_out(out: Any, shape: Tuple[int, ...], dtype: Any, x: Any) -> None:
    """InputError if `out` cannot hold a result of `shape`, or overlaps x."""
    np = numpy()
    refuse_masked(out, "sparse matrix: out")
    if not (isinstance(out, np.ndarray) and out.shape == shape and out.dtype == dtype):
        raise InputError(
            f"sparse matrix: expected out to be a writable array of {dtype} {list(shape)}, "
            f"found {getattr(out, 'dtype', type(out).__name__)} {list(getattr(out, 'shape', []))}"
        )
    if not out.flags.writeable:
        raise InputError("sparse matrix: expected out to be writable, found a read-only array")
    if not (out.flags.c_contiguous and out.flags.aligned):
        raise InputError(
            "sparse matrix: expected out with adjacent, aligned elements, found strides "
            f"{list(out.strides)}{'' if out.flags.aligned else ', not aligned'}; "
            "use an array of its own"
        )
    if np.may_share_memory(out, x):
        raise InputError("sparse matrix: expected out and x to be separate, found shared memory")


def check_memory(what: str, need: int, memory: Callable[[], MemoryBytes] = memory_bytes) -> None:
    """InputError if this machine, whose memory `memory` returns, lacks room for `need` bytes."""
    have = memory().available
    if have is not None and need > have // 2:
        raise InputError(
            f"{what}: expected to need at most half of the {have} free bytes of memory, found "
            f"{need}; cut the matrix into parts or use a machine with more"
        )


def refuse_not_finite(x: Any) -> None:
    """InputError if x is the cause of a result that is not finite."""
    np = numpy()
    bad = np.argwhere(~np.isfinite(x))
    if len(bad):
        at = tuple(int(i) for i in bad[0])
        where = ", ".join(map(str, at))
        raise InputError(f"sparse matrix: expected finite x, found {x[at]} at [{where}]")


def checked_shape(shape: Any) -> Tuple[int, int]:
    """Returns rows and columns; InputError if they are not two sizes."""
    try:
        rows, cols = (int(extent) for extent in shape)
        whole = (rows, cols) == tuple(shape)
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole or not (0 <= rows <= _LARGEST and 0 <= cols <= _LARGEST):
        raise InputError(
            f"sparse matrix: expected a shape of two sizes from 0 to {_LARGEST}, found {shape!r}"
        )
    return rows, cols


def _check_values(np: Any, values: Any) -> Any:
    array = as_array(np, values, "sparse matrix: values")
    if array.ndim != 1:
        raise InputError(
            f"sparse matrix: expected values in 1 dimension, found {list(array.shape)}"
        )
    if array.dtype.name not in DTYPES:
        raise InputError(
            f"sparse matrix: expected values of {', '.join(DTYPES)}, found {array.dtype}"
        )
    with enough_memory("sparse matrix: values", "a copy", array.shape):
        return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


def _whole_numbers(np: Any, name: str, value: Any, dtype: Any) -> Any:
    array = as_array(np, value, f"sparse matrix: {name}")
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise InputError(
            f"sparse matrix: expected {name} of whole numbers in 1 dimension, "
            f"found {array.dtype} {list(array.shape)}"
        )
    limits = np.iinfo(dtype)
    if array.size and array.dtype.itemsize > np.dtype(dtype).itemsize:
        least, most = int(array.min()), int(array.max())
        if least < limits.min or most > limits.max:
            raise InputError(
                f"sparse matrix: expected {name} below 2^{limits.bits - 1}, "
                f"found {most if most > limits.max else least}"
            )
    with enough_memory(f"sparse matrix: {name}", "a copy", array.shape):
        return np.ascontiguousarray(array, dtype=dtype)
