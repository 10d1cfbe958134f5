#!/usr/bin/env python3
"""Counts the instructions of one inference of every model on virtual boards, and records them.

    scripts/count_instructions.py [--boards a57 rv64v] [--only NAME ...] [--check PERCENT]

Writes tests/virtual/instructions.json. With --check it writes nothing and reports counts that
changed by more than PERCENT. Covers models/ and, if EDGEKIT_EXTRA_DATA names a folder, its models/
too. The counts are an emulator's instructions, not time. On a57 they repeat exactly, so any change
is due to the code; on rv64v they include the kernel and repeat to within 0.01%.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from edgekit.host import compile_model
from edgekit.host.deploy.connections import connect_to
from edgekit.host.deploy.release import count_instructions
from edgekit.host.errors import EdgekitError
from edgekit.host.lab.zoo.models import extended_zoo, zoo_options
from edgekit.host.virtual import BoardOptions, down, up

_ROOT = Path(__file__).resolve().parents[1]
RECORD = _ROOT / "tests" / "virtual" / "instructions.json"


def main() -> int:
    options = _parse_arguments()
    zoo = extended_zoo(_ROOT / "models")
    known_models = [*zoo.models, *zoo.onnx]
    models = [m for m in known_models if not options.only or m.stem in options.only]
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    changes = []
    for board in options.boards:
        up(board, options=BoardOptions(counting=True))
        try:
            for model in models:
                found = count(board, model)
                known = record.setdefault(board, {}).get(model.stem)
                record[board][model.stem] = found
                print(f"{board} {model.stem}: {found:,}{_format_change(known, found)}", flush=True)
                if known and abs(found / known - 1) * 100 > (options.check or 0):
                    changes.append(model.stem)
                if options.check is None:
                    RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
        finally:
            down(board)
    return 1 if options.check is not None and changes else 0


def count(board: str, model: Path) -> int:
    """Count the instructions of one inference of `model` on the running counting board `board`."""
    found = connect_to(board)
    shapes = zoo_options(model).shapes
    found.deploy(compile_model(model, board=found.profile, input_shapes=shapes))
    return count_instructions(found, repeats=2).per_inference


def _format_change(known: int | None, found: int) -> str:
    return f" ({found / known - 1:+.2%})" if known else ""


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--boards", nargs="+", default=["a57", "rv64v"])
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--check", type=float, metavar="PERCENT")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except EdgekitError as error:
        sys.exit(f"count_instructions: {error}")
