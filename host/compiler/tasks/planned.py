"""What a model will take and give by its file, before minutes of compiling."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.device.runtime.agent.task import TaskSpec
from edgekit.host.compiler.ir.types import Graph, Tensor
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks.dictation import variants_of
from edgekit.host.compiler.tasks.find import with_task
from edgekit.host.compiler.tasks.prepared import Prepared
from edgekit.host.compiler.tasks.usual_shapes import import_for_task


@dataclass(frozen=True)
class PlannedVariant:
    """The first variant of a release: inputs that are no states may still become some."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    task: TaskSpec | None
    signature: str = ""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {spec.name: spec.shape for spec in self.inputs}


def planned(path: Path, options: CompileOptions) -> PlannedVariant:
    """The variant of a model's file. Raises InputError as `compile_artifact` does for a file that
    cannot be read, or a task that it does not fit."""
    options = variants_of(path, options)[0]
    made = with_task(path, import_for_task(path, options), options)
    return planned_of(made, options.signature)


def planned_of(made: Prepared, signature: str = "") -> PlannedVariant:
    """The variant of a graph that is prepared for its task."""
    graph = made.graph
    inputs, outputs = (_specs(graph, names) for names in (graph.inputs, graph.outputs))
    return PlannedVariant(inputs, outputs, made.task, signature)


def _specs(graph: Graph, names: tuple[str, ...]) -> tuple[TensorSpec, ...]:
    return tuple(_spec(graph.tensors[name]) for name in names)


def _spec(tensor: Tensor) -> TensorSpec:
    scale = zero_point = None
    if tensor.quant is not None and not tensor.quant.per_channel:
        scale = float(tensor.quant.scale.flat[0])
        zero_point = int(tensor.quant.zero_point.flat[0])
    return TensorSpec(tensor.name, tensor.dtype.value, tensor.shape, scale, zero_point)
