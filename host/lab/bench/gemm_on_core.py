"""Estimates products by other libraries, from their wheels for a board's core, beside ours.

Floats: NumPy's OpenBLAS; both get their operands as they are, nothing is packed ahead. Bytes: ONNX
Runtime's MatMulInteger, with constant weights that it packs; its product of a few values, which
takes as long as a session, is subtracted. On one thread also the libraries of gemm_libraries.py,
each beside our product with the same packed ahead.
"""

from __future__ import annotations

import functools
import importlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.errors import EdgekitError, InputError
from edgekit.host.lab.bench.board_peers import (
    NUMPY,
    PeerJob,
    Tell,
    Tools,
    estimate_peer,
    guest_folder,
)
from edgekit.host.lab.bench.gemm import CaseResult, GemmPeers, OnCase, Peer
from edgekit.host.lab.bench.gemm_libraries import LIBRARIES, LibraryTimer
from edgekit.host.lab.tune.estimating import EstimatingMeasurer
from edgekit.host.lab.tune.products import MatrixProduct
from edgekit.host.lab.tune.tuner import Question, TimedProduct
from edgekit.host.simulator.emulator import find_emulator
from edgekit.host.simulator.root import SystemRoot
from edgekit.host.simulator.run import SimulatorJob
from edgekit.host.simulator.target import SimulatedCore
from edgekit.kb.features import GemmShape, Packed

_NAME, _PROGRAM, _SESSIONS = "openblas", "product.py", "onnxruntime"
# OpenBLAS's kernels for small cores and for the likes of an A76; each product counts with the
# fastest, since it does not know all cores by itself.
_KERNELS = ("ARMV8", "CORTEXA53", "CORTEXA57", "NEOVERSEN1")
_CLOSE = 1e-3  # of the largest value
_SESSION = GemmShape(1, 4, 4)  # the product that takes as long as an ONNX Runtime session
_SECONDS = 900.0  # limit of one run


@dataclass(frozen=True)
class _Place:
    """NumPy's wheel, and the system root as programs on the core see it."""

    site: Path
    view: SystemRoot


Ours = Callable[[GemmShape, str, Packed], float]


def compare_on_core(
    results: Sequence[CaseResult],
    target: SimulatedCore,
    ours: Ours,
    threads: int,
    on_case: OnCase,
    tell: Tell,
    tools: Tools | None = None,
) -> tuple[list[CaseResult], GemmPeers]:
    """The products of floats in `results` with OpenBLAS's time, and with the seconds of `ours` for
    a shape, type and operand packed ahead; those of s8 with ONNX Runtime's; with one thread all
    with the libraries of Debian, too. The peers say why one is missing."""
    found, peers = _beside_openblas(results, target, ours, threads, on_case, tell, tools)
    versions, missing = dict(peers.versions), dict(peers.missing)
    if not any(result.dtype == "f32" for result in results):
        versions, missing = {}, {}
    if any(result.dtype == "s8" for result in results):
        try:
            versions[_SESSIONS] = _beside_sessions(found, target, threads, on_case, tell, tools)
        except EdgekitError as failure:
            missing[_SESSIONS] = str(failure)
    if threads == 1:
        _beside_libraries(found, target, ours, (versions, missing), tell, tools or Tools())
    return found, GemmPeers(versions, missing)


def _beside_sessions(
    found: list[CaseResult],
    target: SimulatedCore,
    threads: int,
    on_case: OnCase,
    tell: Tell,
    tools: Tools | None,
) -> str:
    """Adds ONNX Runtime's times to products of s8; returns its version."""
    time = functools.partial(_onnxruntime, target, threads, tell, tools or Tools())
    session, version = time(_SESSION)
    for i, result in enumerate(found):
        if result.dtype == "s8":
            seconds = max(time(result.case.shape)[0] - session, 1e-9)
            peer = Peer(seconds, seconds / result.cost)
            found[i] = replace(result, peers={_SESSIONS: peer})
            on_case(i + 1, len(found))
    return f"{version}; weights are packed ahead"


def _beside_libraries(
    found: list[CaseResult],
    target: SimulatedCore,
    ours: Ours,
    said: tuple[dict[str, str], dict[str, str]],
    tell: Tell,
    tools: Tools,
) -> None:
    """Adds the times of each library, and to `said` its version, or why it is missing."""
    versions, missing = said
    types = {result.dtype for result in found}
    wanted = [name for name, each in LIBRARIES.items() if types.intersection(each.dtypes)]
    try:
        timer = LibraryTimer(target, tell, tools)
    except EdgekitError as failure:
        missing.update((name, str(failure)) for name in wanted)
        return
    for name in wanted:
        library = LIBRARIES[name]
        try:
            for i, result in enumerate(found):
                shape, dtype = result.case.shape, result.dtype
                if dtype in library.dtypes:
                    seconds = timer.seconds(name, dtype, shape)
                    own = ours(shape, dtype, "b" if library.packs else "none")
                    peers = {**result.peers, name: Peer(seconds, seconds / own)}
                    found[i] = replace(result, peers=peers)
        except EdgekitError as failure:
            missing[name] = str(failure)
        else:
            versions[name] = library.note


def _onnxruntime(
    target: SimulatedCore, threads: int, tell: Tell, tools: Tools, shape: GemmShape
) -> tuple[float, str]:
    """Seconds with a session's, and the version. InputError without the engine or if it is
    wrong."""
    weights = np.random.default_rng(2).integers(-127, 128, (shape.k, shape.n)).astype(np.int8)
    with tempfile.TemporaryDirectory() as made:
        model = Path(made) / "product.onnx"
        model.write_bytes(_integer_product(shape, weights))
        job = PeerJob(model, target, threads, {}, ("f32",), _SECONDS)
        found = estimate_peer(_SESSIONS, job, tell, tools)
    if found.missing:
        raise InputError(found.missing)
    return found.milliseconds / 1e3, found.version


def _integer_product(shape: GemmShape, weights: np.ndarray) -> bytes:
    """An ONNX file. InputError without the package onnx."""
    try:
        onnx: Any = importlib.import_module("onnx")
    except ImportError:
        raise InputError("needs the package onnx; install it") from None
    helper, types = onnx.helper, onnx.TensorProto
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", types.INT8, (shape.m, shape.k))],
        [helper.make_tensor_value_info("y", types.INT32, (shape.m, shape.n))],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(made.SerializeToString())


def _beside_openblas(
    results: Sequence[CaseResult],
    target: SimulatedCore,
    ours: Ours,
    threads: int,
    on_case: OnCase,
    tell: Tell,
    tools: Tools | None,
) -> tuple[list[CaseResult], GemmPeers]:
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
                result = _beside(result, seconds, ours(result.case.shape, "f32", "none"))
            found.append(result)
            on_case(i + 1, len(results))
    except EdgekitError as failure:
        return list(results), GemmPeers({}, {_NAME: str(failure)})
    return found, GemmPeers({_NAME: f"of NumPy {version}; nothing is packed ahead"}, {})


def _beside(result: CaseResult, seconds: float, ours: float) -> CaseResult:
    peer = Peer(seconds, seconds / ours)
    return replace(result, cost=ours, peers={_NAME: peer})


def our_seconds(
    target: SimulatedCore,
    table: KnowledgeBase,
    threads: int,
    shape: GemmShape,
    dtype: str,
    packed: Packed,
) -> float:
    """Estimated seconds of our product as the table says."""
    method = table.choose(target.board, shape, dtype, threads, packed).method.cut(shape)
    question = Question(MatrixProduct(shape, dtype, threads, packed), method, (method,), 0.0)
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
