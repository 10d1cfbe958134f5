"""Binds the kernels library's outlier split through ctypes.

Standard library only: arrays are addresses.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional, Tuple

from edgekit.device.runtime.arrays.gemm_library import (
    DTYPES,
    Block,
    GemmLibrary,
    MethodInC,
)
from edgekit.device.runtime.kernel_facts import OUTLIER_PADDING
from edgekit.device.runtime.pools import LibraryPools
from edgekit.device.runtime.shared_library import open_library

PATHS = ("auto", "split", "int8", "float")  # indexes are ek_outlier_path
_B_SIDE = 1
_ALIGN = 64
_KEPT_CALLS = 64  # of one matrix
_DONE, _MEMORY, _NOT_FINITE = range(3)


class _Weights(ctypes.Structure):
    """ek_outlier_weights of outlier.h."""

    _fields_ = (
        *((name, ctypes.c_long) for name in ("n", "k", "group")),
        ("b", ctypes.c_void_p),
        ("b_bytes", ctypes.c_size_t),
        ("scale", ctypes.c_void_p),
        ("excess", ctypes.c_void_p),
        ("how", MethodInC),
        ("is_int4", ctypes.c_int32),
    )


class _Args(ctypes.Structure):
    """ek_outlier_args of outlier.h."""

    _fields_ = (
        ("weights", ctypes.POINTER(_Weights)),
        *((name, ctypes.c_long) for name in ("m", "x_row", "y_row")),
        ("x", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        *((name, ctypes.c_int32) for name in ("half", "path", "absmax_row", "check_finite")),
        ("threshold", ctypes.c_float),
        ("rows_per_scale", ctypes.c_long),
        ("how", MethodInC),
    )


class _Report(ctypes.Structure):
    """ek_outlier_report of outlier.h."""

    _fields_ = (
        ("path", ctypes.c_int32),
        *((name, ctypes.c_long) for name in ("outliers", "row", "channel")),
        *((name, ctypes.c_size_t) for name in ("bytes", "marks", "x1", "x2", "w4", "tile")),
        *((name, ctypes.c_double) for name in ("split_cost", "float_cost")),
    )


class Options(NamedTuple):
    """A product's options, see outlier_matmul."""

    threshold: float
    path: str = "auto"
    absmax_row: bool = False
    check_finite: bool = True
    rows_per_scale: int = 1


class DenseRows(NamedTuple):
    """X: address of m rows, `row` elements apart, of float32 or, if `half`, float16."""

    address: int
    m: int
    row: int
    half: bool


class NotFinite(Exception):  # noqa: N818 - a finding, which the caller words
    """X holds NaN or infinity, first at (row, channel)."""

    def __init__(self, row: int, channel: int) -> None:
        super().__init__(row, channel)
        self.row, self.channel = row, channel


@dataclass(frozen=True)
class OutlierReport:
    """A product's path, memory and costs. Bytes are of the workspace; tile: temporary blocks,
    scales, channel numbers. The compared costs are in float multiply-adds."""

    path: str
    outliers: int
    bytes: int
    marks: int
    x1: int
    x2: int
    w4: int
    tile: int
    split_cost: float
    float_cost: float


_Key = Tuple[int, int, bool, Options]  # rows, threads, float16
_Call = Tuple[_Args, _Report, Tuple[Any, Any], Optional[int]]


class Packed:
    """W in the integer product's layout, and cached calls that multiply with it."""

    def __init__(self, c: _Weights, memory: Tuple[Block, ...]) -> None:
        self.c = c
        self.memory = memory
        self.calls: Dict[_Key, _Call] = {}

    @property
    def bytes(self) -> int:
        return sum(block.bytes for block in self.memory)


class OutlierLibrary:
    """The outlier split of libedgekit-kernels.so; only one thread at a time may multiply."""

    def __init__(self, path: Path, table: Optional[Path] = None) -> None:
        """IncompatibleError if this CPU lacks a required feature, InputError if the table is
        damaged."""
        self._gemm = GemmLibrary(path, table)
        self._lib = open_library(path, "the kernels library of edgekit")
        _declare_signatures(self._lib)
        self.dtype = DTYPES[self._lib.ek_outlier_dtype()]
        self._pools = LibraryPools(self._lib)
        self._workspace = Block(0)

    def pack(
        self, n: int, k: int, group: int, values: int, scale: int, is_int4: bool = False
    ) -> Packed:
        """Packs W [k, n], int8 at `values`, with float scales [k / group, n]. is_int4: values of -8
        to 7, stored two per byte."""
        groups, padded = k // group if group else 0, -(-n // OUTLIER_PADDING) * OUTLIER_PADDING
        how = self._lib.ek_outlier_packing(self._gemm.table, n, group)
        operand = (DTYPES.index(self.dtype), _B_SIDE, n, group, ctypes.byref(how))
        whole = self._lib.ek_gemm_packed_bytes(*operand)
        halved = self._lib.ek_outlier_packed_i4_bytes(n, group, ctypes.byref(how))
        size = -(-(halved if is_int4 else whole) // _ALIGN) * _ALIGN
        b, scales, excess = (
            Block(groups * size),
            Block(4 * groups * padded),
            Block(4 * groups * padded),
        )
        once = Block(whole) if is_int4 else b
        for i in range(groups):
            source, to = values + i * group * n, b.address + i * size
            self._lib.ek_gemm_pack(*operand, source, n, 1, once.address if is_int4 else to)
            if is_int4:
                self._lib.ek_outlier_pack_i4(n, group, ctypes.byref(how), once.address, to)
            row = 4 * i * padded
            ctypes.memmove(scales.address + row, scale + 4 * i * n, 4 * n)
            self._lib.ek_outlier_excess(source, n, group, excess.address + row)
        addresses = (b.address, size, scales.address, excess.address)
        c = _Weights(n, k, group, *addresses, how, int(is_int4))
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a library without it; only affects speed
                b.memory.madvise(mmap.MADV_HUGEPAGE)
        return Packed(c, (b, scales, excess))

    def rows(self, packed: Packed, channels: int, count: int, to: int) -> None:
        """Writes dequantized rows, padded; `channels`: address of int32."""
        self._lib.ek_outlier_rows(ctypes.byref(packed.c), channels, count, to)

    def mark(self, x: DenseRows, k: int, options: Options, marks: int) -> int:
        """Marks X in ceil(k / 32) words; returns the number of outliers. Raises NotFinite."""
        weights, report = _Weights(0, k, k), _Report()
        args = _Args(ctypes.pointer(weights), x.m, x.row, 0, x.address, None, int(x.half))
        args.check_finite, args.threshold = int(options.check_finite), options.threshold
        count = self._lib.ek_outlier_mark(ctypes.byref(args), marks, None, ctypes.byref(report))
        if count < 0:
            raise NotFinite(report.row, report.channel)
        return int(count)

    def run(self, x: DenseRows, packed: Packed, y: int, options: Options, threads: int) -> _Report:
        """Computes the product [m, n], with contiguous rows of Y. Raises NotFinite.

        The returned report is valid until the next product with these options.
        """
        key = (x.m, threads, x.half, options)
        call = packed.calls.get(key) or self._prepare_call(packed, key)
        args, report, by_reference, pool = call
        args.x, args.y, args.x_row = x.address, y, x.row
        while True:
            room = self._workspace
            status = self._lib.ek_outlier_run(
                by_reference[0], room.address, room.bytes, pool, by_reference[1]
            )
            if status != _MEMORY:
                break
            self._workspace = Block(0)  # free the old one first: both would need twice the memory
            del room
            self._workspace = Block(report.bytes)
        if status == _NOT_FINITE:
            raise NotFinite(report.row, report.channel)
        return report

    def marks_of_last(self, k: int) -> bytes:
        """Returns the marks of the last product: bit c % 8 of byte c // 8."""
        return bytes(self._workspace.memory[: -(-k // 8)])

    def _prepare_call(self, packed: Packed, key: _Key) -> _Call:
        m, threads, half, options = key
        weights = ctypes.pointer(packed.c)
        how = self._lib.ek_outlier_method(self._gemm.table, weights, m, threads)
        args = _Args(
            *(weights, m, 0, packed.c.n, None, None, int(half)),
            *(PATHS.index(options.path), int(options.absmax_row), int(options.check_finite)),
            *(options.threshold, options.rows_per_scale, how),
        )
        report = _Report()
        by_reference = ctypes.byref(args), ctypes.byref(report)
        if len(packed.calls) >= _KEPT_CALLS:
            packed.calls.clear()
        packed.calls[key] = args, report, by_reference, self._pools.address(threads)
        return packed.calls[key]


def reported(c: _Report) -> OutlierReport:
    """Copies the report of `run`, which is overwritten later."""
    sizes = (c.bytes, c.marks, c.x1, c.x2, c.w4, c.tile)
    return OutlierReport(PATHS[c.path], c.outliers, *sizes, c.split_cost, c.float_cost)


def _declare_signatures(lib: ctypes.CDLL) -> None:
    number, size, address = ctypes.c_int, ctypes.c_long, ctypes.c_void_p
    args, report = ctypes.POINTER(_Args), ctypes.POINTER(_Report)
    operand = (number, number, size, size, ctypes.POINTER(MethodInC))
    signatures: Tuple[Tuple[str, Any, Tuple[Any, ...]], ...] = (
        ("ek_outlier_dtype", number, ()),
        ("ek_outlier_run", number, (args, address, ctypes.c_size_t, address, report)),
        ("ek_outlier_mark", size, (args, address, address, report)),
        ("ek_outlier_packing", MethodInC, (address, size, size)),
        ("ek_outlier_method", MethodInC, (address, ctypes.POINTER(_Weights), size, number)),
        ("ek_outlier_excess", None, (address, size, size, address)),
        ("ek_outlier_packed_i4_bytes", ctypes.c_size_t, (size, size, ctypes.POINTER(MethodInC))),
        ("ek_outlier_pack_i4", None, (size, size, ctypes.POINTER(MethodInC), address, address)),
        ("ek_outlier_rows", None, (ctypes.POINTER(_Weights), address, size, address)),
        ("ek_gemm_packed_bytes", ctypes.c_size_t, operand),
        ("ek_gemm_pack", None, (*operand, address, size, size, address)),
    )
    for name, result, arguments in signatures:
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
