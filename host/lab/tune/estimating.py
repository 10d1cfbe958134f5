"""Estimates products where a board would measure them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgekit.host.lab.tune.tuner import MeasuredCost, Question, TimedProduct
from edgekit.host.simulator.products import Multiplication, ProductTimer
from edgekit.host.simulator.target import SimulatedCore


class EstimatingMeasurer:
    """Answers with estimated seconds; `timer` is by default the simulator's."""

    unit = "seconds"

    def __init__(self, target: SimulatedCore, timer: ProductTimer | None = None) -> None:
        """InputError if there is no emulator."""
        self._target = target
        self._timer = timer or ProductTimer(target)

    def measure(
        self, questions: Sequence[Question], on_answer: Callable[[int, TimedProduct | None], None]
    ) -> None:
        """Each method is run once, whatever a question's seconds: an estimate has no noise."""
        for index, question in enumerate(questions):
            product = question.product
            wanted = Multiplication(product.shape, product.dtype, product.packed, product.threads)
            methods = list(dict.fromkeys((question.default, *question.methods)))
            costs = dict(zip(methods, self._timer.costs(wanted, methods), strict=True))
            seconds = {
                how: self._target.milliseconds(cost.cycles) / 1e3 for how, cost in costs.items()
            }
            default, *others = (
                MeasuredCost(seconds[how], 0.0, seconds[how])
                for how in (question.default, *question.methods)
            )
            on_answer(index, TimedProduct(default, tuple(others)))
