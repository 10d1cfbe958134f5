"""Whether rows that an engine chose, such as boxes, are rows that a healthy one may choose.

Rounding errors change the order of nearly equal scores, so that engines give other boxes. A row is
right if it is near a row that the reference would give for another rank, whose score is near the
score of this rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate, run_node
from edgekit.host.compiler.ir.types import Array, Graph, Node
from edgekit.host.compiler.target import HALF_LOSS

_MOST_RUNS = 4096  # of the nodes behind the first choice
_AT_ONCE = 1 << 22  # differences

Values = Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class RowChoice:
    """Rows of an output along `axis`. `scores` [k]: of the reference's rows, in order. `candidates`
    [n, columns + 1]: rows of any rank that is near enough, and their scores. `units` [columns + 1]:
    what errors are relative to; 0 for integers, where no error is allowed."""

    axis: int
    scores: Array
    candidates: Array
    units: Array

    def error(self, found: Array, shape: tuple[int, ...]) -> float:
        """The largest error of a row, relative to the unit of its column; `shape`: the output's."""
        rows = _rows_of(found.reshape(shape), self.axis)
        rows = np.concatenate((rows, self.scores[:, None]), axis=1)
        if not np.all(np.isfinite(rows)):
            return float("inf")
        scale = np.where(self.units > 0, self.units, 1e-30)
        worst, step = 0.0, max(_AT_ONCE // self.candidates.size, 1)
        for first in range(0, len(rows), step):
            off = np.abs(rows[first : first + step, None] - self.candidates) / scale
            worst = max(worst, float(off.max(axis=2).min(axis=1).max()))
        return worst


def row_choices(graph: Graph, inputs: Values) -> dict[str, RowChoice]:
    """The outputs of `graph` that consist of rows that TopK chooses, for these inputs."""
    tail = _behind_choices(graph)
    last = {name: _last_choice(graph, name) for name in graph.outputs}
    chosen = {name: node for name, node in last.items() if node is not None}
    if not chosen:
        return {}
    values = evaluate(graph, inputs, keep_tensors=True).tensors
    runs = list(islice(_runs(graph, tail, values, {}), _MOST_RUNS))
    found = ((name, _choice_of(name, node, values, runs)) for name, node in chosen.items())
    return {name: choice for name, choice in found if choice is not None}


def _choice_of(name: str, node: Node, values: Values, runs: Sequence[Values]) -> RowChoice | None:
    want, scores = values[name], values[node.outputs[0]].ravel().astype(np.float64)
    axes = [axis for axis, size in enumerate(want.shape) if size == len(scores)]
    if not axes or values[node.inputs[0] or ""].shape[-1] != values[node.inputs[0] or ""].size:
        return None
    axis = axes[0]
    rows = [
        np.concatenate((_rows_of(run[name], axis), run[node.outputs[0]].reshape(-1, 1)), axis=1)
        for run in runs
    ]
    candidates = np.concatenate(rows).astype(np.float64)
    whole = np.all(candidates == np.rint(candidates), axis=0)
    units = np.where(whole, 0.0, np.abs(candidates).max(axis=0))
    return RowChoice(axis, scores, candidates, units)


def _rows_of(values: Array, axis: int) -> Array:
    return np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1).astype(np.float64)


def _behind_choices(graph: Graph) -> list[Node]:
    """The nodes that choose, and those that depend on them."""
    reached: set[str] = set()
    tail = []
    for node in graph.nodes:
        if isinstance(node.op, ops.TopK) or any(name in reached for name in node.inputs):
            tail.append(node)
            reached.update(node.outputs)
    return tail


def _last_choice(graph: Graph, output: str) -> Node | None:
    """The last TopK that the output depends on."""
    needed = {output}
    for node in reversed(graph.nodes):
        if needed.isdisjoint(node.outputs):
            continue
        if isinstance(node.op, ops.TopK):
            return node
        needed.update(name for name in node.inputs if name is not None)
    return None


def _runs(graph: Graph, nodes: Sequence[Node], exact: Values, made: Values) -> Iterator[Values]:
    """The values of `nodes` for each choice that a healthy engine might make: in turn the best k
    values, the next k, and so on while these are near those of the reference, `exact`."""
    for at, node in enumerate(nodes):
        used = (name for name in node.inputs if name is not None)
        values = {name: made[name] if name in made else exact[name] for name in used}
        if isinstance(node.op, ops.TopK):
            x = values[node.inputs[0] or ""]
            for chosen in _blocks(node.op, x, exact[node.outputs[0]]):
                own = dict(zip(node.outputs, chosen, strict=True))
                yield from _runs(graph, nodes[at + 1 :], exact, {**made, **own})
            return
        results = run_node(node, graph.tensors, values)
        made = {**made, **dict(zip(node.outputs, results, strict=True))}
    yield made


def _blocks(op: ops.TopK, x: Array, exact: Array) -> Iterator[tuple[Array, Array]]:
    keys = x if op.smallest else -x
    order = np.argsort(keys, axis=-1, kind="stable")
    near = float(np.abs(exact).max(initial=0.0)) * HALF_LOSS
    worst = float(exact.max() + near if op.smallest else -(exact.min() - near))
    for first in range(0, x.shape[-1], op.k):
        at = order[..., min(first, x.shape[-1] - op.k) :][..., : op.k]
        if np.take_along_axis(keys, at, axis=-1)[..., 0].min() > worst:
            return
        yield np.take_along_axis(x, at, axis=-1), at.astype(op.index.numpy)
