"""Estimates products of floats by OpenBLAS, from NumPy's wheel for a board's core, beside ours.

Both get their operands as they are: nothing is packed ahead.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.errors import EdgekitError, InputError
from edgekit.host.lab.bench.board_peers import NUMPY, Tell, Tools, guest_folder
from edgekit.host.lab.bench.gemm import CaseResult, GemmPeers, OnCase, Peer
from edgekit.host.lab.tune.estimating import EstimatingMeasurer
from edgekit.host.lab.tune.products import MatrixProduct
from edgekit.host.lab.tune.tuner import Question, TimedProduct
from edgekit.host.simulator.emulator import find_emulator
from edgekit.host.simulator.root import SystemRoot
from edgekit.host.simulator.run import SimulatorJob
from edgekit.host.simulator.target import SimulatedCore
from edgekit.kb.features import GemmShape

_NAME, _PROGRAM = "openblas", "product.py"
# OpenBLAS's kernels for small cores and for the likes of an A76; each product counts with the
# fastest, since it does not know all cores by itself.
_KERNELS = ("ARMV8", "CORTEXA53", "CORTEXA57", "NEOVERSEN1")
_CLOSE = 1e-3  # of the largest value


@dataclass(frozen=True)
class _Place:
    """NumPy's wheel, and the system root as programs on the core see it."""

    site: Path
    view: SystemRoot


def compare_on_core(
    results: Sequence[CaseResult],
    target: SimulatedCore,
    ours: Callable[[GemmShape], float],
    threads: int,
    on_case: OnCase,
    tell: Tell,
    tools: Tools | None = None,
) -> tuple[list[CaseResult], GemmPeers]:
    """The products of floats in `results` with OpenBLAS's time, and with the seconds of `ours`.
    Without OpenBLAS, the peers say why it is missing."""
    with_tools = tools or Tools()
    try:
        root = with_tools.root(target.board.arch, tell)
        site = with_tools.site(root, (NUMPY,), tell)
        place = _Place(site, with_tools.view(target.core.name, target.core, root))
        version, found = "", []
        for i, result in enumerate(results):
            if result.dtype == "f32":
                theirs = [
                    _openblas(result.case.shape, kernels, target, threads, place, with_tools)
                    for kernels in _KERNELS
                ]
                seconds, version = min(theirs)
                result = _beside(result, seconds, ours(result.case.shape))
            found.append(result)
            on_case(i + 1, len(results))
    except EdgekitError as failure:
        return list(results), GemmPeers({}, {_NAME: str(failure)})
    return found, GemmPeers({_NAME: f"of NumPy {version}; nothing is packed ahead"}, {})


def _beside(result: CaseResult, seconds: float, ours: float) -> CaseResult:
    peer = Peer(seconds, seconds / ours)
    return replace(result, cost=ours, peers={_NAME: peer})


def unpacked_seconds(
    target: SimulatedCore, table: KnowledgeBase, threads: int, shape: GemmShape
) -> float:
    """Estimated seconds of our product of floats as the table says for operands as they are."""
    method = table.choose(target.board, shape, "f32", threads, "none").method.cut(shape)
    question = Question(MatrixProduct(shape, "f32", threads, "none"), method, (method,), 0.0)
    found: list[TimedProduct | None] = []
    EstimatingMeasurer(target).measure([question], lambda _, timed: found.append(timed))
    (timed,) = found
    assert timed is not None  # estimates leave out none
    return timed.methods[0].median


def _openblas(
    shape: GemmShape,
    kernels: str,
    target: SimulatedCore,
    threads: int,
    place: _Place,
    tools: Tools,
) -> tuple[float, str]:
    """Seconds, and NumPy's version. InputError if the product is wrong."""
    a, b = _operands(shape)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        program = folder / _PROGRAM
        program.write_bytes((guest_folder() / _PROGRAM).read_bytes())
        a.tofile(folder / "a")
        b.tofile(folder / "b")
        sizes = map(str, (shape.m, shape.n, shape.k))
        variables = {
            "PYTHONPATH": str(place.site),
            "LC_ALL": "C",
            "PYTHONHASHSEED": "0",
            "OPENBLAS_NUM_THREADS": str(threads),
            "OPENBLAS_CORETYPE": kernels,
        }
        job = SimulatorJob(
            (str(place.view.interpreter), "-S", str(program), *sizes, made),
            place.view.folder,
            quiet=True,
            variables=variables,
        )
        run = tools.run(find_emulator(target.board.arch), target, job)
        product = np.fromfile(folder / "c", np.float32).reshape(shape.m, shape.n)
    expected = a.astype(np.float64) @ b
    if np.abs(product - expected).max() > _CLOSE * np.abs(expected).max():
        raise InputError(f"expected OpenBLAS's product of {shape}, found other values")
    version = run.said.rpartition("version ")[2].strip()
    return target.milliseconds(run.regions[0].cost.cycles) / 1e3, version


def _operands(shape: GemmShape) -> tuple[np.ndarray, np.ndarray]:
    source = np.random.default_rng(1)
    a = source.standard_normal((shape.m, shape.k), np.float32)
    return a, source.standard_normal((shape.k, shape.n), np.float32)
