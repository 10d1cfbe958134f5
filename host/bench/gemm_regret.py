"""What the look-up loses on products that nobody tuned: its choice beside an exhaustive search.

Each product is measured twice: all methods in turns, then the best few and the choice once more
with more time, so that the luck of many tries does not pass for a better method.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from edgekit.host.bench.gemm import Dtype, OnCase, measured
from edgekit.host.bench.gemm_cases import Case, random_cases
from edgekit.host.tune.products import Product
from edgekit.host.tune.tuner import Measurer, Question
from edgekit.kb.board import BoardProfile
from edgekit.kb.gemm_table import KnowledgeBase
from edgekit.kb.method import Method, analytic_method, method_of_tile
from edgekit.kb.tiles import COLUMNS, TILES

REGRET_SEED = 77  # other products than the benchmark's own
REGRET_COUNT = 30
_SEARCH_SECONDS = 0.3
_FINAL_SECONDS = 0.2
_FINALISTS = 4


@dataclass(frozen=True)
class Regretted:
    """One product: cost of the choice over the best method's, less 1, by the final round."""

    case: Case
    dtype: Dtype
    rule: str
    chosen: Method
    best: Method
    regret: float
    methods: int


@dataclass(frozen=True)
class Regret:
    """Mean and worst over products that no row of the table was measured on."""

    products: tuple[Regretted, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(p.regret for p in self.products) if self.products else 0.0

    @property
    def worst(self) -> float:
        return max((p.regret for p in self.products), default=0.0)


def unseen_cases(
    table: KnowledgeBase, platform: str, count: int, most_operations: int | None = None
) -> list[Case]:
    """Random products that the table has no row of, and that are not too large if that is said."""
    known = {
        row.shape
        for row in table.rows
        if platform in table.platforms and row.key.platform == table.platforms.index(platform)
    }
    fitting = (
        case
        for case in random_cases(20 * count, REGRET_SEED)
        if case.shape not in known
        and (most_operations is None or case.shape.operations <= most_operations)
    )
    return list(itertools.islice(fitting, count))


def measure_regret(
    cases: Sequence[tuple[Case, Dtype]],
    board: BoardProfile,
    table: KnowledgeBase,
    threads: int,
    measurer: Measurer,
    on_case: OnCase,
) -> Regret:
    """Searches every product on the board; one it has no memory for is left out."""
    found: list[Regretted] = []
    for i, (case, dtype) in enumerate(cases):
        found += _regretted(case, dtype, board, table, threads, measurer)
        on_case(i + 1, len(cases))
    return Regret(tuple(found))


def _regretted(
    case: Case,
    dtype: Dtype,
    board: BoardProfile,
    table: KnowledgeBase,
    threads: int,
    measurer: Measurer,
) -> list[Regretted]:
    answer = table.choose(board, case.shape, dtype, threads, case.weights)
    product = Product(case.shape, dtype, threads, case.weights)
    chosen = answer.method.cut(case.shape)
    methods = [m for m in every_method(board, product) if m != chosen]
    first = Question(product, chosen, tuple(methods), _SEARCH_SECONDS)
    search = measured(measurer, [first], lambda _: None)
    if 0 not in search:
        return []
    costs = sorted(zip(search[0].methods, methods, strict=True), key=lambda each: each[0].low)
    finalists = tuple(method for _, method in costs[:_FINALISTS])
    final = measured(
        measurer, [Question(product, chosen, finalists, _FINAL_SECONDS)], lambda _: None
    )
    if 0 not in final:
        return []
    best, cost = chosen, final[0].default.low
    for method, found in zip(finalists, final[0].methods, strict=True):
        if found.low < cost:
            best, cost = method, found.low
    regret = final[0].default.low / cost - 1.0
    return [Regretted(case, dtype, answer.rule, chosen, best, regret, len(methods) + 1)]


def every_method(board: BoardProfile, product: Product) -> list[Method]:
    """All tiles that the library holds, upright and turned, with several depths of the block and
    all ways of packing that the product leaves open."""
    shape, dtype, threads = product.shape, product.dtype, product.threads
    found = [analytic_method(board, shape, dtype, threads, product.packed)]
    for mr, nr in _tiles(board, product):
        made = method_of_tile(board, mr, nr, shape, dtype, threads)
        depths = {made.kc, shape.k} | ({max(made.kc // 2, 16)} if dtype == "f32" else set())
        packs_a = (False,) if product.packed == "a" else (False, True)
        packs_b = (made.pack_b,) if product.packed == "b" or dtype != "f32" else (False, True)
        for kc, pack_a, pack_b in itertools.product(sorted(depths), packs_a, packs_b):
            found.append(replace(made, kc=kc, pack_a=pack_a, pack_b=pack_b))
    return list(dict.fromkeys(method.cut(shape) for method in found))


def _tiles(board: BoardProfile, product: Product) -> Iterator[tuple[int, int]]:
    vl, shape = TILES[board.simd].vl, product.shape
    for nv, height in enumerate(COLUMNS[board.simd].of(product.dtype), 1):
        heights = sorted({height, max(height * 2 // 3, 1)})
        for each in heights:
            yield min(each, shape.m), nv * vl
            if each % vl:
                yield nv * vl, min(each, shape.n)
