"""Computes a tensor again for its late readers, so that it is not alive until they run.

Bands then keep the second computation from existing completely, as they do for the first.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgekit.host.compiler.ir.types import Graph, Node
from edgekit.host.compiler.transforms.split.cutters import can_be_cut
from edgekit.host.compiler.transforms.split.live import Live
from edgekit.host.compiler.transforms.split.work import CALL, count_operations

_SMALL = 64  # tensors of less than this fraction of the peak stay alive instead


@dataclass(frozen=True, eq=False)
class Recomputed:
    """A graph with copies of nodes: `origin` maps each to the node that it repeats."""

    graph: Graph
    origin: dict[str, str]
    cost: float


@dataclass(frozen=True)
class _Copy:
    """The `nodes` to repeat before node `at`, whose results are for it and later readers."""

    tensor: str
    at: int
    nodes: tuple[Node, ...]
    cost: float


def recompute(graph: Graph, readers: Mapping[str, set[str]], at: int) -> Recomputed | None:
    """Repeat what computes a tensor that is alive at node `at`, the one that costs least per byte.

    `readers` maps the tensors alive there, of which bands may have made pieces, to the nodes that
    read them there or later. None if all are read without a pause.
    """
    live = Live(graph)
    copies = list(_copies(graph, live, readers, at))
    if not copies:
        return None
    best = min(copies, key=lambda c: c.cost / graph.tensors[c.tensor].bytes)
    return _with_copy(graph, best)


def _copies(graph: Graph, live: Live, readers: Mapping[str, set[str]], at: int) -> Iterator[_Copy]:
    place = {node.name: i for i, node in enumerate(graph.nodes)}
    producer, consumers = graph.producer(), graph.consumers()
    for name, later in readers.items():
        if name not in producer or graph.tensors[name].bytes * _SMALL < live.peak:
            continue
        uses = sorted({place[node.name] for node in (producer[name], *consumers[name])})
        for early, late in itertools.pairwise(uses):
            reached = early <= at and (at < late or graph.nodes[late].name in later)
            nodes = _upstream(graph, live, name, late) if reached and late > early + 1 else None
            if nodes is not None:
                cost = sum(count_operations(graph, node) + CALL for node in nodes)
                yield _Copy(name, late, nodes, cost)


def _upstream(graph: Graph, live: Live, name: str, at: int) -> tuple[Node, ...] | None:
    """The nodes that compute a tensor from what is alive before node `at` or is small."""
    producer = graph.producer()
    found: set[str] = set()
    wanted = [name]
    while wanted:
        node = producer[wanted.pop()]
        if node.name in found:
            continue
        if len(node.outputs) != 1 or not can_be_cut(node.op):
            return None  # perhaps it reads or changes a state
        found.add(node.name)
        for source in node.inputs:
            if source in producer and live.last_reader(source) < at:
                small = graph.tensors[source].bytes * _SMALL < live.peak
                wanted += [] if small else [source]
    return tuple(node for node in graph.nodes if node.name in found)


def _with_copy(graph: Graph, copy: _Copy) -> Recomputed:
    tensors = dict(graph.tensors)
    renamed: dict[str | None, str] = {}
    taken = {node.name for node in graph.nodes}
    origin: dict[str, str] = {}
    made = []
    for node in copy.nodes:
        (old,) = node.outputs
        new = _fresh(f"{old}/again", tensors)
        tensors[new] = dataclasses.replace(tensors[old], name=new)
        name = _fresh(f"{node.name}/again", taken)
        taken.add(name)
        origin[name] = node.name
        made.append(Node(name, node.op, tuple(renamed.get(t, t) for t in node.inputs), (new,)))
        renamed[old] = new
    late = [
        dataclasses.replace(
            node,
            inputs=tuple(renamed[t] if t == copy.tensor else t for t in node.inputs),
        )
        for node in graph.nodes[copy.at :]
    ]
    nodes = _without_unread(graph, [*graph.nodes[: copy.at], *made, *late], copy.nodes)
    left = {node.name for node in nodes}
    saved = sum(count_operations(graph, n) + CALL for n in copy.nodes if n.name not in left)
    after = dataclasses.replace(graph, nodes=tuple(nodes), tensors=tensors)
    return Recomputed(after, origin, copy.cost - saved)


def _without_unread(graph: Graph, nodes: list[Node], copied: Sequence[Node]) -> list[Node]:
    """`nodes` without the nodes of `copied` whose results only the copies' readers needed."""
    for node in reversed(copied):
        read = {name for other in nodes for name in other.inputs}
        if read.isdisjoint(node.outputs) and not {*graph.outputs} & {*node.outputs}:
            nodes = [other for other in nodes if other.name != node.name]
    return nodes


def _fresh(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name += "'"
    return name
