"""Estimates pruned weights times the pixels of an image on a core that we do not have."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgekit.device.runtime.arrays.sparse_library import STORED
from edgekit.device.runtime.arrays.sparse_weights import SparseWeights
from edgekit.device.runtime.kernel_facts import SPMM_COLUMNS, SPMM_COLUMNS_OF_16
from edgekit.host.simulator.run import SimulatedCost
from edgekit.host.simulator.timed import RunnerCalls, RunnerCommand
from edgekit.kb.targets.board import BoardProfile


def panel_of(board: BoardProfile) -> int:
    """The columns of a panel that ek_spmm_panel returns on a board."""
    return SPMM_COLUMNS_OF_16 if board.isa.vl == 16 else SPMM_COLUMNS


def spmm_cost(calls: RunnerCalls, weights: SparseWeights, x: Any, threads: int) -> SimulatedCost:
    """The cost of W [outputs, inputs] times X [inputs, pixels], with warm caches and predictors.
    InputError if the run fails."""
    arrays = weights.arrays(panel_of(calls.target.board))
    pairs, (rows, cols) = arrays.pairs, weights.shape
    numbers = (STORED.index(weights.stored), arrays.index.itemsize, rows, cols, x.shape[1])
    files = {
        "start": arrays.start,
        "index": arrays.index,
        "values": arrays.values,
        "scale": np.zeros(0) if arrays.scale is None else arrays.scale,
        "pair": pairs.pair,
        "columns": pairs.columns,
        "packed": pairs.values,
        "x": x,
    }
    given = {name: array.tobytes() for name, array in files.items()}
    words = (*numbers, threads, pairs.panels, pairs.pairs)
    (cost,), _ = calls.run(RunnerCommand("spmm", words, 1, "products", given))
    return cost
