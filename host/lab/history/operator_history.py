"""Measured operators of models, and the table rows derived from them."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgekit.host.compiler.costs.methods.operators import NEAR, OperatorMethod
from edgekit.host.compiler.tables.gemm_table import FEATURES, OperatorIndex, OperatorRow
from edgekit.host.lab.history.measurement import check_measured
from edgekit.kb.features import GemmKey, GemmShape, Sequences, key_of

# Weight of a measurement by source: tuner turns against the default method, times of operators
# that were compiled anyway, and simulated time, which is off by a few percent.
WEIGHTS: Mapping[str, float] = {"tuner": 4.0, "benchmark": 2.0, "profile": 2.0, "estimate": 1.0}
OPERATOR_UNITS = ("seconds", "cycles")
# Ratio to the default's cost above which the analytic rule stays in charge. With several threads,
# work stealing makes an operator's time depend on the preceding operators too.
_WORTH, _WORTH_SHARED = 0.98, 0.95
_DIGITS = 3


@dataclass(frozen=True)
class OperatorMeasurement:
    """The cost of an operator of a model with a method, measured in place, and `default_cost`, its
    cost in the same run with the method it gets without a row. `unit`: seconds, or cycles of
    simulated time."""

    board: str
    platform: str
    model: str
    operator: str
    form: str
    threads: int
    shape: GemmShape
    method: OperatorMethod
    cost: float
    default_cost: float
    when: str
    kit_version: str
    source: str
    unit: str = "seconds"

    def __post_init__(self) -> None:
        check_measured(self, WEIGHTS, OPERATOR_UNITS)
        if not (self.operator and self.form):
            raise ValueError("expected an operator and a form, found none")

    @property
    def ratio(self) -> float:
        """Cost over the default method's cost: below 1 is better."""
        return self.cost / self.default_cost


def operator_key(m: OperatorMeasurement, platforms: Sequence[str], sequences: Sequences) -> GemmKey:
    """The lookup key of the operator; its platform must be in `platforms`."""
    index = platforms.index(m.platform)
    return key_of(m.shape, index, sequences, m.method.precision, m.threads, "b", m.form)


_Run = tuple[str, str, str, str]  # board, model, source, unit: costs of a run can be added up
_Known = dict[OperatorMethod, dict[str, OperatorMeasurement]]  # by operator


def operator_rows(
    history: Iterable[OperatorMeasurement], platforms: Sequence[str], sequences: Sequences
) -> tuple[OperatorRow, ...]:
    """The best method for each key of a history, ordered by key. Among measurements of the same
    operator and method the latest counts; measurements by older kits are ignored if there is one
    by a newer edgekit.

    A row without a method marks a key for which no method beats the analytic rule by 2% (5% with
    several threads).
    """
    found: dict[GemmKey, dict[tuple[object, ...], OperatorMeasurement]] = defaultdict(dict)
    for m in history:
        if m.platform not in platforms:
            continue
        key = operator_key(m, platforms, sequences)
        same = (m.board, m.model, m.operator, m.method, m.source, m.unit, m.kit_version)
        found[key].pop(same, None)
        found[key][same] = m
    return tuple(_select_row(key, _of_newest_kit(found[key].values())) for key in sorted(found))


def without_operator_repeats(
    rows: Sequence[OperatorRow], shapes_of: Mapping[GemmKey, Iterable[GemmShape]]
) -> tuple[OperatorRow, ...]:
    """Drops redundant rows among the given keys: those without a method that change no lookup. Such
    a row matters only if without it a neighbor's method, or one for another number of threads,
    would be used for its own shape or one of `shapes_of` its key."""
    with_method = OperatorIndex(row for row in rows if row.method)
    return tuple(
        row
        for row in rows
        if row.method
        or row.key not in shapes_of
        or any(
            with_method.find(row.key, shape, FEATURES)[0] is not None
            for shape in (row.shape, *shapes_of[row.key])
        )
    )


def _of_newest_kit(history: Iterable[OperatorMeasurement]) -> list[OperatorMeasurement]:
    made = list(history)
    newest = max(_version_key(m) for m in made)
    return [m for m in made if _version_key(m) == newest]


def _version_key(m: OperatorMeasurement) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", m.kit_version))


def _select_row(key: GemmKey, history: Sequence[OperatorMeasurement]) -> OperatorRow:
    runs: dict[_Run, _Known] = defaultdict(lambda: defaultdict(dict))
    for m in history:
        runs[m.board, m.model, m.source, m.unit][m.method][m.operator] = m
    methods = sorted({m.method for m in history}, key=_sort_key)
    scores = {method: _mean_ratio(method, runs) for method in methods}
    best = min(methods, key=lambda method: scores[method])
    shapes = sorted({m.shape for m in history})
    center = min(shapes, key=lambda s: (sum(s.log_distance(o) for o in shapes), s))
    radius = math.ceil(100.0 * max(center.log_distance(s) for s in shapes)) + NEAR
    measured = [m for m in history if m.method == best]
    source = max((m.source for m in measured), key=lambda name: (WEIGHTS[name], name))
    if scores[best] >= (_WORTH if key.threads == 1 else _WORTH_SHARED):
        return OperatorRow(key, None, center, source, 1.0, radius)
    ratio = float(f"{scores[best]:.{_DIGITS}g}")
    return OperatorRow(key, best, center, source, ratio, radius)


def _sort_key(method: OperatorMethod) -> tuple[object, ...]:
    sizes = method.mr or 0, method.nr or 0, method.kc or 0, method.members
    band = -1 if method.band is None else method.band
    return method.family, method.precision, *sizes, method.split, band


def _mean_ratio(method: OperatorMethod, runs: Mapping[_Run, _Known]) -> float:
    """The weighted geometric mean over runs of the cost ratio between a method and the default, for
    the operators of a key."""
    total = weights = 0.0
    for run, known in runs.items():
        weight = WEIGHTS[run[2]]
        total += weight * math.log(_run_ratio(method, known))
        weights += weight
    return math.exp(total / weights)


def _run_ratio(method: OperatorMethod, known: _Known) -> float:
    """The cost ratio over all operators of a run. If a method was not tried on an operator, it was
    not promising there, so it is charged the worst cost that was measured."""
    cost = default = 0.0
    for name in sorted({name for each in known.values() for name in each}):
        tried = [each[name] for each in known.values() if name in each]
        own = known.get(method, {}).get(name)
        base = own.default_cost if own else tried[0].default_cost
        cost += own.cost if own else base * max(1.0, *(m.ratio for m in tried))
        default += base
    return cost / default
