"""Runs chains of operators in bands: a few output rows at a time.

The images within a chain never exist in full. Rows that neighboring bands both need are computed
twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from edgekit.host.compiler.ir.types import Graph, Node, Tensor
from edgekit.host.compiler.ir.views import view_sources
from edgekit.host.compiler.transforms.split.build import Builder, even_cuts
from edgekit.host.compiler.transforms.split.cut import Cut, Part, cut_bytes, site_of
from edgekit.host.compiler.transforms.split.cutters import H, cut_node
from edgekit.host.compiler.transforms.split.live import Live

_LONGEST = 24  # maximum number of operators per chain
_COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 32)  # bands per chain
_ROUNDS = 32
_LOWER = (0.9, 0.8, 0.7)  # lower goals, relative to a limit that was not reached
_CALL = 50_000.0  # cost of starting an operator, in multiplications


@dataclass(frozen=True)
class _Step:
    """A node of a chain in one band, with its part and its output rows."""

    node: Node
    part: Part
    rows: Cut


@dataclass(frozen=True)
class _Plan:
    """Nodes `first` to `end` (excluded) in bands of the last node's rows; `peak` bytes are alive,
    and `cost` is the additional work in multiplications."""

    first: int
    end: int
    cuts: tuple[Cut, ...]
    peak: int
    cost: float


@dataclass(frozen=True, eq=False)
class _Banded:
    """A graph with bands, the origin of its new nodes, its peak of live bytes, and added cost."""

    graph: Graph
    origin: dict[str, str]
    peak: int
    cost: float


def in_bands(graph: Graph, limit: int) -> tuple[Graph, dict[str, str]]:
    """Convert chains with more than `limit` live bytes to bands, where that helps.

    Returns the graph and the origin of its new nodes. Peaks are lowered one after the other, each
    by the cheapest chain around it. If that does not reach the limit, lower goals are tried, which
    lead to longer chains, and then chains that lower the peak of the entire graph.
    """
    best = _in_bands(graph, limit, False)
    if best.peak > limit:
        others = [_in_bands(graph, int(limit * share), False) for share in _LOWER]
        others.append(_in_bands(graph, limit, True))
        best = min([best, *others], key=lambda b: (max(b.peak, limit), b.cost))
    return best.graph, best.origin


def _in_bands(graph: Graph, limit: int, whole: bool) -> _Banded:
    """`whole`: consider only chains that lower the peak of the graph, not just their own."""
    origin: dict[str, str] = {}
    total = 0.0
    for _ in range(_ROUNDS):
        live = Live(graph)
        if live.peak <= limit:
            break
        better: list[tuple[tuple[int, float, float], int, int, _Plan]] = []
        for plan in _candidate_plans(graph, live, origin):
            peak = max(plan.peak, live.peak_outside(plan.first, plan.end) if whole else 0)
            if peak < live.peak:
                # Prefer less work if the plan fits, else less memory.
                fits = peak <= limit
                cost = (0, plan.cost, float(peak)) if fits else (1, float(peak), plan.cost)
                better.append((cost, plan.first, plan.end, plan))
        better.sort(key=lambda found: found[:3])
        made = ((_apply_plan(graph, found[3], origin), found[3].cost) for found in better)
        after, cost_of = next(((m, c) for m, c in made if m is not None), (None, 0.0))
        if after is None:
            break
        graph = after
        total += cost_of
    return _Banded(graph, origin, Live(graph).peak, total)


def _candidate_plans(graph: Graph, live: Live, origin: Iterable[str]) -> Iterator[_Plan]:
    """Yield band plans for chains that contain the node with the peak."""
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
                    plan = _estimate_plan(graph, live, first, end, count)
                    if plan is None:
                        break
                    yield plan


def _is_chain(graph: Graph, live: Live, first: int, end: int) -> bool:
    """Whether only the last node's output, an image, is used outside the chain."""
    chain = graph.nodes[first:end]
    last = chain[-1].outputs
    if any(len(n.outputs) != 1 or view_sources(graph.tensors, n) for n in chain):
        return False
    if len(graph.tensors[last[0]].shape) != 4 or graph.tensors[last[0]].shape[0] != 1:
        return False
    return all(live.last_reader(n.outputs[0]) < end for n in chain[:-1])


def _estimate_plan(graph: Graph, live: Live, first: int, end: int, count: int) -> _Plan | None:
    """Estimate a plan from its first, middle and last band; inner bands are like the middle one."""
    chain = graph.nodes[first:end]
    height = graph.tensors[chain[-1].outputs[0]].shape[H]
    around = live.beside(first, end, {n.outputs[0] for n in chain[:-1]})
    if around >= live.peak:
        return None
    cuts = even_cuts(H, height, -(-height // count))
    peak, rows, calls = 0, dict.fromkeys((n.name for n in chain), 0), 0
    for cut, times in ((cuts[0], 1), (cuts[len(cuts) // 2], len(cuts) - 2), (cuts[-1], 1)):
        steps = _band_steps(graph, chain, cut)
        if steps is None:
            return None
        peak = max(peak, _band_peak(graph, steps))
        calls += len(steps) * times
        for step in steps:
            rows[step.node.name] += step.rows.size * times
    extra = sum(
        _count_operations(graph, n) * max(rows[n.name] / _output_height(graph, n) - 1, 0)
        for n in chain
    )
    return _Plan(first, end, tuple(cuts), around + peak, extra + _CALL * calls)


def _output_height(graph: Graph, node: Node) -> int:
    return graph.tensors[node.outputs[0]].shape[H]


def _band_steps(graph: Graph, chain: Sequence[Node], rows: Cut) -> tuple[_Step, ...] | None:
    """Return the parts that compute `rows` of the chain's output, in execution order."""
    made = {n.outputs[0] for n in chain}
    wanted: dict[str, Cut] = {chain[-1].outputs[0]: rows}
    steps = []
    for node in reversed(chain):
        cut = wanted.get(node.outputs[0])
        if cut is None:
            continue  # this band would read only padding from it
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
    """Peak bytes of the images within a band, without the first input and the last output."""
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


def _count_operations(graph: Graph, node: Node) -> float:
    """Number of multiplications, or of elements if there are none."""
    out = graph.tensors[node.outputs[0]]
    weights = graph.tensors[node.inputs[1]] if len(node.inputs) > 1 and node.inputs[1] else None
    if weights is None or weights.data is None or len(weights.shape) != 4:
        return float(out.elements)
    return float(out.elements) * weights.elements / out.shape[3]


def _apply_plan(graph: Graph, plan: _Plan, origin: dict[str, str]) -> Graph | None:
    """Return the banded graph; None if a band turns out to be impossible."""
    chain = graph.nodes[plan.first : plan.end]
    bands = [_band_steps(graph, chain, cut) for cut in plan.cuts]
    if None in bands:
        return None
    builder = Builder(graph)
    for node in graph.nodes[: plan.first]:
        builder.add(node)
    parts = [_add_band(builder, steps, str(i)) for i, steps in enumerate(bands) if steps]
    out = graph.tensors[chain[-1].outputs[0]]
    builder.join(parts, H, [out], chain[-1].name)
    for node in graph.nodes[plan.end :]:
        builder.add(node)
    origin.update(builder.origin)
    return builder.finish()


def _add_band(builder: Builder, steps: Sequence[_Step], label: str) -> Node:
    """Add the parts of one band; returns the last."""
    band: dict[str, tuple[Tensor, int]] = {}  # the band's piece of each tensor, and its first row
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
