#!/usr/bin/env python3
"""Tunes every model for boards in simulated time: the source of edgekit's tables.

    scripts/tune_tables.py [--boards rpi3,rpi5,...] [--threads 4,2,1] [--precision f32,f16]
        [--only NAME ...] [--budget 60s] [--seconds S]
    edgekit lab kb build --board rpi5 -o kb/tables/gemm/cortex-a76.json      then, for each board

Covers models/ and, if EDGEKIT_EXTRA_DATA names a folder, its models/ too, small files first: one
`edgekit lab tune model` with the same budget for each model, board, number of threads and
precision. All measurements go to this user's history (set XDG_DATA_HOME to keep them separate from
other histories), and each run adds a line to sweep.jsonl next to it: runs that finished, or had as
long a budget, are not repeated. Several may run at once on different boards.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from arguments import split_names, split_numbers

from edgekit.host.cli.options import parse_budget
from edgekit.host.common.paths import data_folder
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.types import DType
from edgekit.host.errors import EdgekitError, InputError
from edgekit.host.lab.zoo.models import extended_zoo, zoo_options
from edgekit.kb.targets.board import UnknownBoardError, load_board

_ROOT = Path(__file__).resolve().parents[1]
_BOARDS = "rpi5,rk3566,rpi4,rpi3,bpi-f3,jetson-nano,visionfive2,orangepi-pc"
_CLI = (sys.executable, "-c", "from edgekit.host.cli.main import run; run()")


@dataclass(frozen=True)
class Run:
    """A model to tune for a board."""

    model: str
    board: str
    threads: int
    precision: str


def main() -> int:
    options = _parse_arguments()
    zoo = extended_zoo(_ROOT / "models")
    every = sorted((*zoo.models, *zoo.onnx), key=lambda path: (path.stat().st_size, path.stem))
    models = [m for m in every if not options.only or m.stem in options.only]
    try:
        if not models:
            known = ", ".join(path.stem for path in every)
            raise InputError(f"--only: expected some of {known}, found {' '.join(options.only)}")
        seconds = parse_budget(options.budget)
        half = {name: load_board(name).computes_half for name in options.boards}
    except (EdgekitError, UnknownBoardError) as error:
        print(f"tune_tables: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 2)
    end, log = time.monotonic() + options.seconds, data_folder() / "sweep.jsonl"
    for model, run in _plan_runs(models, options, half):
        if time.monotonic() > end:
            print("runs are left: start it again", file=sys.stderr)
            return 2
        if not _is_done(log, run, seconds):
            _tune_model(model, run, options.budget, log)
    return 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--boards", type=split_names, default=_BOARDS, metavar="NAME,...")
    parser.add_argument("--threads", type=split_numbers, default="4,2,1", metavar="N,...")
    parser.add_argument("--precision", type=split_names, default="f32,f16", metavar="f32,f16")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="model names without suffix")
    parser.add_argument("--budget", default="60s", metavar="TIME", help="of each run")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no run after that")
    return parser.parse_args()


def _plan_runs(
    models: Sequence[Path], options: argparse.Namespace, half: dict[str, bool]
) -> Iterator[tuple[Path, Run]]:
    """Half precision only if a core computes in it, and only for models with floats."""
    for model in models:
        has_floats = _has_float_weights(model)
        wanted = itertools.product(options.precision, options.threads, options.boards)
        for precision, threads, board in wanted:
            if precision == "f32" or (half[board] and has_floats):
                yield model, Run(model.stem, board, threads, precision)


def _has_float_weights(model: Path) -> bool:
    graph = import_model(model, zoo_options(model).shapes)
    floats = (DType.F32, DType.F16)
    return any(
        t.data is not None and t.data.ndim > 1 and t.dtype in floats for t in graph.tensors.values()
    )


def _is_done(log: Path, run: Run, seconds: float) -> bool:
    """Whether the run finished or had at least that much time; a failed run counts as neither."""
    lines = log.read_text().splitlines() if log.exists() else []
    known = [line for line in map(json.loads, lines) if line["run"] == asdict(run)]
    return any(
        "failure" not in line and (line["finished"] or line["budget"] >= seconds) for line in known
    )


def _tune_model(model: Path, run: Run, budget: str, log: Path) -> None:
    shapes = zoo_options(model).shapes.items()
    flags = [f"--input-shape={n}={','.join(map(str, shape))}" for n, shape in shapes]
    flags += [f"--board={run.board}", f"--threads={run.threads}", f"--precision={run.precision}"]
    began = time.monotonic()
    done = subprocess.run(
        [*_CLI, "lab", "tune", "model", str(model), *flags, f"--budget={budget}", "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    line = {
        "run": asdict(run),
        "budget": parse_budget(budget),
        "took": round(time.monotonic() - began, 1),
        "finished": found.get("finished", False),
        **{key: found.get(key) for key in ("gain", "default_ms", "before_ms", "after_ms")},
    }
    if done.returncode != 0:
        line["failure"] = (done.stderr.splitlines() or ["no word"])[-1]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as lines:
        lines.write(json.dumps(line) + "\n")
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main())
