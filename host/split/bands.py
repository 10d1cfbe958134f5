"""Bands: a chain of operators runs over a few rows of its output at a time, so that the images
between them are never whole. Rows that neighboring bands both need are computed twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from edgekit.host.graph.types import Graph, Node, Tensor
from edgekit.host.graph.views import view_sources
from edgekit.host.split.build import Builder, even_cuts
from edgekit.host.split.cut import Cut, Part, cut_bytes, site_of
from edgekit.host.split.cutters import H, cut_node
from edgekit.host.split.live import Live

_LONGEST = 24  # operators of one chain
_COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 32)  # bands of one chain
_ROUNDS = 16


@dataclass(frozen=True)
class _Step:
    """A node of a chain in one band: the part, and the rows of its output."""

    node: Node
    part: Part
    rows: Cut


@dataclass(frozen=True)
class _Plan:
    """Nodes `first` to `end` (excluded) in bands; `peak` bytes alive, `extra` of its work twice."""

    first: int
    end: int
    bands: tuple[tuple[_Step, ...], ...]
    peak: int
    extra: float


def in_bands(graph: Graph, limit: int) -> tuple[Graph, dict[str, str]]:
    """Chains where more than `limit` bytes are alive become bands, where that helps.

    Returns the graph and the origin of its new nodes.
    """
    origin: dict[str, str] = {}
    for _ in range(_ROUNDS):
        live = Live(graph)
        if live.peak <= limit:
            break
        plans = list(_plans(graph, live, origin))
        better = [p for p in plans if p.peak < live.peak]
        if not better:
            break
        fitting = [p for p in better if p.peak <= limit]
        best = min(
            fitting or better,
            key=lambda p: (p.extra if fitting else p.peak, p.peak, p.extra, p.first, p.end),
        )
        graph = _apply(graph, best, origin)
    return graph, origin


def _plans(graph: Graph, live: Live, origin: Iterable[str]) -> Iterator[_Plan]:
    """Ways to cut chains that contain the node where most is alive."""
    worst = live.worst
    done = set(origin)
    for first in range(worst, max(worst - _LONGEST, -1), -1):
        if graph.nodes[first].name in done:
            return
        for end in range(max(worst, first) + 1, min(first + _LONGEST, len(graph.nodes)) + 1):
            if graph.nodes[end - 1].name in done:
                break
            chain = graph.nodes[first:end]
            if not _is_chain(graph, live, first, end):
                continue
            height = graph.tensors[chain[-1].outputs[0]].shape[H]
            for count in _COUNTS:
                if count <= height:
                    plan = _plan(graph, live, first, end, count)
                    if plan is None:
                        break
                    yield plan


def _is_chain(graph: Graph, live: Live, first: int, end: int) -> bool:
    """One image comes out of it: the last node's, which none of the others reads."""
    chain = graph.nodes[first:end]
    last = chain[-1].outputs
    if any(len(n.outputs) != 1 or view_sources(graph.tensors, n) for n in chain):
        return False
    if len(graph.tensors[last[0]].shape) != 4 or graph.tensors[last[0]].shape[0] != 1:
        return False
    return all(live.last_reader(n.outputs[0]) < end for n in chain[:-1])


def _plan(graph: Graph, live: Live, first: int, end: int, count: int) -> _Plan | None:
    chain = graph.nodes[first:end]
    height = graph.tensors[chain[-1].outputs[0]].shape[H]
    bands = []
    for cut in even_cuts(H, height, -(-height // count)):
        steps = _band(graph, chain, cut)
        if steps is None:
            return None
        bands.append(steps)
    rows: dict[str, int] = {}
    for step in (s for steps in bands for s in steps):
        rows[step.node.name] = rows.get(step.node.name, 0) + step.rows.size
    work = {n.name: _work(graph, n) for n in chain}
    heights = {n.name: graph.tensors[n.outputs[0]].shape[H] for n in chain}
    extra = sum(work[n] * max(rows[n] / heights[n] - 1, 0) for n in rows)
    inside = {n.outputs[0] for n in chain[:-1]}
    around = live.beside(first, end, inside)
    peak = around + max(_band_peak(graph, steps) for steps in bands)
    return _Plan(first, end, tuple(bands), max(peak, live.peak_outside(first, end)), extra)


def _band(graph: Graph, chain: Sequence[Node], rows: Cut) -> tuple[_Step, ...] | None:
    """The parts that give `rows` of the chain's output, in running order."""
    made = {n.outputs[0] for n in chain}
    wanted: dict[str, Cut] = {chain[-1].outputs[0]: rows}
    steps = []
    for node in reversed(chain):
        cut = wanted.get(node.outputs[0])
        if cut is None:
            continue  # padding hides all that this band would read of it
        part = cut_node(site_of(graph.tensors, node), cut)
        if part is None:
            return None
        steps.append(_Step(node, part, cut))
        for name, piece in zip(node.inputs, part.inputs, strict=True):
            if name not in made or name is None:
                continue
            if piece is None or piece.axis != H or len(graph.tensors[name].shape) != 4:
                return None
            known = wanted.get(name, piece)
            begin, last = min(known.begin, piece.begin), max(known.end, piece.end)
            wanted[name] = Cut(H, begin, last)
    return tuple(reversed(steps))


def _band_peak(graph: Graph, steps: Sequence[_Step]) -> int:
    """Most bytes alive of the images between the first and the last node of a band."""
    last: dict[str, int] = {}
    for i, step in enumerate(steps):
        last.update((name, i) for name in step.node.inputs if name is not None)
    alive = most = 0
    sizes: dict[str, int] = {}
    for i, step in enumerate(steps):
        name = step.node.outputs[0]
        if i + 1 < len(steps):
            sizes[name] = cut_bytes(graph.tensors[name], step.rows)
            alive += sizes[name]
        most = max(most, alive)
        alive -= sum(sizes.pop(n) for n in list(sizes) if last.get(n, -1) <= i)
    return most


def _work(graph: Graph, node: Node) -> float:
    """Multiplications, or elements where there are none."""
    out = graph.tensors[node.outputs[0]]
    weights = graph.tensors[node.inputs[1]] if len(node.inputs) > 1 and node.inputs[1] else None
    if weights is None or weights.data is None or len(weights.shape) != 4:
        return float(out.elements)
    return float(out.elements) * weights.elements / out.shape[3]


def _apply(graph: Graph, plan: _Plan, origin: dict[str, str]) -> Graph:
    builder = Builder(graph)
    chain = graph.nodes[plan.first : plan.end]
    for node in graph.nodes[: plan.first]:
        builder.add(node)
    parts = [_add_band(builder, steps, str(i)) for i, steps in enumerate(plan.bands)]
    out = graph.tensors[chain[-1].outputs[0]]
    builder.join(parts, H, [out], chain[-1].name)
    for node in graph.nodes[plan.end :]:
        builder.add(node)
    origin.update(builder.origin)
    return builder.finish()


def _add_band(builder: Builder, steps: Sequence[_Step], label: str) -> Node:
    """Adds the parts of one band; returns the last."""
    band: dict[str, tuple[Tensor, int]] = {}  # what this band has made of a tensor, and from where
    added: Node | None = None
    for step in steps:
        site = site_of(builder.tensors, step.node)
        ins, cuts = list(site.ins), list(step.part.inputs)
        for i, tensor in enumerate(site.ins):
            piece = cuts[i]
            if tensor is not None and tensor.name in band and piece is not None:
                made, at = band[tensor.name]
                ins[i], cuts[i] = made, Cut(H, piece.begin - at, piece.end - at)
        added = builder.part(
            type(site)(step.node, tuple(ins), site.outs),
            Part(step.part.op, tuple(cuts)),
            step.rows,
            label,
            step.node.name,
        )
        band[step.node.outputs[0]] = (builder.tensors[added.outputs[0]], step.rows.begin)
    assert added is not None
    return added
