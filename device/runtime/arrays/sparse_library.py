"""Binds the kernels library's sparse matrices through ctypes.

Standard library only: arrays are addresses, so that boards without NumPy can measure.
"""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Tuple

from edgekit.device.runtime.arrays.gemm_library import Block
from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings, default_settings
from edgekit.device.runtime.arrays.sparse_table import (
    MatrixFeatures,
    SparseChoice,
    SpmvTable,
    read_table,
)
from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.device.runtime.errors import InputError
from edgekit.device.runtime.pools import LibraryPools
from edgekit.device.runtime.shared_library import check_core, open_library

STORED = ("f32", "f64", "f16", "s8", "s8f")  # indexes are ek_sparse_dtype
# For each of them, the types of a value, of x, and of y.
_VALUES = {"f32": "f32", "f64": "f64", "f16": "f16", "s8": "s8", "s8f": "s8"}
OPERANDS = {"f32": "f32", "f64": "f64", "f16": "f32", "s8": "s8", "s8f": "f32"}
SUMS = {"f32": "f32", "f64": "f64", "f16": "f32", "s8": "s32", "s8f": "f32"}
VALUE_BYTES, OPERAND_BYTES, SUM_BYTES = (
    {stored: BY_NAME[dtype].bytes for stored, dtype in types.items()}
    for types in (_VALUES, OPERANDS, SUMS)
)
KINDS = ("lanes", "wide", "diagonal", "windows", "packed")  # indexes are ek_strip_kind
_FAULTS = ("good", "start", "index", "finite", "unsorted")


class Strip(ctypes.Structure):
    """ek_strip of sparse.h."""

    _fields_ = (
        ("slot", ctypes.c_int64),
        ("index", ctypes.c_int64),
        *((name, ctypes.c_uint32) for name in ("slots", "base", "at", "steps", "row")),
        *((name, ctypes.c_uint8) for name in ("kind", "index_bytes", "rows", "in_order")),
    )


class _Sparse(ctypes.Structure):
    """ek_sparse of sparse.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("dtype", "height", "width")),
        *(
            (name, ctypes.c_int64)
            for name in ("rows", "cols", "nonzeros", "strips", "slots", "index_bytes", "parts")
        ),
        ("part", ctypes.c_void_p),
        ("strip", ctypes.POINTER(Strip)),
        *((name, ctypes.c_void_p) for name in ("values", "index", "order", "length")),
    )


class _Rows(ctypes.Structure):
    """ek_rows of sparse.h."""

    _fields_ = (
        ("rows", ctypes.c_int64),
        ("cols", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("start", "index", "values")),
        ("dtype", ctypes.c_int32),
    )


class _Features(ctypes.Structure):
    """ek_rows_features of sparse.h."""

    _fields_ = (
        ("longest", ctypes.c_int64),
        *((name, ctypes.c_double) for name in ("mean", "deviation", "span")),
    )


class _Settings(ctypes.Structure):
    """ek_sparse_settings of sparse.h."""

    _fields_ = tuple(
        (name, ctypes.c_int32)
        for name in (
            "width",
            "window",
            "wide_from",
            "diagonal",
            "windows",
            "index_bytes",
            "columns",
        )
    )


class _Plan(ctypes.Structure):
    """ek_spmm_plan of sparse.h."""

    _fields_ = (
        ("panels", ctypes.c_int64),
        ("pairs", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("pair", "columns", "values")),
    )


class _Weights(ctypes.Structure):
    """ek_spmm_weights of sparse.h."""

    _fields_ = (
        ("dtype", ctypes.c_int32),
        ("index_bytes", ctypes.c_int32),
        ("rows", ctypes.c_int64),
        ("cols", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("start", "index", "values", "scale")),
        ("plan", ctypes.POINTER(_Plan)),
    )


class _Product(ctypes.Structure):
    """ek_spmm_args of sparse.h."""

    _fields_ = (
        ("a", ctypes.POINTER(_Weights)),
        ("x", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("pixels", "x_row", "y_row")),
        ("bias", ctypes.c_void_p),
        ("low", ctypes.c_float),
        ("high", ctypes.c_float),
        ("vectors", ctypes.c_int32),
        ("copy", ctypes.c_int32),
        ("residual", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class CsrRows:
    """A CSR matrix: addresses of int64 offsets, int32 columns and the values."""

    dtype: str
    rows: int
    cols: int
    start: int
    index: int
    values: int

    def in_c(self) -> _Rows:
        number = STORED.index(self.dtype)
        return _Rows(self.rows, self.cols, self.start, self.index, self.values, number)


@dataclass(frozen=True)
class Fault:
    """The first fault of a matrix: kind, row, and position among the non-zeros."""

    kind: str
    row: int
    at: int


@dataclass(frozen=True)
class SpmmPlan:
    """ek_spmm_plan: counts, and addresses of pairs, columns and values."""

    panels: int
    pairs: int
    pair: int
    columns: int
    values: int

    def in_c(self) -> _Plan:
        return _Plan(self.panels, self.pairs, self.pair, self.columns, self.values)


@dataclass(frozen=True)
class SparseProduct:
    """Y[rows, pixels] = A · X[cols, pixels], the arguments of ek_spmm; addresses, 0 for none."""

    dtype: str
    rows: int
    cols: int
    index_bytes: int
    start: int
    index: int
    values: int
    scale: int
    x: int
    y: int
    pixels: int
    x_row: int
    y_row: int
    bias: int = 0
    low: float = float("-inf")
    high: float = float("inf")
    vectors: int = 0
    copy: int = -1
    plan: Optional[SpmmPlan] = None

    def in_c(self) -> _Product:
        weights = _Weights(
            *(STORED.index(self.dtype), self.index_bytes, self.rows, self.cols),
            *(self.start, self.index, self.values, self.scale or None),
            ctypes.pointer(self.plan.in_c()) if self.plan else None,
        )
        return _Product(
            *(ctypes.pointer(weights), self.x, self.y, self.pixels, self.x_row, self.y_row),
            *(self.bias or None, self.low, self.high, self.vectors, self.copy),
        )


class BlockMatrix:
    """A matrix in block format; its memory is freed with the object. calls: per number of threads,
    the arguments of a product other than x and y."""

    def __init__(self, lib: ctypes.CDLL, sparse: _Sparse) -> None:
        self.c = sparse
        self.calls: Dict[int, Tuple[Any, Block, Optional[int]]] = {}
        self._release = weakref.finalize(self, lib.ek_sparse_free, ctypes.byref(sparse))

    @property
    def streamed(self) -> int:
        """Bytes of values and indices, which every product reads."""
        m = self.c
        return int(m.slots * m.height * VALUE_BYTES[STORED[m.dtype]] + m.index_bytes)

    @property
    def bytes(self) -> int:
        """Memory of all arrays in bytes."""
        m = self.c
        return int(self.streamed + m.strips * ctypes.sizeof(Strip) + m.parts * m.rows * 8)

    def strips(self) -> Tuple[Strip, ...]:
        """Copies of all strips."""
        return tuple(Strip.from_buffer_copy(self.c.strip[i]) for i in range(self.c.strips))


class SparseLibrary:
    """The sparse functions of libedgekit-kernels.so; only one thread at a time may multiply."""

    def __init__(self, path: Path, table: Optional[Path] = None) -> None:
        """IncompatibleError if this CPU lacks a required feature or the table is of another core,
        InputError if the table is damaged."""
        self._lib = open_library(path, "the kernels library of edgekit")
        _declare_signatures(self._lib)
        self._pools = LibraryPools(self._lib)
        self._table = read_table(table) if table else SpmvTable()
        if table:
            check_core(self._lib, table, self._table.platform)

    def height(self, dtype: str) -> int:
        """Returns the rows of a strip: register bits over the bits of a sum."""
        return int(self._lib.ek_sparse_height(STORED.index(dtype)))

    def panel(self) -> int:
        """Returns the columns of a Plan's panel."""
        return int(self._lib.ek_spmm_panel())

    def check(self, rows: CsrRows) -> Fault:
        """Checks offsets, columns and values; kind is good, start, index, finite or unsorted."""
        row, at = ctypes.c_int64(), ctypes.c_int64()
        code = self._lib.ek_rows_check(
            ctypes.byref(rows.in_c()), ctypes.byref(row), ctypes.byref(at)
        )
        return Fault(_FAULTS[code], row.value, at.value)

    def features(self, rows: CsrRows) -> MatrixFeatures:
        """Computes a matrix's lookup features; `rows` must have passed `check`."""
        c = rows.in_c()
        found = self._lib.ek_rows_measure(ctypes.byref(c))
        start = ctypes.cast(rows.start, ctypes.POINTER(ctypes.c_int64))
        sizes = (rows.dtype, rows.rows, rows.cols, int(start[rows.rows]))
        return MatrixFeatures(*sizes, found.mean, found.deviation, found.longest, found.span)

    def settings_for(self, found: MatrixFeatures) -> SparseChoice:
        """Returns the table's settings for a matrix, else the patent's rule."""
        return self._table.lookup(found, self.default_settings(found))

    def default_settings(self, found: MatrixFeatures) -> BlockSettings:
        """Returns the patent's rule for this library's vectors."""
        return default_settings(found.mean, self.height(found.stored), VALUE_BYTES[found.stored])

    def sort_entries(
        self, shape: CsrRows, entries: int, row: int, col: int, start: int, index: int, values: int
    ) -> int:
        """Sorts entries (f32 or f64) into rows and sums duplicates; returns the remaining count, or
        -1 - i if entry i is the first one out of range. shape.values: the entries' values."""
        scratch = Block(8 * (entries + shape.cols + 1))
        c = shape.in_c()
        where = (row, col, start, index, values, scratch.address)
        return int(self._lib.ek_coo_to_rows(ctypes.byref(c), entries, *where))

    def build(self, rows: CsrRows, how: BlockSettings) -> BlockMatrix:
        """Converts to the block format; `rows` must have passed `check`."""
        sparse = _Sparse()
        settings = _Settings(
            *(how.width, how.window, how.wide_from),
            *(int(how.diagonal), int(how.windows), how.index_bytes, how.columns),
        )
        c = rows.in_c()
        if self._lib.ek_sparse_build(ctypes.byref(c), ctypes.byref(settings), ctypes.byref(sparse)):
            raise InputError(
                f"sparse matrix: expected memory for {rows.rows} rows in blocks, found too "
                "little; free some or cut the matrix into parts"
            )
        return BlockMatrix(self._lib, sparse)

    def to_rows(self, stored: BlockMatrix, start: int, index: int, values: int) -> None:
        """Converts back, without padding, into the caller's arrays."""
        self._lib.ek_sparse_to_rows(ctypes.byref(stored.c), start, index, values)

    def spmv(self, stored: BlockMatrix, x: int, y: int, threads: int = 1) -> bool:
        """y = A · x; returns whether all of y is finite."""
        matrix, scratch, pool = stored.calls.get(threads) or self._prepare_call(stored, threads)
        return not self._lib.ek_spmv(matrix, x, y, threads, scratch.address, pool)

    def spmv_timer(self, stored: BlockMatrix, x: int, y: int, threads: int) -> Callable[[int], int]:
        """Returns a function of a count: nanoseconds of that many consecutive products."""
        matrix, scratch, pool = self._prepare_call(stored, threads)
        time = self._lib.ek_spmv_time
        return lambda count: int(time(matrix, x, y, threads, scratch.address, pool, count))

    def spmm(self, product: SparseProduct, threads: int = 1) -> None:
        """Computes the product."""
        args = product.in_c()
        self._lib.ek_spmm(ctypes.byref(args), self._pools.address(threads))

    def spmm_timer(self, product: SparseProduct, threads: int) -> Callable[[int], int]:
        """Returns a timer (see spmv_timer) of `product`."""
        args, pool, time = product.in_c(), self._pools.address(threads), self._lib.ek_spmm_time
        return lambda count: int(time(ctypes.byref(args), pool, count))

    def triad_timer(self, floats: int, threads: int) -> Callable[[int], int]:
        """Returns a timer (see spmv_timer) of STREAM's triad over arrays of `floats` floats: 12
        bytes each."""
        blocks = tuple(Block(4 * floats) for _ in range(3))
        pool, time = self._pools.address(threads), self._lib.ek_triad_time
        return lambda count: int(time(*(b.address for b in blocks), floats, pool, count))

    def gather_timer(self, x: int, index: int, count: int, threads: int) -> Callable[[int], int]:
        """Returns a timer (see spmv_timer) that only reads x (float32) at `count` int32 indices."""
        pool, time = self._pools.address(threads), self._lib.ek_gather_time
        return lambda times: int(time(x, index, count, pool, times))

    def _prepare_call(self, stored: BlockMatrix, threads: int) -> Tuple[Any, Block, Optional[int]]:
        matrix = ctypes.byref(stored.c)
        scratch = Block(self._lib.ek_spmv_scratch_bytes(matrix, threads))
        stored.calls[threads] = matrix, scratch, self._pools.address(threads)
        return stored.calls[threads]


def _declare_signatures(lib: ctypes.CDLL) -> None:
    number, size, address = ctypes.c_int, ctypes.c_long, ctypes.c_void_p
    wide, time = ctypes.c_int64, ctypes.c_uint64
    rows, sparse = ctypes.POINTER(_Rows), ctypes.POINTER(_Sparse)
    product = (sparse, address, address, number, address, address)
    place = ctypes.POINTER(wide)
    signatures: Tuple[Tuple[str, Any, Tuple[Any, ...]], ...] = (
        ("ek_sparse_height", number, (number,)),
        ("ek_spmm_panel", number, ()),
        ("ek_rows_check", number, (rows, place, place)),
        ("ek_rows_measure", _Features, (rows,)),
        ("ek_coo_to_rows", wide, (rows, wide, *(address,) * 6)),
        ("ek_sparse_build", number, (rows, ctypes.POINTER(_Settings), sparse)),
        ("ek_sparse_free", None, (sparse,)),
        ("ek_sparse_to_rows", None, (sparse, address, address, address)),
        ("ek_spmv_scratch_bytes", ctypes.c_size_t, (sparse, number)),
        ("ek_spmv", number, product),
        ("ek_spmv_time", time, (*product, size)),
        ("ek_triad_time", time, (address, address, address, size, address, size)),
        ("ek_gather_time", time, (address, address, size, address, size)),
        ("ek_spmm", None, (ctypes.POINTER(_Product), address)),
        ("ek_spmm_time", time, (ctypes.POINTER(_Product), address, size)),
    )
    for name, result, arguments in signatures:
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
