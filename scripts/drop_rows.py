#!/usr/bin/env python3
"""Drops operator rows from edgekit's tables that make models slower in simulated time.

    scripts/drop_rows.py [--board rpi3 rpi5 ...] [--only NAME ...] [--threads N] [--precision f16]
        [--write]

Rows were measured in the models they were tuned for, but they also apply to similar models, whose
chains and images may differ. Covers models/ and, if EDGEKIT_EXTRA_DATA names a folder, its models/
too: a model that is slower with edgekit's rows than without is estimated without each of them, one
at a time. A row is dropped if that speeds up the models it applies to on average (geometric mean).
--write saves the remaining rows to kb/tables/gemm/.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from table_gains import estimated, options_of_models, parser_of, select_models

from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.lowering.choice import CompiledProduct
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.pipeline import PreparedGraph
from edgekit.host.compiler.tables.gemm import kit_table
from edgekit.host.compiler.tables.gemm_file import table_text
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase, OperatorRow
from edgekit.host.errors import InputError
from edgekit.kb.tables.paths import shipped_folder
from edgekit.kb.targets.board import BoardProfile, load_board

_BOARDS = ("rpi3", "rk3566", "jetson-nano", "rpi4", "rpi5", "orangepi-pc", "visionfive2", "bpi-f3")
_NOTHING = 0.0005  # relative time; builds differ by as much


@dataclass(frozen=True)
class _Asked:
    """Estimates a board's models with a given table."""

    board: BoardProfile
    options: dict[Path, CompileOptions]

    def with_rows(self, model: Path, table: KnowledgeBase) -> tuple[float, set[OperatorRow]]:
        """Milliseconds, and the rows that were used."""
        options = self.options[model]
        ms, made = estimated(model, self.board, options, table)
        return ms, set(_rows_of(made, self.board, options, table))


def _rows_of(
    made: PreparedGraph, board: BoardProfile, options: CompileOptions, table: KnowledgeBase
) -> Iterator[OperatorRow]:
    _, plan = plan_of(made.graph, board, options, table=table)
    compiled = [s.compiled for s in plan.lowered.steps if s.compiled is not None]
    choices = [g.choice for g in made.groups] + [
        c.choice for each in compiled for c in _flatten(each)
    ]
    return (c.row for c in choices if isinstance(c.row, OperatorRow))


def _flatten(compiled: CompiledProduct) -> Iterator[CompiledProduct]:
    """An operator and, recursively, the members of a chain."""
    yield compiled
    for member in compiled.members:
        yield from _flatten(member)


def main() -> None:
    parser = parser_of(__doc__, _BOARDS)
    parser.add_argument("--write", action="store_true", help="the tables that are left")
    wanted = parser.parse_args()
    every = options_of_models(wanted.threads, wanted.precision)
    options = {model: every[model] for model in select_models(every, wanted.only)}
    for name in wanted.board:
        board = load_board(name)
        table = kit_table(board) or KnowledgeBase((board.platform,))
        print(f"{name}, {wanted.threads} threads, {wanted.precision}", flush=True)
        left = _without_losing(_Asked(board, options), table)
        if wanted.write and left != table:
            path = shipped_folder("gemm") / f"{board.platform}.json"
            path.write_text(table_text(left), encoding="utf-8")


def _without_losing(asked: _Asked, table: KnowledgeBase) -> KnowledgeBase:
    """The table without rows that make models slower."""
    plain, times, rows = {}, {}, {}
    for model in asked.options:
        try:
            plain[model], _ = asked.with_rows(model, replace(table, operators=()))
            times[model], rows[model] = asked.with_rows(model, table)
        except InputError as error:
            print(f"  {model.stem}: {error}", flush=True)
    checked: set[OperatorRow] = set()
    for model in sorted(times, key=lambda m: plain[m] / times[m]):
        while times[model] > plain[model] * (1 + _NOTHING):
            worst = _worst_row(asked, model, table, times[model], rows[model] - checked)
            if worst is None:
                break
            checked.add(worst)
            less = _without_row(table, worst)
            others = [m for m in times if worst in rows[m]]
            new = {m: asked.with_rows(m, less) for m in others}
            gain = sum(math.log(new[m][0] / times[m]) for m in others)
            label = f"{worst.key.form} {worst.key.dtype} {worst.shape}: {model.stem}"
            kept = gain > -_NOTHING
            print(f"  {'kept' if kept else 'dropped'} {label}, {math.exp(gain / len(others)):.4f} "
                  f"in the mean of {len(others)}", flush=True)  # fmt: skip
            if kept:
                continue
            table = less
            for m in others:
                times[m], rows[m] = new[m]
    for model, ms in times.items():
        print(f"| {model.stem} | {plain[model]:.4g} | {ms / plain[model]:.3f} |", flush=True)
    return table


def _worst_row(
    asked: _Asked, model: Path, table: KnowledgeBase, ms: float, rows: set[OperatorRow]
) -> OperatorRow | None:
    """The row whose removal helps the model most; None if no removal helps."""
    without = {row: asked.with_rows(model, _without_row(table, row))[0] for row in rows}
    best = min(without, key=lambda r: (without[r], r.key), default=None)
    return best if best is not None and without[best] < ms * (1 - _NOTHING) else None


def _without_row(table: KnowledgeBase, row: OperatorRow) -> KnowledgeBase:
    return replace(table, operators=tuple(r for r in table.operators if r != row))


if __name__ == "__main__":
    main()
