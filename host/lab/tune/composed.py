"""Estimates products for a core without a board: composes their time from small parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.lab.tune.parts import WeightedPart, parts_of
from edgekit.host.lab.tune.products import MatrixProduct
from edgekit.host.lab.tune.tuner import MeasuredCost, Question, TimedProduct
from edgekit.host.lab.tune.warm import PartTimer, warm_costs
from edgekit.host.simulator.products import Multiplication
from edgekit.host.simulator.run import SimulatedCost
from edgekit.kb.features import GemmShape

_FINALISTS = 2  # per question
# Ratio to the default from which a method is worth running on the whole product with warm caches,
# composed from parts and already run on it.
_GAIN, _GAIN_OF_WHOLE = 0.98, 0.99
_SMALL = 1 << 20  # operations up to which a product's first run is mostly cold
_COMPOSED = 0.03  # spread of a cost composed from parts: what it is typically off by


@dataclass(frozen=True)
class _Guess:
    """A composed cost; `is_whole`: of the whole product."""

    cycles: float
    is_whole: bool


class ComposedMeasurer:
    """Answers with the cycles of a simulated core.

    Costs are composed from small parts of the product (`parts_of`), which follow each other with
    hardly any warming up. Only the methods that seem to beat the default run on the whole product
    with warm caches and predictors, and the default with them; others are then reported as no
    better than those.
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
        guesses = self._compose(questions)
        finalists = [
            self._finalists(question, guessed)
            for question, guessed in zip(questions, guesses, strict=True)
        ]
        runs = self._run_whole(questions, finalists)
        for index, question in enumerate(questions):
            on_answer(index, _answer(question, guesses[index], runs[index]))

    def _finalists(self, question: Question, guessed: Mapping[Method, _Guess]) -> list[Method]:
        """The default and those that seem best, if any is worth it."""

        def is_worth_it(how: Method) -> bool:
            gain = _GAIN_OF_WHOLE if guessed[how].is_whole else _GAIN
            limit = gain * guessed[question.default].cycles
            return self._thorough > 0 or guessed[how].cycles < limit

        worth = sorted(filter(is_worth_it, question.methods), key=lambda how: guessed[how].cycles)
        best = worth[: self._thorough or _FINALISTS]
        return [question.default, *best] if best or self._thorough else []

    def _compose(self, questions: Sequence[Question]) -> list[dict[Method, _Guess]]:
        """The cost of each method of each question from the costs of its parts. The first part of a
        product runs before all of them, too, since what runs first takes longest."""
        made = [
            {
                how: parts_of(question.product, how, self._vl)
                for how in (question.default, *question.methods)
            }
            for question in questions
        ]
        asked = []
        for question, parts in zip(questions, made, strict=True):
            each = [(part.shape, how) for how, several in parts.items() for part in several]
            warm_ups = 1 if question.product.shape.operations <= _SMALL else 0
            asked.append((_whole(question.product, warm_ups), [each[0], *each]))
        costs = self._timer.part_costs(asked)
        return [
            _guesses(question.product.shape, parts, found[1:])
            for question, parts, found in zip(questions, made, costs, strict=True)
        ]

    def _run_whole(
        self, questions: Sequence[Question], methods: Sequence[Sequence[Method]]
    ) -> list[dict[Method, float]]:
        """The cycles of some methods on the whole product of each question."""
        asked = [
            (_whole(question.product), [(question.product.shape, how) for how in some])
            for question, some in zip(questions, methods, strict=True)
        ]
        found = warm_costs(self._timer, asked)
        return [
            {how: float(cost.cycles) for how, cost in zip(some, costs, strict=True)}
            for some, costs in zip(methods, found, strict=True)
        ]


def _guesses(
    shape: GemmShape,
    parts: Mapping[Method, Sequence[WeightedPart]],
    costs: Sequence[SimulatedCost],
) -> dict[Method, _Guess]:
    cycles = (cost.cycles for cost in costs)
    return {
        how: _Guess(sum(p.weight * next(cycles) for p in several), several[0].shape == shape)
        for how, several in parts.items()
    }


def _answer(
    question: Question, guessed: Mapping[Method, _Guess], known: Mapping[Method, float]
) -> TimedProduct:
    """Answers with what ran whole as `known`, and with guesses, in proportion to the default's."""
    default = guessed[question.default].cycles
    scale = known.get(question.default, default) / default
    least = min(known.values(), default=0.0)
    of_default, *others = (
        MeasuredCost(known[how], 0.0, known[how])
        if how in known
        else _composed(max(guessed[how].cycles * scale, least))
        for how in (question.default, *question.methods)
    )
    return TimedProduct(of_default, tuple(others))


def _whole(product: MatrixProduct, warm_ups: int | None = None) -> Multiplication:
    return Multiplication(product.shape, product.dtype, product.packed, product.threads, warm_ups)


def _composed(cycles: float) -> MeasuredCost:
    return MeasuredCost(cycles, _COMPOSED, cycles)
