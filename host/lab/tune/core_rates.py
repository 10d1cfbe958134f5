"""Fits a core's rates (kb/tables/core_rates.py) to recorded cycles of models and operators.

All operator groups are fitted together, since for most models only the total is known: least
relative errors with nonnegative rates. Groups with little data stay near a prior: first that of
their kind and dtype, then that of the operator itself.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.costs.layout_table import LayoutTable
from edgekit.host.compiler.costs.work import AMOUNTS, Amounts, Work
from edgekit.kb.tables.core_rates import CoreRates

_SIZES = len(AMOUNTS)
_FEWEST = 6  # operators needed for a separate group
_ROUNDS = 3  # of refitting after re-determining which operators are memory-bound
_SWEEPS, _STILL = 4000, 1e-5
_KIND_PULL, _OPERATOR_PULL = 0.005, 0.01  # weight of the prior against a model's relative error
_OPERATOR_WEIGHT = 0.7  # of an operator that is its model's only one
_LAYOUTS_WEIGHT = 0.5  # of all layers of a kind measured for the layout table, together
# Prior cycles, up to a common factor: per call, run, tile and byte, and per step by kind.
_ASSUMED = {"calls": 300.0, "runs": 4.0, "tiles": 8.0, "moved": 0.1, "loaded": 0.1, "floats": 0.25}
_STEP = {"matrix": 0.25, "window": 0.5, "function": 8.0, "move": 0.2, "simple": 0.5}
_SMALL_TYPE = 0.5  # relative to the time of 32 bits
_FLOOR = 0.02  # minimum rate, relative to the prior, when fitting operators
_COLUMN_BYTES = 6  # per nonzero weight, including its column index
_SPARSE = {
    "sparse": "channels_first_conv2d/f32",
    "sparse_row": "pruned_fully_connected/f32",
    "sparse_i8": "pruned_conv2d/s8",
}
Floats = NDArray[np.float64]
Groups = Mapping[str, Floats]  # cycles of each amount


@dataclass(frozen=True)
class RatedOperator:
    """The work of an operator, its memory-bound cycles, and its recorded cycles if known."""

    work: Work
    far: float
    cycles: float | None = None


@dataclass(frozen=True)
class Recorded:
    """A model, its recorded cycles, and its operators."""

    name: str
    cycles: float
    operators: tuple[RatedOperator, ...]


@dataclass(frozen=True)
class _Row:
    """An equation: amounts by group relative to the recorded cycles; their target sum; weight."""

    amounts: Mapping[str, Floats]
    wanted: float
    weight: float


def fitted(core: str, recorded: Sequence[Recorded], layouts: LayoutTable | None) -> CoreRates:
    """Returns the best-fitting rates."""
    counts: Counter[str] = Counter()
    parents: dict[str, str] = {}
    for work in (w for r in recorded for o in r.operators for w, _ in _leaf_work(o.work)):
        counts[work.groups[0]] += 1
        parents[work.groups[0]] = work.groups[1]
    kinds = sorted(set(parents.values()))
    own = sorted(name for name, count in counts.items() if count >= _FEWEST)
    assumed = {name: _prior_rates(name) for name in kinds}
    scale = statistics.median(r.cycles / _predicted_cycles(r, assumed) for r in recorded)
    assumed = {name: rates * scale for name, rates in assumed.items()}
    by_kind = _fit_rates(recorded, (), assumed, _KIND_PULL)
    near = {name: np.maximum(by_kind[name], _FLOOR * assumed[name]) for name in kinds}
    near |= {name: near[parents[name]] for name in own}
    sparse = _layout_rows(layouts, near)
    found = _fit_rates(recorded, sparse, near, _OPERATOR_PULL)
    product = found["matrix/f32"][AMOUNTS.index("steps")]
    for rates in found.values():  # no recorded model has such products
        rates[AMOUNTS.index("floats")] = product
    errors = [abs(_predicted_cycles(r, found) / r.cycles - 1) for r in recorded]
    operators = sum(o.cycles is not None for r in recorded for o in r.operators)
    source = (
        f"recorded cycles of {len(recorded)} models and {operators} operators; "
        f"median error of these models {statistics.median(errors):.1%}"
    )
    return CoreRates(core, source, _rates_by_name(found))


def _leaf_work(work: Work, times: int = 1) -> Iterator[tuple[Work, int]]:
    """The leaf operators of the work, and how often each runs."""
    if work.members:
        for member in work.members:
            yield from _leaf_work(member, times * work.times)
    elif work.kind != "none":
        yield work, times


def _prior_rates(name: str) -> Floats:
    kind, dtype = name.split("/")
    step = _STEP[kind] * (1.0 if dtype == "f32" else _SMALL_TYPE)
    return np.array([{**_ASSUMED, "steps": step}[amount] for amount in AMOUNTS])


def _fit_rates(
    recorded: Sequence[Recorded], more: Sequence[_Row], assumed: Groups, pull: float
) -> Groups:
    found = assumed
    for _ in range(_ROUNDS):
        rows = [row for r in recorded for row in _equations(r, found)]
        found = _solve_nnls([*rows, *more], assumed, pull)
    return found


def _equations(model: Recorded, rates: Groups) -> Iterator[_Row]:
    """The equations of a model and of its operators that are not memory-bound."""
    total: dict[str, Floats] = {}
    waits = 0.0
    for operator in model.operators:
        mine = _amounts_by_group(operator.work, rates)
        if operator.far > sum(float(rates[g] @ a) for g, a in mine.items()):
            waits += operator.far
            continue
        for group, amounts in mine.items():
            total[group] = total.get(group, np.zeros(_SIZES)) + amounts
        if operator.cycles and mine:
            share = operator.cycles / model.cycles
            relative = {group: a / operator.cycles for group, a in mine.items()}
            yield _Row(relative, 1.0, _OPERATOR_WEIGHT * share**0.5)
    yield _Row({g: a / model.cycles for g, a in total.items()}, 1 - waits / model.cycles, 1.0)


def _amounts_by_group(work: Work, rates: Groups) -> dict[str, Floats]:
    found: dict[str, Floats] = {}
    for leaf, times in _leaf_work(work):
        group = next(name for name in leaf.groups if name in rates)
        amounts = times * np.array(leaf.amounts.values())
        found[group] = found.get(group, np.zeros(_SIZES)) + amounts
    return found


def _predicted_cycles(model: Recorded, rates: Groups) -> float:
    return sum(
        max(sum(float(rates[g] @ a) for g, a in _amounts_by_group(o.work, rates).items()), o.far)
        for o in model.operators
    )


def _layout_rows(table: LayoutTable | None, groups: dict[str, Floats]) -> list[_Row]:
    """The equations of pruned layers that were measured individually; adds their groups."""
    rows = []
    for kernel, group in _SPARSE.items() if table else ():
        assert table is not None
        cases = [case for case in table.cases if case.kernel == kernel]
        groups.setdefault(group, groups[f"matrix/{group.partition('/')[2]}"])
        for case in cases if table.unit == "cycles" else ():
            work = case.work
            loaded = _COLUMN_BYTES * work.products if kernel == "sparse_row" else 0
            moved = 0 if kernel == "sparse_row" else 4 * (work.values + work.inputs)
            amounts = Amounts(1.0, float(work.products), moved=float(moved), loaded=float(loaded))
            relative = np.array(amounts.values()) / case.cost
            rows.append(_Row({group: relative}, 1.0, _LAYOUTS_WEIGHT / len(cases) ** 0.5))
    return rows


def _solve_nnls(rows: Sequence[_Row], assumed: Groups, pull: float) -> Groups:
    """Nonnegative least-squares rates, by coordinate descent in units of the prior."""
    names = list(assumed)
    units = np.concatenate([assumed[name] for name in names])
    matrix = np.zeros((len(rows), len(units)))
    for i, row in enumerate(rows):
        for group, amounts in row.amounts.items():
            start = _SIZES * names.index(group)
            matrix[i, start : start + _SIZES] = row.weight * amounts
    matrix *= units
    wanted = np.array([row.weight * row.wanted for row in rows])
    gram = matrix.T @ matrix + pull * np.eye(len(units))
    right = matrix.T @ wanted + pull
    x = np.ones(len(units))
    for _ in range(_SWEEPS):
        before = x.copy()
        for j in range(len(x)):
            x[j] = max(0.0, x[j] - (gram[j] @ x - right[j]) / gram[j, j])
        if float(np.abs(x - before).max()) < _STILL:
            break
    found = (x * units).reshape(len(names), _SIZES)
    return dict(zip(names, found, strict=True))


def _rates_by_name(groups: Groups) -> dict[str, dict[str, float]]:
    """Rates by amount. Kinds without a dtype, and unknown operators, get the rates for float."""
    every = dict(groups)
    every |= {kind: groups[f"{kind}/f32"] for kind in _STEP if f"{kind}/f32" in groups}
    every[""] = every["simple"]
    return {
        name: {a: float(f"{r:.3g}") for a, r in zip(AMOUNTS, rates, strict=True)}
        for name, rates in every.items()
    }
