"""Estimates products with sparse weights on a core that we do not have: matrix times vector in each
block format, and matrix times the pixels of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
from edgekit.device.runtime.arrays.sparse_input import Csr, numpy_type
from edgekit.device.runtime.arrays.sparse_library import OPERANDS, STORED, SUM_BYTES, VALUE_BYTES
from edgekit.device.runtime.arrays.sparse_weights import SparseWeights
from edgekit.device.runtime.kernel_facts import SPMM_COLUMNS, SPMM_COLUMNS_OF_16
from edgekit.host.simulator.programs import Programs
from edgekit.host.simulator.run import SimulatedCost
from edgekit.host.simulator.target import SimulatedCore
from edgekit.host.simulator.timed import RunnerCalls, RunnerCommand
from edgekit.kb.targets.board import BoardProfile


def spmv_costs(
    target: SimulatedCore,
    matrix: Csr,
    forms: Sequence[BlockSettings],
    threads: int,
    seconds: float,
    programs: Programs | None = None,
) -> tuple[SimulatedCost, ...]:
    """Costs of one product in each format, with warm caches and predictors; `seconds`: limit for
    the run; `programs`: by default those built for the board. InputError if there is no emulator or
    the run fails."""
    calls = RunnerCalls(target, seconds, programs)
    return calls.run(_call(matrix, forms, threads))[0]


@dataclass(frozen=True)
class StoredForm:
    """One format of a matrix: rows of a strip, values stored over non-zeros, bytes of values and
    indices, and the cost of a product."""

    height: int
    padding: float
    bytes: int
    cost: SimulatedCost


def spmv_forms(
    calls: RunnerCalls, matrix: Csr, forms: Sequence[BlockSettings], threads: int
) -> tuple[StoredForm, ...]:
    """The formats of a matrix, with warm caches and predictors. InputError if the run fails."""
    costs, results = calls.run(_call(matrix, forms, threads, ("forms",)))
    facts = np.frombuffer(results["forms"], "<i8").reshape(len(forms), 3).tolist()
    value, nonzeros = VALUE_BYTES[matrix.stored], len(matrix.data)
    return tuple(
        StoredForm(
            height,
            slots * height / nonzeros if nonzeros else 1.0,
            slots * height * value + index_bytes,
            cost,
        )
        for (height, slots, index_bytes), cost in zip(facts, costs, strict=True)
    )


def _call(
    matrix: Csr, forms: Sequence[BlockSettings], threads: int, results: Sequence[str] = ()
) -> RunnerCommand:
    stored = matrix.stored
    rows, cols = matrix.shape
    x = np.ones(cols, numpy_type(OPERANDS[stored]))
    arrays = {"start": matrix.indptr, "index": matrix.indices, "values": matrix.data, "x": x}
    numbers = (STORED.index(stored), rows, cols, threads, rows * SUM_BYTES[stored])
    words = (*numbers, *map(_format_settings, forms))
    files = {name: array.tobytes() for name, array in arrays.items()}
    return RunnerCommand("spmv", words, len(forms), "forms of a matrix", files, results)


def _format_settings(how: BlockSettings) -> str:
    """The settings in spmv.c's syntax."""
    order = ("width", "window", "wide_from", "diagonal", "windows", "index_bytes", "columns")
    return ",".join(str(int(getattr(how, name))) for name in order)


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
