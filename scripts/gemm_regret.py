#!/usr/bin/env python3
"""Estimates what matrix products lose to the best method of a search: docs/results/gemm_regret.csv.

    scripts/gemm_regret.py [--boards rpi4,rpi5,...] [--dtype s8] [--packed b] [--threads 4]
        [--sample set] [--count 30] [--most 8388608] [--seed 77] [--write]

Regret is the time of the chosen method over that of the best one found, minus 1, in simulated
time: for the table's answer, for the analytic rule alone, and for the one fixed blocking that is
best on these products. They are random ones for which no table was searched, or --sample set: some
of the shapes that tables are searched for. The search tries every register tile with and without
packing, then what neighbors the best; the best few and the choices then run once more, together.
--most limits the operations of a product. What the search estimated is kept in regret.sqlite next
to this user's history, separate from it, and the same command resumes. --write records the means.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from results import record

from edgekit.device.version import VERSION
from edgekit.host.common.paths import data_folder
from edgekit.host.compiler.costs.methods.gemm import (
    Method,
    choices_of,
    half_method,
    method_of_tile,
)
from edgekit.host.compiler.costs.methods.half_product import half_choices
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.lab.bench.gemm_regret import REGRET_COUNT, REGRET_SEED, unseen_cases
from edgekit.host.lab.history.measurement import Measurement
from edgekit.host.lab.history.store import History
from edgekit.host.lab.tune.composed import ComposedMeasurer
from edgekit.host.lab.tune.products import COUNTED_OPERATIONS, MatrixProduct
from edgekit.host.lab.tune.propose import default_method, first_methods, neighbors
from edgekit.host.lab.tune.shape_set import shape_set
from edgekit.host.lab.tune.tuner import MeasuredCost, Question, TimedProduct
from edgekit.host.lab.tune.warm import PartTimer, warm_costs
from edgekit.host.simulator.products import Multiplication, ProductTimer
from edgekit.host.simulator.target import target_of
from edgekit.kb.features import GemmShape, packed_of
from edgekit.kb.targets.board import BoardProfile, load_board

_BOARDS = "rpi4,rpi5,rk3566,rpi3,jetson-nano,orangepi-pc,visionfive2,bpi-f3"
_CHOICES = ("table", "rule", "fixed")
_FIXED_FOR = GemmShape(1024, 1024, 1024)  # blocks of a method that serves all products
_FINALISTS = 4  # methods of each question that run on the whole product
_STEPS = 2  # from the best method to its neighbors
_AT_ONCE = 6  # products of a simulator's run


def main() -> None:
    """Parse the command line."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--boards", default=_BOARDS)
    parser.add_argument("--dtype", choices=("f32", "f16", "s8", "u8"), default="f32")
    parser.add_argument("--packed", choices=("none", "a", "b"), default="none")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sample", choices=tuple(_SAMPLES), default="unseen")
    parser.add_argument("--count", type=int, default=REGRET_COUNT, help="products per board")
    parser.add_argument("--most", type=int, default=COUNTED_OPERATIONS)
    parser.add_argument("--seed", type=int, default=REGRET_SEED)
    parser.add_argument("--write", action="store_true", help="into docs/results/gemm_regret.csv")
    options = parser.parse_args()
    for name in options.boards.split(","):
        board = load_board(name)
        with History(data_folder() / "regret.sqlite") as history:
            searches = Searches(board, history, ProductTimer(target_of(board)))
            found = regrets(searches, _products(board, options))
        means = {choice: statistics.fmean(r[choice] for r in found) for choice in _CHOICES}
        print(name, *(f"{choice} {mean:.3f}" for choice, mean in means.items()), flush=True)
        if options.write:
            _record(board, means, len(found), options)


def _products(board: BoardProfile, options: argparse.Namespace) -> list[MatrixProduct]:
    """The products of a sample, as many as wanted; none with a vector."""
    shapes = _SAMPLES[options.sample](board, options)
    fitting = (s for s in shapes if 1 not in (s.m, s.n))
    packed = packed_of(options.packed)
    chosen = itertools.islice(fitting, options.count)
    return [MatrixProduct(shape, options.dtype, options.threads, packed) for shape in chosen]


def _unseen(board: BoardProfile, options: argparse.Namespace) -> Iterator[GemmShape]:
    """Random shapes for which no table was searched."""
    searched = set(shape_set())
    found = unseen_cases(
        table_of(board), board.platform, 20 * options.count, options.most, options.seed
    )
    return (case.shape for case in found if case.shape not in searched)


def _of_set(_: BoardProfile, options: argparse.Namespace) -> list[GemmShape]:
    """The shapes that tables are searched for, in random order."""
    shapes = shape_set(options.most)
    random.Random(options.seed).shuffle(shapes)
    return shapes


_SAMPLES: Mapping[str, Callable[[BoardProfile, argparse.Namespace], Iterable[GemmShape]]] = {
    "unseen": _unseen,
    "set": _of_set,
}


class Searches:
    """What was searched on a board, by product: kept in `history`."""

    def __init__(self, board: BoardProfile, history: History, timer: PartTimer) -> None:
        self.board, self._history, self._timer = board, history, timer
        self._measurer = ComposedMeasurer(timer, board.isa.vl, thorough=_FINALISTS)
        self._costs: dict[MatrixProduct, dict[Method, MeasuredCost]] = {}
        for m in history.read(board.platform).measurements:
            if m.board == board.name:
                self._keep(
                    MatrixProduct(m.shape, m.dtype, m.threads, m.packed), m.method, _cost_of(m)
                )

    def costs(self, product: MatrixProduct) -> Mapping[Method, MeasuredCost]:
        """The cost of each method tried on a product, of some of them composed from parts."""
        return self._costs[product]

    def search(self, products: Sequence[MatrixProduct]) -> None:
        """Tries methods on the products that were not searched before, and on all of them the fixed
        methods that were not: they change with the rule."""
        new = [p for p in products if p not in self._costs]
        for some in _in_parts(new):
            self._ask({p: self._first(p) for p in some})
            for _ in range(_STEPS):
                self._ask({p: neighbors(self.board, p, self._best(p)[0], False) for p in some})
        for some in _in_parts(products):
            self._ask({p: self._fixed(p) for p in some})

    def final_costs(
        self, wanted: Mapping[MatrixProduct, Iterable[Method]]
    ) -> list[Mapping[Method, float]]:
        """The cycles of the best methods of each product and of those `wanted`, which run together
        in both orders: the lower ones. On an A55, 4 x 32 x 256, as large as L1, took 1.3 times
        as long by what ran first, however often it was repeated."""
        methods = [
            list(dict.fromkeys((*some, *self._best(p)[:_FINALISTS]))) for p, some in wanted.items()
        ]
        runs = [self._run(wanted, [some[::step] for some in methods]) for step in (1, -1)]
        return [
            {how: min(one[how], other[how]) for how in one}
            for one, other in zip(*runs, strict=True)
        ]

    def _run(
        self, products: Iterable[MatrixProduct], methods: Sequence[Sequence[Method]]
    ) -> list[Mapping[Method, float]]:
        asked = [
            (
                Multiplication(p.shape, p.dtype, p.packed, p.threads),
                [(p.shape, how) for how in some],
            )
            for p, some in zip(products, methods, strict=True)
        ]
        return [
            {how: float(cost.cycles) for how, cost in zip(some, costs, strict=True)}
            for some, costs in zip(methods, warm_costs(self._timer, asked), strict=True)
        ]

    def _first(self, product: MatrixProduct) -> list[Method]:
        return [*first_methods(self.board, product, False), *self._fixed(product)]

    def _fixed(self, product: MatrixProduct) -> list[Method]:
        return [method.cut(product.shape) for method in fixed_methods(self.board, product)]

    def _best(self, product: MatrixProduct) -> list[Method]:
        """The methods that ran on the whole product, the best ones first."""
        costs = self._costs[product]
        whole = [how for how, cost in costs.items() if cost.spread == 0.0]
        return sorted(whole, key=lambda how: costs[how].low)

    def _ask(self, wanted: Mapping[MatrixProduct, Iterable[Method]]) -> None:
        """Measures the methods that are not known."""
        questions = []
        for product, methods in wanted.items():
            known, usual = self._costs.get(product, {}), default_method(self.board, product)
            new = [how for how in dict.fromkeys(methods) if how not in known]
            if new:
                others = tuple(how for how in new if how != usual)
                questions.append(Question(product, usual, others, 0.0))

        def store(index: int, timed: TimedProduct | None) -> None:
            assert timed is not None
            question = questions[index]
            product, methods = question.product, (question.default, *question.methods)
            costs = zip(methods, (timed.default, *timed.methods), strict=True)
            rows = [self._row(product, how, cost, timed.default) for how, cost in costs]
            self._history.add(rows)
            for row in rows:
                self._keep(product, row.method, _cost_of(row))

        self._measurer.measure(questions, store)

    def _keep(self, product: MatrixProduct, method: Method, cost: MeasuredCost) -> None:
        costs = self._costs.setdefault(product, {})
        if method not in costs or cost.spread == 0.0:
            costs[method] = cost

    def _row(
        self, product: MatrixProduct, method: Method, cost: MeasuredCost, usual: MeasuredCost
    ) -> Measurement:
        return Measurement(
            self.board.name,
            self.board.platform,
            product.dtype,
            product.threads,
            product.shape,
            method,
            cost.low,
            usual.low,
            cost.spread,
            datetime.now(UTC).isoformat(timespec="seconds"),
            VERSION,
            "benchmark",
            "cycles",
            product.packed,
        )


def _in_parts(products: Sequence[MatrixProduct]) -> Iterator[Sequence[MatrixProduct]]:
    return (products[at : at + _AT_ONCE] for at in range(0, len(products), _AT_ONCE))


def _cost_of(row: Measurement) -> MeasuredCost:
    return MeasuredCost(row.cost, row.spread, row.cost)


def fixed_methods(board: BoardProfile, product: MatrixProduct) -> Iterator[Method]:
    """Every tile with the blocks that the caches hold, B packed or not where there is a choice."""
    dtype, threads, packed = product.dtype, product.threads, product.packed
    if dtype == "f16":
        yield from (half_method(*choice) for choice in half_choices(board))
        return
    for tile in choices_of(board, _FIXED_FOR, dtype, packed, threads):
        made = method_of_tile(board, *tile, _FIXED_FOR, dtype, threads, packed)
        yield made
        if dtype == "f32" and packed != "b":
            yield replace(made, pack_b=not made.pack_b)


def regrets(searches: Searches, products: Sequence[MatrixProduct]) -> list[dict[str, float]]:
    """The regrets of each product by name of the choice."""
    searches.search(products)
    fixed = _best_fixed(searches, products)
    board, table, found = searches.board, table_of(searches.board), []
    for some in _in_parts(products):
        answers = [table.choose(board, p.shape, p.dtype, p.threads, p.packed) for p in some]
        chosen = {
            p: (answer.method.cut(p.shape), default_method(board, p), fixed.cut(p.shape))
            for p, answer in zip(some, answers, strict=True)
        }
        for p, answer, costs in zip(some, answers, searches.final_costs(chosen), strict=True):
            best, methods = min(costs.values()), dict(zip(_CHOICES, chosen[p], strict=True))
            found.append({name: costs[how] / best - 1.0 for name, how in methods.items()})
            s = p.shape
            texts = (f"{name} {regret:.3f}" for name, regret in found[-1].items())
            print(board.name, f"{s.m},{s.k},{s.n}", answer.rule, *texts, flush=True)
    return found


def _best_fixed(searches: Searches, products: Sequence[MatrixProduct]) -> Method:
    """The one blocking with the least geometric mean of times."""

    def mean(method: Method) -> float:
        costs = (searches.costs(p)[method.cut(p.shape)].low for p in products)
        return statistics.fmean(map(math.log, costs))

    return min(fixed_methods(searches.board, products[0]), key=mean)


def _record(
    board: BoardProfile, means: Mapping[str, float], count: int, options: argparse.Namespace
) -> None:
    kind = {"core": board.timing[0].core, "dtype": options.dtype, "packed": options.packed}
    kind |= {"threads": str(options.threads), "sample": options.sample}
    figures = {f"{name}_regret": f"{mean:.3f}" for name, mean in means.items()}
    command = f"scripts/gemm_regret.py --dtype {options.dtype} --packed {options.packed}"
    command += f" --threads {options.threads}" if options.threads > 1 else ""
    command += " --sample set" if options.sample == "set" else ""
    command += f" --count {options.count} --most {options.most} --seed {options.seed} --write"
    row = {**kind, "shapes": str(count), **figures}
    record("gemm_regret.csv", [row], tuple(kind), ("estimated", command))


if __name__ == "__main__":
    main()
