#!/usr/bin/env python3
"""Estimates what the tables of sparse settings gain: docs/results/sparse_gains.csv.

    scripts/sparse_gains.py [--boards rpi4,rpi5,...] [--threads 1,4] [--write]

Times of products of a sparse matrix with a vector over those with the settings of the patent's
rule, in simulated time, for f32 matrices that no search has seen; on several threads only those
large enough for that. --write records the geometric mean, the largest ratio, and the number of
matrices with settings other than the rule's, after each board.
"""

from __future__ import annotations

import argparse
import math
import statistics

from arguments import split_names, split_numbers
from results import record

from edgekit.device.runtime.arrays.sparse import WORTH_THREADS
from edgekit.device.runtime.arrays.sparse_blocks import default_settings
from edgekit.device.runtime.arrays.sparse_input import Csr
from edgekit.device.runtime.arrays.sparse_library import VALUE_BYTES
from edgekit.host.compiler.lowering.sparse.strips import strip_height
from edgekit.host.lab.bench.spmv_matrices import TUNED, open_matrix
from edgekit.host.lab.tune.estimating import FormEstimator
from edgekit.host.lab.tune.spmv import settings_for
from edgekit.host.simulator.target import SimulatedCore, target_of
from edgekit.kb.targets.board import load_board

_BOARDS = "rpi4,rpi5,rk3566,rpi3,jetson-nano,orangepi-pc,visionfive2,bpi-f3"
_UNSEEN = (
    *("banded:2000:7", "banded:15000:5", "poisson2:70", "poisson2:130", "poisson3:12"),
    *("poisson3:20", "random:500:0.1", "random:2000:0.01", "random:8000:0.0015"),
    *("uniform:5000:6", "uniform:20000:5", "power:600:6", "power:2000:10", "power:4000:9"),
    *("dense:64:256:0.25", "dense:128:512:0.2", "dense:192:768:0.15", "dense:300:700:0.1"),
    *("blocks:384:384:4:0.15", "blocks:256:512:8:0.3"),
)
assert not set(_UNSEEN) & set(TUNED)


def main() -> None:
    """Parse the command line."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--boards", type=split_names, default=split_names(_BOARDS))
    parser.add_argument("--threads", type=split_numbers, default=(1, 4))
    parser.add_argument("--write", action="store_true", help="into docs/results/sparse_gains.csv")
    options = parser.parse_args()
    for name in options.boards:
        target = target_of(load_board(name))
        for threads in options.threads:
            given = map(open_matrix, _UNSEEN)
            large = (m for m in given if threads == 1 or len(m.data) >= WORTH_THREADS)
            ratios = [_ratio(target, matrix, threads) for matrix in large]
            row = {
                "core": target.board.timing[0].core,
                "threads": threads,
                "matrices": len(ratios),
                "changed": sum(ratio != 1.0 for ratio in ratios),
                "ratio": f"{math.exp(statistics.fmean(map(math.log, ratios))):.3f}",
                "worst_ratio": f"{max(ratios):.3f}",
            }
            print(name, *(f"{key} {value}" for key, value in row.items()), flush=True)
            if options.write:
                command = f"scripts/sparse_gains.py --boards {name} --threads {threads} --write"
                record("sparse_gains.csv", [row], ("core", "threads"), ("estimated", command))


def _ratio(target: SimulatedCore, matrix: Csr, threads: int) -> float:
    """The time of a product with the table's settings over that with the rule's."""
    board = target.board
    chosen = settings_for(board, matrix).settings
    mean = len(matrix.data) / matrix.shape[0]
    stored = matrix.stored
    rule = default_settings(mean, strip_height(board.isa, stored), VALUE_BYTES[stored])
    if chosen == rule:
        return 1.0
    measurer = FormEstimator(target)
    measurer.send(matrix)
    found, usual = measurer.measure([chosen, rule], threads).forms
    return found.median / usual.median


if __name__ == "__main__":
    main()
