"""Mixed precision: weights of few bits, with 8 where needed to reach an accuracy target."""

from __future__ import annotations

import dataclasses
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate, run_node
from edgekit.host.compiler.ir.similarity import least_cosine
from edgekit.host.compiler.ir.types import Array, Graph, Node

Sample = Mapping[str, Array]

_TRIED = 4  # samples that single operators are tried on
_STEPS = 8  # maximum number of steps until all operators have 8 bits: each refits all weights


@dataclass(frozen=True, eq=False)
class Mixed:
    """A graph with 8-bit weights in the operators `eight`. `few`: number of operators with 4- or
    8-bit weights. `cosine`: the least on held-out samples."""

    graph: Graph
    eight: tuple[str, ...]
    few: int
    cosine: float


def mixed(
    floats: Graph,
    compressed: Graph,
    fit: Callable[[frozenset[str]], Graph],
    shown: Sequence[Sample],
    held_out: Sequence[Sample],
    target: float,
) -> Mixed:
    """Assign 8-bit weights to as few operators as found necessary for the least cosine on samples
    `held_out` to reach `target`, or to all operators if it is not reached.

    `fit` builds the graph from the set of names with 8 bits. Operators are ranked by the cosine
    that their 4-bit weights in `compressed` cost on the samples `shown`, per additional byte at 8
    bits. Cosine losses are assumed to add up and to shrink uniformly when weights are fitted.
    """
    loss = _operator_losses(floats, compressed, shown[:: max(len(shown) // _TRIED, 1)][:_TRIED])
    sizes = {
        n.name: compressed.tensors[_weights_of(n)].elements
        for n in compressed.nodes
        if n.name in loss
    }
    order = sorted(loss, key=lambda name: -loss[name] / sizes[name])
    left = np.cumsum([0.0, *(loss[name] for name in reversed(order))])[::-1]  # loss by count
    least_step = -(-len(order) // _STEPS)
    count = 0
    while True:
        graph = fit(frozenset(order[:count]))
        found = min(
            least_cosine(evaluate(floats, each).outputs, evaluate(graph, each).outputs)
            for each in held_out
        )
        if found >= target or count == len(order):
            return Mixed(graph, tuple(order[:count]), len(order), found)
        allowed = left[count] * (1 - target) / (1 - found)
        needed = int(np.argmax(left <= allowed))
        count = min(max(needed, count + least_step), len(order))


def mixed_note(made: Mixed, target: float) -> str:
    """Describe which operators have 8 bits."""
    if not made.eight:
        return f"all weights have few bits, which meets the target of {target:g}"
    note = f"weights have 8 bits in {len(made.eight)} of {made.few} operators: "
    note += ", ".join(made.eight)
    missed = f"; the target of {target:g} is not met: give other samples, or keep floats"
    return note if made.cosine >= target else note + missed


def _operator_losses(
    floats: Graph, compressed: Graph, samples: Sequence[Sample]
) -> dict[str, float]:
    """Mean cosine loss per operator if only its weights are replaced by the rounded ones of
    `compressed`."""
    exact = [evaluate(floats, each, keep_tensors=True).tensors for each in samples]
    found = dict[str, float]()
    for i, (plain, node) in enumerate(zip(floats.nodes, compressed.nodes, strict=True)):
        if not isinstance(node.op, ops.OutlierFullyConnected | ops.GatherQuantized):
            continue
        name, weights = _rounded_constant(floats, plain, compressed, node)
        tensor = dataclasses.replace(floats.tensors[name], data=weights)
        tensors = {**floats.tensors, name: tensor}
        losses = []
        for values in exact:
            made: ChainMap[str, Array] = ChainMap({name: weights}, values)
            changed = set(plain.outputs)
            made.update(zip(plain.outputs, run_node(plain, tensors, made), strict=True))
            for later in floats.nodes[i + 1 :]:
                if changed.intersection(n for n in later.inputs if n is not None):
                    changed.update(later.outputs)
                    results = run_node(later, floats.tensors, made)
                    made.update(zip(later.outputs, results, strict=True))
            want = {n: values[n] for n in floats.outputs}
            losses.append(1 - least_cosine(want, made))
        found[node.name] = max(float(np.mean(losses)), 0.0)
    return found


def _weights_of(node: Node) -> str:
    return node.inputs[0 if isinstance(node.op, ops.GatherQuantized) else 1] or ""


def _rounded_constant(
    floats: Graph, plain: Node, compressed: Graph, node: Node
) -> tuple[str, Array]:
    """Return the name of the constant of `plain` that `node` quantizes, and its rounded values."""
    quantized = compressed.tensors[_weights_of(node)].data
    scale = compressed.tensors[node.inputs[2] or ""].data
    assert quantized is not None and scale is not None
    is_table = isinstance(node.op, ops.GatherQuantized)
    wide = scale if is_table else scale.T  # [rows, groups]
    values = quantized * np.repeat(wide, quantized.shape[1] // wide.shape[1], axis=1)
    name = plain.inputs[0 if is_table else 1] or ""
    whole = values.T if isinstance(plain.op, ops.MatMul) else values
    return name, np.ascontiguousarray(whole.reshape(floats.tensors[name].shape), np.float32)
