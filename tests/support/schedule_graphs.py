"""Graphs where only the topology matters: concatenations over given edges."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from hypothesis import strategies as st

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Tensor
from edgekit.host.compiler.schedule.dag import Dag
from edgekit.host.compiler.schedule.orders import bits, first_ready, masks, ready_after


def graph_of(
    size: int,
    edges: Sequence[tuple[int, int]],
    late_inputs: Collection[int] = (),
    early_outputs: Collection[int] = (),
    sizes: Sequence[int] | None = None,
) -> Graph:
    """Node i produces tensor t<i> of `sizes[i]` floats; nodes without predecessors read the input
    x.

    `late_inputs` also read x; `early_outputs` are outputs in addition to the nodes without
    successors.
    """
    counts = sizes or [1] * size
    made = [Tensor(f"t{i}", (1, counts[i]), DType.F32) for i in range(size)]
    tensors = {t.name: t for t in (Tensor("x", (1, 1), DType.F32), *made)}
    nodes = []
    for i in range(size):
        before = sorted({f"t{a}" for a, b in edges if b == i})
        reads = (*before, *(("x",) if not before or i in late_inputs else ()))
        op = ops.Concat(1) if len(reads) > 1 else ops.Clamp()
        nodes.append(Node(f"n{i}", op, reads, (f"t{i}",)))
    waited = {a for a, _ in edges}
    outputs = tuple(f"t{i}" for i in range(size) if i not in waited or i in early_outputs)
    return Graph("made", tensors, tuple(nodes), ("x",), outputs)


def random_edges(most: int) -> st.SearchStrategy[tuple[int, list[tuple[int, int]]]]:
    """DAGs of up to `most` nodes, with edges from lower to higher numbers."""

    def edges(size: int) -> st.SearchStrategy[tuple[int, list[tuple[int, int]]]]:
        pairs = [(a, b) for b in range(size) for a in range(b)]
        chosen = st.lists(st.sampled_from(pairs), unique=True) if pairs else st.just([])
        return st.tuples(st.just(size), chosen)

    return st.integers(1, most).flatmap(edges)


def all_orders(dag: Dag) -> Iterator[list[int]]:
    """Every valid order, in lexicographic order."""
    needs = masks(dag)

    def extend(order: list[int], done: int, ready: int) -> Iterator[list[int]]:
        if not ready:
            yield list(order)
        for node in bits(ready):
            order.append(node)
            after = done | 1 << node
            yield from extend(order, after, ready_after(dag, needs, ready, node, after))
            order.pop()

    return extend([], 0, first_ready(dag))
