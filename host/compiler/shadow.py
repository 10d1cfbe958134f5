"""The float model that a board runs next to a quantized one, to compare the two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edgekit.device.runtime.agent.shadow_spec import (
    CLASS,
    DIFFERENCE,
    MOST_WATCHED,
    WatchedTensor,
)
from edgekit.device.runtime.agent.task import CLASSIFY, EMBED
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.quantization import dequantize
from edgekit.host.compiler.ir.types import Array, Graph, Shape, Tensor
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.pipeline import PreparedGraph
from edgekit.host.compiler.tasks import import_for_task, with_task
from edgekit.host.compiler.transforms.passes.tie import tie_states
from edgekit.host.compiler.transforms.quantize.field import watched_names
from edgekit.host.compiler.transforms.quantize.measure import class_output
from edgekit.host.compiler.transforms.quantize.prepare import float_form
from edgekit.host.errors import InputError

_MOST_BYTES = 32 << 20  # of the watched tensors of an inference
_ALIKE = 0.25  # RMS difference of tensors with the same values, relative to the float one


@dataclass(frozen=True, eq=False)
class FloatTwin:
    """`graph` has the outputs of the quantized model, then those `watched` tensors that are neither
    inputs nor outputs. `measure` says what has to agree."""

    graph: Graph
    measure: str
    watched: tuple[WatchedTensor, ...]


def float_graph(released: PreparedGraph, model: Path, options: CompileOptions) -> Graph:
    """The float model of `released`, which was prepared from `model` with `options`.

    Raises InputError if it has other inputs or outputs.
    """
    path = options.float_model or model
    imported = import_for_task(path, options.in_float)
    graph = float_form(imported, "watch") if options.field_ranges else imported
    graph = with_task(path, replace(graph, output_names=imported.output_names), options).graph
    graph = tie_states(graph, options.states, graph.output_names)
    _check_same_ends(path, graph, released)
    return graph


def float_twin(
    graph: Graph, released: PreparedGraph, inputs: Sequence[Array], options: CompileOptions
) -> FloatTwin:
    """The twin made of the float model, whose tensors are compared with those of `released` for
    these inputs."""
    names = _chosen(graph) if options.field_ranges else ()
    kind = released.task.kind if released.task is not None else ""
    classifies = kind == CLASSIFY or (kind != EMBED and class_output(graph) is not None)
    measure = CLASS if classifies else DIFFERENCE
    given = dict(zip(graph.inputs, inputs, strict=True))
    ranges = _calibrated(graph, released.imported, names, given) if names else {}
    watched = tuple(WatchedTensor(name, *ranges.get(name, (None, None))) for name in names)
    ends = {*graph.inputs, *graph.outputs}
    outputs = (*graph.outputs, *(name for name in names if name not in ends))
    return FloatTwin(replace(graph, outputs=outputs), measure, watched)


def _check_same_ends(path: Path, graph: Graph, released: PreparedGraph) -> None:
    other = released.imported

    def ends(of: Graph) -> list[str]:
        tensors = [of.tensors[name] for name in (*of.inputs, *of.outputs)]
        return [f"{t.dtype.value}{list(t.shape)}" for t in tensors]

    mine, theirs = ends(graph), ends(other)
    if mine != theirs or graph.inputs != other.inputs:
        raise InputError(
            f"{path}: expected the inputs and outputs of the quantized model, "
            f"{', '.join(theirs)}, found {', '.join(mine)}; name the model it was made of: "
            "--float-model FILE"
        )


def check_same_states(path: Path, floats: Graph, released: Graph) -> None:
    """Raises InputError unless the two graphs, as compiled, have the same states, which a board
    copies before it repeats an inference."""
    mine, theirs = (
        [(name, s.initial.dtype, s.initial.shape) for name, s in graph.states.items()]
        for graph in (floats, released)
    )
    if mine == theirs:
        return

    def text(states: Sequence[tuple[str, np.dtype[np.generic], Shape]]) -> str:
        return ", ".join(f"{n} {dtype}{[*shape]}" for n, dtype, shape in states[:8]) or "none"

    raise InputError(
        f"{path}: expected the states of the quantized model with --shadow or --field-ranges, "
        f"{text(theirs)}, found {text(mine)}; compile without them"
    )


def _chosen(graph: Graph) -> tuple[str, ...]:
    """The tensors to watch, as many as a report holds."""
    chosen: list[str] = []
    size = 0
    for name in watched_names(graph):
        size += graph.tensors[name].bytes
        if name not in graph.output_names and len(chosen) < MOST_WATCHED and size <= _MOST_BYTES:
            chosen.append(name)
    return tuple(chosen)


def _calibrated(
    graph: Graph, quantized: Graph, names: Iterable[str], inputs: Mapping[str, Array]
) -> dict[str, tuple[float, float]]:
    """The ranges that quantized tensors have for these float tensors, by name. A tensor whose
    channels were equalized or centered has other values, and is left out. Inputs are clipped to
    what the quantized model takes, since all tensors behind a clipped one are off."""
    quants = {name: quantized.tensors.get(f"{name}.quantized") for name in names}
    known = {n: t for n, t in quants.items() if t is not None and t.is_quantized}
    ranges = {name: _range_of(tensor) for name, tensor in known.items()}
    given = {n: np.clip(x, *ranges[n]) if n in ranges else x for n, x in inputs.items()}
    exact = evaluate(graph, given, keep_tensors=True).tensors
    found = evaluate(quantized, given, keep_tensors=True).tensors
    return {
        name: ranges[name]
        for name, tensor in known.items()
        if _is_alike(found[tensor.name], exact[name], tensor)
    }


def _is_alike(stored: Array, values: Array, tensor: Tensor) -> bool:
    """Whether values that are not clipped are those of the float tensor."""
    assert tensor.quant is not None
    if stored.shape != values.shape:
        return False
    ends = np.iinfo(stored.dtype)
    inside = (stored > ends.min) & (stored < ends.max)
    off = (dequantize(stored, tensor.quant) - values)[inside]
    return float(np.square(off).sum()) <= _ALIKE**2 * float(np.square(values[inside]).sum())


def _range_of(tensor: Tensor) -> tuple[float, float]:
    assert tensor.quant is not None
    ends = np.iinfo(tensor.dtype.numpy)
    low, high = dequantize(np.array([ends.min, ends.max], tensor.dtype.numpy), tensor.quant)
    return float(low), float(high)
