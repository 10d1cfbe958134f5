#!/usr/bin/env python3
"""Prints every model's arena beside its lower bound: the largest live set in the order it runs.

    scripts/arena_table.py [--board local] [--memory-limit BYTES] [--input-shape x=1,3,48,192]

Goes through models/ and, if EDGEKIT_EXTRA_DATA names a folder, its models/ too. Ends with 1 if an
arena is more than 5 % above its bound.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from edgekit.host.cli.options import input_shapes
from edgekit.host.compiler.driver import plan_of, prepare
from edgekit.host.compiler.lowering.plan import MemoryPlan
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.errors import EdgekitError, InputError
from edgekit.kb.targets.board import BoardProfile, load_board

_ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--board", default="local")
    parser.add_argument("--memory-limit", type=int, default=None)
    parser.add_argument("--input-shape", action="append")
    given = parser.parse_args()
    board, shapes = load_board(given.board), input_shapes(given.input_shape)
    extra = os.environ.get("EDGEKIT_EXTRA_DATA")
    folders = [_ROOT / "models", *([Path(extra) / "models"] if extra else [])]
    files = {p.stem: p for f in folders for p in sorted(f.rglob("*")) if p.suffix in _MODELS}
    print("| model | arena, KiB | bound, KiB | above |")
    print("| --- | --- | --- | --- |")
    worst = 0.0
    for name, path in sorted(files.items()):
        try:
            memory = _memory(path, board, shapes, given.memory_limit)
        except EdgekitError as error:
            print(f"| {name}: {error} | | | |")
            continue
        above = memory.arena_bytes / max(memory.lower_bound, 1) - 1
        worst = max(worst, above)
        sizes = f"{memory.arena_bytes / 1024:.1f} | {memory.lower_bound / 1024:.1f}"
        print(f"| {name} | {sizes} | {above:.1%} |")
    return 0 if worst <= 0.05 else 1


def _memory(
    path: Path, board: BoardProfile, shapes: Mapping[str, tuple[int, ...]], limit: int | None
) -> MemoryPlan:
    """`shapes` are for models that leave shapes open; the others are as they are."""
    options = CompileOptions(memory_limit=limit)
    try:
        made = prepare(path, board, options)
    except InputError:
        options = dataclasses.replace(options, shapes=shapes)
        made = prepare(path, board, options)
    return plan_of(made.graph, board, options)[1].memory


_MODELS = (".tflite", ".onnx")

if __name__ == "__main__":
    sys.exit(main())
