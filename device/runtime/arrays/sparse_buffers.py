"""Sparse matrices and vectors of boards without NumPy, as objects with the buffer protocol."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import Any, Optional, Tuple

from edgekit.device.runtime.arrays import buffers
from edgekit.device.runtime.arrays.buffers import Buffer
from edgekit.device.runtime.arrays.sparse_input import checked_shape, library
from edgekit.device.runtime.arrays.sparse_library import OPERANDS, SUMS, CsrRows
from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.device.runtime.errors import InputError

_VALUES = ("f32", "f64", "f16", "s8")


@dataclass(frozen=True)
class BufferCsr:
    """A CSR matrix: int64 offsets [rows + 1], int32 columns and values."""

    shape: Tuple[int, int]
    offsets: Buffer
    columns: Buffer
    values: Buffer

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    @property
    def stored(self) -> str:
        return self.values.dtype

    @property
    def data(self) -> range:
        """As many elements as there are values."""
        return range(self.values.shape[0])

    def rows(self) -> CsrRows:
        """The arrays' addresses, valid while this object is alive."""
        parts = (self.offsets, self.columns, self.values)
        return CsrRows(self.stored, *self.shape, *(part.address for part in parts))


def csr_of_buffers(indptr: Any, indices: Any, data: Any, shape: Any) -> BufferCsr:
    """Builds CSR from offsets, columns that ascend in each row, and values; else InputError."""
    rows, cols = checked_shape(shape)
    values = buffers.readable(data, "sparse matrix: data")
    if values.dtype not in _VALUES or len(values.shape) != 1:
        raise InputError(
            f"sparse matrix: expected values of {', '.join(_VALUES)} in 1 dimension, found "
            f"{values.dtype} {list(values.shape)}"
        )
    found = values.shape[0]
    offsets = _integers(indptr, "indptr", "s64", rows + 1)
    columns = _integers(indices, "indices", "s32", found)
    ends = buffers.element(offsets, 0), buffers.element(offsets, rows)
    if ends != (0, found):
        raise InputError(
            f"sparse matrix: expected indptr from 0 to {found}, found {ends[0]} to {ends[1]}"
        )
    csr = BufferCsr((rows, cols), offsets, columns, values)
    fault = library().check(csr.rows())
    if fault.kind != "good":
        wanted, found_there = {
            "start": ("ascending offsets", (offsets, fault.row + 1)),
            "index": (f"columns from 0 to {cols - 1}", (columns, fault.at)),
            "finite": ("finite values", (values, fault.at)),
            "unsorted": ("columns that ascend, or NumPy to sort them", (columns, fault.at)),
        }[fault.kind]
        raise InputError(
            f"sparse matrix: row {fault.row}: expected {wanted}, found "
            f"{buffers.element(*found_there)}"
        )
    return csr


def vectors_of(
    x: Any, out: Optional[Any], shape: Tuple[int, int], stored: str
) -> Tuple[Buffer, Buffer, Any]:
    """Returns the memory of x and of the result, and the result: `out`, or a new memoryview."""
    given = buffers.readable(x, "sparse matrix: x")
    buffers.checked(given, OPERANDS[stored], (shape[1],), "sparse matrix: x")
    if out is None:
        y, result = buffers.fresh(SUMS[stored], (shape[0],), "sparse matrix")
        return given, result, y
    result = buffers.writable(out, "sparse matrix: out", BY_NAME[SUMS[stored]].bytes)
    buffers.checked(result, SUMS[stored], (shape[0],), "sparse matrix: out")
    if buffers.overlap(given, result):
        raise InputError("sparse matrix: expected out and x to be separate, found shared memory")
    return given, result, out


def refuse_not_finite_buffer(x: Buffer) -> None:
    """InputError if x is the cause of a result that is not finite."""
    for i in range(x.shape[0]):
        if not math.isfinite(value := buffers.element(x, i)):
            raise InputError(f"sparse matrix: expected finite x, found {value} at [{i}]")


def _integers(value: Any, name: str, dtype: str, count: int) -> Buffer:
    """The memory of integers, widened or narrowed to `dtype` if necessary."""
    found = buffers.readable(value, f"sparse matrix: {name}")
    if found.shape != (count,) or found.dtype not in ("s32", "s64", "u32", "u64"):
        raise InputError(
            f"sparse matrix: expected {name} of {count} integers of 32 or 64 bits, found "
            f"{found.dtype} {list(found.shape)}"
        )
    if found.dtype == dtype:
        return found
    given = array(buffers.FORMATS[found.dtype], memoryview(value).tobytes())
    try:
        converted = array(buffers.FORMATS[dtype], given)
    except OverflowError:
        raise InputError(f"sparse matrix: expected {name} of {dtype}, found a larger one") from None
    return buffers.readable(converted, f"sparse matrix: {name}")
