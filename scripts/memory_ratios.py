#!/usr/bin/env python3
"""Compares what models need in a board's memory with the least possible.

    scripts/memory_ratios.py --board BOARD MODEL ...

The least is the size of all constants in the file plus the lower bound of the arena. No C is
compiled.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from edgekit.host.cli.output import byte_size, table
from edgekit.host.compiler.driver import prepare_graph
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.frontends import import_model, outline_model
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.lab.zoo.models import zoo_options
from edgekit.kb.targets.board import BoardProfile, load_board


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--board", default="rpi3")
    arguments = parser.parse_args()
    board = load_board(arguments.board)
    heads = ("model", "in file", "stored", "arena", "lower bound", "ratio")
    table(heads, [_row(model, board) for model in arguments.models])
    return 0


def _row(model: Path, board: BoardProfile) -> tuple[str, ...]:
    options: CompileOptions = zoo_options(model)
    own = outline_model(model, options.shapes, "").parameter_bytes
    made = prepare_graph(import_model(model, options.shapes), board, options)
    _, plan = plan_of(made.graph, board, options)
    stored, memory = len(plan.lowered.weights), plan.memory
    ratio = (stored + memory.arena_bytes) / max(own + memory.lower_bound, 1)
    sizes = (own, stored, memory.arena_bytes, memory.lower_bound)
    return (model.stem, *map(byte_size, sizes), f"{ratio:.2f}")


if __name__ == "__main__":
    raise SystemExit(main())
