"""Estimates products for a core without a board: composes their time from small parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.lab.tune.parts import parts_of
from edgekit.host.lab.tune.products import MatrixProduct
from edgekit.host.lab.tune.tuner import MeasuredCost, Question, TimedProduct
from edgekit.host.lab.tune.warm import PartTimer, warm_costs
from edgekit.host.simulator.products import Multiplication, Part

_FINALISTS = 2  # per question
_GAIN = 0.98  # ratio to the default from which a method is worth running on the whole product
_COMPOSED = 0.03  # spread of a cost composed from parts: what it is typically off by


class ComposedMeasurer:
    """Answers with the cycles of a simulated core.

    Costs are composed from small parts of the product (`parts_of`). Only the methods that seem to
    beat the default run on the whole product, and the default with them; others are then reported
    as no better than those.
    """

    unit = "cycles"

    def __init__(self, timer: PartTimer, vl: int, thorough: int = 0) -> None:
        """`thorough`: the number of methods per question that run on the whole product even if
        none seems to beat the default."""
        self._timer, self._vl, self._thorough = timer, vl, thorough

    def measure(
        self, questions: Sequence[Question], on_answer: Callable[[int, TimedProduct | None], None]
    ) -> None:
        """Raises InputError if a run fails."""
        for index, question in enumerate(questions):
            on_answer(index, self._answer(question))

    def _answer(self, question: Question) -> TimedProduct:
        product, methods = question.product, (question.default, *question.methods)
        guessed = self._compose(product, methods)
        known = {how: cost.low for how, cost in guessed.items() if cost.spread == 0.0}
        finalists = self._finalists(methods, guessed)
        run = [how for how in finalists if how not in known]
        cycles = self._run(product, [(product.shape, how) for how in run])
        known.update(zip(run, cycles, strict=True))
        scale = known.get(methods[0], guessed[methods[0]].low) / guessed[methods[0]].low
        least = min((known[how] for how in finalists), default=0.0)
        costs = [
            MeasuredCost(known[how], 0.0, known[how])
            if how in known
            else _composed(max(guessed[how].low * scale, least))
            for how in methods
        ]
        return TimedProduct(costs[0], tuple(costs[1:]))

    def _finalists(
        self, methods: Sequence[Method], guessed: Mapping[Method, MeasuredCost]
    ) -> list[Method]:
        """The default and those that seem best, if any is worth it."""
        default, *others = methods
        limit = math.inf if self._thorough else _GAIN * guessed[default].low
        worth = [how for how in others if guessed[how].low < limit]
        worth.sort(key=lambda how: guessed[how].low)
        best = worth[: self._thorough or _FINALISTS]
        return [default, *best] if best or self._thorough else []

    def _compose(
        self, product: MatrixProduct, methods: Sequence[Method]
    ) -> dict[Method, MeasuredCost]:
        """The cost of each method from the costs of its parts; exact if that is the product."""
        made = {method: parts_of(product, method, self._vl) for method in methods}
        asked = [(part.shape, how) for how, each in made.items() for part in each]
        cycles = iter(self._run(product, asked))
        sums = {how: sum(p.weight * next(cycles) for p in each) for how, each in made.items()}
        exact = {how for how, each in made.items() if each[0].shape == product.shape}
        return {
            how: MeasuredCost(total, 0.0, total) if how in exact else _composed(total)
            for how, total in sums.items()
        }

    def _run(self, product: MatrixProduct, parts: Sequence[Part]) -> list[float]:
        whole = Multiplication(product.shape, product.dtype, product.packed, product.threads)
        return [float(cost.cycles) for cost in warm_costs(self._timer, whole, parts)]


def _composed(cycles: float) -> MeasuredCost:
    return MeasuredCost(cycles, _COMPOSED, cycles)
