"""Runs a graph with the choices of another run of it.

A rounding error may change which of two nearly equal values is chosen, and then a row of the output
is another box, which says nothing about the size of the error. So runs are compared by the values
that are chosen from, and by outputs that the same choices lead to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import Runner
from edgekit.host.compiler.ir.types import Array, Graph, Node, Operator, Tensor


def chooses(op: Operator) -> bool:
    """Whether results are chosen by comparing values with one another or with thresholds, and are
    no function of each value alone."""
    return isinstance(op, ops.TopK | ops.ArgExtreme) or (op.jumps and not op.elementwise)


@dataclass(frozen=True, eq=False)
class Choices:
    """What the nodes of a graph that choose gave in a run, by name; the floats that they chose from
    are by (node, number of the operand)."""

    results: dict[str, list[Array]] = field(default_factory=dict)
    sources: dict[tuple[str, int], Array] = field(default_factory=dict)

    def recording(self, run: Runner[Array]) -> Runner[Array]:
        """Runs nodes like `run` and keeps what those give that choose."""

        def record(
            node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Array]
        ) -> list[Array]:
            made = run(node, tensors, values)
            if chooses(node.op):
                self.results[node.name] = made
                self.sources.update(_sources(node, tensors, values))
            return made

        return record

    def followed_by(
        self, run: Runner[Array], sources: dict[tuple[str, int], Array]
    ) -> Runner[Array]:
        """Runs nodes like `run`, but those that choose choose alike; adds to `sources`."""

        def follow(
            node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Array]
        ) -> list[Array]:
            if node.name not in self.results:
                return run(node, tensors, values)
            sources.update(_sources(node, tensors, values))
            made = self.results[node.name]
            if not isinstance(node.op, ops.TopK):
                return made
            x = values[node.inputs[0] or ""]
            return [np.take_along_axis(x, made[1].astype(np.int64), axis=-1), made[1]]

        return follow


def names_of_sources(graph: Graph) -> dict[tuple[str, int], str]:
    """The tensors that a graph chooses from, by (node, number of the operand)."""
    return {
        (node.name, place): name
        for node in graph.nodes
        if chooses(node.op)
        for place, name in _float_operands(node, graph.tensors)
    }


def _sources(
    node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Array]
) -> dict[tuple[str, int], Array]:
    return {(node.name, place): values[name] for place, name in _float_operands(node, tensors)}


def _float_operands(node: Node, tensors: Mapping[str, Tensor]) -> list[tuple[int, str]]:
    return [
        (place, name)
        for place, name in enumerate(node.inputs)
        if name is not None and tensors[name].data is None and tensors[name].dtype.is_float
    ]
