"""Describes a model and its needs on a board, even if it cannot be compiled.

file ─ importers' outline ─► file contents ───────┐
  └─── importer ─► Graph ─ planner ─► real sizes ─┴─► Inspection
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from edgekit.device.runtime.agent.task import TaskSpec
from edgekit.host.compiler.costs.work import multiply_adds
from edgekit.host.compiler.driver import check_memory, prepare_graph
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.frontends import outline_model
from edgekit.host.compiler.frontends.common.builder import dtype_of
from edgekit.host.compiler.frontends.common.outline import Outline, Slot
from edgekit.host.compiler.frontends.common.refusal import Unsupported, advice, unsupported
from edgekit.host.compiler.ir.types import Graph, Shape, Tensor
from edgekit.host.compiler.lowering.sparse_decisions import SparseDecision
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks import import_for_task, variants_of, with_task
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import BoardProfile


@dataclass(frozen=True)
class OperatorCount:
    """Operators of one kind, under the name used by the file."""

    kind: str
    count: int
    supported: bool


@dataclass(frozen=True)
class Missing:
    """Unsupported operators of one kind, and the suggested alternative."""

    operators: Unsupported
    instead: str


@dataclass(frozen=True)
class ModelMemory:
    """Bytes on a board: planned as in the compiler, or estimated from the file alone."""

    source: Literal["plan", "file"]
    arena_bytes: int | None
    weights_bytes: int
    state_bytes: int | None


@dataclass(frozen=True)
class Inspection:
    """`reason` states in one line why the model cannot be compiled, or is None if it can; `notes`
    are decisions that the importer made by default. `signature` is the one that was inspected, of a
    model that has several; `sparse` says of each pruned layer whether it runs sparse; `task` is
    what `run` takes the model for, from `task_source`."""

    model: str
    format: str
    board: str
    reason: str | None
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    states: tuple[Slot, ...]
    operators: tuple[OperatorCount, ...]
    missing: tuple[Missing, ...]
    multiply_adds: int | None
    parameters: int
    parameter_bytes: int
    memory: ModelMemory
    notes: tuple[str, ...] = ()
    signature: str = ""
    sparse: tuple[SparseDecision, ...] = ()
    task: TaskSpec | None = None
    task_source: str = ""


def inspect_signatures(
    path: Path, board: BoardProfile, options: CompileOptions
) -> tuple[Inspection, ...]:
    """Inspects a model, or each of its signatures, with the signatures and shapes of `options`."""
    every = variants_of(path, options)
    return tuple(inspect_model(path, board, each.shapes, each.signature) for each in every)


def inspect_model(
    path: Path,
    board: BoardProfile,
    shapes: Mapping[str, Shape] | None = None,
    signature: str = "",
) -> Inspection:
    """Raises `InputError` only for a file that cannot be read; for `shapes` and `signature` see
    `import_model`."""
    outline = outline_model(path, shapes, signature)
    found = replace(_of_file(path, outline, board), signature=signature)
    options = CompileOptions(shapes=shapes or {}, signatures=(signature,) if signature else ())
    try:
        graph = import_for_task(path, options)
    except InputError as error:
        return replace(found, reason=str(error))
    found = _with_graph(found, graph)
    known = with_task(path, graph, replace(options, task="guess"))
    found = replace(found, task=known.task, task_source=known.source)
    try:
        made = prepare_graph(graph, board)
        found = replace(found, sparse=made.sparse)
        _, plan = plan_of(made.graph, board, CompileOptions())
        arena, weights = plan.memory.arena_bytes, len(plan.lowered.weights)
        found = replace(found, memory=ModelMemory("plan", arena, weights, plan.state_bytes))
        check_memory(plan, board, made.limit)
    except InputError as error:
        return replace(found, reason=str(error))
    return found


def _of_file(path: Path, outline: Outline, board: BoardProfile) -> Inspection:
    counts = Counter(kind for _, kind in outline.operators)
    missing = unsupported(outline.operators, outline.known)
    return Inspection(
        model=path.name,
        format=outline.format,
        board=board.name,
        reason=None,
        inputs=outline.inputs,
        outputs=outline.outputs,
        states=outline.states,
        operators=tuple(
            OperatorCount(kind, count, kind in outline.known)
            for kind, count in counts.most_common()
        ),
        missing=tuple(Missing(group, advice(group.kind)) for group in missing),
        multiply_adds=outline.multiply_adds,
        parameters=outline.parameters,
        parameter_bytes=outline.parameter_bytes,
        memory=ModelMemory("file", outline.arena_bytes, outline.parameter_bytes, None),
    )


def _with_graph(found: Inspection, graph: Graph) -> Inspection:
    """Adds shapes and counts from the imported graph."""
    initial = {name: state.initial for name, state in graph.states.items()}
    return replace(
        found,
        inputs=tuple(_to_slot(graph.tensors[name]) for name in graph.inputs),
        outputs=tuple(
            replace(_to_slot(graph.tensors[name]), name=graph.output_names.get(name, name))
            for name in graph.outputs
        ),
        states=tuple(Slot(n, dtype_of(v).value, v.shape) for n, v in initial.items()),
        multiply_adds=sum(multiply_adds(graph, node) for node in graph.nodes),
        notes=graph.notes,
    )


def _to_slot(tensor: Tensor) -> Slot:
    quant = tensor.quant
    if quant is None or quant.per_channel:
        return Slot(tensor.name, tensor.dtype.value, tensor.shape)
    scale, zero = float(quant.scale[0]), int(quant.zero_point[0])
    return Slot(tensor.name, tensor.dtype.value, tensor.shape, scale, zero)
