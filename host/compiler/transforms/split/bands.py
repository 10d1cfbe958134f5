"""Plans chains of operators in bands: a few rows (images, heads) of the last output at a time.

The tensors within a chain never exist in full. Rows that neighboring bands both need are computed
twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from edgekit.host.compiler.ir.ops import DepthToSpace, Reshape, Transpose
from edgekit.host.compiler.ir.types import Graph, Node, Tensor
from edgekit.host.compiler.ir.views import view_sources
from edgekit.host.compiler.transforms.split.build import SplitBuilder, even_cuts
from edgekit.host.compiler.transforms.split.cut import (
    Cut,
    Piece,
    Site,
    cut_bytes,
    lies_together,
    site_of,
)
from edgekit.host.compiler.transforms.split.cutters import H, W, cut_node, same_axis
from edgekit.host.compiler.transforms.split.live import Live
from edgekit.host.compiler.transforms.split.work import CALL, count_operations

_LONGEST = 36  # maximum number of operators per chain
_COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 32)  # bands per chain


@dataclass(frozen=True)
class Step:
    """A node of a chain in one band, with its part and the piece of its outputs.

    `views` maps outputs to the tensor in whose memory they are; `own` are the bytes of the other
    pieces of outputs, `copied` those of pieces of inputs that are not contiguous.
    """

    node: Node
    part: Piece
    piece: Cut
    views: Mapping[str, str]
    own: Mapping[str, int]
    copied: int
    share: float  # of the node's work


def _step_of(graph: Graph, node: Node, part: Piece, piece: Cut) -> Step:
    tensors = graph.tensors
    views = view_sources(tensors, node)
    own = {t: cut_bytes(tensors[t], piece) for t in node.outputs if t not in views}
    copied = 0
    for name, read in zip(node.inputs, part.inputs, strict=True):
        tensor = None if name is None else tensors[name]
        if tensor is None or tensor.data is not None or read is None:
            continue
        if not lies_together(tensor.shape, read.axis):
            copied += cut_bytes(tensor, read)
    share = piece.size / tensors[node.outputs[0]].shape[piece.axis]
    return Step(node, part, piece, views, own, copied, share)


@dataclass(frozen=True)
class BandPlan:
    """The `chain`, which is among the nodes `first` to `end` (excluded), in bands of the last
    node's output; `peak` bytes are alive, and `cost` is the additional work in multiplications."""

    first: int
    end: int
    chain: tuple[Node, ...]
    cuts: tuple[Cut, ...]
    peak: int
    cost: float


def candidate_plans(graph: Graph, live: Live, origin: Iterable[str]) -> Iterator[BandPlan]:
    """Yield band plans for chains that contain the node with the peak."""
    worst = live.worst
    done = set(origin)
    parts = Parts(graph)
    for first in range(worst, max(worst - _LONGEST, -1), -1):
        if graph.nodes[first].name in done:
            return
        for end in range(max(worst, first) + 1, min(first + _LONGEST, len(graph.nodes)) + 1):
            if graph.nodes[end - 1].name in done:
                break
            chain = find_chain(graph, live, first, end)
            if chain is None:
                continue
            out = graph.tensors[chain[-1].outputs[0]]
            for axis in _axes(chain[-1], out):
                for count in _COUNTS:
                    if count <= out.shape[axis]:
                        plan = _estimate_plan(parts, live, chain, (first, end), axis, count)
                        if plan is None:
                            break
                        yield plan


def _axes(node: Node, out: Tensor) -> list[int]:
    """The axes along which parts of a node write their pieces in place: the outermost, where
    pieces are contiguous, and any of a transpose."""
    axes = [axis for axis, size in enumerate(out.shape) if size > 1]
    return axes if isinstance(node.op, Transpose) else axes[:1]


def find_chain(graph: Graph, live: Live, first: int, end: int) -> tuple[Node, ...] | None:
    """The nodes from `first` to `end` (excluded) that the last one needs.

    None unless only its output is used by any other node.
    """
    last = graph.nodes[end - 1]
    if len(last.outputs) != 1 or not graph.tensors[last.outputs[0]].shape:
        return None
    needed, chain = set(last.inputs), [last]
    read_elsewhere: set[str | None] = set()  # what the other nodes read
    for node in reversed(graph.nodes[first : end - 1]):
        if needed.isdisjoint(node.outputs):
            read_elsewhere.update(node.inputs)
            continue
        if not node.outputs or any(live.last_reader(t) >= end for t in node.outputs):
            return None
        if not read_elsewhere.isdisjoint(node.outputs):
            return None
        needed.update(node.inputs)
        chain.append(node)
    return tuple(reversed(chain))


def _cut_members(parts: Parts, chain: Sequence[Node], band: Cut) -> tuple[Node, ...]:
    """The nodes of a chain that can run in bands like `band` of its output.

    Nodes whose entire output each band reads, such as the keys and values of attention, run first.
    Empty if a node cannot be cut.
    """
    made = {t for node in chain for t in node.outputs}
    wanted = {chain[-1].outputs[0]: band}
    whole: set[str | None] = set()
    members = []
    for node in reversed(chain):
        if not whole.isdisjoint(node.outputs):
            whole.update(node.inputs)
            continue
        cut = union(wanted[t] for t in node.outputs if t in wanted)
        step = None if cut is None else parts.step(node, cut, exact=node is chain[-1])
        if step is None:
            return ()
        members.append(node)
        for name, piece in zip(node.inputs, step.part.inputs, strict=True):
            if name is None or name not in made:
                continue
            if piece is None:
                whole.add(name)
            elif (joined := union((wanted.get(name, piece), piece))) is not None:
                wanted[name] = joined
            else:
                return ()
    return tuple(reversed(members))


def _bytes_around(live: Live, chain: Sequence[Node], window: tuple[int, int]) -> int:
    """Bytes alive around the bands of a chain. Its output exists in full, also where it is a view
    now; `chain` is empty if it cannot be cut."""
    inside = {t for node in chain[:-1] for t in node.outputs}
    return live.around(*window, inside) + sum(
        live.bytes_of_view(t) for node in chain[-1:] for t in node.outputs
    )


def _estimate_plan(
    parts: Parts,
    live: Live,
    chain: tuple[Node, ...],
    window: tuple[int, int],
    axis: int,
    count: int,
) -> BandPlan | None:
    """Estimate a plan from its first, middle and last band; inner bands are like the middle one."""
    graph = parts.graph
    out = graph.tensors[chain[-1].outputs[0]]
    if _bytes_around(live, chain, window) >= live.peak:
        return None
    cuts = even_cuts(axis, out.shape[axis], -(-out.shape[axis] // count))
    made = parts.chain_in_bands(chain, cuts)
    if made is None:
        return None
    around = _bytes_around(live, made.chain, window)
    extra = sum(count_operations(graph, n) * max(made.done[n.name] - 1, 0) for n in made.chain)
    return BandPlan(*window, made.chain, tuple(cuts), around + made.peak, extra + CALL * made.calls)


@dataclass(frozen=True)
class ChainInBands:
    """What a chain needs in bands: `peak` bytes are alive within one, `done` says how often the
    work of each node is done, in `calls` parts of nodes. `copied` are bytes of pieces of inputs,
    by node, that are not contiguous."""

    chain: tuple[Node, ...]
    peak: int
    done: Mapping[str, float]
    calls: int
    copied: Mapping[str, int]


class Parts:
    """The parts of a graph's nodes, each made once however many bands share it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._steps: dict[tuple[str, Cut, bool], Step | None] = {}
        self._bands: dict[tuple[str, Cut], _Band] = {}

    def band(self, last: Node, piece: Cut) -> _Band:
        """The band that ends with a piece of the last node's output, shared by all its chains."""
        key = last.name, piece
        if key not in self._bands:
            self._bands[key] = _Band(self, last, piece)
        return self._bands[key]

    def chain_in_bands(self, chain: tuple[Node, ...], cuts: Sequence[Cut]) -> ChainInBands | None:
        """Estimated from the first, middle and last of the `cuts` of the last node's output; inner
        bands are like the middle one. None if the chain cannot be cut like that."""
        places = (cuts[0], cuts[len(cuts) // 2], cuts[-1])
        known = [self.band(chain[-1], cut) for cut in places]
        found = [known[0].steps(chain)]
        if found[0] is None:
            chain = _cut_members(self, chain, cuts[0])
            bands = [_Band(self, chain[-1], cut) for cut in places] if chain else []
            found = [band.steps(chain) for band in bands] or [None]
        else:
            found += [band.steps(chain) for band in known[1:]]
        peak, done, calls = 0, dict.fromkeys((n.name for n in chain), 0.0), 0
        copied = dict.fromkeys(done, 0)
        for steps, times in zip(found, (1, len(cuts) - 2, 1), strict=False):
            if steps is None:
                return None
            peak = max(peak, _band_peak(steps))
            calls += len(steps) * times
            for step in steps:
                done[step.node.name] += step.share * times
                copied[step.node.name] += step.copied * times
        return ChainInBands(chain, peak, done, calls, copied)

    def step(self, node: Node, cut: Cut, exact: bool) -> Step | None:
        """The part that computes a piece of the outputs, `exact` or the smallest possible one
        around it; None if the node cannot be cut like that."""
        key = node.name, cut, exact
        if key not in self._steps:
            site = site_of(self.graph.tensors, node)
            piece = cut if exact else _in_whole_steps(site, cut)
            part = cut_node(site, piece)
            made = None if part is None else _step_of(self.graph, node, part, piece)
            self._steps[key] = made
        return self._steps[key]


class _Band:
    """The parts that compute a piece of a tensor, found from the last one on: what is found for a
    chain serves longer ones with the same end."""

    def __init__(self, parts: Parts, last: Node, piece: Cut) -> None:
        self._parts = parts
        self._last = last
        self._wanted: dict[str, Cut | None] = {last.outputs[0]: piece}  # None: impossible
        self._walked = 0
        self._steps: list[Step] = []
        self._failed = False

    def steps(self, chain: Sequence[Node]) -> tuple[Step, ...] | None:
        """In execution order; None if a node of the chain cannot be cut."""
        for node in reversed(chain[: len(chain) - self._walked]):
            self._failed = self._failed or not self._add(node)
        self._walked = len(chain)
        return None if self._failed else tuple(reversed(self._steps))

    def _add(self, node: Node) -> bool:
        """Whether the node can be cut as later ones want it."""
        wanted = [self._wanted[t] for t in node.outputs if t in self._wanted]
        if not wanted:
            return True  # this band would read only padding from it
        pieces = [piece for piece in wanted if piece is not None]
        cut = union(pieces) if len(pieces) == len(wanted) else None
        step = None if cut is None else self._parts.step(node, cut, exact=node is self._last)
        if step is None:
            return False
        self._steps.append(step)
        for name, piece in zip(node.inputs, step.part.inputs, strict=True):
            if name is not None:
                before = self._wanted.get(name, piece)
                self._wanted[name] = union((before, piece)) if before and piece else None
        return True


def _in_whole_steps(site: Site, cut: Cut) -> Cut:
    """The smallest piece around `cut` at whose ends the operator can be cut: pixels that come from
    channels, and axes that others were merged into, have steps."""
    op, out, step = site.node.op, site.outs[0].shape, 1
    if isinstance(op, DepthToSpace) and cut.axis in (H, W):
        step = op.block
    elif isinstance(op, Reshape):
        source = site.operand(0).shape
        axis = same_axis(source, out, cut.axis)
        inner = 1 if axis is None else math.prod(source[axis + 1 :])
        step = inner // math.gcd(inner, math.prod(out[cut.axis + 1 :]))
    begin, end = cut.begin // step * step, -(-cut.end // step) * step
    return Cut(cut.axis, begin, min(end, out[cut.axis]))


def union(cuts: Iterable[Cut]) -> Cut | None:
    """The smallest cut that contains all; None if there are none, or along different axes."""
    found = list(cuts)
    if len(found) == 1:
        return found[0]
    if len({c.axis for c in found}) != 1:
        return None
    return Cut(found[0].axis, min(c.begin for c in found), max(c.end for c in found))


def _band_peak(steps: Sequence[Step]) -> int:
    """Peak bytes within a band, without the first input and the last output."""
    root: dict[str, str] = {}  # the tensor whose memory holds a view
    last: dict[str, int] = {}
    for i, step in enumerate(steps):
        root.update((t, root.get(source, source)) for t, source in step.views.items())
        last.update((root.get(t, t), i) for t in (*step.node.inputs, *step.node.outputs) if t)
    alive = most = 0
    frees: dict[int, int] = {}
    for i, step in enumerate(steps):
        if i + 1 < len(steps):
            for name, size in step.own.items():
                alive += size
                frees[last[name]] = frees.get(last[name], 0) + size
        most = max(most, alive + step.copied)
        alive -= frees.get(i, 0)
    return most


def apply_plan(graph: Graph, plan: BandPlan, origin: dict[str, str]) -> Graph | None:
    """Return the banded graph; None if a band turns out to be impossible."""
    nodes = Parts(graph)
    bands = [_Band(nodes, plan.chain[-1], cut).steps(plan.chain) for cut in plan.cuts]
    if None in bands:
        return None
    builder = SplitBuilder(graph)
    inside = {node.name for node in plan.chain}
    for node in graph.nodes[: plan.end]:
        if node.name not in inside:
            builder.add(node)
    parts = [_add_band(builder, steps, str(i)) for i, steps in enumerate(bands) if steps]
    last = plan.chain[-1]
    builder.join(parts, plan.cuts[0].axis, [graph.tensors[last.outputs[0]]], last.name)
    for node in graph.nodes[plan.end :]:
        builder.add(node)
    origin.update(builder.origin)
    return builder.finish()


def _add_band(builder: SplitBuilder, steps: Sequence[Step], label: str) -> Node:
    """Add the parts of one band; returns the last."""
    band: dict[str, tuple[Tensor, int]] = {}  # the band's piece of each tensor, and where it begins
    added: Node | None = None
    for step in steps:
        site = site_of(builder.tensors, step.node)
        ins, cuts = list(site.ins), list(step.part.inputs)
        for i, tensor in enumerate(site.ins):
            piece = cuts[i]
            if tensor is not None and tensor.name in band and piece is not None:
                made, at = band[tensor.name]
                ins[i], cuts[i] = made, Cut(piece.axis, piece.begin - at, piece.end - at)
        added = builder.part(
            Site(step.node, tuple(ins), site.outs),
            replace(step.part, inputs=tuple(cuts)),
            step.piece,
            label,
            step.node.name,
        )
        for name, own in zip(step.node.outputs, added.outputs, strict=True):
            band[name] = (builder.tensors[own], step.piece.begin)
    assert added is not None
    return added
