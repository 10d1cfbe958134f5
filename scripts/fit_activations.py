#!/usr/bin/env python3
"""Fits the piecewise cubics of activations in f16: scripts/fit_activations.py

Writes device/kernels/elementwise/piecewise_tables.h and prints the largest error of each function
in units in the last place of f16, over all finite arguments of both signs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.ir.ops.functions import erf

F16 = NDArray[np.float16]
F64 = NDArray[np.float64]
_TABLES = Path(__file__).parents[1] / "device/kernels/elementwise/piecewise_tables.h"
_PIECES = 32
_POSITIVE: F16 = np.arange(0x7C00, dtype=np.uint16).view(np.float16)
_POINTS, _ROUNDS = 200, 30  # of a fit: arguments, changes of their weights


def _logistic(x: F64) -> F64:
    y: F64 = 1 / (1 + np.exp(-x))
    return y


def _gelu(m: F64) -> F64:
    y: F64 = m * 0.5 * np.vectorize(math.erfc)(m / math.sqrt(2))
    return y


def _gelu_tanh(m: F64) -> F64:
    return m * _logistic(-2 * math.sqrt(2 / math.pi) * (m + 0.044715 * m**3))


@dataclass(frozen=True)
class _Function:
    """The part P of a function that is fitted, for magnitudes m of its argument, in pieces `width`
    wide; from `most` up it has the value there. `whole` makes the function's value for m and for
    -m from m and P(m)."""

    name: str
    part: Callable[[F64], F64]
    width: float
    most: float
    whole: Callable[[Any, Any], tuple[Any, Any]]

    @property
    def starts_at_0(self) -> bool:
        return bool(self.part(np.zeros(1))[0] == 0)


_FUNCTIONS = (
    _Function("logistic", lambda m: _logistic(-m), 9 / 16, 17.4, lambda _, p: (1 - p, p)),
    _Function("softplus", lambda m: np.log1p(np.exp(-m)), 9 / 16, 17.4, lambda m, p: (m + p, p)),
    _Function("silu", lambda m: m * _logistic(-m), 21 / 32, 20.6, lambda m, p: (m - p, -p)),
    _Function("gelu", _gelu, 3 / 16, 5.9, lambda m, p: (m - p, -p)),
    _Function("gelu_tanh", _gelu_tanh, 11 / 64, 5.4, lambda m, p: (m - p, -p)),
    _Function("tanh", np.tanh, 5 / 32, 4.9, lambda _, p: (p, -p)),
    _Function("erf", lambda m: erf(m), 3 / 32, 2.9, lambda _, p: (p, -p)),
)


def _multiply_add(a: Any, b: Any, c: Any) -> F16:
    """a · b + c, rounded once to f16."""
    wide = np.asarray(a, np.float64) * np.asarray(b, np.float64) + np.asarray(c, np.float64)
    return np.asarray(wide.astype(np.float16))


def _piece_of(f: _Function, m: F16) -> NDArray[np.intp]:
    scaled = (m * np.float16(1 / f.width)).astype(np.float16)
    return np.rint(scaled).astype(np.intp)


def _evaluate(f: _Function, table: F16, m: F16) -> F16:
    """P(m) by the kernel's operations; `table` [4, pieces]."""
    piece = _piece_of(f, m)
    rest = _multiply_add(-f.width, piece, m)
    y: F16 = np.asarray(table[3][piece])
    for row in table[2::-1]:
        y = _multiply_add(y, rest, row[piece])
    return y


def _units_off(f: _Function, m: F16, p: F16) -> F64:
    """Errors of the function's values in units in the last place, the larger of m and -m."""
    wide = m.astype(np.float64)
    worst = np.zeros(len(m))
    with np.errstate(over="ignore"):
        for got, want in zip(f.whole(m, p), f.whole(wide, f.part(wide)), strict=True):
            unit = np.spacing(np.abs(want).astype(np.float16)).astype(np.float64)
            worst = np.maximum(worst, np.abs(got.astype(np.float64) - want) / unit)
    return worst


def _fitted(f: _Function, piece: int, known: dict[int, float]) -> F64:
    """Coefficients of the minimax cubic of a piece, some of which are known (Lawson's method)."""
    x = np.linspace(0 if piece == 0 else -f.width / 2, f.width / 2, _POINTS)[piece == 0 :]
    y = f.part(piece * f.width + x)
    scale = 1 / np.maximum(np.spacing(y.astype(np.float16)).astype(np.float64), 1e-9)
    free = [k for k in range(4) if k not in known]
    rows = np.stack([x**k for k in free], 1) * scale[:, None]
    target = (y - sum(c * x**k for k, c in known.items())) * scale
    weights = np.ones(len(x))
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        found = np.linalg.lstsq(rows * root[:, None], target * root, rcond=None)[0]
        weights *= np.abs(rows @ found - target) + 1e-12
        weights /= weights.sum()
    made = np.zeros(4)
    made[free], made[list(known)] = found, list(known.values())
    return made


def _neighbors(value: float, steps: range) -> Iterator[np.float16]:
    for step in steps:
        near = np.float16(value)
        for _ in range(abs(step)):
            near = np.nextafter(near, np.float16(math.copysign(math.inf, step)))
        yield near


def _fit_piece(f: _Function, table: F16, piece: int, m: F16) -> None:
    """Round the coefficients one after the other, refitting the rest, then try neighbors of the
    last two on all arguments `m` of the piece."""
    known = {0: 0.0} if piece == 0 and f.starts_at_0 else {}
    for k in (3, 2, 1):
        known[k] = float(np.float16(_fitted(f, piece, known)[k]))
    first = range(1) if 0 in known else range(-2, 3)
    start = known.get(0, float(f.part(np.array([piece * f.width]))[0]))
    best = math.inf
    for c0, c1 in itertools.product(_neighbors(start, first), _neighbors(known[1], range(-3, 4))):
        tried = table.copy()
        tried[:, piece] = c0, c1, known[2], known[3]
        off = float(_units_off(f, m, _evaluate(f, tried, m)).max(initial=0.0))
        if off < best:
            best, table[:, piece] = off, tried[:, piece]


def _fit(f: _Function) -> F16:
    table = np.zeros((4, _PIECES), np.float16)
    most = np.float16(f.most)
    inside = _POSITIVE[: np.searchsorted(_POSITIVE, most, "right")]
    pieces = _piece_of(f, inside)
    assert pieces.max() < _PIECES
    for piece in range(pieces.max() + 1):
        _fit_piece(f, table, piece, inside[pieces == piece])
    return table


def _text(f: _Function, table: F16) -> str:
    rows = []
    for row in table.view(np.uint16):
        numbers = [f"0x{v:04x}" for v in row]
        lines = [", ".join(numbers[i : i + 11]) for i in range(0, _PIECES, 11)]
        rows.append("        {" + ",\n         ".join(lines) + "},")
    return "\n".join(
        [
            f"#ifdef OP_{f.name.upper()}",
            "static const ek_piecewise ek_pieces = {",
            *(f"    {float(np.float16(v))}f16," for v in (f.most, 1 / f.width, f.width)),
            "    {",
            *rows,
            "    },",
            "};",
            "#endif",
        ]
    )


def main() -> None:
    parts = ["/* Written by scripts/fit_activations.py: see piecewise.h. */"]
    for f in _FUNCTIONS:
        table = _fit(f)
        p = _evaluate(f, table, np.minimum(_POSITIVE, np.float16(f.most)))
        print(f"{f.name}: {_units_off(f, _POSITIVE, p).max():.2f} units")
        parts.append(_text(f, table))
    _TABLES.write_text("\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
