"""Formats estimates: as a sentence, and as parts of JSON documents."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from edgekit.host.simulator.run import SimulatedCost
from edgekit.kb.targets.core_parts import Validation

NOT_VALIDATED = "not validated"
_NAMES = {
    "issue": "issue",
    "latency": "latency",
    "l1": "L1",
    "l2": "L2",
    "l3": "L3",
    "dram": "DRAM",
    "tlb": "TLB",
    "stores": "stores",
    "branch": "branches",
    "fetch": "fetch",
    "wait": "waiting",
}
_UNIT = "unit:"
_LEAST = 0.1  # fraction of the cycles from which a bound is named
_MOST = 3  # bounds named


def sentence(milliseconds: float, board: str, proof: Validation | None) -> str:
    """`estimated 12.3 ms ± 10% on rpi4`: never a time without its error."""
    return f"estimated {_format_ms(milliseconds)} ms {error_text(proof)} on {board}"


def error_text(proof: Validation | None) -> str:
    """The median error from validation, or a note that the core is not validated."""
    return f"± {proof.median_percent:.0f}%" if proof else f"({NOT_VALIDATED})"


def proof_text(proof: Validation | None) -> str:
    """The full validation result, for a separate line."""
    if proof is None:
        return NOT_VALIDATED
    return (
        f"median {proof.median_percent:.0f}%, worst {proof.worst_percent:.0f}% of "
        f"{proof.networks} {proof.kind} networks on {proof.against} ({proof.date})"
    )


def bounds(cost: SimulatedCost) -> list[tuple[str, float]]:
    """The fractions of cycles by cause, largest first, with the core's names for its units."""
    total = cost.cycles or 1
    ordered = sorted(cost.bound.items(), key=lambda item: (-item[1], item[0]))
    return [(_display_name(key), cycles / total) for key, cycles in ordered if cycles]


def bound_text(cost: SimulatedCost) -> str:
    """The largest bounds: `vector unit 61%, DRAM 20%`."""
    shares = bounds(cost)
    named = [pair for pair in shares[:_MOST] if pair[1] >= _LEAST] or shares[:1]
    return ", ".join(f"{name} {100 * share:.0f}%" for name, share in named)


def largest_bound(cost: SimulatedCost) -> str:
    """The largest bound: `vector unit 61%`."""
    name, share = next(iter(bounds(cost)), ("nothing", 1.0))
    return f"{name} {100 * share:.0f}%"


def _display_name(key: str) -> str:
    return f"{key.removeprefix(_UNIT)} unit" if key.startswith(_UNIT) else _NAMES.get(key, key)


def _format_ms(milliseconds: float) -> str:
    return f"{milliseconds:.3g}" if milliseconds < 100 else f"{milliseconds:.0f}"


def cost_document(cost: SimulatedCost) -> dict[str, Any]:
    return {
        "cycles": cost.cycles,
        "instructions": cost.instructions,
        "bound": dict(cost.bound),
    }


def error_document(proof: Validation | None) -> dict[str, Any]:
    """`validated`, and the error if known."""
    return {"validated": proof is not None, "error": asdict(proof) if proof else None}
