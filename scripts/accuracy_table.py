#!/usr/bin/env python3
"""Compares every model's outputs with LiteRT's kernel sets and writes docs/accuracy.md.

    scripts/accuracy_table.py [--inputs 24] [--only NAME ...]

Goes through models/ and, if EDGEKIT_EXTRA_DATA names a folder, its models/ too.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.device.version import VERSION
from edgekit.host.errors import EdgekitError
from edgekit.host.lab.bench.agreement import (
    ModelAgreement,
    OutputAgreement,
    Verdict,
    compare_release,
)
from edgekit.host.lab.bench.machine import machine_summary
from edgekit.host.lab.zoo.cases import Samples
from edgekit.host.lab.zoo.models import compile_release, open_zoo
from edgekit.kb.targets.board import load_board

_ROOT = Path(__file__).resolve().parents[1]
_EXCEPTIONS = _ROOT / "tests" / "models" / "exceptions.toml"
_INTRODUCTION = """\
# Accuracy

How far our outputs on this machine are from LiteRT's. Made by `scripts/accuracy_table.py` with
{inputs} inputs per model: pictures and sound where they fit the model, and random, constant and
extreme values; for the stateful model, sequences of {steps} calls each.

LiteRT has three kernel sets: its *reference* kernels, whose integer arithmetic defines the right
answer; its *builtin* optimized kernels; and XNNPACK, the default. They disagree with one another,
which *between sets* shows. The bar: floats within 1e-5 of the call's largest magnitude of the
reference, integers equal. Where an output misses it, it must be no farther from the nearest set
than the sets are from one another (the worst call of each); such models are listed below with the
reason.

- *as reference*: calls within the bar, of all calls.
- *from reference*, *from nearest*, *between sets*: the worst call; for floats a fraction of the
  call's largest magnitude, for integers steps.
- *top*: calls whose largest element is the reference's.

Machine: {machine}. Kit: edgekit {version}; LiteRT {litert}; board profile: local ({simd}).
"""


@dataclass(frozen=True)
class Row:
    """One model; `agreement` is None if it did not run, and `failure` says why."""

    name: str
    agreement: ModelAgreement | None
    failure: str = ""


def main() -> int:
    options = _parse()
    extra = os.environ.get("EDGEKIT_EXTRA_DATA")
    zoo = open_zoo(_ROOT / "models", Path(extra) if extra else None)
    samples = zoo.samples()
    models = [m for m in zoo.models if not options.only or m.stem in options.only]
    rows = [_row(model, samples, options.inputs, options.steps) for model in models]
    text = "\n".join(
        [
            _introduction(options.inputs, options.steps),
            _table(rows),
            _exceptions(rows),
        ]
    )
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text, encoding="utf-8")
    print(_table(rows))
    good = all(r.agreement and r.agreement.verdict is not Verdict.APART for r in rows)
    return 0 if good else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=24)
    parser.add_argument("--steps", type=int, default=40, help="calls per input, stateful models")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="model names without .tflite")
    parser.add_argument("--output", type=Path, default=_ROOT / "docs" / "accuracy.md")
    return parser.parse_args()


def _row(model: Path, samples: Samples, inputs: int, steps: int) -> Row:
    print(model.stem, file=sys.stderr)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            release = compile_release(model, "local", Path(scratch))
            agreement = compare_release(release, model, samples, inputs, steps, Path(scratch))
            return Row(model.stem, agreement)
    except EdgekitError as error:
        return Row(model.stem, None, str(error))


def _introduction(inputs: int, steps: int) -> str:
    return _INTRODUCTION.format(
        version=VERSION,
        inputs=inputs,
        steps=steps,
        machine=machine_summary(),
        litert=importlib.metadata.version("ai-edge-litert"),
        simd=load_board("local").simd,
    )


def _table(rows: Sequence[Row]) -> str:
    heads = [
        *("model", "output", "type", "as reference", "from reference"),
        *("from nearest", "between sets", "top", "verdict"),
    ]
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for row in rows:
        if row.agreement is None:
            lines.append(f"| {row.name} | {row.failure} |{' |' * (len(heads) - 2)}")
        else:
            lines += [_line(row.name, output) for output in row.agreement.outputs]
    return "\n".join(lines) + "\n"


def _line(name: str, output: OutputAgreement) -> str:
    cells = [
        name,
        str(output.index),
        output.dtype,
        f"{output.exact_calls}/{output.calls}",
        *(f"{value:.2g}" for value in (output.worst, output.nearest, output.spread)),
        f"{output.same_top}/{output.calls}",
        output.verdict.value,
    ]
    return f"| {' | '.join(cells)} |"


def _exceptions(rows: Sequence[Row]) -> str:
    """Models with a listed reason, and those LiteRT's reference kernels cannot run."""
    reasons = tomllib.loads(_EXCEPTIONS.read_text(encoding="utf-8"))
    lines = [f"- {row.name}: {reasons[row.name]['reason']}" for row in rows if row.name in reasons]
    for row in rows:
        if row.agreement and "reference" not in row.agreement.sets:
            sets = ", ".join(row.agreement.sets)
            lines.append(f"- {row.name}: of LiteRT's sets only {sets} runs it; compared with that.")
    return "\n".join(["## Exceptions", "", *(lines or ["None."])]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
