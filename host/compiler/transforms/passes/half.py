"""Half precision: chooses the operators that compute in f16 and inserts conversions.

Each operator with an f16 kernel has a cost in either precision, and each tensor between operators
has a conversion cost; the cheapest assignment for the entire graph is a minimum cut.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from edgekit.device.runtime.kernel_facts import UNARY_CHUNK
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.traits import Half
from edgekit.host.compiler.ir.types import DType, Graph, Node, Operator, Tensor
from edgekit.host.compiler.ir.views import view_sources
from edgekit.host.compiler.transforms.passes.cut import TwoLabels

_LARGEST = float(np.finfo(np.float16).max)
# Costs, relative to moving an f32 element:
_PRODUCT = 0.25  # a multiply-add
_CONVERSION = 2.0  # of an element
# Costs in simulated time on A76, relative to converting an element: an additional operator
# (94 cycles) and, with several threads, distributing its tasks (1300 cycles).
_START, _HAND_OVER = 160, 2240
_FEW_SEQUENCES = 4  # in a batch: they read the weights once, more read them again
_FUNCTION, _HALF_FUNCTION = 20.0, 6.0  # evaluating a function; in simulated cycles on A76


def to_half(
    graph: Graph,
    conversion: float = _CONVERSION,
    threads: int = 1,
    exact: Collection[str] = (),
) -> Graph:
    """Convert operators to f16 where that is cheaper for this number of threads, except the nodes
    named in `exact`; graph inputs and outputs keep their dtype. `conversion` is the cost of
    converting one element."""
    return convert_nodes(graph, _choose_f16_nodes(graph, conversion, threads, exact))


def convert_nodes(graph: Graph, nodes: Collection[str]) -> Graph:
    """Convert the named nodes, which must have f16 kernels."""
    return _Rewrite(graph, nodes).run() if nodes else graph


def half_parts(graph: Graph, threads: int, count: int) -> list[frozenset[str]]:
    """The names of the nodes that `to_half` converts, in at most `count` parts of about equal work,
    in order of execution."""
    chosen = _choose_f16_nodes(graph, _CONVERSION, threads, ())
    nodes = [node for node in graph.nodes if node.name in chosen]
    work = list(itertools.accumulate(_node_costs(graph, node)[0] for node in nodes))
    parts: list[set[str]] = [set() for _ in range(count)]
    for node, done in zip(nodes, work, strict=True):
        parts[min(int(done / work[-1] * count), count - 1)].add(node.name)
    return [frozenset(part) for part in parts if part]


def narrow_weights(graph: Graph, cache: int) -> Graph:
    """Store weights in f16 where a core that computes only in f32 waits for them at each step:
    weights of recurrent layers that `cache` bytes, the core's last cache, do not hold."""
    tensors, nodes, names = dict(graph.tensors), [], set(graph.tensors)
    for node in graph.nodes:
        if isinstance(node.op, ops.Recurrent) and _waits_for_weights(graph, node, cache):
            weights = graph.tensors[node.inputs[1] or ""]
            own = fresh_name(f"{weights.name}.half", names)
            tensors[own] = _halved(weights, own)
            inputs = (node.inputs[0], own, *node.inputs[2:])
            nodes.append(dataclasses.replace(node, inputs=inputs))
        else:
            nodes.append(node)
    if len(tensors) == len(graph.tensors):
        return graph
    return dataclasses.replace(graph, tensors=tensors, nodes=tuple(nodes))


def _waits_for_weights(graph: Graph, node: Node, cache: int) -> bool:
    x, weights = (graph.tensors[name or ""] for name in node.inputs[:2])
    if weights.data is None or weights.bytes < cache or x.shape[1] > _FEW_SEQUENCES:
        return False
    return bool(np.max(np.abs(weights.data)) <= _LARGEST)


def _halved(constant: Tensor, name: str) -> Tensor:
    assert constant.data is not None
    data = constant.data.astype(np.float16)
    return Tensor(name, constant.shape, DType.F16, None, data, constant.sparse)


def _in_half(node: Node) -> tuple[tuple[str | None, ...], tuple[str, ...]]:
    """The inputs and outputs that the f16 kernel of a node has in f16."""
    inputs, outputs = node.op.halves or (len(node.inputs), len(node.outputs))
    return node.inputs[:inputs], node.outputs[:outputs]


def _has_kernel(graph: Graph, node: Node) -> bool:
    """Whether the f32 `node` has an f16 kernel."""
    op = node.op
    named = [graph.tensors[name] for name in _in_half(node)[0] if name is not None]
    if not named or any(graph.tensors[name].dtype is not DType.F32 for name in node.outputs):
        return False
    if isinstance(op, ops.Gather):
        return named[0].dtype is DType.F32 and named[0].data is None
    if any(t.dtype is not DType.F32 for t in named):
        return False
    if any(t.data is not None and np.max(np.abs(t.data), initial=0) > _LARGEST for t in named):
        return False
    if isinstance(op, ops.Transpose) and named[0].name in graph.inputs:
        return False  # a stem converts while moving (host/compiler/lowering/conv/stems.py)
    if isinstance(op, ops.Weighted):
        constants = [graph.tensors[name] for name in node.inputs[1:3] if name is not None]
        return all(t.data is not None for t in constants)
    return op.half is not Half.NO


def _node_costs(graph: Graph, node: Node) -> tuple[float, float]:
    """Costs of a node in f32 and in f16."""
    y = sum(graph.tensors[name].elements for name in node.outputs)
    moved: float = y + sum(graph.tensors[n].elements for n in node.inputs if n is not None)
    if isinstance(node.op, ops.Recurrent):
        return _recurrent_costs(graph, node, moved)
    if node.op.multiplies:
        ins = [None if name is None else graph.tensors[name] for name in node.inputs]
        moved += _PRODUCT * y * node.op.terms(ins)
    functions = y if node.op.half is Half.WIDENED else 0
    return moved + _FUNCTION * functions, moved / 2 + _HALF_FUNCTION * functions


def _moves(graph: Graph, node: Node, consumers: Mapping[str, Sequence[Node]]) -> bool:
    """Whether a node reads and writes elements: not if its output is in its input's memory, or if
    products read that by columns."""
    if not isinstance(node.op, ops.Transpose):
        return not view_sources(graph.tensors, node)
    last, made = len(node.op.permutation) - 1, node.outputs[0]
    users = consumers[made]
    by_columns = all(isinstance(n.op, ops.MatMul) and n.inputs[1] == made for n in users)
    swaps = node.op.permutation == (*range(last - 1), last, last - 1)
    return not (users and swaps and by_columns)


def _recurrent_costs(graph: Graph, node: Node, moved: float) -> tuple[float, float]:
    gates, hidden = graph.tensors[node.inputs[1] or ""].shape
    steps = graph.tensors[node.outputs[0]].elements // hidden
    moved += _PRODUCT * steps * gates * hidden
    return moved + _FUNCTION * steps * gates, moved / 2 + _HALF_FUNCTION * steps * gates


def _conversion_cost(tensor: Tensor, threads: int) -> int:
    """Cost of a conversion in converted elements, counting the time of all waiting threads."""
    handed_over = threads > 1 and tensor.elements > UNARY_CHUNK
    return tensor.elements + threads * (_START + (_HAND_OVER if handed_over else 0))


def _choose_f16_nodes(
    graph: Graph, conversion: float, threads: int, exact: Collection[str]
) -> set[str]:
    """Names of the nodes to compute in f16; those in `exact` are not."""
    labels = TwoLabels()
    outside = labels.thing(0, math.inf)
    at = {}
    producer, consumers = graph.producer(), graph.consumers()
    for node in graph.nodes:
        moves = _moves(graph, node, consumers)
        work, in_half = _node_costs(graph, node) if moves else (0.0, 0.0)
        can = node.name not in exact and _has_kernel(graph, node)
        at[node.name] = labels.thing(work, in_half if can else math.inf)
    narrow_results = {name for node in graph.nodes for name in _in_half(node)[1]}
    for name, tensor in graph.tensors.items():
        if tensor.data is not None or tensor.dtype is not DType.F32:
            continue
        made = at[producer[name].name] if name in narrow_results else outside
        users = {at[n.name] if name in _in_half(n)[0] else outside for n in consumers[name]}
        users |= {outside} if name in graph.outputs else set()
        if users - {made}:
            labels.convert_between(made, users, conversion * _conversion_cost(tensor, threads))
    second = labels.second_label()
    return {name for name, number in at.items() if second[number]}


def _round_parameter(op: Operator) -> Operator:
    """Round the operator's float parameters to f16 where f16 kernels use them so."""
    if op.rounds_parameters:
        values = {f.name: getattr(op, f.name) for f in dataclasses.fields(op)}
        rounded = {n: float(np.float16(v)) for n, v in values.items() if isinstance(v, float)}
        return dataclasses.replace(op, **rounded)
    if isinstance(op, ops.Weighted) and op.epilogue is not None:
        return dataclasses.replace(op, epilogue=_round_parameter(op.epilogue))
    return op


class _Rewrite:
    """Rebuilds the graph; a tensor may exist in f32, in f16 or in both."""

    def __init__(self, graph: Graph, chosen: Collection[str]) -> None:
        self._graph, self._chosen = graph, chosen
        self._tensors = {
            n: t for n, t in graph.tensors.items() if t.data is not None or n in graph.inputs
        }
        self._halves: dict[str, str] = {}
        self._names = set(graph.tensors) | {n.name for n in graph.nodes}
        self._nodes: list[Node] = []

    def run(self) -> Graph:
        for node in self._graph.nodes:
            ins, outs = _in_half(node) if node.name in self._chosen else ((), ())
            for name in node.inputs[len(ins) :]:
                self._as_f32(name)
            self._tensors |= {n: self._graph.tensors[n] for n in node.outputs[len(outs) :]}
            if node.name not in self._chosen:
                self._nodes.append(node)
                continue
            inputs = tuple(None if n is None else self._as_half(n) for n in ins)
            outputs = tuple(self._new_half(name) for name in outs)
            inputs, outputs = inputs + node.inputs[len(ins) :], outputs + node.outputs[len(outs) :]
            self._nodes.append(Node(node.name, _round_parameter(node.op), inputs, outputs))
        for name in self._graph.outputs:
            self._as_f32(name)
        return dataclasses.replace(self._graph, tensors=self._tensors, nodes=tuple(self._nodes))

    def _new_half(self, name: str) -> str:
        """Create the f16 version of a tensor; constants are converted, others still need a
        producer."""
        old, own = self._graph.tensors[name], fresh_name(f"{name}.half", self._names)
        empty = Tensor(own, old.shape, DType.F16, None, None, old.sparse)
        self._tensors[own] = empty if old.data is None else _halved(old, own)
        self._halves[name] = own
        return own

    def _as_half(self, name: str) -> str:
        old = self._graph.tensors[name]
        if old.dtype is not DType.F32:
            return name
        if name not in self._halves:
            own = self._new_half(name)
            if old.data is None:
                self._add_conversion(name, own, DType.F16)
        return self._halves[name]

    def _as_f32(self, name: str | None) -> None:
        if name is None or name in self._tensors:
            return
        self._tensors[name] = self._graph.tensors[name]
        self._add_conversion(self._halves[name], name, DType.F32)

    def _add_conversion(self, source: str, target: str, to: DType) -> None:
        node = fresh_name(f"{target}.converted", self._names)
        self._nodes.append(Node(node, ops.Convert(to), (source,), (target,)))
