"""Measured orders, which replace searched ones."""

from __future__ import annotations

import hashlib

from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.schedule.search import Found, given_order
from edgekit.host.compiler.schedule.timeline import Problem
from edgekit.host.compiler.tables.orders import OrderRow

_DIGITS = 16  # of a hash
_PERCENT = 100.0


def part_key(graph: Graph, part: tuple[int, int]) -> str:
    """A hash of the structure of a part; `part` is (first node, end).

    Covers operators with attributes, shapes, types and data flow, but not names or constant values,
    so parts of different models may match.
    """
    numbers: dict[str, int] = {}
    outputs, lines = set(graph.outputs), []

    def reference(name: str | None) -> str:
        if name is None:
            return "-"
        t = graph.tensors[name]
        place = "constant" if t.data is not None else numbers.setdefault(name, len(numbers))
        return f"{place} {t.shape} {t.dtype.value}{' out' if name in outputs else ''}"

    for node in graph.nodes[slice(*part)]:
        read, made = ([*map(reference, names)] for names in (node.inputs, node.outputs))
        lines.append(f"{node.op!r} {read} -> {made}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:_DIGITS]


def measured_order(problem: Problem, found: Found, row: OrderRow | None) -> tuple[Found, str]:
    """Returns a row's order if it was measured against the order that the search finds now, else
    `found`; and the reason."""
    if row is None:
        return found, "searched"
    told = f"{row.source} on {row.board}, {row.when}, kit {row.kit_version}"
    if row.searched != found.order or not _is_order(problem, row.order):
        return found, (
            f"searched; the search finds another order than when one was measured ({told}): "
            "edgekit lab tune order measures anew"
        )
    gain = (1 - row.ratio) * _PERCENT
    why = f"measured: {gain:.1f} % less than the searched order ({told})"
    return given_order(problem, row.order, found), why


def _is_order(problem: Problem, order: tuple[int, ...]) -> bool:
    """True if every node occurs once, after all its predecessors."""
    if sorted(order) != list(range(problem.dag.size)):
        return False
    place = {node: i for i, node in enumerate(order)}
    return all(place[b] < place[n] for n in order for b in problem.dag.before[n])
