"""Chooses an operator's method and records the reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgekit.host.compiler.costs.methods.operators import (
    NEAR,
    Form,
    MethodCost,
    OperatorMethod,
    banded,
    candidates_of,
    rows_at_once,
)
from edgekit.host.compiler.tables.gemm_table import GemmRow, KnowledgeBase, OperatorRow
from edgekit.kb.targets.board import BoardProfile
from edgekit.kb.targets.isa import Isa

# Limit for a row's method on a different product, relative to the least cost. Over 350 pairs of
# products, a method that gained on the first took 0.97 of the default's time on the second up to
# this limit and 0.99 to 1.14 beyond it, where it was slower in two of three cases.
_RELAXES = 1.05


@dataclass(frozen=True)
class RunnerUp:
    """Another method, its cost relative to the chosen one, and its band rows (0: no bands)."""

    method: OperatorMethod
    cost: float
    band_rows: int = 0


@dataclass(frozen=True)
class Choice:
    """The decision for an operator: the rule, the reason, and the alternatives.

    `row` is the table row that decided, if any; `cost` is that of the chosen method; `default` is
    the method that would have been chosen without a row of operators.
    """

    rule: str  # exact, relaxed:FEATURE, analytic, layouts, or only (no alternative)
    why: str
    row: GemmRow | OperatorRow | None = None
    runner_up: RunnerUp | None = None
    form: Form | None = None
    cost: float = 0.0
    default: RunnerUp | None = None


@dataclass(frozen=True)
class CompiledProduct:
    """A compiled multiplying operator: kernel symbol, method, members of a chain, and rows per band
    (0: no bands)."""

    kernel: str
    method: OperatorMethod
    choice: Choice
    members: tuple[CompiledProduct, ...] = ()
    band_rows: int = 0


ONLY = Choice("only", "the only kernel for this case on this instruction set")
BY_LAYOUTS = Choice("layouts", "the cheapest layouts for all images together, by the layout table")
CHAINED = Choice("analytic", "intermediate images do not fit the cache or memory")


def choose(
    table: KnowledgeBase, board: BoardProfile, isa: Isa, form: Form, threads: int = 1
) -> tuple[OperatorMethod, Choice] | None:
    """Chooses the method of an operator; None if no kernel fits.

    In order of precedence: its row of the operator table (exact, then relaxed by priority), a row
    of the library's products, the proven candidate of least cost. Library rows select proven tiles
    only, since they were measured with other kernels.
    """
    candidates = candidates_of(form, isa, board, threads)
    return choose_among(table, board, form, threads, candidates) if candidates else None


def choose_among(
    table: KnowledgeBase,
    board: BoardProfile,
    form: Form,
    threads: int,
    candidates: Sequence[MethodCost],
) -> tuple[OperatorMethod, Choice]:
    """As `choose`, among given candidates, at least one of which is proven."""
    cheapest = min((c for c in candidates if c.proven), key=lambda c: c.cost)
    taken, choice = _by_rows(table, board, form, threads, candidates, cheapest)
    # The real cost of an unproven method may exceed its estimate, so a lower estimate does not make
    # it a better alternative.
    decided = choice.row is not None
    others = [
        c for c in candidates if c.method != taken.method and (decided or c.cost >= taken.cost)
    ]
    second = min(others, key=lambda c: (not c.proven, c.cost), default=None)
    usual, _ = _without_row(table, board, form, candidates, cheapest, "")

    def runner_up_of(other: MethodCost) -> RunnerUp:
        cost = other.cost / taken.cost if taken.cost else 1.0
        return RunnerUp(other.method, cost, rows_at_once(other.method, form, board, threads))

    return taken.method, replace(
        choice,
        runner_up=None if second is None else runner_up_of(second),
        form=form,
        cost=taken.cost,
        default=runner_up_of(usual),
    )


def _by_rows(
    table: KnowledgeBase,
    board: BoardProfile,
    form: Form,
    threads: int,
    candidates: Sequence[MethodCost],
    cheapest: MethodCost,
) -> tuple[MethodCost, Choice]:
    known = {c.method: c for c in candidates}
    row, rule, why = table.operator_row(board.platform, form, threads)
    how = row.method if row is not None else None
    if row is not None and how is not None and row.key.threads != threads:
        carried = _walked_by_rule(how, candidates)
        why += "; axis and blocks by the analytic rule" if carried != how else ""
        how = carried
    if how is not None:
        how = banded(how, rows_at_once(how, form, board, threads), form, board, threads)
    relative = 0.0
    if row is not None and how in known:
        relative = _relative_cost(row, form, known[how], cheapest)
        if not relative:
            return known[how], Choice(rule, why, row)
        label = f"{how.mr} x {how.nr}" if how.mr is not None else how.family
        why += f"; {label} costs {relative:.2f} times the analytic choice here"
    elif how is not None:
        of = "" if how.mr is None else f" of {how.mr} x {how.nr}"
        why += f", whose {how.family}{of} does not apply here"
    taken, choice = _without_row(table, board, form, candidates, cheapest, why)
    if row is not None and row.method is None:
        return taken, Choice(rule, f"{why}; no method beat the analytic choice", row)
    return taken, choice


def _relative_cost(row: OperatorRow, form: Form, found: MethodCost, cheapest: MethodCost) -> float:
    """Ratio of a row's method to the cheapest if that argues against the row, else 0.

    It does if the product is farther away than any the row was measured on and the ratio exceeds
    `_RELAXES`.
    """
    measured = math.inf if row.radius is None else max(row.radius - NEAR, 0)
    near = 100.0 * form.shape.log_distance(row.shape) <= measured
    if near or not cheapest.cost:
        return 0.0
    relative = found.cost / cheapest.cost
    return relative if relative > _RELAXES else 0.0


def _walked_by_rule(method: OperatorMethod, candidates: Sequence[MethodCost]) -> OperatorMethod:
    """The method's kernel and tile, with the axis, bands and k blocks chosen by the analytic rule.

    The best walk depends on how many threads share a cache. Returns the method unchanged if no
    candidate has its tile.
    """
    alike = (c.method for c in candidates if c.by_rule)
    return next((m for m in alike if _kernel_of(m) == _kernel_of(method)), method)


def _kernel_of(method: OperatorMethod) -> OperatorMethod:
    """The method with the default walk: split by m, no blocks, no bands."""
    return replace(method, split="m", kc=None, band=None)


def _without_row(
    table: KnowledgeBase,
    board: BoardProfile,
    form: Form,
    candidates: Sequence[MethodCost],
    cheapest: MethodCost,
    why: str,
) -> tuple[MethodCost, Choice]:
    """Chooses the method if no operator row applies; `why` is the reason for that."""
    tiled = cheapest.method.family == "in_place" and cheapest.method.mr is not None
    if not tiled or form.dtype == "f16":
        return cheapest, Choice("analytic", f"{why}; lowest cost")
    answer = table.choose(board, form.shape, form.dtype, packed="b")
    tile = (answer.method.mr, answer.method.nr)
    for each in candidates if answer.nearest is not None else ():
        how = each.method
        if each.proven and how.family == "in_place" and (how.mr, how.nr) == tile:
            rule = "analytic" if answer.row is None else answer.rule
            return each, Choice(rule, f"from the table of products: {answer.why}", answer.row)
    return cheapest, Choice("analytic", f"{why}; lowest cost")
