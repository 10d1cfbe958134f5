"""Estimates sparse matrix-vector products on a core that we do not have, in each block format.

The kernels are those that would run on the board; a small static program stores the matrix in each
format and multiplies, once to warm up and once timed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
from edgekit.device.runtime.arrays.sparse_input import DTYPES, Csr, numpy_type
from edgekit.device.runtime.arrays.sparse_library import OPERANDS, STORED, SUM_BYTES
from edgekit.host.errors import InputError
from edgekit.host.simulator.emulator import find_emulator
from edgekit.host.simulator.model import runner_job
from edgekit.host.simulator.programs import Programs, build_programs
from edgekit.host.simulator.run import Cost, run_job
from edgekit.host.simulator.target import Target


def spmv_costs(
    target: Target,
    matrix: Csr,
    forms: Sequence[BlockSettings],
    threads: int,
    seconds: float,
    programs: Programs | None = None,
) -> tuple[Cost, ...]:
    """Costs of one product in each format, with warm caches and predictors; `seconds`: limit for
    the run; `programs`: by default those built for the board. InputError if there is no emulator or
    the run fails."""
    emulator = find_emulator(target.board.arch)
    ours = programs or build_programs(target.board, emulator)
    stored = DTYPES[matrix.data.dtype.name]
    rows, cols = matrix.shape
    x = np.ones(cols, numpy_type(OPERANDS[stored]))
    arrays = {"start": matrix.indptr, "index": matrix.indices, "values": matrix.data, "x": x}
    numbers = (STORED.index(stored), rows, cols, threads, rows * SUM_BYTES[stored])
    command = ["spmv", "kernels.so", *map(str, numbers), *map(_format_settings, forms)]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernels.so").write_bytes(ours.kernels)
        for name, array in arrays.items():
            (Path(folder) / name).write_bytes(array.tobytes())
        job = runner_job(command, Path(folder), target.board.arch, seconds, ours.runner)
        regions = run_job(emulator, target, job, ours.plugin).regions
    if len(regions) != len(forms):
        raise InputError(
            f"expected {len(forms)} forms of a matrix to be timed, found {len(regions)}; "
            "please report this"
        )
    return tuple(region.cost for region in regions)


def _format_settings(how: BlockSettings) -> str:
    """The settings in spmv.c's syntax."""
    order = ("width", "window", "wide_from", "diagonal", "windows", "index_bytes", "columns")
    return ",".join(str(int(getattr(how, name))) for name in order)
