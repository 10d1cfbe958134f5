#!/usr/bin/env python3
"""Prints the cost model's estimate of what the order search gains on boards with two units.

    scripts/order_gains.py [--board rk3588 ...] [--only NAME ...] [--best-known]

Covers models/ and, if EDGEKIT_EXTRA_DATA names a folder, its models/ too; models that gain nothing
on any of the boards are only counted. With --best-known every part is searched fifty times as long
with several random seeds, and the last column is the gap between the usual search and the best
order found. For actual runs see scripts/order_runs.py.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.compiler.costs.model import CostModel
from edgekit.host.compiler.driver import prepare
from edgekit.host.compiler.lowering.nna.units import assign_units
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.schedule.schedule import schedule
from edgekit.host.compiler.schedule.search import USUAL, Effort
from edgekit.host.lab.zoo.models import extended_zoo, zoo_options
from edgekit.kb.targets.board import CPU, load_board

_ROOT = Path(__file__).resolve().parents[1]
_BOARDS = ("rk3588", "rk3399", "nna2")
_LONG = Effort(sets=USUAL.sets, ways=20 * USUAL.ways, samples=200, nodes=50 * USUAL.nodes)
_SEEDS = 3
_NOTHING = 1.0005  # smaller gains are rounding


@dataclass(frozen=True)
class Row:
    """The times of one model on one board, in microseconds; `alone`: every operator on the first
    unit."""

    model: str
    board: str
    alone: float
    imported: float
    chosen: float
    best: float
    proved: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--board", nargs="+", default=_BOARDS, help="boards with several units")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="of models")
    parser.add_argument("--best-known", action="store_true", help="search far longer, too")
    wanted = parser.parse_args()
    zoo = extended_zoo(_ROOT / "models")
    print("| model | board | one unit, µs | importer's order | chosen | gain | proved | off best |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    rows = []
    for model in (*zoo.models, *zoo.onnx):
        if wanted.only and not any(name in model.name for name in wanted.only):
            continue
        for board in wanted.board:
            rows.append(_measure_row(model, board, wanted.best_known))
            if rows[-1].imported > rows[-1].chosen * _NOTHING:
                print(_format_row(rows[-1], wanted.best_known), flush=True)
    gains = [row.imported / row.chosen for row in rows]
    mean = math.exp(sum(map(math.log, gains)) / len(gains)) if gains else 1.0
    print(
        f"\n{len(rows)} rows with those that gain nothing; geometric mean of the gains {mean:.4f}"
    )
    if wanted.best_known:
        print(
            f"largest distance from the best known {max(r.chosen / r.best - 1 for r in rows):.2%}"
        )


def _measure_row(model: Path, name: str, best_known: bool) -> Row:
    board = load_board(name)
    costs = CostModel(board)
    graph = prepare(model, board, zoo_options(model)).graph
    units = assign_units(graph, board, costs.cost)
    chosen = schedule(graph, board, CompileOptions(), units, costs)
    kept = schedule(graph, board, CompileOptions(order="import"), units, costs)
    best = chosen.makespan_us
    for seed in range(_SEEDS) if best_known else ():
        options = CompileOptions(random_seed=seed)
        best = min(best, schedule(graph, board, options, units, costs, _LONG).makespan_us)
    return Row(
        model=model.stem,
        board=name,
        alone=sum(costs.cost(graph, node, CPU) for node in graph.nodes),
        imported=kept.makespan_us,
        chosen=chosen.makespan_us,
        best=best,
        proved=all(part.exhaustive for part in chosen.subgraphs),
    )


def _format_row(row: Row, best_known: bool) -> str:
    off = f"{row.chosen / row.best - 1:.2%}" if best_known else "-"
    proved = "yes" if row.proved else "no"
    gain = f"{row.imported / row.chosen:.3f}"
    times = f"{row.alone:,.0f} | {row.imported:,.0f} | {row.chosen:,.0f}"
    return f"| {row.model} | {row.board} | {times} | {gain} | {proved} | {off} |"


if __name__ == "__main__":
    main()
