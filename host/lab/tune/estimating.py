"""Estimates products, also with sparse matrices, where a board would measure them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
from edgekit.device.runtime.arrays.sparse_input import Csr, library
from edgekit.host.lab.tune.spmv_board import BoardResult, FormCost
from edgekit.host.lab.tune.tuner import MeasuredCost, Question, TimedProduct
from edgekit.host.lab.tune.warm import PartTimer, warm_costs
from edgekit.host.simulator.products import Multiplication, ProductTimer
from edgekit.host.simulator.sparse import StoredForm, spmv_forms
from edgekit.host.simulator.target import SimulatedCore
from edgekit.host.simulator.timed import RunnerCalls


class EstimatingMeasurer:
    """Answers with estimated seconds; `timer` is by default the simulator's."""

    unit = "seconds"

    def __init__(self, target: SimulatedCore, timer: PartTimer | None = None) -> None:
        """InputError if there is no emulator."""
        self._target = target
        self._timer = timer or ProductTimer(target)

    def measure(
        self, questions: Sequence[Question], on_answer: Callable[[int, TimedProduct | None], None]
    ) -> None:
        """Runs each method as `warm_costs` does, whatever a question's seconds."""
        for index, question in enumerate(questions):
            product = question.product
            wanted = Multiplication(product.shape, product.dtype, product.packed, product.threads)
            methods = list(dict.fromkeys((question.default, *question.methods)))
            parts = [(product.shape, how) for how in methods]
            costs = dict(zip(methods, warm_costs(self._timer, [(wanted, parts)])[0], strict=True))
            seconds = {
                how: self._target.milliseconds(cost.cycles) / 1e3 for how, cost in costs.items()
            }
            default, *others = (
                MeasuredCost(seconds[how], 0.0, seconds[how])
                for how in (question.default, *question.methods)
            )
            on_answer(index, TimedProduct(default, tuple(others)))


FormsOf = Callable[[Csr, Sequence[BlockSettings], int], Sequence[StoredForm]]


class FormEstimator:
    """Answers like `SpmvMeasurer` with estimated seconds; each format of a matrix runs once, as
    long as no other matrix is sent.

    `forms_of` estimates a matrix in several formats on some threads (default: the simulator's).
    """

    unit = "seconds"

    def __init__(self, target: SimulatedCore, forms_of: FormsOf | None = None) -> None:
        """InputError if there is no emulator."""
        self._target = target
        self._forms_of = forms_of or functools.partial(spmv_forms, RunnerCalls(target))
        self._matrix: Csr | None = None
        self._known: dict[tuple[BlockSettings, int], StoredForm] = {}

    def send(self, matrix: Csr) -> None:
        """Keeps the matrix that subsequent calls of `measure` use."""
        if matrix is not self._matrix:
            self._matrix, self._known = matrix, {}

    def forget(self) -> None:
        """Does nothing: no board has to make room."""

    def measure(
        self, settings: Sequence[BlockSettings], threads: int = 1, seconds: float = 1.0
    ) -> BoardResult:
        """Costs of each format, whatever the `seconds`. InputError if the run fails."""
        del seconds
        assert self._matrix is not None, "send comes before measure"
        asked = {how: (how, threads) for how in settings}
        new = [how for how, at in asked.items() if at not in self._known]
        if new:
            forms = self._forms_of(self._matrix, new, threads)
            self._known.update(zip([asked[how] for how in new], forms, strict=True))
        found = [self._known[asked[how]] for how in settings]
        costs = (self._target.milliseconds(form.cost.cycles) / 1e3 for form in found)
        return BoardResult(
            library().features(self._matrix.rows()),
            found[0].height,
            tuple(
                FormCost(how, form.padding, form.bytes, cost, cost, cost)
                for how, form, cost in zip(settings, found, costs, strict=True)
            ),
            None,
        )
