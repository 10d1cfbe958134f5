"""Random products of f16 for programs, with NumPy's results; runs half_products.c."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.host.compiler.ir.types import Array
from edgekit.host.compiler.toolchain.kernels import features_unit, half_units
from edgekit.host.compiler.toolchain.zig import TranslationUnit, kernels_folder
from edgekit.kb.targets.board import BoardProfile
from tests.support.half_graphs import UNIT

_PRODUCTS = Path(__file__).with_name("half_products.c")
_SIZES = (1, 2, 5, 8, 13, 16, 31, 32, 33, 65, 97, 130)
_DEPTHS = (0, 1, 3, 64, 127, 128, 129, 300, 700)
_GAP = 3  # elements after each row
_NOISE = 777.0


@dataclass(frozen=True, eq=False)
class HalfProduct:
    """Operands, and the block of C with a gap after each row. b may be a transposed view."""

    a: Array
    b: Array
    bias: Array | None
    method: tuple[int, bool]  # the tile's columns, and whether B is packed

    @property
    def block(self) -> Array:
        return np.full((len(self.a), self.b.shape[1] + _GAP), _NOISE, np.float16)

    def encoded(self) -> bytes:
        (m, k), n = self.a.shape, self.b.shape[1]
        whole = self.b if self.b.flags.c_contiguous else self.b.T
        parts = [np.ascontiguousarray(self.a), whole, self.block, self.bias]
        steps = (n, 1) if whole is self.b else (1, k)
        sizes = (-1 if part is None else part.nbytes for part in parts)
        head = struct.pack("<13q", m, n, k, k, *steps, n + _GAP, *self.method, *sizes)
        return head + b"".join(part.tobytes() for part in parts if part is not None)


def half_products(seed: int) -> list[HalfProduct]:
    """Any shapes and methods; half of them with b in columns, or with a bias."""
    rng, found = np.random.default_rng(seed), []
    for number in range(60):
        m, n = (int(size) for size in rng.choice(_SIZES, 2))
        k = int(rng.choice(_DEPTHS))
        a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
        bias = rng.standard_normal(n).astype(np.float16) if number % 2 else None
        method = 8 << int(rng.integers(4)), bool(rng.integers(2))
        found.append(HalfProduct(a, np.asfortranarray(b) if number % 4 > 1 else b, bias, method))
    return found


def units(board: BoardProfile) -> list[TranslationUnit]:
    """The f16 product of a board's library by itself, plus half_products.c."""
    pool = TranslationUnit("pool", kernels_folder() / "runtime/thread_pool.c")
    abi = TranslationUnit("abi", '#include "ek.h"\nint ek_abi(void) {\n    return EK_ABI;\n}\n')
    products = TranslationUnit("half_products", _PRODUCTS)
    return [*half_units(board), features_unit(board), pool, abi, products]


def encoded(products: Sequence[HalfProduct]) -> bytes:
    """Encode the input of half_products.c."""
    return struct.pack("<q", len(products)) + b"".join(p.encoded() for p in products)


def output_bytes(products: Sequence[HalfProduct]) -> int:
    return sum(product.block.nbytes for product in products)


def check(products: Sequence[HalfProduct], made: bytes) -> None:
    """Results within the bound of models' f16 products; nothing written outside C."""
    at = 0
    for product in products:
        block = product.block
        found = np.frombuffer(made, np.float16, block.size, at).reshape(block.shape)
        at += block.nbytes
        check_product(found[:, :-_GAP], product.a, product.b, product.bias)
        assert (found[:, -_GAP:] == _NOISE).all()
    assert at == len(made)


def check_product(found: Array, a: Array, b: Array, bias: Array | None = None) -> None:
    """Equals NumPy's f32 product, up to the rounding of f16 sums; see half_graphs.check_half."""
    wanted = a.astype(np.float32) @ b.astype(np.float32)
    wanted = wanted if bias is None else wanted + bias.astype(np.float32)
    limit = 8 * UNIT * max(a.shape[1], 1) ** 0.5 * max(np.abs(wanted).max(initial=0), 1)
    assert found.dtype == np.float16 and found.shape == wanted.shape
    assert np.abs(found.astype(np.float32) - wanted).max(initial=0) <= limit
