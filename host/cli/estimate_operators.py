"""The operators of an estimate: time, multiply-adds, what bounds them, and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.host.lab.bench.roofline import HotOperator
    from edgekit.host.simulator.model import ModelEstimate

# Columns: kind, instructions, cycles, cycles by cause, kernel, share
_LESS_IMPORTANT = (1, 6, 5, 10, 2, 4)
_ADVISED = 5  # operators, slowest first


def show_operators(found: ModelEstimate, judged: Sequence[HotOperator]) -> None:
    """Prints the operators of an estimate, slowest first, and advice for the slowest."""
    from edgekit.host.cli.output import table, three_digits
    from edgekit.host.cli.report import end_of
    from edgekit.host.simulator.report import bound_text, bounds

    costs = {o.spec.name: o.cost for o in found.operators}
    rows = [
        (
            end_of(o.name),
            o.op,
            o.kernel,
            three_digits(o.median_us),
            f"{100 * o.share:.1f}%",
            str(costs[o.name].cycles),
            str(costs[o.name].instructions),
            _millions(o.multiply_adds),
            "-" if o.of_products is None else f"{100 * o.of_products:.0f}%",
            next((name for name, _ in bounds(costs[o.name])), "-"),
            bound_text(costs[o.name]),
        )
        for o in judged
    ]
    if not rows:
        print("times per operator are not available")
        return
    heads = ("operator", "kind", "kernel", "estimated µs", "share", "cycles", "instructions")
    more = ("MMACs", "peak", "bound by", "cycles by cause")
    table((*heads, *more), rows, left=3, drop=_LESS_IMPORTANT, names=True)
    if sum(cost.cycles for cost in costs.values()) > found.cost.cycles:
        print("operators overlap on several threads: their times add up to more than the total")
    advice: dict[str, list[str]] = {}
    for o in judged[:_ADVISED]:
        advice.setdefault(o.advice, []).append(end_of(o.name))
    for text, names in advice.items():
        print(f"try      {text} ({', '.join(names)})")


def operator_facts(judged: Sequence[HotOperator]) -> dict[str, dict[str, Any]]:
    """What the document of an estimate says about operators besides their times."""
    return {
        o.name: {
            "multiply_adds": o.multiply_adds,
            "of_peak": o.of_products,
            "advice": o.advice,
        }
        for o in judged
    }


def _millions(count: int | None) -> str:
    from edgekit.host.cli.output import three_digits

    return "-" if not count else three_digits(count / 1e6)
