"""Chooses which operators run on channel-major images, where sparse weights make that pay.

Every operator with kernels for both layouts has a cost in each, and every image between two of them
the cost of its transpose; a minimum cut finds the cheapest assignment for the entire graph. Regions
therefore convert only images that cross their border.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.ops.planar import TO_PIXELS, TO_PLANES
from edgekit.host.compiler.ir.types import Graph, Node, Tensor
from edgekit.host.compiler.lowering.channels_first.region_costs import (
    Costs,
    Saved,
    costs,
    is_sparse,
    measured_form,
    planar_form,
    tenths,
    transpose_cost,
)
from edgekit.host.compiler.lowering.groups import Groups
from edgekit.host.compiler.tables.layout_table import LayoutTable
from edgekit.host.compiler.transforms.passes.cut import TwoLabels
from edgekit.kb.features import GemmShape
from edgekit.kb.tables.operators import Candidate, Form, OperatorMethod

# Required ratio of estimated cost to channels-last cost. Estimates of regions that gain are off by
# at most 0.08, and in three detectors every region estimated above 0.95 was slower on the A72.
_MUST_TAKE = 0.95


@dataclass(frozen=True, eq=False)
class _Costed:
    """A graph with the inputs to its layout decision."""

    graph: Graph
    table: LayoutTable
    vl: int
    saved: Sequence[Saved]

    def costs(self, node: Node) -> Costs | None:
        return costs(self.graph, node, self.table, self.vl)


def choose_channels_first(
    graph: Graph,
    table: LayoutTable | None,
    vl: int,
    groups: Groups | None = None,
    saved: Sequence[Saved] = (),
) -> Graph:
    """Converts operators that are cheaper channels-first; adds transposes at region borders.

    `vl` is the number of floats per vector. Without a table the graph is returned unchanged. A
    region's entry in `groups` overrides its cost. `saved` are savings from keeping operators
    channels-last.
    """
    if table is None or not any(is_sparse(graph, n, table) for n in graph.nodes):
        return graph
    costed = _Costed(graph, table, vl, saved)
    cheapest = _cheapest(costed)
    chosen = _surely_cheaper(costed, cheapest)
    if groups is not None:
        asked = (_region(costed, r, cheapest, chosen, groups) for r in _regions(costed))
        chosen = {name for names in asked for name in names}
    return _Rewrite(graph, chosen).run() if chosen else graph


def _surely_cheaper(costed: _Costed, cheapest: set[str]) -> set[str]:
    """The operators that remain cheaper channels-first even if the costs have their usual error.

    Decided per connected region, including its transposes. Regions without a pruned operator are
    dropped, since their gain is within the error.
    """
    graph, table = costed.graph, costed.table
    pruned = {n.name for n in graph.nodes if is_sparse(graph, n, table)}
    kept = set()
    for part in _joined(graph, cheapest):
        gains = _cost(costed, part, part) <= _MUST_TAKE * _cost(costed, part, set())
        kept |= part if gains and part & pruned else set()
    return kept


def _region(
    costed: _Costed, inside: set[str], cheapest: set[str], sure: set[str], groups: Groups
) -> set[str]:
    """Returns the operators of a region that run channels-first; empty if none do.

    These are the ones in `sure`. If there are none, only a knowledge base row can request
    conversion; then it is the cheapest set, which is forced to include the largest pruned
    convolution.
    """
    graph, table = costed.graph, costed.table
    first = max(
        (n for n in graph.nodes if n.name in inside and is_sparse(graph, n, table)),
        key=lambda n: _dense_products(graph, n),
    )
    proven = bool(sure & inside)
    planes = sure & inside or cheapest & inside or _cheapest(costed, first.name) & inside
    y, data = graph.tensors[first.outputs[0]].shape, graph.tensors[first.inputs[1] or ""].data
    assert data is not None
    n, k = data.shape[0], math.prod(data.shape[1:])
    form = Form(
        "region", GemmShape(math.prod(y[:3]), k, n), "f32", (y[0], y[1], y[2]), zeros=tenths(data)
    )
    candidates = [
        Candidate(OperatorMethod("in_place", "f32"), _cost(costed, inside, set())),
        Candidate(OperatorMethod("sparse", "f32"), _cost(costed, inside, planes), proven),
    ]
    around = {t for n in graph.nodes if n.name in inside for t in (*n.inputs, *n.outputs) if t}
    moves = {f"{t}{kind}" for t in around for kind in (".moved", ".planes.moved")}
    method = groups.choose(first.name, form, candidates, inside, moves)
    return planes if method.family == "sparse" else set()


def _dense_products(graph: Graph, node: Node) -> int:
    weights = graph.tensors[node.inputs[1] or ""]
    return graph.tensors[node.outputs[0]].elements * math.prod(weights.shape[1:])


def _regions(costed: _Costed) -> list[set[str]]:
    """Connected operators that all support channel-major images, at least one of them pruned."""
    graph, table, vl = costed.graph, costed.table, costed.vl
    able = {n.name for n in graph.nodes if measured_form(graph, n, table, vl) is not None}
    pruned = {n.name for n in graph.nodes if is_sparse(graph, n, table)}
    return [region for region in _joined(graph, able) if region & pruned]


def _joined(graph: Graph, names: set[str]) -> list[set[str]]:
    """The connected components of `names`, linked by images between members."""
    producer = graph.producer()
    part: dict[str, set[str]] = {}
    for node in graph.nodes:
        if node.name not in names:
            continue
        mine = part[node.name] = {node.name}
        for name in node.inputs:
            before = producer.get(name or "")
            if before is not None and before.name in names:
                mine |= part[before.name]
        for name in mine:
            part[name] = mine
    return list({id(each): each for each in part.values()}.values())


def _cost(costed: _Costed, inside: set[str], planes: set[str]) -> float:
    """Cost of a region with the operators `planes` channels-first, including transposes."""
    graph, table = costed.graph, costed.table
    producer, consumers = graph.producer(), graph.consumers()
    kept = (s for s in costed.saved if s.names & inside and not s.names & planes)
    total = -sum(s.cost for s in kept)
    for node in graph.nodes:
        found = costed.costs(node) if node.name in inside else None
        if found is not None:
            total += found.planes if node.name in planes else found.pixels
    for name, tensor in graph.tensors.items():
        if len(tensor.shape) == 4 and tensor.data is None:
            made = name in producer and producer[name].name in planes
            users = {n.name in planes for n in consumers[name]}
            users |= {False} if name in graph.outputs else set()
            total += transpose_cost(tensor, table) if users - {made} else 0.0
    return total


def _cheapest(costed: _Costed, forced: str = "") -> set[str]:
    """Names of the nodes to run channels-first at least cost; `forced` must be among them."""
    graph = costed.graph
    labels = TwoLabels()
    at: dict[str, int] = {}
    outside = labels.thing(0, math.inf)
    for node in graph.nodes:
        found = costed.costs(node)
        at[node.name] = outside
        if found is not None:
            pixels = math.inf if node.name == forced else found.pixels
            at[node.name] = labels.thing(pixels, found.planes)
    producer, consumers = graph.producer(), graph.consumers()
    for name, tensor in graph.tensors.items():
        if len(tensor.shape) != 4 or tensor.data is not None:
            continue
        made = at[producer[name].name] if name in producer else outside
        users = {at[n.name] for n in consumers[name]}
        users |= {outside} if name in graph.outputs else set()
        if users - {made}:
            labels.convert_between(made, users, transpose_cost(tensor, costed.table))
    for together in costed.saved:
        labels.saved_together((at[name] for name in together.names), together.cost)
    second = labels.second_label()
    return {name for name, number in at.items() if second[number]}


class _Rewrite:
    """Rebuilds the graph; a tensor may exist channels-last, channels-first, or both."""

    def __init__(self, graph: Graph, chosen: set[str]) -> None:
        self._graph, self._chosen = graph, chosen
        self._tensors = {
            n: t for n, t in graph.tensors.items() if t.data is not None or n in graph.inputs
        }
        self._planes: dict[str, str] = {}
        self._names = set(graph.tensors) | {n.name for n in graph.nodes}
        self._nodes: list[Node] = []

    def run(self) -> Graph:
        for node in self._graph.nodes:
            if node.name in self._chosen:
                self._on_planes(node)
            else:
                for name in node.inputs:
                    self._as_pixels(name)
                self._tensors |= {name: self._graph.tensors[name] for name in node.outputs}
                self._nodes.append(node)
        for name in self._graph.outputs:
            self._as_pixels(name)
        return dataclasses.replace(self._graph, tensors=self._tensors, nodes=tuple(self._nodes))

    def _on_planes(self, node: Node) -> None:
        op = planar_form(self._graph, node, 1)
        assert op is not None
        images = op.images if isinstance(op, ops.Planar) else range(len(node.inputs))
        inputs = tuple(
            self._as_planes(name) if i in images and name is not None else name
            for i, name in enumerate(node.inputs)
        )
        self._nodes.append(Node(node.name, op, inputs, (self._new_planes(node.outputs[0]),)))

    def _new_planes(self, name: str) -> str:
        """Declares the channel-major version of a tensor without computing it."""
        old, own = self._graph.tensors[name], fresh_name(f"{name}.planes", self._names)
        shape = tuple(old.shape[p] for p in TO_PLANES)
        self._tensors[own] = Tensor(own, shape, old.dtype)
        self._planes[name] = own
        return own

    def _as_planes(self, name: str) -> str:
        if name not in self._planes:
            own = self._new_planes(name)
            self._move(self._tensors[name], TO_PLANES, own)
        return self._planes[name]

    def _as_pixels(self, name: str | None) -> None:
        if name is None or name in self._tensors:
            return
        self._tensors[name] = self._graph.tensors[name]
        self._move(self._tensors[self._planes[name]], TO_PIXELS, name)

    def _move(self, x: Tensor, permutation: tuple[int, ...], name: str) -> None:
        long = [p for p in permutation if x.shape[p] != 1]
        shape = tuple(x.shape[p] for p in permutation)
        still = long == sorted(long)
        op = ops.Reshape(shape) if still else ops.Transpose(permutation)
        node = fresh_name(f"{name}.moved", self._names)
        self._nodes.append(Node(node, op, (x.name,), (name,)))
