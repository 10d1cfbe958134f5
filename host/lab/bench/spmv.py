"""Benchmarks SpMV on this machine against other libraries, alternately, as called from Python."""

from __future__ import annotations

import importlib
import math
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.device.runtime.agent.interleave import Timer, interleave, pinned, summary
from edgekit.device.runtime.arrays.sparse import SparseMatrix
from edgekit.device.runtime.arrays.sparse_input import DTYPES, Csr, library, numpy_type
from edgekit.device.runtime.arrays.sparse_library import OPERANDS

PEERS = ("scipy", "torch", "mkl")
_PACKAGES = {"scipy": "scipy", "torch": "torch", "mkl": "sparse-dot-mkl"}
_TRIAD_FLOATS = 1 << 26  # three arrays of 256 MiB, larger than any cache
_AGREE = 1e-3
Call = Callable[[], Any]


@dataclass(frozen=True)
class LibraryTime:
    """Seconds per product in one library, or why it is missing. ratio: its time over ours, per
    turn, then the median: above 1 we are faster."""

    name: str
    version: str = ""
    missing: str = ""
    median: float = math.nan
    p10: float = math.nan
    p90: float = math.nan
    ratio: float = math.nan


@dataclass(frozen=True)
class SpmvResult:
    """One matrix. moved: bytes that the product must move in our format: stored values and indices,
    x and y once. triad: memory bandwidth in bytes per second. product: our seconds into an existing
    y, like the triad's; `ours` and the peers allocate y, whose pages the kernel must clear if it is
    large. gathers: seconds just to read x (float32, else NaN) at the columns of all non-zeros."""

    name: str
    shape: tuple[int, int]
    nonzeros: int
    padding: float
    moved: int
    threads: int
    ours: LibraryTime
    peers: tuple[LibraryTime, ...]
    triad: float
    product: float
    gathers: float

    @property
    def share(self) -> float:
        """The fraction of the triad's bandwidth."""
        return self.moved / self.product / self.triad

    @property
    def best(self) -> float:
        """The best peer's ratio; NaN without peers."""
        return min((p.ratio for p in self.peers if not p.missing), default=math.nan)


def triad_rate(threads: int) -> float:
    """Bytes per second of STREAM's triad on this machine."""
    timer = library().triad_timer(_TRIAD_FLOATS, threads)
    with pinned(threads):
        return 12e9 * _TRIAD_FLOATS / statistics.median(interleave([timer], 1.0)[0])


def bench_matrix(
    name: str, matrix: Csr, threads: int, peers: Sequence[str], seconds: float, triad: float
) -> SpmvResult:
    """Times SparseMatrix.matvec and the peers; raises InputError for an invalid matrix."""
    mine = SparseMatrix(matrix)
    stored = DTYPES[matrix.data.dtype.name]
    rng = np.random.default_rng(0)
    x = rng.random(matrix.shape[1]).astype(numpy_type(OPERANDS[stored]))
    expected = mine.matvec(x, threads)
    calls: list[Call] = []
    found: list[LibraryTime] = []
    for peer in peers:
        made = _prepare_call(peer, matrix, x, threads, expected)
        if isinstance(made, str):
            found.append(LibraryTime(peer, missing=made))
        else:
            found.append(LibraryTime(peer, _package_version(peer)))
            calls.append(made)
    y = np.empty_like(expected)
    calls += [lambda: mine.matvec(x, threads, out=y), lambda: mine.matvec(x, threads)]
    with pinned(threads):
        timers = [call_timer(call) for call in calls]
        timers.insert(0, library().gather_timer(x.ctypes.data, *_index_buffer(matrix, x), threads))
        gathers, *times, product, own = interleave(timers, seconds, cutoff=math.inf)
    theirs = iter(times)
    timed = [c if c.missing else _with_times(c, next(theirs), own) for c in found]
    ours = _with_times(LibraryTime("edgekit"), own, own)
    moved = mine.form.streamed + x.nbytes + expected.nbytes
    sizes = (matrix.shape, mine.nnz, mine.form.padding, moved, threads)
    medians = [summary(times)["median_us"] * 1e-6 for times in (product, gathers)]
    if x.dtype != np.float32:
        medians[1] = math.nan
    return SpmvResult(name, *sizes, ours, tuple(timed), triad, *medians)


def _index_buffer(matrix: Csr, x: Any) -> tuple[int, int]:
    """Address and count of a matrix's column indices; count 0 if x is not float32."""
    return matrix.indices.ctypes.data, len(matrix.indices) if x.dtype == np.float32 else 0


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of all non-NaN values; NaN if there are none."""
    logs = [math.log(value) for value in values if not math.isnan(value)]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def _with_times(contender: LibraryTime, nanoseconds: list[float], ours: list[float]) -> LibraryTime:
    s = summary(nanoseconds)
    median, p10, p90 = (s[name] * 1e-6 for name in ("median_us", "p10_us", "p90_us"))
    ratio = statistics.median(a / b for a, b in zip(nanoseconds, ours, strict=True))
    return replace(contender, median=median, p10=p10, p90=p90, ratio=ratio)


def call_timer(call: Call) -> Timer:
    """A timer returning the nanoseconds of a number of calls."""

    def timed(count: int) -> int:
        start = time.perf_counter_ns()
        for _ in range(count):
            call()
        return time.perf_counter_ns() - start

    return timed


def _package_version(peer: str) -> str:
    try:
        return version(_PACKAGES[peer])
    except PackageNotFoundError:
        return ""


def _prepare_call(peer: str, matrix: Csr, x: Any, threads: int, expected: Any) -> Call | str:
    """A call that computes the product, checked against ours; or why it is unavailable."""
    if peer == "scipy" and threads > 1:
        return "has one thread"
    if matrix.data.dtype.name not in ("float32", "float64"):
        return f"has no {matrix.data.dtype}"
    try:
        call = {"scipy": _scipy_call, "torch": _torch_call, "mkl": _mkl_call}[peer](
            matrix, x, threads
        )
        made = np.asarray(call())
    except ImportError as error:
        return f"not installed: {str(error)[:60]}"
    limit = _AGREE * (float(np.abs(expected).max(initial=0.0)) + 1)
    if not np.allclose(made, expected, rtol=_AGREE, atol=limit):
        return "gives another result"
    return call


def _scipy_call(matrix: Csr, x: Any, threads: int) -> Call:
    del threads
    sparse = importlib.import_module("scipy.sparse")
    arrays = (matrix.data, matrix.indices, matrix.indptr.astype(np.int32))
    made = sparse.csr_matrix(arrays, shape=matrix.shape)
    return lambda: made @ x


def _torch_call(matrix: Csr, x: Any, threads: int) -> Call:
    torch = importlib.import_module("torch")
    torch.set_num_threads(threads)
    arrays = (matrix.indptr.astype(np.int32), matrix.indices, matrix.data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that the format is new
        made = torch.sparse_csr_tensor(*(torch.from_numpy(a) for a in arrays), size=matrix.shape)
    vector = torch.from_numpy(x)
    return lambda: made @ vector


def _mkl_call(matrix: Csr, x: Any, threads: int) -> Call:
    libraries = sorted((Path(sys.prefix) / "lib").glob("libmkl_rt.so*"))
    if libraries:  # pip's location, which sparse-dot-mkl does not search
        os.environ.setdefault("MKL_RT", str(libraries[0]))
    os.environ["MKL_NUM_THREADS"] = str(threads)
    mkl = importlib.import_module("sparse_dot_mkl")
    sparse = importlib.import_module("scipy.sparse")
    mkl.mkl_set_num_threads(threads)
    arrays = (matrix.data, matrix.indices, matrix.indptr.astype(np.int32))
    made = sparse.csr_matrix(arrays, shape=matrix.shape)
    return lambda: mkl.dot_product_mkl(made, x)
