"""Benchmarks GEMM kernels: the knowledge base's choice against a fixed method and other libraries.

On a board everything runs in its runtime; peers are timed on this machine, in one process with
ours. Emulated boards have no meaningful times, so their instructions are counted.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.costs.methods.gemm import Method, analytic_method
from edgekit.host.compiler.tables.gemm_table import GemmChoice, KnowledgeBase
from edgekit.host.compiler.toolchain.kernels import write_kernels
from edgekit.host.compiler.toolchain.zig import Toolchain, TranslationUnit
from edgekit.host.errors import InputError
from edgekit.host.lab.bench.gemm_cases import GROUPS, TRANSPOSED, GemmCase, Group
from edgekit.host.lab.bench.gemm_contenders import OPENBLAS_LOOP, Edgekit
from edgekit.host.lab.bench.peers import usable_cores
from edgekit.host.lab.bench.process import AnsweringProcess
from edgekit.host.lab.tune.products import MatrixProduct
from edgekit.host.lab.tune.tuner import MeasuredCost, Measurer, Question, TimedProduct
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import BoardProfile, cpu_flags

Dtype = Literal["f32", "s8"]
DTYPES: tuple[Dtype, ...] = ("f32", "s8")
OnCase = Callable[[int, int], None]  # done, total

_FIXED_FOR = GemmShape(1024, 1024, 1024)  # for the one method without a knowledge base
_CASE_SECONDS = 0.03
_BATCH = 16  # cases per request to a board
_WORKER_SECONDS = 600.0  # for one product, on a slow machine, with all peers
_LARGE = 512  # smallest square counted in the s8-over-f32 speedup


@dataclass(frozen=True)
class Peer:
    """One library's time for a product in its faster form, and the ratio to ours in our faster
    form, per round. `transposed`: its faster form is the transposed product."""

    seconds: float
    ratio: float
    transposed: bool = False


@dataclass(frozen=True)
class CaseResult:
    """One product. `cost`: of the knowledge base's choice, in seconds or instructions; `gain`: the
    fixed method's cost over it. `peers` by name; `cost` is then from the same run as theirs, as is
    `transposed`, the cost of the transposed product if the weights are the left operand.
    """

    case: GemmCase
    dtype: Dtype
    answer: GemmChoice
    cost: float
    spread: float
    gain: float
    peers: dict[str, Peer] = field(default_factory=dict)
    transposed: float | None = None

    @property
    def best(self) -> float:
        """The cost of the faster form."""
        return self.cost if self.transposed is None else min(self.cost, self.transposed)

    @property
    def best_peer(self) -> str | None:
        return min(self.peers, key=lambda name: self.peers[name].seconds, default=None)

    @property
    def ratio(self) -> float | None:
        """The best peer's time over ours, each in its faster form: above 1 we are faster."""
        return self.peers[self.best_peer].ratio if self.best_peer else None


@dataclass(frozen=True)
class GemmPeers:
    """Versions of the available peers, and why the others are missing."""

    versions: dict[str, str]
    missing: dict[str, str]


@dataclass(frozen=True)
class Summary:
    """Geometric means over a group: gain over the fixed method, ratio to the best peer."""

    dtype: Dtype
    group: Group
    products: int
    gain: float
    ratio: float | None
    worst: CaseResult | None


def fixed_method(board: BoardProfile, dtype: str, threads: int, case: GemmCase) -> Method:
    """The method that a library with a single method would use for everything, clipped to a
    product."""
    packed = case.weights
    found = analytic_method(board, _FIXED_FOR, dtype, threads, packed)
    return found.cut(case.shape)


def measure_cases(
    cases: Sequence[tuple[GemmCase, Dtype]],
    board: BoardProfile,
    table: KnowledgeBase,
    threads: int,
    measurer: Measurer,
    on_case: OnCase,
) -> list[CaseResult]:
    """Measures the choice and the fixed method on the board, alternately.

    Products that exceed the board's memory are skipped. Raises what the measurer raises.
    """
    results: list[CaseResult] = []
    for start in range(0, len(cases), _BATCH):
        part = cases[start : start + _BATCH]
        answers = [
            table.choose(board, case.shape, dtype, threads, case.weights) for case, dtype in part
        ]
        questions = [
            Question(
                MatrixProduct(case.shape, dtype, threads, case.weights),
                fixed_method(board, dtype, threads, case),
                (answer.method.cut(case.shape),),
                _CASE_SECONDS,
            )
            for (case, dtype), answer in zip(part, answers, strict=True)
        ]
        found = measured(measurer, questions, _offset_progress(on_case, start, len(cases)))
        results += [
            _to_result(case, dtype, answers[i], found[i])
            for i, (case, dtype) in enumerate(part)
            if i in found
        ]
    return results


def _offset_progress(on_case: OnCase, start: int, total: int) -> Callable[[int], None]:
    return lambda done: on_case(start + done, total)


def measured(
    measurer: Measurer, questions: Sequence[Question], on_answer: Callable[[int], None]
) -> dict[int, TimedProduct]:
    """The answers by question index, without those that the board could not give."""
    found: dict[int, TimedProduct] = {}

    def keep(index: int, timed: TimedProduct | None) -> None:
        if timed is not None:
            found[index] = timed
        on_answer(index + 1)

    measurer.measure(questions, keep)
    return found


def _to_result(case: GemmCase, dtype: Dtype, answer: GemmChoice, timed: TimedProduct) -> CaseResult:
    (ours,) = timed.methods
    return CaseResult(case, dtype, answer, ours.median, ours.spread, _speedup(timed.default, ours))


def _speedup(other: MeasuredCost, ours: MeasuredCost) -> float:
    return other.low / ours.low if ours.low > 0 else 1.0


def compare_with_peers(
    results: Sequence[CaseResult], board: BoardProfile, threads: int, on_case: OnCase
) -> tuple[list[CaseResult], GemmPeers]:
    """Times the same products on other libraries, on this machine.

    A missing peer is reported with the reason; one that cannot compute a product is left out of it.
    Raises InputError if there are fewer than `threads` cores or our own library fails.
    """
    cpus = usable_cores(threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_kernels(folder / "kernels.so", board)
        toolchain = Toolchain(board, cache_folder() / "objects")
        (folder / "loop.so").write_bytes(toolchain.build([TranslationUnit("loop", OPENBLAS_LOOP)]))
        process = AnsweringProcess(
            "the comparison of products",
            [
                sys.executable,
                "-m",
                "edgekit.host.lab.bench.gemm_worker",
                _worker_settings(folder, cpus),
            ],
            _WORKER_SECONDS,
            worker_variables(threads),
        )
        try:
            hello = process.hello
            found = []
            for i, result in enumerate(results):
                found.append(with_peers(result, process.ask(_to_question(result))))
                on_case(i + 1, len(results))
        finally:
            process.close()
    versions = {k: v for k, v in hello["versions"].items() if k != Edgekit.name}
    return found, GemmPeers(versions, hello["missing"])


def _worker_settings(folder: Path, cpus: Sequence[int]) -> str:
    import json

    fields = {
        "library": str(folder / "kernels.so"),
        "table": str(folder / "kernels.so.table"),
        "loop": str(folder / "loop.so"),
        "threads": len(cpus),
        "cpus": list(cpus),
        "peers": True,
    }
    return json.dumps(fields)


def worker_variables(threads: int) -> dict[str, str]:
    """OpenBLAS falls back to AVX2 kernels on unknown CPUs; we compare with its best ones."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    best = {"OPENBLAS_CORETYPE": "SkylakeX"} if "avx512f" in cpu_flags() else {}
    path = ":".join(filter(None, sys.path))
    return {name: str(threads) for name in names} | best | {"PYTHONPATH": path}


def _to_question(result: CaseResult) -> dict[str, Any]:
    shape = asdict(result.case.shape)
    return {**shape, "weights": result.case.weights, "dtype": result.dtype}


def with_peers(result: CaseResult, answer: dict[str, Any]) -> CaseResult:
    """A result with the worker's answer. Raises InputError if our own product was wrong."""
    times: dict[str, list[float]] = answer["times"]
    if Edgekit.name not in times:
        raise InputError(answer["missing"][Edgekit.name])
    given, other = times[Edgekit.name], times.get(Edgekit.name + TRANSPOSED)
    best = {name: _better_form(name, times) for name in {n.removesuffix(TRANSPOSED) for n in times}}
    ours = times[best.pop(Edgekit.name)]
    peers = {
        name: Peer(
            statistics.median(times[form]) * 1e-9,
            statistics.median(their / own for their, own in zip(times[form], ours, strict=True)),
            form.endswith(TRANSPOSED),
        )
        for name, form in best.items()
    }
    median = statistics.median(given)
    return replace(
        result,
        cost=median * 1e-9,
        spread=(max(given) - min(given)) / median,
        peers=peers,
        transposed=None if other is None else statistics.median(other) * 1e-9,
    )


def _better_form(name: str, times: Mapping[str, Sequence[float]]) -> str:
    forms = [form for form in (name, name + TRANSPOSED) if form in times]
    return min(forms, key=lambda form: statistics.median(times[form]))


def summarize(results: Sequence[CaseResult]) -> list[Summary]:
    """One summary per element type and group with products."""
    found = []
    for dtype in DTYPES:
        for group in GROUPS:
            part = [r for r in results if r.dtype == dtype and r.case.group == group]
            if not part:
                continue
            ratios = [r.ratio for r in part if r.ratio is not None]
            compared = [r for r in part if r.ratio is not None]
            worst = min(compared, key=lambda r: r.ratio or 0.0, default=None)
            mean = geometric_mean(ratios) if ratios else None
            gain = geometric_mean(r.gain for r in part)
            found.append(Summary(dtype, group, len(part), gain, mean, worst))
    return found


def bytes_over_floats(results: Sequence[CaseResult]) -> float | None:
    """The speedup of s8 over f32 on large square products; None without them."""
    costs = {
        (r.dtype, r.case.shape): r.cost
        for r in results
        if r.case.group == "square" and r.case.shape.m >= _LARGE
    }
    pairs = [
        cost / costs["s8", shape]
        for (dtype, shape), cost in costs.items()
        if dtype == "f32" and ("s8", shape) in costs
    ]
    return geometric_mean(pairs) if pairs else None


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean of positive values; 1 if there are none."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0
