"""Estimates products for a core without a board, in simulated board time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgekit.host.lab.tune.tuner import Cost, Question, Timed
from edgekit.host.simulator.products import Multiplication, ProductTimer


class EstimatedMeasurer:
    """Answers with the cycles of a simulated core."""

    unit = "cycles"

    def __init__(self, timer: ProductTimer) -> None:
        self._timer = timer

    def measure(
        self, questions: Sequence[Question], on_answer: Callable[[int, Timed | None], None]
    ) -> None:
        """Raises InputError if a run fails."""
        for index, question in enumerate(questions):
            p = question.product
            product = Multiplication(p.shape, p.dtype, p.packed, p.threads)
            found = self._timer.costs(product, (question.default, *question.methods))
            default, *costs = (Cost(float(c.cycles), 0.0, float(c.cycles)) for c in found)
            on_answer(index, Timed(default, tuple(costs)))
