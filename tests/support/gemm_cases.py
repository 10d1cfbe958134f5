"""Random products for the GEMM library, with NumPy's results; runs gemm_products.c."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.ir.quantization import Multiplier
from edgekit.host.compiler.ir.types import Array
from edgekit.host.compiler.toolchain.kernels import kernel_units
from edgekit.host.compiler.toolchain.zig import TranslationUnit
from edgekit.kb.targets.board import BoardProfile
from tests.support.cases_model import described, run_cases
from tests.support.toolchains import toolchain_for

PRODUCTS = Path(__file__).with_name("gemm_products.c")
DTYPES = ("f32", "s8", "u8")  # in the order of ek_gemm_dtype
OUTPUTS = ("plain", "float", "quantize")  # in the order of ek_gemm_output
_SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 65, 97)
_DEPTHS = (*_SIZES, 127, 128, 130, 195)
_TILES = (
    *((8, 48), (12, 32), (24, 16), (1, 128), (128, 1), (1, 1), (4, 4), (5, 17), (48, 7)),
    *((32, 32), (32, 16), (32, 31)),
)
Rng = np.random.Generator


@dataclass(frozen=True)
class Layout:
    """A matrix in a memory block: `start` in elements, then row and column strides."""

    block: Array
    start: int
    row: int
    column: int
    shape: tuple[int, int]

    def view(self, block: Array | None = None) -> Array:
        """The matrix, or the one at the same position in another block."""
        flat = self.block if block is None else block
        size = flat.itemsize
        if 0 in self.shape:
            return np.zeros(self.shape, flat.dtype)
        return np.lib.stride_tricks.as_strided(
            flat[self.start :], self.shape, (self.row * size, self.column * size)
        )


@dataclass(frozen=True)
class Epilogue:
    """ek_gemm_epilogue; vectors are NumPy arrays or None."""

    output: str = "plain"
    per_row: bool = False
    bias: Array | None = None
    scale: Array | None = None
    factor: Multiplier | None = None
    zero: int = 0
    limits: tuple[int, int] = (0, 0)
    limits_f32: tuple[float, float] = (-np.inf, np.inf)


@dataclass(frozen=True)
class Product:
    """One call of ek_gemm_run. `method` is mc, kc, nc, mr, nr, pack_a, pack_b, split."""

    dtype: str
    a: Layout
    b: Layout
    c: Layout
    method: tuple[int, ...]
    packed: int = -1
    accumulate: bool = False
    epilogue: Epilogue = field(default_factory=Epilogue)

    def expected(self) -> Array:
        """C as NumPy computes it: integers modulo 2^32, floats in f64."""
        e, wide = self.epilogue, np.float64 if self.dtype == "f32" else np.int64
        along = (slice(None), None) if e.per_row else (None, slice(None))
        sums = self.a.view().astype(wide) @ self.b.view().astype(wide)
        bias = None if e.bias is None else e.bias[along]
        if e.output == "float":
            found = wrapped(sums).astype(np.float64)
            found = found * (1 if e.scale is None else e.scale[along].astype(np.float64))
            return np.clip(found + (0 if bias is None else bias), *e.limits_f32)
        if self.accumulate:
            sums = sums + self.c.view()
        if bias is not None:
            sums = sums + bias.astype(wide)
        if self.dtype == "f32":
            return np.clip(sums, *e.limits_f32)
        if e.factor is None:
            return wrapped(sums)
        factor = Multiplier(e.factor.multiplier[along], e.factor.shift[along])
        return np.clip(factor.apply(wrapped(sums)) + e.zero, *e.limits)

    def encoded(self) -> bytes:
        """Encode the `description` of gemm_products.c and its parts."""
        e, factor = self.epilogue, self.epilogue.factor
        parts = [x.block for x in (self.a, self.b, self.c)]
        parts += [e.bias, e.scale]
        if factor is None:
            parts += [None] * 3
        else:
            shift = factor.shift
            parts += [factor.multiplier, np.maximum(shift, 0), np.maximum(-shift, 0)]
        starts = [x.start * x.block.itemsize for x in (self.a, self.b, self.c)] + [0] * 5
        m, k = self.a.shape
        numbers = [DTYPES.index(self.dtype), self.packed, self.accumulate, m, self.b.shape[1], k]
        numbers += [*self.method, OUTPUTS.index(e.output), e.per_row, e.zero, *e.limits]
        numbers += [s for x in (self.a, self.b, self.c) for s in (x.row, x.column)]
        numbers += [-1 if part is None else part.nbytes for part in parts] + starts
        head = struct.pack(f"<{len(numbers)}q2d", *numbers, *e.limits_f32)
        return head + b"".join(part.tobytes() for part in parts if part is not None)


def wrapped(sums: Array) -> NDArray[np.int32]:
    return (sums.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def laid_out(rng: Rng, values: Array) -> Layout:
    """Place `values` in memory with random strides; the rest of the block is noise."""
    rows, columns = values.shape
    row_gap, column_gap = (int(rng.choice((1, 1, 2))), int(rng.choice((1, 1, 3))))
    extra = int(rng.choice((0, 0, 5)))
    steps = [(columns * column_gap + extra) * row_gap, column_gap]
    if rng.random() < 0.4:
        steps = [row_gap, (rows * row_gap + extra) * column_gap]
    signs = [1 if rng.random() < 0.8 else -1 for _ in steps]
    reach = [max(n - 1, 0) * step for n, step in zip(values.shape, steps, strict=True)]
    size = sum(reach) + 1 if values.size else 0
    start = sum(r for r, sign in zip(reach, signs, strict=True) if sign < 0) if size else 0
    block = np.frombuffer(rng.bytes(size * values.itemsize), np.uint8).view(values.dtype).copy()
    if values.dtype == np.float32:
        block[:] = 1e30  # conspicuous noise that is not NaN
    layout = Layout(block, start, steps[0] * signs[0], steps[1] * signs[1], values.shape)
    if values.size:
        layout.view()[...] = values
    return layout


def _bytes(rng: Rng, dtype: str, *shape: int) -> Array:
    limits = np.iinfo("int8" if dtype == "s8" else "uint8")
    kind = rng.choice(("any", "any", "ends", "lowest", "highest"))
    ends = {"ends": [limits.min, limits.max], "lowest": [limits.min], "highest": [limits.max]}
    chosen = ends.get(str(kind), np.arange(limits.min, limits.max + 1))
    return rng.choice(chosen, shape).astype(limits.dtype)


def _values(rng: Rng, dtype: str, *shape: int) -> Array:
    if dtype == "f32":
        return rng.standard_normal(shape).astype(np.float32)
    return _bytes(rng, dtype, *shape)


def _epilogue(rng: Rng, dtype: str, m: int, n: int) -> tuple[Epilogue, np.dtype[np.generic]]:
    """A random epilogue and the dtype of the C it produces."""
    per_row = bool(rng.random() < 0.5)
    size = m if per_row else n
    biased = rng.random() < 0.5
    floats = rng.standard_normal(size).astype(np.float32) if biased else None
    limits_f32 = (-np.inf, np.inf) if rng.random() < 0.5 else (-0.5, 6.0)
    if dtype == "f32":
        chosen = Epilogue("plain", per_row, floats, limits_f32=limits_f32)
        return chosen, np.dtype(np.float32)
    output = str(rng.choice(OUTPUTS))
    if output == "float":
        scale = (rng.random(size) * 0.01).astype(np.float32) if rng.random() < 0.8 else None
        chosen = Epilogue(output, per_row, floats, scale, limits_f32=limits_f32)
        return chosen, np.dtype(np.float32)
    reach = 1000 if output == "quantize" else 2**31 - 1
    bias = rng.integers(-reach, reach, size).astype(np.int32) if biased else None
    if output == "plain":
        return Epilogue(output, per_row, bias), np.dtype(np.int32)
    kind = np.iinfo(str(rng.choice(("int8", "uint8"))))
    factor = Multiplier(
        rng.integers(2**30, 2**31 - 1, size).astype(np.int32),
        rng.integers(-18, 2, size).astype(np.int32),
    )
    zero = int(rng.integers(kind.min, kind.max + 1))
    limits = (kind.min + int(rng.choice((0, 20))), kind.max - int(rng.choice((0, 30))))
    return Epilogue(output, per_row, bias, None, factor, zero, limits), kind.dtype


def random_product(rng: Rng, dtype: str) -> Product:
    """m and n up to 97, k up to 195; any strides, any method; at most one operand prepacked."""
    m, n = (int(x) for x in rng.choice(_SIZES, 2))
    k = int(rng.choice(_DEPTHS))
    m, n = (1 if rng.random() < 0.15 else x for x in (m, n))
    a = laid_out(rng, _values(rng, dtype, m, k))
    b = laid_out(rng, _values(rng, "f32" if dtype == "f32" else "s8", k, n))
    epilogue, kind = _epilogue(rng, dtype, m, n)
    # C holds partial sums or arbitrary bytes; keep them small so that f32 accumulates nothing
    # large.
    c = laid_out(rng, rng.integers(0, 100, (m, n)).astype(kind))
    blocks = [int(rng.choice((1, 8, 17, 40, 1000))) for _ in range(3)]
    flags = [int(x) for x in rng.integers(0, 2, 3)]
    method = (*blocks, *_TILES[int(rng.integers(len(_TILES)))], *flags)
    accumulate = bool(epilogue.output == "plain" and rng.random() < 0.3)
    return Product(dtype, a, b, c, method, int(rng.integers(-1, 2)), accumulate, epilogue)


def weights_by_few(rng: Rng, dtype: str) -> list[Product]:
    """Prepacked weights on the left times dense matrices of few columns, or one more than vectors
    hold."""
    found = []
    for n in (2, 4, 8, 12, 16, 17, 33, 49):
        for k in (1, 3, 16, 50):
            m = int(rng.choice(_SIZES[2:]))
            a, b = _values(rng, dtype, m, k), _values(rng, "f32" if dtype == "f32" else "s8", k, n)
            epilogue, kind = _epilogue(rng, dtype, m, n)
            dense = [
                Layout(x.ravel(), 0, x.shape[1], 1, x.shape) for x in (a, b, np.zeros((m, n), kind))
            ]
            method = (m, 64, n, *_TILES[int(rng.integers(len(_TILES)))], 0, 1, 0)
            found.append(Product(dtype, *dense, method, 0, epilogue=epilogue))
    return found + [_normal(rng, dtype, m, n) for m in _SIZES[1:] for n in (4, 8)]


def packed_panels(rng: Rng, mr: int, nr: int) -> list[Product]:
    """Floats in rows by panels that are packed on the way, in blocks of any size."""
    found = []
    for m, n, k in itertools.product((1, 5, 6, 7, 8, 9, 20), (3, 8, 12, 61, 120), (1, 2, 16, 35)):
        a, b, c = _values(rng, "f32", m, k), _values(rng, "f32", k, n), np.zeros((m, n), np.float32)
        dense = [Layout(x.ravel(), 0, x.shape[1], 1, x.shape) for x in (a, b, c)]
        blocks = (int(rng.choice((mr, m))), int(rng.choice((16, k))), int(rng.choice((nr, 40, n))))
        found.append(Product("f32", *dense, (*blocks, mr, nr, 0, 1, 0)))
    return found


def panels_of_bytes(rng: Rng, dtype: str) -> list[Product]:
    """Rows of bytes by several panels of a vector, most without -128: kernels for 64-bit ARM
    multiply these in pairs, and several panels at once. Values around C must stay unchanged."""
    found = []
    sizes = itertools.product((1, 2, 3, 4, 6, 7, 9), (5, 8, 16, 21, 50), (1, 5, 16, 23, 31, 48, 70))
    for m, n, k in sizes:
        kind = np.dtype("i1" if dtype == "s8" else "u1")
        a = rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, (m, k)).astype(kind)
        b = rng.integers(-127, 128, (k, n)).astype(np.int8)
        if rng.random() < 0.2:
            b[0, n // 2] = -128
        c = Layout(np.full(m * (n + 3) + 40, 7, np.int32), 20, n + 3, 1, (m, n))
        dense = [Layout(x.ravel(), 0, x.shape[1], 1, x.shape) for x in (a, b)]
        packed, packs_a = int(rng.integers(-1, 2)), int(rng.integers(2))
        found.append(Product(dtype, *dense, c, (1000, 1000, 1000, 4, 4, packs_a, 1, 0), packed))
    return found


def _normal(rng: Rng, dtype: str, m: int, n: int) -> Product:
    """A product with as few columns as its tile is wide, vectorized along m. C is contiguous, and
    the values around it must stay unchanged."""
    a, b = _values(rng, dtype, m, 3), _values(rng, "f32" if dtype == "f32" else "s8", 3, n)
    c = Layout(np.full(m * n + 40, 7, np.float32 if dtype == "f32" else np.int32), 20, n, 1, (m, n))
    dense = [Layout(x.ravel(), 0, x.shape[1], 1, x.shape) for x in (a, b)]
    return Product(dtype, *dense, c, (m, 64, n, 48, n, 0, 1, 0), 0)


def encoded(products: Sequence[Product]) -> bytes:
    """Encode the input of gemm_products.c."""
    return struct.pack("<q", len(products)) + b"".join(p.encoded() for p in products)


def check(products: Sequence[Product], made: bytes) -> None:
    """Integers equal; floats within 1e-5 of the magnitude of the sums; nothing written outside
    C."""
    at = 0
    for product in products:
        c, about = product.c, described(product)
        after = np.frombuffer(made, c.block.dtype, c.block.size, at)
        at += after.nbytes
        found, wanted = c.view(after.copy()), product.expected()
        if found.dtype == np.float32:
            limit = 1e-5 * (np.abs(wanted).max(initial=1) + product.a.shape[1])
            np.testing.assert_allclose(found, wanted, rtol=0, atol=limit, err_msg=about)
        else:
            np.testing.assert_array_equal(found, wanted, err_msg=about)
        rest = np.ones(c.block.size, bool)
        if found.size:
            c.view(rest)[...] = False
        np.testing.assert_array_equal(after[rest], c.block[rest], err_msg=about)
    assert at == len(made)


def output_bytes(products: Sequence[Product]) -> int:
    return sum(product.c.block.nbytes for product in products)


def units(board: BoardProfile) -> list[TranslationUnit]:
    """The units of a board's GEMM library, plus gemm_products.c."""
    return [*kernel_units(board), TranslationUnit("gemm_products", PRODUCTS)]


def build(board: BoardProfile, path: Path) -> Path:
    path.write_bytes(toolchain_for(board).build(units(board)))
    return path


def run_here(library: Path, products: Sequence[Product], threads: int = 1) -> bytes:
    """The C of each product, concatenated."""
    return run_cases(library, encoded(products), output_bytes(products), threads)
