"""The report of `edgekit compile --explain`: how the compiler decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from edgekit.device.runtime.arrays.nna_account import totals
from edgekit.host.compiler.artifact import Artifact
from edgekit.host.compiler.costs.work import multiply_adds, work_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.nna import is_layer, misfit
from edgekit.host.compiler.ir.types import DType, Graph, Node
from edgekit.host.compiler.lowering.choice import CompiledProduct, RunnerUp
from edgekit.host.compiler.lowering.nna.units import NNA
from edgekit.host.compiler.lowering.plan import Plan
from edgekit.host.compiler.lowering.sparse_decisions import SparseDecision
from edgekit.host.compiler.schedule.types import Schedule
from edgekit.host.compiler.toolchain.nna_account import account_of_node
from edgekit.host.compiler.transforms.passes.pipeline import PassCount
from edgekit.host.compiler.transforms.passes.thresholds import FittedSplit
from edgekit.kb.targets.board import BoardProfile

_DECIDED = ("method", "band_rows", "rule", "why", "row", "runner_up", "form", "default", "members")


def explain(
    schedule: Schedule,
    plan: Plan,
    board: BoardProfile,
    counts: Sequence[PassCount],
    origin: Mapping[str, str],
    limit: int | None,
    costs: Mapping[str, float],
    placements: Sequence[Mapping[str, object]] = (),
    splits: Mapping[str, FittedSplit] = MappingProxyType({}),
    sparse: Sequence[SparseDecision] = (),
) -> dict[str, Any]:
    """Returns the JSON-able report, schema edgekit.explain/1; `schedule` is the lowered one.

    `costs`: microseconds of each operator, which add up to the single-thread cost of `placements`;
    `origin`: the original operator of each part of a split one; `limit`: bytes of memory; `splits`:
    outlier splits of operators that were fitted to samples; `sparse`: of each pruned layer, whether
    it runs sparse.
    """
    graph, tensors = schedule.graph, schedule.graph.tensors
    steps = {s.name: s for s in plan.lowered.steps}
    operators = []
    for node in graph.nodes:
        step = steps.get(node.name)
        names = {t for t in (*node.inputs, *node.outputs) if t is not None}
        work = work_of(graph, node, 1)  # counts each element, without padding
        operators.append(
            {
                "name": node.name,
                "op": node.op.kind,
                "unit": schedule.units[node.name],
                "not_on_nna": _not_on_nna(graph, node, schedule, board),
                "kernel": step.kernel if step else None,
                "precision": tensors[node.outputs[0]].dtype.value if node.outputs else None,
                **_method_report(step.compiled if step else None),
                "storage": asdict(node.op.how)
                if isinstance(node.op, ops.PrunedFullyConnected)
                and tensors[node.outputs[0]].dtype is DType.F32
                else None,
                "outliers": _outlier_report(node, splits.get(origin.get(node.name, node.name))),
                "split_from": origin.get(node.name),
                "chain_of": list(node.op.names) if isinstance(node.op, ops.RowChain) else None,
                "bytes": sum(tensors[t].bytes for t in names),
                "constant_bytes": int(work.amounts.loaded),
                "multiply_adds": multiply_adds(graph, node),
                "cost_us": round(costs[node.name], 3),
                "start_us": schedule.times[node.name][0],
            }
        )
    return {
        "schema": "edgekit.explain/1",
        "model": graph.name,
        "board": board.name,
        "board_description": board.description,
        "operators": operators,
        "edges": _edges(graph),
        "key_nodes": list(schedule.key_nodes),
        "subgraphs": [asdict(part) for part in schedule.subgraphs],
        "order": [n.name for n in graph.nodes],
        "objective": schedule.objective,
        "random_seed": schedule.random_seed,
        "memory": _memory_report(plan, limit),
        "nna": _nna_report(schedule, board),
        "placements": list(placements),
        "sparse": [asdict(each) for each in sparse],
        "passes": [asdict(c) for c in counts],
    }


def _edges(graph: Graph) -> list[list[str]]:
    """Pairs of operators, of which the second reads what the first makes."""
    producer = graph.producer()
    return [
        [producer[t].name, node.name]
        for node in graph.nodes
        for t in dict.fromkeys(node.inputs)
        if t is not None and t in producer
    ]


def _memory_report(plan: Plan, limit: int | None) -> dict[str, int | None]:
    return {
        "arena_bytes": plan.memory.arena_bytes,
        "lower_bound_bytes": plan.memory.lower_bound,
        "weights_bytes": len(plan.lowered.weights),
        "limit_bytes": limit,
    }


def explained_variants(first: Artifact, others: Sequence[Artifact]) -> dict[str, Any]:
    """The explanation of the first variant, with those of the others nested in it."""
    own, *variants = (
        {**each.explain, **({"signature": each.signature} if each.signature else {})}
        for each in (first, *others)
    )
    return {**own, **({"variants": variants} if variants else {})}


def _not_on_nna(graph: Graph, node: Node, schedule: Schedule, board: BoardProfile) -> str | None:
    """The reason why a convolution or fully connected layer does not run on the board's NNA."""
    if board.nna is None or not is_layer(node) or schedule.units[node.name] == NNA:
        return None
    return misfit(graph, node) or "estimated to be slower there"


def _outlier_report(node: Node, fitted: FittedSplit | None) -> dict[str, Any] | None:
    """The outlier split of a product: mean channels per sample, relative output error, and cost.

    Reported for the chosen split and for all that were tried; only the threshold if there were no
    samples.
    """
    if not isinstance(node.op, ops.OutlierFullyConnected):
        return None
    if fitted is None:
        return {"threshold": node.op.threshold, "chosen": None, "tried": []}
    tried = [
        {"channels": each.outliers, "error": each.error**0.5, "cost_us": each.cost}
        for each in fitted.tried
    ]
    return {
        "threshold": node.op.threshold,
        "chosen": tried[fitted.tried.index(fitted.chosen)],
        "tried": tried,
    }


def _nna_report(schedule: Schedule, board: BoardProfile) -> dict[str, Any] | None:
    """The NNA account of one run: per layer, total, and busy times in the schedule.

    Busy times are those of the NNA, of the other units, and of their overlap. None without an NNA.
    """
    if board.nna is None:
        return None
    graph, chip = schedule.graph, board.nna.chip
    there = [node for node in graph.nodes if schedule.units[node.name] == NNA]
    accounts = [account_of_node(chip, graph, node) for node in there]
    names = {node.name for node in there}
    mine = [time for name, time in schedule.times.items() if name in names]
    others = _merge_spans([time for name, time in schedule.times.items() if name not in names])
    return {
        "layers": [
            {"name": found.name, "form": found.form, **found.account.document()}
            for found in accounts
        ],
        "total": totals([found.account for found in accounts]),
        "schedule": {
            "makespan_us": schedule.makespan_us,
            "nna_us": sum(end - start for start, end in mine),
            "others_us": sum(end - start for start, end in others),
            "overlap_us": sum(
                max(0.0, min(end, until) - max(start, since))
                for start, end in mine
                for since, until in others
            ),
        },
    }


def _merge_spans(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The union of time spans, as non-overlapping spans."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _method_report(made: CompiledProduct | None) -> dict[str, Any]:
    """The method of an operator, the rule or row that chose it, and its alternatives."""
    if made is None:
        return dict.fromkeys(_DECIDED)
    choice = made.choice
    row, form = choice.row, choice.form
    return {
        "method": asdict(made.method),
        "band_rows": made.band_rows,
        "rule": choice.rule,
        "why": choice.why,
        "row": row and {**asdict(row.shape), "source": row.source, "ratio": row.ratio},
        "runner_up": _runner_up_report(choice.runner_up),
        "form": form
        and {"name": form.name, **asdict(form.shape), "vector_operations": round(choice.cost, 3)},
        "default": _runner_up_report(choice.default),
        "members": [{"kernel": m.kernel, **_method_report(m)} for m in made.members],
    }


def _runner_up_report(runner_up: RunnerUp | None) -> dict[str, Any] | None:
    if runner_up is None:
        return None
    return {
        "method": asdict(runner_up.method),
        "band_rows": runner_up.band_rows,
        "relative_cost": round(runner_up.cost, 3),
    }
