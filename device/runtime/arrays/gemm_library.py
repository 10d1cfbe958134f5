"""Binds the GEMM library, libedgekit-kernels.so, through ctypes.

Standard library only: operands are addresses, so that boards without NumPy can measure.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple

from edgekit.device.runtime.errors import IncompatibleError, InputError
from edgekit.device.runtime.pools import LibraryPools
from edgekit.device.runtime.shared_library import check_core, open_library

DTYPES = ("f32", "s8", "u8")  # of A; indexes are ek_gemm_dtype. For u8, B is s8
ELEMENT_BYTES = {"f32": 4, "s8": 1, "u8": 1}
HALF = "f16"  # of A, B and C, the index after these; computed by GemmLibrary.prepare_half
C_BYTES = 4  # of an element of C: f32 or s32
SIDES = ("a", "b")
_PACKED = {None: 0, "a": 4, "b": 8}  # or-ed into the dtype of a lookup
_RULES = ("exact", "relaxed:scale", "relaxed:m", "relaxed:n", "relaxed:k", "analytic")
_SPLITS = ("m", "n")
_LARGEST = (1 << 31) - 1
_NO_CLAMP = float("inf")
_Signatures = Tuple[Tuple[str, Any, Tuple[Any, ...]], ...]


class MethodInC(ctypes.Structure):
    """ek_gemm_method of gemm.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("mc", "kc", "nc", "mr", "nr")),
        *((name, ctypes.c_uint8) for name in ("pack_a", "pack_b", "split")),
    )


class _Epilogue(ctypes.Structure):
    """ek_gemm_epilogue of gemm.h."""

    _fields_ = (
        ("output", ctypes.c_int32),
        ("per_row", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("bias", "scale", "multiplier", "left", "right")),
        *((name, ctypes.c_int32) for name in ("zero", "low", "high")),
        ("low_f32", ctypes.c_float),
        ("high_f32", ctypes.c_float),
        ("callback", ctypes.c_void_p),
        ("callback_data", ctypes.c_void_p),
    )


class _Args(ctypes.Structure):
    """ek_gemm_args of gemm.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("dtype", "a_packed", "b_packed", "accumulate")),
        *((name, ctypes.c_long) for name in ("m", "n", "k")),
        *((name, ctypes.c_void_p) for name in ("a", "b", "c")),
        *((name, ctypes.c_long) for name in ("a_row", "a_col", "b_row", "b_col", "c_row", "c_col")),
        ("epilogue", _Epilogue),
    )


@dataclass(frozen=True)
class GemmMethod:
    """The method of a product: block sizes and register tile in elements, the operands to pack, and
    the axis split over threads. Fields match a row of the knowledge base."""

    mc: int
    kc: int
    nc: int
    pack_a: bool
    pack_b: bool
    mr: int
    nr: int
    split: str = "m"

    @staticmethod
    def of(value: Mapping[str, Any]) -> GemmMethod:
        """Parses a JSON object; InputError if a field is missing, unknown or out of range."""
        fields = dict(value)
        method = {name: fields.pop(name, None) for name in ("mc", "kc", "nc", "mr", "nr")}
        for name, size in method.items():
            if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= _LARGEST:
                raise InputError(f"method: expected {name} of 1 to {_LARGEST}, found {size!r}")
        packs = [fields.pop(name, None) for name in ("pack_a", "pack_b")]
        split = fields.pop("split", "m")
        if not all(isinstance(pack, bool) for pack in packs) or split not in _SPLITS or fields:
            raise InputError(
                "method: expected pack_a and pack_b true or false and a split of m or n, "
                f"found {str(dict(value))[:200]}"
            )
        return GemmMethod(pack_a=packs[0], pack_b=packs[1], split=split, **method)

    def in_c(self) -> MethodInC:
        """Converts to the C struct."""
        split = _SPLITS.index(self.split)
        sizes = (self.mc, self.kc, self.nc, self.mr, self.nr)
        return MethodInC(*sizes, int(self.pack_a), int(self.pack_b), split)

    @staticmethod
    def _from_c(how: MethodInC) -> GemmMethod:
        packs = bool(how.pack_a), bool(how.pack_b)
        return GemmMethod(how.mc, how.kc, how.nc, *packs, how.mr, how.nr, _SPLITS[int(how.split)])


@dataclass(frozen=True)
class Operand:
    """A matrix in memory: address, and strides in elements. `packed`: made by `pack`."""

    address: int
    row: int
    col: int
    packed: bool = False


@dataclass(frozen=True)
class Product:
    """C[m, n] = A[m, k] . B[k, n] + bias; `bias` is an address, 0 for none, along n or, with
    `bias_per_row`, along m. The caller keeps the memory alive."""

    dtype: str
    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    c: Operand
    bias: int = 0
    bias_per_row: bool = False

    def _in_c(self) -> _Args:
        code = _operand_code(self.dtype, None)
        args = _Args(code, int(self.a.packed), int(self.b.packed), 0)
        args.m, args.n, args.k = self.m, self.n, self.k
        for name, operand in (("a", self.a), ("b", self.b), ("c", self.c)):
            setattr(args, name, operand.address)
            setattr(args, f"{name}_row", operand.row)
            setattr(args, f"{name}_col", operand.col)
        args.epilogue.bias = self.bias or None
        args.epilogue.per_row = int(self.bias_per_row)
        args.epilogue.low_f32, args.epilogue.high_f32 = -_NO_CLAMP, _NO_CLAMP
        return args


class GemmLibrary:
    """libedgekit-kernels.so with its platform's table; only one thread at a time may use it.

    The C library does not check sizes: m, n and k must be at least 0 and fit a C long.
    """

    def __init__(self, path: Path, table: Optional[Path] = None) -> None:
        """Loads the library, and the table if given. IncompatibleError if this CPU lacks a required
        feature or the table is of another core, InputError if the table is damaged."""
        self._lib = open_library(path, "the GEMM library of edgekit")
        _declare_signatures(self._lib)
        self._has_half = hasattr(self._lib, "ek_gemm_f16_run")
        if self._has_half:
            _declare_half_signatures(self._lib)
        self._pools = LibraryPools(self._lib)
        self._scratch = Block(0)
        self.table = self._open_table(table)  # for functions of the library; None: none

    def tiles(self, dtype: str) -> Tuple[str, ...]:
        """Returns register tiles such as "8x48"; "1x0" and "0x1" denote products with a vector."""
        found: bytes = self._lib.ek_gemm_tiles(DTYPES.index(dtype))
        return tuple(found.decode().split(","))

    def lookup(
        self, dtype: str, m: int, n: int, k: int, threads: int = 1, side: Optional[str] = None
    ) -> Tuple[GemmMethod, str]:
        """Returns the table's method for a product, and the rule that found it.

        `side` is the operand that is packed beforehand, if any.
        """
        rule = ctypes.c_int()
        kind = _operand_code(dtype, side)
        how = self._lib.ek_gemm_lookup(self.table, kind, threads, m, n, k, ctypes.byref(rule))
        return GemmMethod._from_c(how), _RULES[rule.value]

    def row_shape(
        self, dtype: str, m: int, n: int, k: int, threads: int = 1
    ) -> Optional[Tuple[int, int, int]]:
        """Returns m, k and n of the product on which the matching row was measured, if there is
        one."""
        shape = (ctypes.c_int64 * 3)()
        kind = _operand_code(dtype, None)
        found = self._lib.ek_gemm_row_shape(self.table, kind, threads, m, n, k, shape)
        return (shape[0], shape[1], shape[2]) if found else None

    def default(
        self, dtype: str, m: int, n: int, k: int, threads: int = 1, side: Optional[str] = None
    ) -> GemmMethod:
        """Returns the method derived from the caches and the vector length."""
        how = self._lib.ek_gemm_default(_operand_code(dtype, side), threads, m, n, k)
        return GemmMethod._from_c(how)

    def pack(
        self, dtype: str, side: str, extent: int, k: int, how: GemmMethod, source: Operand
    ) -> Block:
        """Returns A (side "a", extent m) or B ("b", extent n), packed as `how` requires."""
        where = (DTYPES.index(dtype), SIDES.index(side), extent, k)
        method = how.in_c()
        size = self._lib.ek_gemm_packed_bytes(*where, ctypes.byref(method))
        block = Block(size)
        self._lib.ek_gemm_pack(
            *where, ctypes.byref(method), source.address, source.row, source.col, block.address
        )
        return block

    def run(self, product: Product, how: GemmMethod, threads: int = 1) -> None:
        """Computes the product."""
        self.prepare(product, how, threads)()

    def prepare(self, product: Product, how: GemmMethod, threads: int = 1) -> Callable[[], None]:
        """Returns a function that computes the product, until the next one is prepared."""
        args, method = product._in_c(), how.in_c()
        scratch = self._scratch_for(args, method, threads)
        return functools.partial(
            self._lib.ek_gemm_run,
            *(ctypes.byref(args), ctypes.byref(method), scratch, self._pools.address(threads)),
        )

    @property
    def computes_half(self) -> bool:
        """Whether the library and this CPU compute products of f16."""
        return self._has_half and self._lib.ek_gemm_f16_missing() is None

    def prepare_half(
        self, product: Product, how: GemmMethod, threads: int = 1
    ) -> Callable[[], None]:
        """Returns a function that computes a product of f16. Rows of A and C are contiguous. Only
        if `computes_half`."""
        args, method = product._in_c(), how.in_c()
        where = (ctypes.byref(args), ctypes.byref(method), self._pools.address(threads))
        return functools.partial(self._lib.ek_gemm_f16_run, *where)

    def timer(
        self,
        product: Product,
        how: GemmMethod,
        threads: int = 1,
        look_up: bool = False,
        keep: object = None,
    ) -> Timer:
        """Returns a timer for this product; with `look_up`, each run first looks up its method.

        `keep` owns the operands' memory and is kept alive by the timer.
        """
        args, method = product._in_c(), how.in_c()
        size = self._lib.ek_gemm_scratch_bytes(ctypes.byref(args), ctypes.byref(method), threads)
        table = self.table if look_up else None
        kept = (Block(size), keep)
        return Timer(self._lib, table, args, method, threads, kept, self._pools.address(threads))

    def lookup_nanoseconds(
        self,
        dtype: str,
        shapes: Sequence[Tuple[int, int, int]],
        rounds: int,
        threads: int = 1,
        side: Optional[str] = None,
    ) -> float:
        """Returns nanoseconds per lookup, averaged over `rounds` times all shapes (m, n, k)."""
        flat = [size for shape in shapes for size in shape]
        numbers = (ctypes.c_long * max(len(flat), 1))(*flat)
        total = self._lib.ek_gemm_lookup_time(
            self.table, _operand_code(dtype, side), threads, numbers, len(shapes), rounds
        )
        return float(total) / max(len(shapes) * rounds, 1)

    def close(self) -> None:
        """Stops the threads and frees the table; the object is unusable afterwards."""
        self._pools.leave()
        self._lib.ek_gemm_table_close(self.table)
        self.table = None

    def _open_table(self, path: Optional[Path]) -> Optional[int]:
        if path is None:
            return None
        data = path.read_bytes()
        table: Optional[int] = self._lib.ek_gemm_table_open(data, len(data))
        if not table:
            raise InputError(
                f"{path}: expected the GEMM table of this edgekit, found {len(data)} bytes of "
                "another format; build it again, with this version of edgekit"
            )
        core: bytes = self._lib.ek_gemm_table_platform(table)
        check_core(self._lib, path, core.decode(errors="replace"))
        return table

    def _scratch_for(self, args: _Args, method: MethodInC, threads: int) -> int:
        size = self._lib.ek_gemm_scratch_bytes(ctypes.byref(args), ctypes.byref(method), threads)
        if size > self._scratch.bytes:
            self._scratch = Block(size)
        return self._scratch.address


class Timer:
    """One product and one method, ready for repetition."""

    def __init__(
        self,
        lib: ctypes.CDLL,
        table: Optional[int],
        args: _Args,
        method: MethodInC,
        threads: int,
        kept: Tuple[Block, object],
        pool: Optional[int],
    ) -> None:
        self._time = lib.ek_gemm_time
        self._keep = kept
        self._arguments: List[Any] = [
            table, ctypes.byref(args), ctypes.byref(method), threads, kept[0].address, pool
        ]  # fmt: skip

    def __call__(self, count: int) -> int:
        """Returns nanoseconds of `count` consecutive products."""
        return int(self._time(*self._arguments, count))


class Block:
    """Zeroed, page-aligned memory, freed with the object."""

    def __init__(self, size: int) -> None:
        self.bytes = size
        try:
            self.memory = mmap.mmap(-1, max(size, 1))
        except (OSError, OverflowError, ValueError):
            raise InputError(
                f"expected {size} bytes of memory, found that the system refused; free some or "
                "multiply in parts"
            ) from None
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))


def _operand_code(dtype: str, side: Optional[str]) -> int:
    return (*DTYPES, HALF).index(dtype) | _PACKED[side]


def _declare_signatures(lib: ctypes.CDLL) -> None:
    """Declares all signatures; without them ctypes truncates sizes and addresses to 32 bits."""
    args, how = ctypes.POINTER(_Args), ctypes.POINTER(MethodInC)
    number, size, address = ctypes.c_int, ctypes.c_long, ctypes.c_void_p
    bytes_, time = ctypes.c_size_t, ctypes.c_uint64
    operand = (number, number, size, size, how)
    numbers, rule = ctypes.POINTER(size), ctypes.POINTER(number)
    signatures: _Signatures = (
        ("ek_gemm_tiles", ctypes.c_char_p, (number,)),
        ("ek_gemm_default", MethodInC, (number, number, size, size, size)),
        ("ek_gemm_packed_bytes", bytes_, operand),
        ("ek_gemm_pack", None, (*operand, address, size, size, address)),
        ("ek_gemm_scratch_bytes", bytes_, (args, how, number)),
        ("ek_gemm_run", None, (args, how, address, address)),
        ("ek_gemm_table_open", address, (ctypes.c_char_p, bytes_)),
        ("ek_gemm_table_close", None, (address,)),
        ("ek_gemm_table_platform", ctypes.c_char_p, (address,)),
        ("ek_gemm_lookup", MethodInC, (address, number, number, size, size, size, rule)),
        ("ek_gemm_row_shape", number, (address, number, number, size, size, size, address)),
        ("ek_gemm_time", time, (address, args, how, number, address, address, size)),
        ("ek_gemm_lookup_time", time, (address, number, number, numbers, size, size)),
    )
    _declare(lib, signatures)


def _declare_half_signatures(lib: ctypes.CDLL) -> None:
    operands = ctypes.POINTER(_Args), ctypes.POINTER(MethodInC), ctypes.c_void_p
    _declare(
        lib,
        (
            ("ek_gemm_f16_missing", ctypes.c_char_p, ()),
            ("ek_gemm_f16_run", None, operands),
        ),
    )


def _declare(lib: ctypes.CDLL, signatures: _Signatures) -> None:
    for name, result, arguments in signatures:
        function = getattr(lib, name, None)
        if function is None:
            raise IncompatibleError(
                f"expected a GEMM library with {name}, found one without; "
                "build it again, with this version of edgekit"
            )
        function.restype, function.argtypes = result, arguments
