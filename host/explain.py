"""What `edgekit compile --explain` writes: how the compiler decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from edgekit.host.artifact import Artifact
from edgekit.host.graph import ops
from edgekit.host.lower.plan import Plan
from edgekit.host.passes.pipeline import PassCount
from edgekit.host.schedule.types import Schedule
from edgekit.kb.board import BoardProfile
from edgekit.kb.choice import Compiled, RunnerUp

_DECIDED = ("method", "rule", "why", "row", "runner_up", "form", "default", "members")


def explain(
    schedule: Schedule,
    plan: Plan,
    board: BoardProfile,
    counts: Sequence[PassCount],
    origin: Mapping[str, str],
    limit: int | None,
    placements: Sequence[Mapping[str, object]] = (),
) -> dict[str, Any]:
    """JSON-able, schema edgekit.explain/1; the schedule is what was lowered.

    `origin`: the operator that each part of a split one comes from; `limit`: bytes of memory.
    """
    graph = schedule.graph
    tensors = graph.tensors
    steps = {s.name: s for s in plan.lowered.steps}
    operators = []
    for node in graph.nodes:
        step = steps.get(node.name)
        names = {t for t in (*node.inputs, *node.outputs) if t is not None}
        operators.append(
            {
                "name": node.name,
                "op": node.op.kind,
                "unit": schedule.units[node.name],
                "kernel": step.kernel if step else None,
                "precision": tensors[node.outputs[0]].dtype.value if node.outputs else None,
                **_method(step.compiled if step else None),
                "storage": asdict(node.op.how)
                if isinstance(node.op, ops.PrunedFullyConnected)
                else None,
                "split_from": origin.get(node.name),
                "chain_of": list(node.op.names) if isinstance(node.op, ops.RowChain) else None,
                "bytes": sum(tensors[t].bytes for t in names),
                "cost_us": schedule.costs[node.name],
            }
        )
    producer = graph.producer()
    edges = [
        [producer[t].name, node.name]
        for node in graph.nodes
        for t in dict.fromkeys(node.inputs)
        if t is not None and t in producer
    ]
    return {
        "schema": "edgekit.explain/1",
        "model": graph.name,
        "board": board.name,
        "operators": operators,
        "edges": edges,
        "key_nodes": list(schedule.key_nodes),
        "subgraphs": [asdict(part) for part in schedule.subgraphs],
        "order": [n.name for n in graph.nodes],
        "objective": schedule.objective,
        "random_seed": schedule.random_seed,
        "memory": {
            "arena_bytes": plan.memory.arena_bytes,
            "lower_bound_bytes": plan.memory.lower_bound,
            "weights_bytes": len(plan.lowered.weights),
            "limit_bytes": limit,
        },
        "placements": list(placements),
        "passes": [asdict(c) for c in counts],
    }


def explained_variants(first: Artifact, others: Sequence[Artifact]) -> dict[str, Any]:
    """The explanation of the first variant, and in it those of the others if there are any."""
    variants = [dict(other.explain) for other in others]
    return {**first.explain, **({"variants": variants} if variants else {})}


def _method(made: Compiled | None) -> dict[str, Any]:
    """How an operator multiplies, which rule or row said so, and what else there was."""
    if made is None:
        return dict.fromkeys(_DECIDED)
    choice = made.choice
    row, form = choice.row, choice.form
    return {
        "method": asdict(made.method),
        "rule": choice.rule,
        "why": choice.why,
        "row": row and {**asdict(row.shape), "source": row.source, "ratio": row.ratio},
        "runner_up": _other(choice.runner_up),
        "form": form and {"name": form.name, **asdict(form.shape), "price": round(choice.price, 3)},
        "default": _other(choice.default),
        "members": [{"kernel": m.kernel, **_method(m)} for m in made.members],
    }


def _other(beside: RunnerUp | None) -> dict[str, Any] | None:
    if beside is None:
        return None
    return {"method": asdict(beside.method), "price": round(beside.price, 3)}
