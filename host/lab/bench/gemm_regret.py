"""Measures the lookup's regret on untuned products: its choice against an exhaustive search.

Each product is measured twice: first all methods alternately, then the best few and the choice
again for longer, so that a lucky outlier among many tries does not pass for a better method.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from edgekit.host.compiler.costs.methods.gemm import Method, analytic_method, method_of_tile
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.lab.bench.gemm import Dtype, OnCase, measured
from edgekit.host.lab.bench.gemm_cases import GemmCase, distinct_cases
from edgekit.host.lab.tune.products import MatrixProduct
from edgekit.host.lab.tune.tuner import Measurer, Question, TimedProduct
from edgekit.kb.targets.board import BoardProfile

REGRET_SEED = 77  # products different from the benchmark's own
REGRET_COUNT = 30
_SEARCH_SECONDS = 0.3
_FINAL_SECONDS = 0.2
_FINALISTS = 4
_BATCH = 6  # products per request to the board


@dataclass(frozen=True)
class Regretted:
    """One product: the choice's cost over the best method's, minus 1, from the final round."""

    case: GemmCase
    dtype: Dtype
    rule: str
    chosen: Method
    best: Method
    regret: float
    methods: int


@dataclass(frozen=True)
class UnmeasuredRegret:
    """Mean and maximum over products that no row of the table was measured on."""

    products: tuple[Regretted, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(p.regret for p in self.products) if self.products else 0.0

    @property
    def worst(self) -> float:
        return max((p.regret for p in self.products), default=0.0)


def unseen_cases(
    table: KnowledgeBase,
    platform: str,
    count: int,
    most_operations: int | None = None,
    seed: int = REGRET_SEED,
) -> list[GemmCase]:
    """Random products without a row in the table, optionally limited in size; fewer than `count` if
    there are no more."""
    known = {
        row.shape
        for row in table.rows
        if platform in table.platforms and row.key.platform == table.platforms.index(platform)
    }
    fitting = (
        case
        for case in distinct_cases(seed)
        if case.shape not in known
        and (most_operations is None or case.shape.operations <= most_operations)
    )
    return list(itertools.islice(fitting, count))


def measure_regret(
    cases: Sequence[tuple[GemmCase, Dtype]],
    board: BoardProfile,
    table: KnowledgeBase,
    threads: int,
    measurer: Measurer,
    on_case: OnCase,
) -> UnmeasuredRegret:
    """Searches every product on the board; skips those that exceed its memory."""
    found: list[Regretted] = []
    for start in range(0, len(cases), _BATCH):
        asked = [
            _prepare_search(case, dtype, board, table, threads)
            for case, dtype in cases[start : start + _BATCH]
        ]
        found += _measure_regret(asked, measurer)
        on_case(start + len(asked), len(cases))
    return UnmeasuredRegret(tuple(found))


@dataclass(frozen=True)
class _Searched:
    """A product being searched: `question` has the choice as its default and all other methods."""

    case: GemmCase
    dtype: Dtype
    rule: str
    question: Question


def _prepare_search(
    case: GemmCase, dtype: Dtype, board: BoardProfile, table: KnowledgeBase, threads: int
) -> _Searched:
    answer = table.choose(board, case.shape, dtype, threads, case.weights)
    product = MatrixProduct(case.shape, dtype, threads, case.weights)
    chosen = answer.method.cut(case.shape)
    methods = tuple(m for m in every_method(board, product) if m != chosen)
    return _Searched(case, dtype, answer.rule, Question(product, chosen, methods, _SEARCH_SECONDS))


def _measure_regret(asked: Sequence[_Searched], measurer: Measurer) -> list[Regretted]:
    search = measured(measurer, [each.question for each in asked], lambda _: None)
    asked = [asked[i] for i in sorted(search)]
    answers = [search[i] for i in sorted(search)]
    last = [
        replace(each.question, methods=_finalists(each.question, timed), seconds=_FINAL_SECONDS)
        for each, timed in zip(asked, answers, strict=True)
    ]
    final = measured(measurer, last, lambda _: None)
    return [_regret_of_case(asked[i], last[i], final[i]) for i in sorted(final)]


def _finalists(question: Question, timed: TimedProduct) -> tuple[Method, ...]:
    costs = sorted(zip(timed.methods, question.methods, strict=True), key=lambda each: each[0].low)
    return tuple(method for _, method in costs[:_FINALISTS])


def _regret_of_case(asked: _Searched, final: Question, timed: TimedProduct) -> Regretted:
    best, cost = final.default, timed.default.low
    for method, found in zip(final.methods, timed.methods, strict=True):
        if found.low < cost:
            best, cost = method, found.low
    return Regretted(
        asked.case,
        asked.dtype,
        asked.rule,
        final.default,
        best,
        timed.default.low / cost - 1.0,
        len(asked.question.methods) + 1,
    )


def every_method(board: BoardProfile, product: MatrixProduct) -> list[Method]:
    """All tiles in the library, normal and transposed, with several block depths and every packing
    that the product allows."""
    shape, dtype, threads = product.shape, product.dtype, product.threads
    found = [analytic_method(board, shape, dtype, threads, product.packed)]
    for mr, nr in _candidate_tiles(board, product):
        made = method_of_tile(board, mr, nr, shape, dtype, threads, product.packed)
        depths = {made.kc, shape.k} | ({max(made.kc // 2, 16)} if dtype == "f32" else set())
        packs_a = (False,) if product.packed == "a" else (False, True)
        packs_b = (made.pack_b,) if product.packed == "b" or dtype != "f32" else (False, True)
        for kc, pack_a, pack_b in itertools.product(sorted(depths), packs_a, packs_b):
            found.append(replace(made, kc=kc, pack_a=pack_a, pack_b=pack_b))
    return list(dict.fromkeys(method.cut(shape) for method in found))


def _candidate_tiles(board: BoardProfile, product: MatrixProduct) -> Iterator[tuple[int, int]]:
    vl, shape = board.isa.vl, product.shape
    for nv, height in enumerate(board.isa.columns.of(product.dtype), 1):
        heights = sorted({height, max(height * 2 // 3, 1)})
        for each in heights:
            yield min(each, shape.m), nv * vl
            if each % vl:
                yield nv * vl, min(each, shape.n)
