"""Joins a release's measured times with the compiler's decisions and estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgekit.host.deploy.explanations import nna_lines
from edgekit.host.report.document import ReportedOperator
from edgekit.host.simulator.estimate_cache import recall as recall_estimate
from edgekit.host.simulator.model import ModelEstimate
from edgekit.host.simulator.target import has_model
from edgekit.kb.targets.board import UnknownBoardError, load_board

Place = tuple[int, int]  # column, row
_MOST_COLUMNS = 6


def places(count: int, edges: Sequence[tuple[int, int]]) -> list[Place]:
    """A position for each of `count` operators: below all its inputs, and in the column of one of
    them if free. Edges go from lower to higher indices."""
    reads: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        reads[target].append(source)
    made: list[Place] = []
    taken: set[Place] = set()
    for sources in reads:
        row = max((made[s][1] + 1 for s in sources), default=0)
        column = _free_column(row, [made[s][0] for s in sources], taken)
        while column is None:
            row += 1
            column = _free_column(row, [made[s][0] for s in sources], taken)
        made.append((column, row))
        taken.add((column, row))
    return made


def _free_column(row: int, wanted: Sequence[int], taken: set[Place]) -> int | None:
    """The free column of a row nearest to any wanted one; None if the row is full."""
    free = [column for column in range(_MOST_COLUMNS) if (column, row) not in taken]
    near = wanted or (0,)
    return min(free, key=lambda c: (min(abs(c - w) for w in near), c), default=None)


_BY_COSTS = "the compiler's cost model"


@dataclass(frozen=True)
class Explained:
    """Operators with all known information, in execution order, and edges by operator index."""

    operators: tuple[ReportedOperator, ...]
    edges: tuple[tuple[int, int], ...]
    estimate_us: float | None
    estimated_by: str | None
    known: bool
    nna: tuple[str, ...] = ()


def operators_of(document: Mapping[str, Any]) -> list[ReportedOperator]:
    """The operators of an explanation, schema edgekit.explain/1, with names and kernels only."""
    return [ReportedOperator(o["name"], o["op"], o["kernel"] or "") for o in document["operators"]]


def explain_operators(
    operators: Sequence[ReportedOperator],
    document: Mapping[str, Any] | None,
    estimate: ModelEstimate | None,
) -> Explained:
    """Joins by operator name. Without an explanation the operators form a linear chain."""
    decided = {o["name"]: o for o in document["operators"]} if document else {}
    if document:
        edges = _operator_edges(document, {o.name: i for i, o in enumerate(operators)})
    else:
        edges = tuple((i, i + 1) for i in range(len(operators) - 1))
    layers = {o["name"]: o for o in ((document or {}).get("nna") or {}).get("layers", ())}
    joined = [
        _add_decision(o, decided[o.name], layers.get(o.name)) if o.name in decided else o
        for o in operators
    ]
    placed = next(iter((document or {}).get("placements", ())), None)
    joined, total, by = _add_estimates(joined, decided, placed, estimate)
    drawn = places(len(joined), edges)
    return Explained(
        tuple(
            replace(operator, column=column, row=row)
            for operator, (column, row) in zip(joined, drawn, strict=True)
        ),
        edges,
        total,
        by,
        bool(decided),
        nna_lines((document or {}).get("nna")),
    )


def known_estimate(
    release: str, board_type: str, threads: int, variant: int
) -> ModelEstimate | None:
    """The result of `edgekit estimate` for a release, if there is one."""
    try:
        board = load_board(board_type)
    except UnknownBoardError:  # a board type known only to another version of edgekit
        return None
    key = f"{release} {variant}" if variant else release
    return recall_estimate(key, board, threads) if has_model(board) else None


def _operator_edges(
    document: Mapping[str, Any], number: Mapping[str, int]
) -> tuple[tuple[int, int], ...]:
    """Edges from producers to consumers. Operators that generate no code, such as reshapes, are
    skipped: their consumers are connected to their producers."""
    reads: dict[str, list[str]] = {o["name"]: [] for o in document["operators"]}
    for source, target in document["edges"]:
        reads[target].append(source)
    made_by: dict[str, set[int]] = {}
    edges = set()
    for name, sources in reads.items():
        before = {maker for source in sources for maker in made_by.get(source, ())}
        here = number.get(name)
        made_by[name] = before if here is None else {here}
        edges |= {(maker, here) for maker in before if here is not None and maker < here}
    return tuple(sorted(edges))


def _add_decision(
    operator: ReportedOperator, found: Mapping[str, Any], layer: Mapping[str, Any] | None
) -> ReportedOperator:
    """Adds the compiler's decision; `layer` is the operator's account on the NNA, if any."""
    other = found["runner_up"]
    runner_up = (
        f"{_format_method(other)}, {other['relative_cost']:.2f} × its cost" if other else None
    )
    return replace(
        operator,
        unit=found["unit"],
        method=_format_method(found) if found["method"] else None,
        rule=found["rule"],
        why=found["why"],
        runner_up=runner_up,
        members=tuple(_format_member(m) for m in found["members"] or ()),
        bytes=found["bytes"],
        start_us=found["start_us"],
        nna=_format_nna_layer(layer) if layer else found.get("not_on_nna"),
    )


def _format_nna_layer(layer: Mapping[str, Any]) -> str:
    stalled = sum(layer["stalls"].values())
    return (
        f"{layer['form']}: {layer['cycles']:,} cycles, {layer['serial_cycles']:,} without overlap, "
        f"{stalled:,} stalled, {layer['vector_cycles']:,} on the vector unit; "
        f"{layer['useful_share']:.1%} of {layer['macs_done']:,} MACs useful"
    )


def _add_estimates(
    operators: Sequence[ReportedOperator],
    decided: Mapping[str, Mapping[str, Any]],
    placed: Mapping[str, Any] | None,
    estimate: ModelEstimate | None,
) -> tuple[list[ReportedOperator], float | None, str | None]:
    """Adds estimates: from the core model if `edgekit estimate` was run for this release, otherwise
    from the compiler's cost model, whose total `compile` prints."""
    if estimate is not None:
        from edgekit.host.simulator.report import sentence

        per_us = 1e3 * estimate.milliseconds(1)
        costs = {o.spec.name: per_us * o.cost.cycles for o in estimate.operators}
        total = 1e3 * estimate.total_ms
        by = sentence(estimate.total_ms, estimate.board, estimate.proof)
    else:
        costs = {name: float(found["cost_us"]) for name, found in decided.items()}
        total = float(placed["cost_us"]) if placed else sum(costs.values())
        by = _BY_COSTS
        if placed and placed["threads"] > 1:
            by += f", with {placed['threads']} threads; operators with one"
    if not costs and estimate is None:
        return list(operators), None, None
    return [replace(o, estimate_us=costs.get(o.name)) for o in operators], total, by


def _format_member(found: Mapping[str, Any]) -> str:
    method = f": {_format_method(found)}, {found['rule']}" if found.get("method") else ""
    return f"{found['kernel']}{method}"


def _format_method(found: Mapping[str, Any]) -> str:
    """A method as text, e.g. "in_place 6x12 f32, 48 rows at a time"."""
    how = found["method"]
    tile = f" {how['mr']}x{how['nr']}" if how.get("mr") else ""
    rows = found["band_rows"]
    band = f", {rows} rows at a time" if rows else ""
    return f"{how['family']}{tile} {how['precision']}{band}"
