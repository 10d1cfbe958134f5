#!/usr/bin/env python3
"""Compares every model's outputs with LiteRT's kernel sets, for docs/results/accuracy.csv.

    scripts/accuracy_table.py [--inputs 24] [--only NAME ...] [--write]

Covers models/ and, if EDGEKIT_EXTRA_DATA names a folder, its models/ too. An output agrees with
LiteRT's reference kernels if floats are within 1e-5 of the call's largest magnitude and integers
are equal. Otherwise it may be no farther from the nearest of LiteRT's three kernel sets than these
are from one another. tests/models/exceptions.toml gives the reasons.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from results import csv_text, record

from edgekit.host.errors import EdgekitError
from edgekit.host.lab.bench.agreement import (
    Agreement,
    ModelAgreement,
    OutputAgreement,
    compare_release,
)
from edgekit.host.lab.bench.machine import machine_summary
from edgekit.host.lab.zoo.cases import ZooInputs
from edgekit.host.lab.zoo.models import compile_release, extended_zoo
from edgekit.kb.targets.board import load_board

_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Row:
    """One model; `agreement` is None if it did not run, and `failure` gives the reason."""

    name: str
    agreement: ModelAgreement | None
    failure: str = ""


def main() -> int:
    options = _parse_arguments()
    zoo = extended_zoo(_ROOT / "models")
    samples = zoo.samples()
    models = [m for m in zoo.models if not options.only or m.stem in options.only]
    rows = [_measure_row(model, samples, options.inputs, options.steps) for model in models]
    for row in rows:
        if row.agreement is None:
            print(f"{row.name}: {row.failure}", file=sys.stderr)
    found = [_to_record(r.name, o) for r in rows if r.agreement for o in r.agreement.outputs]
    print(csv_text(found))
    if options.write:
        source = (f"{machine_summary()} ({load_board('local').simd})", "scripts/accuracy_table.py")
        record("accuracy.csv", found, ("model", "output"), source)
    good = all(r.agreement and r.agreement.verdict is not Agreement.APART for r in rows)
    return 0 if good else 1


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=24)
    parser.add_argument("--steps", type=int, default=40, help="calls per input, stateful models")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="model names without .tflite")
    parser.add_argument("--write", action="store_true", help="into docs/results/accuracy.csv")
    return parser.parse_args()


def _measure_row(model: Path, samples: ZooInputs, inputs: int, steps: int) -> Row:
    print(model.stem, file=sys.stderr)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            release = compile_release(model, "local", Path(scratch))
            agreement = compare_release(release, model, samples, inputs, steps, Path(scratch))
            return Row(model.stem, agreement)
    except EdgekitError as error:
        return Row(model.stem, None, str(error))


def _to_record(name: str, output: OutputAgreement) -> dict[str, str]:
    return {
        "model": name,
        "output": str(output.index),
        "type": output.dtype,
        "as_reference": f"{output.exact_calls}/{output.calls}",
        "from_reference": f"{output.worst:.2g}",
        "from_nearest": f"{output.nearest:.2g}",
        "between_sets": f"{output.spread:.2g}",
        "same_top": f"{output.same_top}/{output.calls}",
        "verdict": output.verdict.value,
    }


if __name__ == "__main__":
    sys.exit(main())
