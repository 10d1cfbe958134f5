"""Random sparse matrices, with NumPy's results; runs sparse_products.c."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.device.runtime.arrays.sparse_input import Csr
from edgekit.device.runtime.arrays.sparse_pairs import Pairs, pack_pairs, pack_rows
from edgekit.host.compiler.ir.types import Array
from edgekit.host.compiler.toolchain.kernels import features_unit, sparse_units
from edgekit.host.compiler.toolchain.zig import TranslationUnit, kernels_folder
from edgekit.kb.targets.board import BoardProfile
from tests.support.cases_model import described, run_cases
from tests.support.toolchains import toolchain_for

PRODUCTS = Path(__file__).with_name("sparse_products.c")
STORED = ("f32", "f64", "f16", "s8", "s8f")  # in the order of ek_sparse_dtype
VALUES = dict(zip(STORED, ("f4", "f8", "f2", "i1", "i1"), strict=True))
OPERANDS = dict(zip(STORED, ("f4", "f8", "f4", "i1", "f4"), strict=True))
SUMS = dict(zip(STORED, ("f4", "f8", "f4", "i4", "f4"), strict=True))
PAIRED = ("f32", "f16", "s8", "s8f")
_SIZES = (0, 1, 2, 3, 5, 8, 15, 16, 17, 33, 64, 100, 257)
Rng = np.random.Generator


@dataclass(frozen=True)
class Case:
    """A matrix, its storage format, and its operands. `how`: the fields of ek_sparse_settings;
    `tile`: vectors and copy of ek_spmm_args; `panel`: the maximum panel width of ek_spmm_plan."""

    stored: str
    dense: Array
    pattern: Array
    how: tuple[int, ...]
    x: Array
    many: Array
    bias: Array | None
    residual: Array | None
    scale: Array | None
    tile: tuple[int, int]
    limits: tuple[float, float]
    panel: int

    @functools.cached_property
    def rows(self) -> tuple[Array, Array, Array]:
        """Offsets, columns and values."""
        rows, cols = np.nonzero(self.pattern)
        start = np.concatenate([[0], np.cumsum(self.pattern.sum(axis=1))]).astype(np.int64)
        return start, cols.astype(np.int32), self.dense[rows, cols]

    @functools.cached_property
    def pairs(self) -> Pairs | None:
        """The plan, or None if the format has none."""
        if self.stored not in PAIRED or self.dense.shape[1] > 1 << 16 or not len(self.dense):
            return None
        csr = Csr(self.dense.shape, *self.rows)
        return pack_rows(csr) if self.stored == "s8" else pack_pairs(csr, self.panel)

    def product(self) -> Array:
        """A · X with the epilogue."""
        wide = self.dense.astype(np.float64) @ self.many.astype(np.float64)
        if self.scale is not None:
            wide *= self.scale[:, None]
        if self.bias is not None:
            wide += self.bias[:, None]
        if self.residual is not None:
            wide += self.residual
        return wide if self.stored == "s8" else np.clip(wide, *self.limits)

    def encoded(self) -> bytes:
        """Encode the `description` of sparse_products.c and its parts."""
        start, cols, values = self.rows
        cols_count = self.dense.shape[1]
        narrow = 1 if cols_count <= 1 << 8 else 2 if cols_count <= 1 << 16 else 4
        plan = self.pairs
        parts = (start, cols, values, self.x, self.many, self.bias, self.scale,
                 cols.astype(f"u{narrow}"))  # fmt: skip
        parts += (plan.pair, plan.columns, plan.values) if plan else (None, None, None)
        parts += (self.residual,)
        numbers = [STORED.index(self.stored), *self.dense.shape, self.many.shape[1]]
        counts = (plan.panels, plan.pairs) if plan else (0, 0)
        numbers += [np.dtype(SUMS[self.stored]).itemsize, *self.how, *self.tile, *counts, narrow]
        numbers += [-1 if part is None else part.nbytes for part in parts]
        head = struct.pack(f"<{len(numbers)}q2d", *numbers, *self.limits)
        return head + b"".join(part.tobytes() for part in parts if part is not None)

    def sizes(self) -> tuple[int, ...]:
        """Byte counts of the outputs, in order."""
        size = np.dtype(SUMS[self.stored]).itemsize
        matrix = (len(self.dense) * self.many.shape[1] * size,) * (2 if self.pairs else 1)
        if self.stored == "s8f":
            return matrix
        vector = len(self.dense) * size
        return (vector, vector, *(part.nbytes for part in self.rows), *matrix)

    def check(self, made: bytes) -> None:
        parts, at = [], 0
        for size in self.sizes():
            parts.append(made[at : at + size])
            at += size
        sums = np.dtype(SUMS[self.stored])
        wanted = self.product()
        for part in parts[-2 if self.pairs else -1 :]:
            self._compare(np.frombuffer(part, sums).reshape(wanted.shape), wanted)
        if self.stored == "s8f":
            return
        for part in parts[:2]:
            found = np.frombuffer(part, sums)
            self._compare(found, self.dense.astype(np.float64) @ self.x.astype(np.float64))
        for part, wanted in zip(parts[2:5], self.rows, strict=True):
            np.testing.assert_array_equal(np.frombuffer(part, wanted.dtype), wanted)

    def _compare(self, found: Array, wanted: Array) -> None:
        if self.stored == "s8":
            np.testing.assert_array_equal(found, wanted, err_msg=described(self))
            return
        small = 1e-14 if self.stored == "f64" else 1e-6
        limit = small * (np.abs(wanted).max(initial=1) + self.dense.shape[1]) * 10
        np.testing.assert_allclose(found, wanted, rtol=0, atol=limit, err_msg=described(self))


def _pattern(rng: Rng, rows: int, cols: int) -> Array:
    """Nonzero positions: anywhere, on diagonals, in some long rows, or by a power law."""
    kind = rng.integers(5)
    place = np.arange(cols)[None, :] - np.arange(rows)[:, None]
    if kind == 0:
        return np.isin(place, rng.integers(-20, 20, 4)) & (rng.random((rows, cols)) < 0.98)
    if kind == 1:
        dense_rows = rng.random(rows) < 0.05
        return dense_rows[:, None] | (rng.random((rows, cols)) < 0.02)
    if kind == 2:
        share = np.minimum(rng.pareto(1.2, rows) * 0.05, 1)
        return rng.random((rows, cols)) < share[:, None]
    return rng.random((rows, cols)) < (0.3 if kind == 3 else 0.05)


def _values(rng: Rng, kind: str, shape: tuple[int, ...]) -> Array:
    if kind == "i1":
        return rng.integers(-128, 128, shape, np.int8)
    values = rng.standard_normal(shape).astype(kind)
    return values * np.array(1e-6, kind) if kind == "f2" and rng.random() < 0.2 else values


def far_case(rng: Rng, stored: str) -> Case:
    """An x that exceeds the core's private caches."""
    rows, cols = 17, 270_000
    pattern = rng.random((rows, cols)) < 1e-4
    return _case(rng, stored, pattern, cols)


def random_case(rng: Rng, stored: str) -> Case:
    """Any shape up to 257, occasionally with stored zeros, and any settings."""
    rows, cols = (int(n) for n in rng.choice(_SIZES, 2))
    if rng.random() < 0.1:
        cols = 70_000 if rows < 40 else cols  # needs 4-byte indices
    return _case(rng, stored, _pattern(rng, rows, cols), cols)


def _case(rng: Rng, stored: str, pattern: Array, cols: int) -> Case:
    rows = len(pattern)
    dense = np.where(pattern, _values(rng, VALUES[stored], (rows, cols)), 0)
    dense = dense.astype(VALUES[stored])
    if rng.random() < 0.8 and stored != "s8f":
        pattern = dense != 0
    pixels = int(rng.choice((1, 3, 4, 16, 17, 36, 40, 100, 150, 1030))) if cols < 1000 else 1
    sums = np.dtype(SUMS[stored])
    bias = (rng.standard_normal(rows) * 10).astype(sums) if rng.random() < 0.5 else None
    residual = None
    if rng.random() < 0.5 and stored != "s8":
        residual = rng.standard_normal((rows, pixels)).astype(sums)
    scale = rng.random(rows).astype(np.float32) if stored == "s8f" else None
    limits = (-np.inf, np.inf) if rng.random() < 0.5 else (0.0, 6.0)
    numbers = [(1, 4, 10, 64), (0, 32, 4096), (0, 1, 20), (0, 1), (0, 1), (0, 2, 4), (0, 7, 50)]
    how = tuple(int(rng.choice(choices)) for choices in numbers)
    tile = (int(rng.choice((0, 1, 2, 4, 8))), int(rng.integers(-1, 2)))
    operand = OPERANDS[stored]
    x, many = _values(rng, operand, (cols,)), _values(rng, operand, (cols, pixels))
    panel = int(rng.choice((16, 96, 256)))
    return Case(stored, dense, pattern, how, x, many, bias, residual, scale, tile, limits, panel)


def encoded(cases: Sequence[Case]) -> bytes:
    """Encode the input of sparse_products.c."""
    return struct.pack("<q", len(cases)) + b"".join(case.encoded() for case in cases)


def output_bytes(cases: Sequence[Case]) -> int:
    return sum(sum(case.sizes()) for case in cases)


def check(cases: Sequence[Case], made: bytes) -> None:
    """Integers equal, floats within the rounding error of their sums, rows restored unchanged."""
    at = 0
    for case in cases:
        size = sum(case.sizes())
        case.check(made[at : at + size])
        at += size
    assert at == len(made)


def units(board: BoardProfile) -> list[TranslationUnit]:
    """The units of the sparse library, plus sparse_products.c."""
    return [
        *sparse_units(board),
        features_unit(board),
        TranslationUnit("pool", kernels_folder() / "runtime/thread_pool.c"),
        TranslationUnit("abi", '#include "ek.h"\nint ek_abi(void) {\n    return EK_ABI;\n}\n'),
        TranslationUnit("sparse_products", PRODUCTS),
    ]


def build(board: BoardProfile, path: Path) -> Path:
    path.write_bytes(toolchain_for(board).build(units(board)))
    return path


def run_here(library: Path, cases: Sequence[Case], threads: int = 3) -> bytes:
    """Run the cases through the C code."""
    return run_cases(library, encoded(cases), output_bytes(cases), threads)
