#!/usr/bin/env python3
"""Estimates the figures of matrix products and sparse matrices, by core: docs/results/products.csv.

    scripts/products.py [--boards rpi4,rpi5,...] [--count 30] [--most 2000000] [--seconds S]

Runs gemm_regret.py for f32, s8 and, where the core has it, f16, on shapes that tables are searched
for and on others, gemm_libraries.py where other libraries exist, and sparse_gains.py, board after
board; then results.py. What finished with the same kernels, rule and tables is not repeated, and a
run that was interrupted resumes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from arguments import split_names

from edgekit.host.common.paths import data_folder

_ROOT = Path(__file__).resolve().parents[1]
_BOARDS = "rpi4,rpi5,rk3566,rpi3,jetson-nano,orangepi-pc,visionfive2,bpi-f3"
_WITH_HALF = ("rpi5", "rk3566", "bpi-f3")  # that compute in half precision
_WITH_LIBRARIES = ("rpi4", "rpi5", "rk3566", "rpi3")
_LIBRARY_PRODUCTS = {"f32": 5_000_000, "s8": 1 << 20}  # at most so many multiply-adds
_SEEDS = {"set": 91, "unseen": 78}
_FOLDERS = ("device", "host", "kb")  # that decide the figures


def main() -> int:
    """Parse the command line, and run what is missing."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--boards", type=split_names, default=split_names(_BOARDS))
    parser.add_argument("--count", type=int, default=30, help="products per board and kind")
    parser.add_argument("--most", type=int, default=2_000_000, help="operations of a product")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no run after that")
    options = parser.parse_args()
    end, log = time.monotonic() + options.seconds, data_folder() / "products.jsonl"
    state = _state()
    for words in _runs(options):
        line = json.dumps({"state": state, "run": words})
        if log.exists() and line in log.read_text().splitlines():
            continue
        if time.monotonic() > end:
            print("runs are left: start it again", file=sys.stderr)
            return 2
        subprocess.run([sys.executable, f"scripts/{words[0]}", *words[1:]], cwd=_ROOT, check=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as lines:
            lines.write(line + "\n")
    return subprocess.run([sys.executable, "scripts/results.py"], cwd=_ROOT, check=False).returncode


def _runs(options: argparse.Namespace) -> Iterator[list[str]]:
    limits = [f"--count={options.count}", f"--most={options.most}"]
    for board in options.boards:
        where = [f"--boards={board}", "--write"]
        dtypes = ("f32", "f16", "s8") if board in _WITH_HALF else ("f32", "s8")
        for dtype, (sample, seed) in itertools.product(dtypes, _SEEDS.items()):
            kind = [f"--dtype={dtype}", f"--sample={sample}", f"--seed={seed}"]
            yield ["gemm_regret.py", *where, *kind, *limits]
        if board in _WITH_LIBRARIES:
            for dtype, most in _LIBRARY_PRODUCTS.items():
                yield ["gemm_libraries.py", *where, f"--dtype={dtype}", f"--most={most}"]
        yield ["sparse_gains.py", *where]


def _state() -> str:
    """Names what decides the figures, as far as it is committed."""
    command = ["git", "rev-parse", *(f"HEAD:{folder}" for folder in _FOLDERS)]
    return subprocess.check_output(command, cwd=_ROOT, text=True).strip()


if __name__ == "__main__":
    sys.exit(main())
