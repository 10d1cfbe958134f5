#!/usr/bin/env python3
"""Draws figures of docs/architecture.md: the feature RAM, and cycles over a product's width.

    scripts/nna_figures.py [--check]

Writes docs/images/nna-fram.svg and nna-sweep.svg. Cycles are counted, not timed, so the figures are
the same on every machine; --check writes nothing and reports whether they are up to date.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.device.runtime.arrays.nna import emulate_matmul
from edgekit.device.runtime.arrays.nna_account import NnaAccount
from edgekit.device.runtime.arrays.nna_chip import NnaChip
from edgekit.kb.targets.board import load_board

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"

_INK, _QUIET, _RULE = "#1c2733", "#5b6875", "#d5dbe1"
_GROUPS = ("#2f6db3", "#c4622d", "#3b8a5a", "#8a5a9e")
_CELL, _LEFT, _TOP = 40, 120, 74
_M, _K = 16, 72
_WIDTHS = [32 * 2**i for i in range(9)]
_CAPTION = (
    "Two pixels make a register (half 0, half 1), so three pixels and a pad make two writes",
    "(nndwf), and groups of 32 channels have a pitch of four columns. The last two columns",
    "are never written here: no valid window reads them. The FRAM of NNA 1 holds the left half.",
    "FRAM 1 holds the next 128 channels: it is filled while the array reads FRAM 0.",
)


@dataclass(frozen=True)
class Line:
    """One line of the plot: cycles per 1000 useful products at each of _WIDTHS."""

    label: str
    color: str
    dashed: bool
    values: tuple[float, ...]


def main() -> int:
    options = _parse_arguments()
    stale = []
    for name, text in (("nna-fram.svg", fram()), ("nna-sweep.svg", sweep())):
        path = FOLDER / name
        if not options.check:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
    if stale:
        print(f"nna_figures: {', '.join(stale)} not up to date; draw them: scripts/nna_figures.py")
    return 1 if stale else 0


def fram() -> str:
    """Four channel groups in one FRAM of NNA 2.0, its windows and output points."""
    width, height = _LEFT + 18 * _CELL + 24, 480
    parts = [
        _svg_text(
            16, 26, "FRAM 0 of NNA 2.0, filled for nine rows of F and 128 channels", 16, _INK, 600
        ),
        _svg_text(
            16,
            47,
            "One cell is a pixel: 32 channels of one row of F, 32 bytes. fj is row 9t+j.",
            13,
        ),
    ]
    parts += [*_draw_cells(), *_draw_windows(), *_draw_outputs()]
    parts += [_svg_text(16, 410 + 18 * i, line, 13) for i, line in enumerate(_CAPTION)]
    return _svg_document(width, height, parts)


def _draw_cells() -> Iterator[str]:
    for row in range(3):
        yield _svg_text(
            _LEFT - 12, _TOP + 40 + row * _CELL + 25, f"FRAM row {row}", 12, anchor="end"
        )
        for column in range(18):
            x, y = _LEFT + column * _CELL, _TOP + 40 + row * _CELL
            group, at = divmod(column, 4)
            used, pad = group < 4, at == 3
            fill = "#f1f3f5" if pad or not used else _GROUPS[group]
            yield (
                f'<rect x="{x + 1}" y="{y + 1}" width="{_CELL - 2}" height="{_CELL - 2}" rx="4" '
                f'fill="{fill}" fill-opacity="{0.9 if used else 0.5}"/>'
            )
            label = "pad" if used and pad else f"f{3 * row + at}" if used else ""
            color = _QUIET if pad else "#ffffff"
            yield _svg_text(x + _CELL / 2, y + 25, label, 12, color, anchor="middle")
    for group in range(4):
        x = _LEFT + (4 * group + 1.5) * _CELL
        name = f"channels {32 * group}–{32 * group + 31}"
        yield _svg_text(x, _TOP + 6, name, 12, _GROUPS[group], 600, "middle")
    for column in range(18):
        yield _svg_text(_LEFT + (column + 0.5) * _CELL, _TOP + 30, str(column), 11, anchor="middle")


def _draw_windows() -> Iterator[str]:
    top = _TOP + 40 + 3 * _CELL + 22
    yield _svg_text(_LEFT - 12, top + 9, "windows,", 12, anchor="end")
    yield _svg_text(_LEFT - 12, top + 24, "stride 2", 12, anchor="end")
    for point in range(8):
        x, valid = _LEFT + 2 * point * _CELL, point % 2 == 0
        y = top if valid else top + 16
        color = _GROUPS[point // 2] if valid else "#a9b3bd"
        dash = "" if valid else ' stroke-dasharray="5 4"'
        yield (
            f'<path d="M{x + 3} {y - 5}v5h{3 * _CELL - 6}v-5" fill="none" stroke="{color}" '
            f'stroke-width="{2.5 if valid else 1.5}"{dash}/>'
        )


def _draw_outputs() -> Iterator[str]:
    top = _TOP + 40 + 3 * _CELL + 78
    yield _svg_text(_LEFT - 12, top + 26, "output points", 12, anchor="end")
    for point in range(8):
        x, valid = _LEFT + 2 * point * _CELL, point % 2 == 0
        fill = _GROUPS[point // 2] if valid else "#f1f3f5"
        yield (
            f'<rect x="{x + 1}" y="{top}" width="{2 * _CELL - 2}" height="{_CELL}" rx="4" '
            f'fill="{fill}" fill-opacity="0.9"/>'
        )
        label, color = ("32 sums", "#ffffff") if valid else ("not read", _QUIET)
        yield _svg_text(x + _CELL, top + 25, label, 12, color, anchor="middle")
    yield _svg_text(
        _LEFT,
        top + 62,
        "One set of weights (a[i, 9t … 9t+8], diagonal in every tap) serves all valid points.",
        13,
    )


def sweep() -> str:
    """Cycles per 1000 useful products over N: with NNA 2.0, with a slower array, and without an
    NNA."""
    lines = list(_chart_lines())
    left, top, width, height = 70, 92, 520, 300
    low, high = 70.0, 3000.0

    def x_of(n: float) -> float:
        return left + width * math.log2(n / _WIDTHS[0]) / math.log2(_WIDTHS[-1] / _WIDTHS[0])

    def y_of(value: float) -> float:
        return top + height * (1 - math.log(value / low) / math.log(high / low))

    parts = [
        _svg_text(
            16, 26, f"Cycles per 1000 useful products, A [{_M}, {_K}] by F [{_K}, N]", 16, _INK, 600
        ),
        _svg_text(
            16,
            47,
            "A weight set of 9216 bytes is loaded for every nine values of A, however many",
            13,
        ),
        _svg_text(
            16,
            65,
            "channels it serves: wide products pay, narrow ones do not. Both axes are logarithmic.",
            13,
        ),
    ]
    for value in (100, 200, 500, 1000, 2000):
        y = y_of(value)
        parts.append(f'<path d="M{left} {y:.1f}h{width}" stroke="{_RULE}"/>')
        parts.append(_svg_text(left - 8, y + 4, f"{value}", 12, anchor="end"))
    below = top + height + 20
    parts += [_svg_text(x_of(n), below, str(n), 12, anchor="middle") for n in _WIDTHS]
    parts.append(_svg_text(left + width / 2, top + height + 42, "N, channels", 13, anchor="middle"))
    for line, label_y in zip(
        lines, _spread_labels([y_of(line.values[-1]) for line in lines]), strict=True
    ):
        points = " ".join(
            f"{x_of(n):.1f},{y_of(v):.1f}" for n, v in zip(_WIDTHS, line.values, strict=True)
        )
        dash = ' stroke-dasharray="6 4"' if line.dashed else ""
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{line.color}" '
            f'stroke-width="2.5"{dash}/>'
        )
        parts.append(_svg_text(left + width + 10, label_y + 4, line.label, 12, line.color, 600))
    return _svg_document(left + width + 245, top + height + 60, parts)


def _chart_lines() -> Iterator[Line]:
    unit = load_board("nna2").nna
    assert unit
    slow = dataclasses.replace(unit.chip, macs_per_cycle=unit.chip.macs_per_cycle // 8)
    for name, chip, color in (
        ("array 8 times slower", slow, _GROUPS[1]),
        ("nna2", unit.chip, _GROUPS[0]),
    ):
        accounts = [_matmul_account(n, chip) for n in _WIDTHS]
        serial, overlapped = (a.serial_cycles for a in accounts), (a.cycles for a in accounts)
        yield Line(f"{name}, no overlap", color, True, _per_thousand(serial))
        yield Line(name, color, False, _per_thousand(overlapped))
    yield Line("vector unit alone", _QUIET, False, _per_thousand(a.vector_cycles for a in accounts))


def _matmul_account(n: int, chip: NnaChip) -> NnaAccount:
    a, f = np.ones((_M, _K), np.int8), np.ones((_K, n), np.int8)
    found = emulate_matmul(a, f, chip=chip).account
    assert found
    return found


def _per_thousand(cycles: Iterable[int]) -> tuple[float, ...]:
    return tuple(1000 * c / (_M * _K * n) for c, n in zip(cycles, _WIDTHS, strict=True))


def _spread_labels(heights: list[float], least: float = 17) -> list[float]:
    """Label positions, shifted so that no two overlap."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    moved = list(heights)
    for before, after in itertools.pairwise(order):
        moved[after] = max(moved[after], moved[before] + least)
    return moved


def _svg_text(
    x: float,
    y: float,
    text: str,
    size: int,
    color: str = _QUIET,
    weight: int = 400,
    anchor: str = "start",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}" '
        f'font-weight="{weight}" text-anchor="{anchor}">{text}</text>'
    )


def _svg_document(width: float, height: float, parts: Iterable[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" font-family="system-ui, sans-serif">'
    )
    ground = f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" fill="#ffffff"/>'
    return "\n".join([head, ground, *parts, "</svg>"]) + "\n"


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
