"""Weights of 4 bits, but of 8 where 4 cost most, as far as a target needs them."""

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
_STEPS = 8  # in so many all operators have 8 bits, at the latest: a step fits all weights anew


@dataclass(frozen=True, eq=False)
class Mixed:
    """A graph whose operators `eight` have weights of 8 bits; `few`: how many have some of 4 or 8;
    `cosine`: the least on the samples that were held out."""

    graph: Graph
    eight: tuple[str, ...]
    few: int
    cosine: float


def mixed(
    floats: Graph,
    coded: Graph,
    fit: Callable[[frozenset[str]], Graph],
    shown: Sequence[Sample],
    held_out: Sequence[Sample],
    target: float,
) -> Mixed:
    """What `fit` makes of `floats` if the operators of some names have weights of 8 bits: of the
    fewest found, beginning with those whose 4 bits, as in `coded`, cost the most on the samples
    `shown` per byte that 8 take more, by which the least cosine on those `held_out` is `target`;
    or of all.

    Losses of cosine are taken to add up, and to shrink alike where weights are fitted.
    """
    loss = _losses(floats, coded, shown[:: max(len(shown) // _TRIED, 1)][:_TRIED])
    sizes = {n.name: coded.tensors[_codes_of(n)].elements for n in coded.nodes if n.name in loss}
    order = sorted(loss, key=lambda name: -loss[name] / sizes[name])
    left = np.cumsum([0.0, *(loss[name] for name in reversed(order))])[::-1]  # from a count on
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
    """A sentence about which operators have 8 bits."""
    if not made.eight:
        return f"all weights have 4 bits, by which the target of {target:g} is met"
    told = f"weights have 8 bits in {len(made.eight)} of {made.few} operators: "
    told += ", ".join(made.eight)
    missed = f"; the target of {target:g} is not met: give other samples, or keep floats"
    return told if made.cosine >= target else told + missed


def _losses(floats: Graph, coded: Graph, samples: Sequence[Sample]) -> dict[str, float]:
    """By how much the cosine falls, in the mean of samples, if the weights of one operator alone
    are the rounded ones of `coded`."""
    exact = [evaluate(floats, each, keep_tensors=True).tensors for each in samples]
    found = dict[str, float]()
    for i, (plain, node) in enumerate(zip(floats.nodes, coded.nodes, strict=True)):
        if not isinstance(node.op, ops.OutlierFullyConnected | ops.GatherCodes):
            continue
        name, weights = _rounded(floats, plain, coded, node)
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


def _codes_of(node: Node) -> str:
    return node.inputs[0 if isinstance(node.op, ops.GatherCodes) else 1] or ""


def _rounded(floats: Graph, plain: Node, coded: Graph, node: Node) -> tuple[str, Array]:
    """The constant of `plain` that `node` has codes of, and the floats that these stand for."""
    codes = coded.tensors[_codes_of(node)].data
    scale = coded.tensors[node.inputs[2] or ""].data
    assert codes is not None and scale is not None
    is_table = isinstance(node.op, ops.GatherCodes)
    wide = scale if is_table else scale.T  # [rows, groups]
    values = codes * np.repeat(wide, codes.shape[1] // wide.shape[1], axis=1)
    name = plain.inputs[0 if is_table else 1] or ""
    whole = values.T if isinstance(plain.op, ops.MatMul) else values
    return name, np.ascontiguousarray(whole.reshape(floats.tensors[name].shape), np.float32)
