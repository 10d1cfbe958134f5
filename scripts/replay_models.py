#!/usr/bin/env python3
"""Writes the compiler output of models for boards; `scripts/replay` runs it for two commits.

    scripts/replay_models.py FOLDER MODEL BOARD [BOARD ...]

FOLDER gets BOARD/MODEL/ with one file for each generated C file of the library, units.json (the
kernels and their macros), plan.json (the explanation of every choice) and weights.sha256; or
error.txt with the line that a user would see. No C is compiled.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from edgekit.host.compiler.driver import prepare_graph, units_of
from edgekit.host.compiler.explain import explain
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.errors import InputError
from edgekit.host.lab.zoo.models import zoo_options
from edgekit.kb.targets.board import BoardProfile, load_profile


def main() -> int:
    folder, model = Path(sys.argv[1]), Path(sys.argv[2])
    options = zoo_options(model)
    for name in sys.argv[3:]:
        target = folder / name / model.name
        target.mkdir(parents=True)
        try:
            _write_model(target, import_model(model, options.shapes), load_profile(name), options)
        except InputError as error:
            (target / "error.txt").write_text(f"{error}\n")
    return 0


def _write_model(target: Path, source: Graph, board: BoardProfile, options: CompileOptions) -> None:
    made = prepare_graph(source, board, options)
    scheduled, plan = plan_of(made.graph, board, options)
    kernels = {}
    for unit in units_of(plan, board):
        if isinstance(unit.source, str):
            (target / f"{unit.name}.c").write_text(unit.source)
        else:
            kernels[unit.name] = [unit.source.name, dict(unit.macros), unit.plain]
    limit, costs = made.limit, scheduled.costs
    story = explain(scheduled, plan, board, made.counts, made.origin, limit, costs)
    for name, value in (("units", kernels), ("plan", story)):
        text = json.dumps(value, indent=1, sort_keys=True, default=str)
        (target / f"{name}.json").write_text(text + "\n")
    digest = hashlib.sha256(plan.lowered.weights).hexdigest()
    (target / "weights.sha256").write_text(digest + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
