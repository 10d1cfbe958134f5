"""Finds measurements in the history that the search for a model's operators can reuse."""

from __future__ import annotations

from collections.abc import Iterable

from edgekit.host.compiler.costs.methods.operators import OperatorMethod
from edgekit.host.lab.history.operator_history import OperatorMeasurement
from edgekit.host.lab.history.tunable_ops import TuningTask

KnownRatios = dict[tuple[str, OperatorMethod], float]
"""Time of an operator with a method, relative to its time without rows; by the operator's name."""


def known_ratios(
    history: Iterable[OperatorMeasurement], board: str, subject: TuningTask, kit: str, unit: str
) -> KnownRatios:
    """Known ratios for a board, edgekit version, unit, and the model's number of threads.

    Methods that gained nothing on the same product of another model count as known: most methods
    lose, and the few that win are measured again in this model, among other neighbors.
    """
    names = {each.name for each in subject.operators}
    here = (board, subject.threads, kit, unit)
    alike = [m for m in history if (m.board, m.threads, m.kit_version, m.unit) == here]
    lost = {(m.form, m.shape, m.method): m.ratio for m in alike if m.model != subject.name}
    known = {
        (each.name, method): ratio
        for each in subject.operators
        if not each.is_group
        for method in each.costs
        if (ratio := lost.get((each.form.name, each.form.shape, method), 0.0)) >= 1.0
        and method != each.default
    }
    own = {
        (m.operator, m.method): m.ratio
        for m in alike
        if m.model == subject.name and m.operator in names
    }
    return {**known, **own}
