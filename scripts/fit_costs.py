#!/usr/bin/env python3
"""Compares the cost model with recorded cycles, and fits the cores' rates to them.

    scripts/fit_costs.py check [--core a53 ...] [--only NAME ...]
    scripts/fit_costs.py fit [--core a53 ...]
    scripts/fit_costs.py record [--core a53 ...] [--only NAME ...] [--precision f16]

`check` prints, for each model and core, the single-threaded cost that `compile` prints divided by
the recorded time, and the median error. `fit` writes kb/tables/rates. `record` simulates models
with the cores' timing models, and adds the cycles of their operators to the data that `fit` reads.
Models come from models/ and, if EDGEKIT_EXTRA_DATA names a folder, from its models/; only models
with recorded cycles count.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgekit.host.compiler.costs.memory import memory_of
from edgekit.host.compiler.costs.model import CostModel
from edgekit.host.compiler.driver import compile_artifact, prepare
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.lowering.plan import Plan
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.placement import placements
from edgekit.host.compiler.schedule.types import Schedule
from edgekit.host.compiler.tables.layouts import layout_table_of
from edgekit.host.deploy.bundle.build import build_bundle
from edgekit.host.lab.tune.core_rates import RatedOperator, Recorded, fitted
from edgekit.host.lab.zoo.models import extended_zoo, zoo_options
from edgekit.host.simulator.model import estimate_model
from edgekit.host.simulator.target import target_of
from edgekit.kb.tables.core_rates import FOLDER, rates_text
from edgekit.kb.targets.board import CPU, BoardProfile, load_board
from edgekit.kb.targets.clusters import core_of_unit

_ROOT = Path(__file__).resolve().parents[1]
_MODELS = _ROOT / "tests/simulator/cycles.json"
_OPERATORS = _ROOT / "tests/simulator/operator_cycles.json"
# One profile per core: the core's virtual board, or a board with the same vector extension.
_BOARDS = {
    **{core: core for core in ("a53", "a55", "a57", "a7", "a72", "a76")},
    "u74": "rv64gc",
    "x60": "bpi-f3",
}


@dataclass(frozen=True)
class Case:
    """A model at one precision on one core, with recorded cycles in total and per operator name."""

    core: str
    model: Path
    precision: str
    cycles: float
    operators: Mapping[str, float]

    @property
    def board(self) -> BoardProfile:
        return load_board(_BOARDS[self.core])

    @property
    def options(self) -> CompileOptions:
        options = replace(zoo_options(self.model), threads=1)
        return replace(options, precision="f16") if self.precision == "f16" else options

    def planned(self) -> tuple[Schedule, Plan]:
        """The model as compiled for the core."""
        made = prepare(self.model, self.board, self.options)
        return plan_of(made.graph, self.board, self.options)


def models() -> dict[str, Path]:
    """The available models, by name."""
    zoo = extended_zoo(_ROOT / "models")
    return {path.stem: path for path in (*zoo.models, *zoo.onnx)}


def cases(wanted: argparse.Namespace) -> Iterator[Case]:
    """The recorded results of available models."""
    known, totals, operators = models(), _totals(), _read_json(_OPERATORS)
    for core in wanted.core:
        found = {f"{model} f32": {"cycles": n} for model, n in totals[core].items()}
        for key, more in operators.get(core, {}).items():
            found[key] = {**more, **found.get(key, {})}
        for key, recorded in sorted(found.items()):
            model, precision = key.split()
            if model in known and _is_wanted(model, wanted):
                named = recorded.get("operators", {})
                yield Case(core, known[model], precision, recorded["cycles"], named)


def _totals() -> dict[str, dict[str, float]]:
    """The recorded cycles of models by core, without those whose weights have few bits."""
    cores = _read_json(_MODELS).items()
    return {core: {name: n for name, n in of.items() if " " not in name} for core, of in cores}


def check(wanted: argparse.Namespace) -> None:
    """Print cost divided by recorded time."""
    ratios: dict[str, dict[str, float]] = {}
    for case in cases(wanted):
        spec = placements(*case.planned(), case.board, threads=1)[0]
        core = CostModel(case.board).core()
        assert core is not None
        name = case.model.stem + (" f16" if case.precision == "f16" else "")
        ratios.setdefault(name, {})[case.core] = spec.alone_us * core.clock_mhz / case.cycles
    print(f"| model | {' | '.join(wanted.core)} |\n| --- |{' ---: |' * len(wanted.core)}")
    for name, row in sorted(ratios.items()):
        cells = (f"{row[core]:.2f}" if core in row else "–" for core in wanted.core)
        print(f"| {name} | {' | '.join(cells)} |")
    errors = {c: [abs(row[c] - 1) for row in ratios.values() if c in row] for c in wanted.core}
    print(
        f"| median error | {' | '.join(f'{statistics.median(e):.1%}' for e in errors.values())} |"
    )
    every = sorted(error for each in errors.values() for error in each)
    print(
        f"\n{len(every)} models on cores: median error {statistics.median(every):.1%}, "
        f"nine of ten below {every[len(every) * 9 // 10]:.1%}, at most {every[-1]:.1%}"
    )


def fit(wanted: argparse.Namespace) -> None:
    """Write the rates of each core."""
    if missing := sorted({name for core in _totals().values() for name in core} - {*models()}):
        raise SystemExit(
            f"fit_costs: expected all models with recorded cycles, found no {', '.join(missing)}; "
            "name the folder that has them: EDGEKIT_EXTRA_DATA=FOLDER"
        )
    for core in wanted.core:
        recorded = [_record_case(case) for case in cases(argparse.Namespace(core=[core], only=[]))]
        rates = fitted(core, recorded, layout_table_of(load_board(_BOARDS[core])))
        (FOLDER / f"{core}.json").write_text(rates_text(rates), encoding="utf-8")
        print(f"{core}: {rates.source}", flush=True)


def _record_case(case: Case) -> Recorded:
    graph, core = case.planned()[0].graph, core_of_unit(case.board, CPU)
    assert core is not None
    operators, memory = [], memory_of(graph, core)
    for node in graph.nodes:
        work = CostModel(case.board).work(graph, node)
        far = memory.us(memory.far(work.amounts)) * core.clock_mhz
        operators.append(RatedOperator(work, far, case.operators.get(node.name)))
    return Recorded(f"{case.model.stem} {case.precision}", case.cycles, tuple(operators))


def record(wanted: argparse.Namespace) -> None:
    """Add the cycles of operators, model by model."""
    for name, path in sorted(models().items(), key=lambda item: item[1].stat().st_size):
        for core in wanted.core if _is_wanted(name, wanted) else ():
            case = Case(core, path, wanted.precision, 0.0, {})
            made = build_bundle(
                compile_artifact(path, case.board, options=case.options), case.board
            )
            found = estimate_model(made.manifest, made.files, target_of(case.board))
            known = _read_json(_OPERATORS)
            known.setdefault(core, {})[f"{name} {wanted.precision}"] = {
                "cycles": found.cost.cycles,
                "operators": {o.spec.name: o.cost.cycles for o in found.operators},
            }
            text = json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False)
            _OPERATORS.write_text(f"{text}\n", encoding="utf-8")
            print(f"{core} {name}: {found.cost.cycles:,} cycles", flush=True)


def _is_wanted(model: str, wanted: argparse.Namespace) -> bool:
    return not wanted.only or any(name in model for name in wanted.only)


def _read_json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def main() -> None:
    """Parse the command line."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=("check", "fit", "record"))
    parser.add_argument("--core", nargs="+", choices=list(_BOARDS), default=list(_BOARDS))
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="of models")
    parser.add_argument("--precision", choices=("f32", "f16"), default="f32")
    wanted = parser.parse_args()
    {"check": check, "fit": fit, "record": record}[wanted.action](wanted)


if __name__ == "__main__":
    main()
