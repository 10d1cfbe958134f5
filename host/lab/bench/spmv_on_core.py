"""Estimates sparse products by SciPy's CSR code, from its wheel for a board's core, beside ours."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.device.runtime.arrays.sparse_input import Csr
from edgekit.host.errors import EdgekitError, InputError
from edgekit.host.lab.bench.board_peers import NUMPY, Tell, Tools, guest_folder
from edgekit.host.simulator.emulator import find_emulator
from edgekit.host.simulator.root import SystemRoot
from edgekit.host.simulator.run import SimulatorJob
from edgekit.host.simulator.target import SimulatedCore

NAME = "scipy"
_PROGRAM = "sparse_product.py"
_WHEELS = ("scipy<1.17", NUMPY)
_FLOATS = ("float32", "float64")
_CLOSE = 1e-3  # of the largest value


@dataclass(frozen=True)
class SparsePeer:
    """Seconds of one product by SciPy for each matrix, on one thread since it uses no more; NaN for
    types that it cannot multiply. `missing`: why there are none at all."""

    version: str = ""
    missing: str = ""
    seconds: tuple[float, ...] = ()


def estimate_scipy(
    matrices: Sequence[Csr],
    target: SimulatedCore,
    on_matrix: Callable[[int, int], None],
    tell: Tell,
    tools: Tools | None = None,
) -> SparsePeer:
    """SciPy's times; `on_matrix` is told how many of all matrices are done."""
    with_tools = tools or Tools()
    try:
        root = with_tools.root(target.board.arch, tell)
        site = with_tools.site(root, _WHEELS, tell)
        view = with_tools.view(target.core.name, target.core, root)
        version, seconds = "", []
        for i, matrix in enumerate(matrices):
            if matrix.data.dtype.name in _FLOATS:
                time, version = _time_of(matrix, target, site, view, with_tools)
                seconds.append(time)
            else:
                seconds.append(math.nan)
            on_matrix(i + 1, len(matrices))
    except EdgekitError as failure:
        return SparsePeer(missing=str(failure))
    return SparsePeer(version, "", tuple(seconds))


def _time_of(
    matrix: Csr, target: SimulatedCore, site: Path, view: SystemRoot, tools: Tools
) -> tuple[float, str]:
    """Seconds, and SciPy's version. InputError if the product is wrong."""
    dtype = matrix.data.dtype
    x = np.random.default_rng(1).standard_normal(matrix.shape[1]).astype(dtype)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        program = folder / _PROGRAM
        program.write_bytes((guest_folder() / _PROGRAM).read_bytes())
        (folder / "dtype").write_text(dtype.name)
        matrix.indptr.astype(np.int32).tofile(folder / "starts")
        matrix.indices.astype(np.int32).tofile(folder / "columns")
        matrix.data.tofile(folder / "values")
        x.tofile(folder / "x")
        job = SimulatorJob(
            (str(view.interpreter), "-S", str(program), *map(str, matrix.shape), made),
            view.folder,
            quiet=True,
            variables={"PYTHONPATH": str(site), "LC_ALL": "C", "PYTHONHASHSEED": "0"},
        )
        run = tools.run(find_emulator(target.board.arch), target, job)
        product = np.fromfile(folder / "y", dtype)
    expected = _product(matrix, x)
    if np.abs(product - expected).max(initial=0) > _CLOSE * np.abs(expected).max(initial=0):
        raise InputError(f"expected SciPy's product of {matrix.shape}, found other values")
    version = run.said.rpartition("version ")[2].strip()
    return target.milliseconds(run.regions[0].cost.cycles) / 1e3, version


def _product(matrix: Csr, x: np.ndarray) -> np.ndarray:
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    terms = matrix.data.astype(np.float64) * x[matrix.indices]
    return np.bincount(rows, terms, matrix.shape[0])
