"""Random products for the outlier split, with NumPy's results; runs outlier_products.c.

The reference is written operator by operator, from the definitions alone.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.ir.types import Array
from edgekit.host.compiler.toolchain.kernels import kernel_units
from edgekit.host.compiler.toolchain.zig import TranslationUnit
from edgekit.kb.targets.board import BoardProfile
from tests.support.cases_model import described, run_cases
from tests.support.toolchains import toolchain_for

PRODUCTS = Path(__file__).with_name("outlier_products.c")
PATHS = ("auto", "split", "int8", "float")  # in the order of ek_outlier_path
_SIZES = (0, 1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 33, 40, 63, 65, 100, 131)
_HEADER = 7  # numbers at the start of outlier_products.c's output
_LEAST_FACTOR = np.float32(5e37)
Rng = np.random.Generator


@dataclass(frozen=True)
class Quantized:
    """The integer part of a reference: X1 [m, k] and the scale of each row."""

    x1: NDArray[np.int64]
    scale: NDArray[np.float32]


def marked(x: Array, threshold: float) -> NDArray[np.bool_]:
    """Outlier channels of x [m, k]."""
    return ~(np.abs(x.astype(np.float32)) <= np.float32(threshold)).all(axis=0)


def quantized(
    x: Array, outliers: NDArray[np.bool_], absmax_row: bool, rows_per_scale: int
) -> Quantized:
    """X1 with outliers set to zero; rounds half to even."""
    x = x.astype(np.float32)
    inliers = np.where(outliers, np.float32(0), x)
    seen = np.abs(x if absmax_row else inliers).max(axis=1, initial=0)
    most = np.zeros(len(x), np.float32)
    for start in range(0, len(x), rows_per_scale):
        most[start : start + rows_per_scale] = seen[start : start + rows_per_scale].max()
    with np.errstate(divide="ignore", over="ignore"):
        factor = np.where(most > 0, np.float32(127) / most, np.float32(0)).astype(np.float32)
    scale = np.where(factor > _LEAST_FACTOR, 1 / _LEAST_FACTOR, most / np.float32(127))
    factor = np.minimum(factor, _LEAST_FACTOR)
    x1 = np.rint(inliers * factor[:, None]).astype(np.int64)
    return Quantized(x1, scale.astype(np.float32))


def reference(
    x: Array,
    w: Array,
    scale: Array,
    threshold: float = 6.0,
    path: str = "split",
    absmax_row: bool = False,
    rows_per_scale: int = 1,
) -> NDArray[np.float64]:
    """x [m, k] times int8 w [k, n] with scale [k / group, n]."""
    groups = len(scale)
    group = len(w) // groups if groups else 0
    whole = np.repeat(scale.astype(np.float64), group, axis=0) * w
    if path == "float":
        return x.astype(np.float64) @ whole
    split = path == "split"
    outliers = marked(x, threshold) if split else np.zeros(x.shape[1], bool)
    one = quantized(x, outliers, absmax_row, rows_per_scale)
    y = np.zeros((len(x), w.shape[1]))
    for g in range(groups):
        part = slice(g * group, (g + 1) * group)
        y += (one.x1[:, part] @ w[part].astype(np.int64)) * scale[g].astype(np.float64)
    y *= one.scale.astype(np.float64)[:, None]
    return y + x[:, outliers].astype(np.float64) @ whole[outliers]


@dataclass(frozen=True)
class Case:
    """One product. `gap`: elements between the rows of x; `tile`: rows and vectors; `is_int4`: w
    holds values from -8 to 7, packed two per byte."""

    x: Array
    w: Array
    scale: Array
    threshold: float
    path: str
    absmax_row: bool
    check_finite: bool
    rows_per_scale: int
    gap: int
    tile: tuple[int, int]
    is_int4: bool

    @property
    def group(self) -> int:
        return len(self.w) // len(self.scale) if len(self.scale) else 0

    def encoded(self) -> bytes:
        """Encode the `description` of outlier_products.c and its parts."""
        (m, k), n = self.x.shape, self.w.shape[1]
        wide = np.full((m, k + self.gap), 1e4, self.x.dtype)
        wide[:, :k] = self.x
        x = wide.tobytes()[: (m * (k + self.gap) - self.gap) * wide.itemsize if m else 0]
        parts = (x, self.w.tobytes(), self.scale.tobytes())
        numbers = [m, k, n, self.group, k + self.gap, self.x.itemsize == 2]
        numbers += [PATHS.index(self.path), self.absmax_row, self.check_finite]
        numbers += [self.rows_per_scale, self.is_int4, *self.tile, *map(len, parts)]
        return struct.pack(f"<{len(numbers)}qd", *numbers, self.threshold) + b"".join(parts)

    @property
    def output_bytes(self) -> int:
        (m, k), n = self.x.shape, self.w.shape[1]
        return 8 * _HEADER + (k + 7) // 8 + 4 * k * n + 4 * m * n

    def check(self, made: bytes) -> None:
        (m, k), n = self.x.shape, self.w.shape[1]
        status, path, outliers, row, channel, room, parts = struct.unpack_from(f"<{_HEADER}q", made)
        at = 8 * _HEADER
        marks = np.frombuffer(made, np.uint8, (k + 7) // 8, at)
        at += len(marks)
        rows = np.frombuffer(made, np.float32, k * n, at).reshape(k, n)
        y = np.frombuffer(made, np.float32, m * n, at + rows.nbytes).reshape(m, n)
        whole = np.repeat(self.scale, self.group, axis=0) * self.w.astype(np.float32)
        np.testing.assert_array_equal(rows, whole.reshape(k, n), err_msg=described(self))
        bad = np.argwhere(~np.isfinite(self.x))
        if len(bad) and self.check_finite:
            assert (status, [row, channel]) == (2, list(bad[0])), self
            return
        assert status == 0, self
        if self.path in ("auto", "split"):
            wanted = marked(self.x, self.threshold)
            found = np.unpackbits(marks, count=k, bitorder="little").astype(bool)
            np.testing.assert_array_equal(found, wanted, err_msg=described(self))
            assert outliers == wanted.sum()
        taken = PATHS[path]
        assert self.path in ("auto", taken) and taken != "auto"
        assert not k or parts == room
        if not len(bad):
            self._compare(y, taken)

    def _compare(self, y: Array, path: str) -> None:
        wanted = reference(
            *(self.x, self.w, self.scale, self.threshold, path),
            *(self.absmax_row, self.rows_per_scale),
        )
        whole = np.repeat(self.scale.astype(np.float64), self.group, axis=0) * self.w
        size = np.abs(self.x).astype(np.float64) @ np.abs(whole)
        limit = 2e-6 * (size.max(initial=0) + np.abs(wanted).max(initial=0)) + 1e-30
        np.testing.assert_allclose(y, wanted, rtol=0, atol=limit, err_msg=described(self))


def activations(rng: Rng, m: int, k: int, outliers: int) -> NDArray[np.float32]:
    """Values mostly below 4, plus some channels with far larger values in a few rows."""
    x = np.clip(rng.standard_normal((m, k)), -4, 4).astype(np.float32)
    for channel in rng.choice(k, min(outliers, k), replace=False) if m else ():
        rows = rng.choice(m, max(m // 5, 1), replace=False)
        x[rows, channel] = rng.choice((-1, 1), len(rows)) * rng.uniform(7, 60, len(rows))
    return x


def random_case(rng: Rng) -> Case:
    """Any shape up to 131, any options; no outliers, some, or all channels."""
    m, k, n = (int(size) for size in rng.choice(_SIZES, 3))
    x = activations(rng, m, k, int(rng.choice((0, 0, 1, 3, 10, k))))
    if x.size and rng.random() < 0.2:
        x[rng.integers(m)] = rng.choice((0, 1e-38, 1e-30))
    if x.size and rng.random() < 0.08:
        spots = rng.integers(m, size=2), rng.integers(k, size=2)
        x[spots] = rng.choice((np.nan, np.inf, -np.inf))
    if rng.random() < 0.3:
        with np.errstate(over="ignore"):
            x = x.astype(np.float16)
    divisors = [d for d in range(1, k + 1) if k % d == 0 and d >= min(k, 8)]
    group = k if rng.random() < 0.7 or not k else int(rng.choice(divisors))
    is_int4 = bool(rng.random() < 0.4)
    least, most = (-8, 7) if is_int4 else (-128 if rng.random() < 0.3 else -127, 127)
    w = rng.integers(least, most + 1, (k, n)).astype(np.int8)
    scale = (rng.random((k // group if k else 0, n)) * 0.01 + 1e-4).astype(np.float32)
    flags = [bool(flag) for flag in rng.random(2) < 0.5]
    threshold = float(rng.choice((6.0, 6.0, 6.0, 0.5, 1000.0)))
    tile = (int(rng.choice((1, 4, 7, 24))), int(rng.choice((1, 2, 3, 4, 8))))
    return Case(
        *(x, w, scale, threshold, str(rng.choice(PATHS)), *flags),
        *(int(rng.choice((1, 1, 3, 1000))), int(rng.choice((0, 5))), tile, is_int4),
    )


def encoded(cases: Sequence[Case]) -> bytes:
    """Encode the input of outlier_products.c."""
    return struct.pack("<q", len(cases)) + b"".join(case.encoded() for case in cases)


def output_bytes(cases: Sequence[Case]) -> int:
    return sum(case.output_bytes for case in cases)


def check(cases: Sequence[Case], made: bytes) -> None:
    """Marks, rows of W and statuses equal; Y within the rounding error of its sums."""
    at = 0
    for case in cases:
        case.check(made[at : at + case.output_bytes])
        at += case.output_bytes
    assert at == len(made)


def without_sizes(cases: Sequence[Case], made: bytes) -> list[bytes]:
    """Each case's output without its working-memory size, which depends on the thread count."""
    found, at = [], 0
    for case in cases:
        one = made[at : at + case.output_bytes]
        found.append(one[: 8 * (_HEADER - 2)] + one[8 * _HEADER :])
        at += case.output_bytes
    return found


def units(board: BoardProfile) -> list[TranslationUnit]:
    """The units of a board's kernel library, plus outlier_products.c."""
    return [*kernel_units(board), TranslationUnit("outlier_products", PRODUCTS)]


def build(board: BoardProfile, path: Path) -> Path:
    path.write_bytes(toolchain_for(board).build(units(board)))
    return path


def run_here(library: Path, cases: Sequence[Case], threads: int = 1) -> bytes:
    """Run the cases through the C code."""
    return run_cases(library, encoded(cases), output_bytes(cases), threads)
