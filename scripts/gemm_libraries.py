#!/usr/bin/env python3
"""Estimates our matrix products beside other libraries: docs/results/gemm_libraries.csv.

    scripts/gemm_libraries.py [--boards rpi5,...] [--dtype s8] [--most 5000000] [--write]

Runs `edgekit lab bench gemm --peers` for each product of inference_shapes.txt, the small ones
first; --most limits their multiply-adds. Its answers are kept in the folder peers next to this
user's history, and the same command resumes. --write records the geometric mean and the lowest
ratio of each library, its time over ours.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from results import record

from edgekit.host.common.files import atomic_write
from edgekit.host.common.paths import data_folder
from edgekit.host.lab.tune.products import shapes_of_file
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import load_board

_SHAPES = Path(__file__).with_name("inference_shapes.txt")


def main() -> None:
    """Parse the command line."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--boards", default="rpi3,rk3566,rpi4,rpi5")
    parser.add_argument("--dtype", choices=("f32", "s8"), default="f32")
    parser.add_argument("--most", type=int, default=1 << 30)
    parser.add_argument("--write", action="store_true", help="into docs/results")
    options = parser.parse_args()
    for board in options.boards.split(","):
        ratios: dict[str, list[float]] = defaultdict(list)
        shapes = sorted(shapes_of_file(_SHAPES), key=lambda shape: shape.operations)
        for shape in (each for each in shapes if each.operations <= 2 * options.most):
            found = _peers(board, options.dtype, shape)
            print(board, f"{shape.m},{shape.k},{shape.n}", found, flush=True)
            for name, ratio in found.items():
                ratios[name].append(ratio)
        if options.write:
            _record(board, options, ratios)


def _peers(board: str, dtype: str, shape: GemmShape) -> dict[str, float]:
    """The ratio of each library's time to ours."""
    name = f"{board}-{dtype}-{shape.m}x{shape.k}x{shape.n}.json"
    kept = data_folder() / "peers" / name
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(kept, json.dumps(_bench(board, dtype, shape)).encode())
    found: dict[str, Any] = json.loads(kept.read_bytes())
    (product,) = found["products"]
    return {name: round(peer["ratio"], 3) for name, peer in sorted(product["peers"].items())}


def _bench(board: str, dtype: str, shape: GemmShape) -> dict[str, Any]:
    edgekit = Path(sys.executable).with_name("edgekit")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(f"{shape.m},{shape.k},{shape.n}\n")
        file.flush()
        command = [str(edgekit), "lab", "bench", "gemm", "--board", board, "--peers"]
        command += ["--dtype", dtype, "--shapes", file.name, "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    for name, why in found["peers"]["missing"].items():
        print(f"missing {name}: {why}", flush=True)
    return found


def _record(board: str, options: argparse.Namespace, ratios: dict[str, list[float]]) -> None:
    core = load_board(board).timing[0].core
    rows = [
        {
            "core": core,
            "dtype": options.dtype,
            "library": name,
            "products": str(len(each)),
            "ratio": f"{statistics.geometric_mean(each):.2f}",
            "lowest": f"{math.floor(100 * min(each)) / 100:.2f}",
        }
        for name, each in sorted(ratios.items())
    ]
    command = (
        f"scripts/gemm_libraries.py --boards {board} --dtype {options.dtype} --most {options.most}"
    )
    command += " --write"
    record(
        "gemm_libraries.csv", rows, ("core", "dtype", "library"), ("estimated, 1 thread", command)
    )


if __name__ == "__main__":
    main()
