"""Which method an operator got, and why just that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgekit.kb.tables.gemm_table import KnowledgeBase, Row
from edgekit.kb.tables.operators import (
    NEAR,
    Candidate,
    Form,
    OperatorMethod,
    OperatorRow,
    banded,
    candidates_of,
    rows_at_once,
)
from edgekit.kb.targets.board import BoardProfile
from edgekit.kb.targets.isa import Isa

# Times the least cost that the method of a row may cost on another product: of 350 pairs of
# products, measured with a method that gained on the first, it took 0.97 of the default's time on
# the second up to there, 0.99 to 1.14 beyond, and was slower on two of three.
_RELAXES = 1.05


@dataclass(frozen=True)
class RunnerUp:
    """Another method, its cost in costs of the one that was taken, and the rows of its bands, 0
    where it has none."""

    method: OperatorMethod
    cost: float
    band_rows: int = 0


@dataclass(frozen=True)
class Choice:
    """A rule, a sentence why, the row of a table if it was one, what else there was, the form of
    what was chosen for, the cost of what was chosen, and what it would be without a row of
    operators."""

    rule: str  # exact, relaxed:FEATURE, analytic, layouts, or only: there is no other
    why: str
    row: Row | OperatorRow | None = None
    runner_up: RunnerUp | None = None
    form: Form | None = None
    cost: float = 0.0
    default: RunnerUp | None = None


@dataclass(frozen=True)
class Compiled:
    """An operator that multiplies, as it was compiled: the kernel that is called, its method, the
    members of a chain, and the rows of its bands, 0 where it has none."""

    kernel: str
    method: OperatorMethod
    choice: Choice
    members: tuple[Compiled, ...] = ()
    band_rows: int = 0


ONLY = Choice("only", "this form has one kernel on this instruction set")
BY_LAYOUTS = Choice("layouts", "the layouts of all images together cost least by their table")
CHAINED = Choice("analytic", "images between its members leave the cache or do not fit memory")


def choose(
    table: KnowledgeBase, board: BoardProfile, isa: Isa, form: Form, threads: int = 1
) -> tuple[OperatorMethod, Choice] | None:
    """The method of an operator: by its row of the table (exact, then relaxed by priority), else by
    a row of the library's products, of which only proven tiles count, since other kernels were
    measured, else the proven one of least cost. None where no kernel fits."""
    candidates = candidates_of(form, isa, board, threads)
    return choose_among(table, board, form, threads, candidates) if candidates else None


def choose_among(
    table: KnowledgeBase,
    board: BoardProfile,
    form: Form,
    threads: int,
    candidates: Sequence[Candidate],
) -> tuple[OperatorMethod, Choice]:
    """The same of some candidates, of which one is proven."""
    cheapest = min((c for c in candidates if c.proven), key=lambda c: c.cost)
    taken, choice = _by_rows(table, board, form, threads, candidates, cheapest)
    # What is not proven may cost more than its cost, so by cost alone it is not better.
    decided = choice.row is not None
    others = [
        c for c in candidates if c.method != taken.method and (decided or c.cost >= taken.cost)
    ]
    second = min(others, key=lambda c: (not c.proven, c.cost), default=None)
    usual, _ = _without_row(table, board, form, candidates, cheapest, "")

    def beside(other: Candidate) -> RunnerUp:
        cost = other.cost / taken.cost if taken.cost else 1.0
        return RunnerUp(other.method, cost, rows_at_once(other.method, form, board, threads))

    return taken.method, replace(
        choice,
        runner_up=None if second is None else beside(second),
        form=form,
        cost=taken.cost,
        default=beside(usual),
    )


def _by_rows(
    table: KnowledgeBase,
    board: BoardProfile,
    form: Form,
    threads: int,
    candidates: Sequence[Candidate],
    cheapest: Candidate,
) -> tuple[Candidate, Choice]:
    known = {c.method: c for c in candidates}
    row, rule, why = table.operator_row(board.platform, form, threads)
    how = row.method if row is not None else None
    if row is not None and how is not None and row.key.threads != threads:
        carried = _walked_by_rule(how, candidates)
        why += "; walked by the rule" if carried != how else ""
        how = carried
    if how is not None:
        how = banded(how, rows_at_once(how, form, board, threads), form, board, threads)
    dear = 0.0
    if row is not None and how in known:
        dear = _relative_cost(row, form, known[how], cheapest)
        if not dear:
            return known[how], Choice(rule, why, row)
        told = f"{how.mr} x {how.nr}" if how.mr is not None else how.family
        why += f"; {told} costs {dear:.2f} of the rule's cost here"
    elif how is not None:
        of = "" if how.mr is None else f" of {how.mr} x {how.nr}"
        why += f", whose {how.family}{of} computes no such form here"
    taken, choice = _without_row(table, board, form, candidates, cheapest, why)
    if row is not None and row.method is None:
        return taken, Choice(rule, f"{why}; no method is better than that without a row", row)
    return taken, choice


def _relative_cost(row: OperatorRow, form: Form, found: Candidate, cheapest: Candidate) -> float:
    """What a row's method costs over the cheapest where that speaks against it on a product farther
    off than what it was measured on; else 0."""
    measured = math.inf if row.radius is None else max(row.radius - NEAR, 0)
    near = 100.0 * form.shape.log_distance(row.shape) <= measured
    if near or not cheapest.cost:
        return 0.0
    dear = found.cost / cheapest.cost
    return dear if dear > _RELAXES else 0.0


def _walked_by_rule(method: OperatorMethod, candidates: Sequence[Candidate]) -> OperatorMethod:
    """The method's kernel and tile with axis, bands and blocks of k of the rule, since what is best
    there depends on how many threads share a cache; the method itself where no candidate has its
    tile."""
    alike = (c.method for c in candidates if c.by_rule)
    return next((m for m in alike if _kernel_of(m) == _kernel_of(method)), method)


def _kernel_of(method: OperatorMethod) -> OperatorMethod:
    """The method, walked in the plainest way."""
    return replace(method, split="m", kc=None, band=None)


def _without_row(
    table: KnowledgeBase,
    board: BoardProfile,
    form: Form,
    candidates: Sequence[Candidate],
    cheapest: Candidate,
    why: str,
) -> tuple[Candidate, Choice]:
    """The method where no row of operators has one, and `why` that is so."""
    tiled = cheapest.method.family == "in_place" and cheapest.method.mr is not None
    if not tiled or form.dtype == "f16":
        return cheapest, Choice("analytic", f"{why}; the least cost")
    answer = table.choose(board, form.shape, form.dtype, packed="b")
    tile = (answer.method.mr, answer.method.nr)
    for each in candidates if answer.rule != "analytic" else ():
        how = each.method
        if each.proven and how.family == "in_place" and (how.mr, how.nr) == tile:
            return each, Choice(answer.rule, f"of the library's products: {answer.why}", answer.row)
    return cheapest, Choice("analytic", f"{why}; the least cost")
