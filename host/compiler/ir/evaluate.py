"""Runs a graph with the NumPy references: slow but exact, the standard for all kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from edgekit.host.common.content import release_pages
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.ops.state import ReadState, WriteState
from edgekit.host.compiler.ir.types import Array, Graph, Node, Operator, Tensor

_FOLD_LIMIT = 1 << 26  # multiply-adds or copies that folding one node may cost
_FOLDED_BYTES = 64 << 20
_FOLDED_GROWTH = 4  # from 8-bit values to f32
COMPUTED_BYTES = 128 << 20  # of constants that any file, however small, may make us compute
V = TypeVar("V")  # represents the value of a tensor
Runner = Callable[[Node, Mapping[str, Tensor], Mapping[str, V]], list[V]]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Outputs by name, the states after the run, and, if requested, all computed tensors."""

    outputs: dict[str, Array]
    states: dict[str, Array]
    tensors: dict[str, Array]


def evaluate(
    graph: Graph,
    inputs: Mapping[str, Array],
    states: Mapping[str, Array] | None = None,
    keep_tensors: bool = False,
    runner: Runner[Array] | None = None,
) -> Evaluation:
    """Run a graph once. `states` defaults to the initial ones, `runner` to `run_node`.

    Raises `ValueError` for an input that is missing or has the wrong shape or dtype.
    """
    values: dict[str, Array] = {
        name: t.data for name, t in graph.tensors.items() if t.data is not None
    }
    for name in graph.inputs:
        values[name] = _check_input(inputs.get(name), graph.tensors[name])
    memory = {name: s.initial for name, s in graph.states.items()} | dict(states or {})
    run_nodes(graph, values, memory, runner or run_node, keep_tensors)
    outputs = {name: values[name] for name in graph.outputs}
    return Evaluation(outputs, memory, values if keep_tensors else {})


def run_nodes(
    graph: Graph,
    values: dict[str, V],
    memory: dict[str, V],
    runner: Runner[V],
    keep_tensors: bool = False,
) -> None:
    """Run all nodes. Results are added to `values`, of constants and inputs, and to `memory`, of
    states; without `keep_tensors`, values are removed after their last use."""
    last_use = {} if keep_tensors else last_uses(graph)
    for index, node in enumerate(graph.nodes):
        _run_step(graph, node, values, memory, runner)
        release_pages()
        for name in last_use.get(index, ()):
            del values[name]


def run_node(node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Array]) -> list[Array]:
    """Return the outputs of a stateless node; operators that only read shapes need no values."""
    with np.errstate(all="ignore"):  # NaN and infinity are legitimate values
        return node.op.reference(
            [None if name is None else values.get(name) for name in node.inputs],
            [None if name is None else tensors[name] for name in node.inputs],
            [tensors[name] for name in node.outputs],
        )


def is_foldable(op: Operator, ins: Sequence[Tensor], outs: Sequence[Tensor]) -> bool:
    """Whether all inputs are constants, and the outputs are cheap to compute and to keep.

    A result may be large if the file is, since exporters convert and transpose weights, but a
    small file must not claim all memory by a Range or an Expand.
    """
    if isinstance(op, ReadState | WriteState) or any(t.data is None for t in ins):
        return False
    given, made = (sum(t.elements * t.dtype.bytes for t in ts) for ts in (ins, outs))
    return (
        made <= max(_FOLDED_BYTES, _FOLDED_GROWTH * given)
        and folding_work(op, ins, outs) <= _FOLD_LIMIT
    )


def folding_work(op: Operator, ins: Sequence[Tensor], outs: Sequence[Tensor]) -> int:
    """Cost of running the node on constants, in multiply–adds or copies."""
    if isinstance(op, ops.Loop):
        return op.steps * sum(_work_inside(op.body, node) for node in op.body.nodes)
    return sum(t.elements for t in outs) * op.terms(ins)


def _work_inside(body: Graph, node: Node) -> int:
    ins = [body.tensors[n] for n in node.inputs if n is not None]
    return folding_work(node.op, ins, [body.tensors[n] for n in node.outputs])


def _run_step(
    graph: Graph, node: Node, values: dict[str, V], memory: dict[str, V], runner: Runner[V]
) -> None:
    if isinstance(node.op, ReadState):
        values[node.outputs[0]] = memory[node.op.state]
    elif isinstance(node.op, WriteState):
        name = node.inputs[0]
        assert name is not None
        memory[node.op.state] = values[name]
    else:
        values.update(zip(node.outputs, runner(node, graph.tensors, values), strict=True))


def _check_input(value: Array | None, tensor: Tensor) -> Array:
    if value is None:
        raise ValueError(f"expected input {tensor.name}, found none")
    if value.shape != tensor.shape or value.dtype != tensor.dtype.numpy:
        raise ValueError(
            f"expected input {tensor.name} of {tensor.dtype.value}{list(tensor.shape)}, "
            f"found {value.dtype}{list(value.shape)}"
        )
    return value


def last_uses(graph: Graph) -> dict[int, list[str]]:
    """Map node indices to the tensors last used there, so that long chains can free images."""
    last: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        last.update((name, index) for name in (*node.inputs, *node.outputs) if name is not None)
    kept = {*graph.outputs, *(n for n, t in graph.tensors.items() if t.data is not None)}
    ends: dict[int, list[str]] = {}
    for name, index in last.items():
        if name not in kept:
            ends.setdefault(index, []).append(name)
    return ends
