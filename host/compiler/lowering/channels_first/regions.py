"""Chooses which operators run on channels-first images, where sparse weights make that pay.

Every operator with kernels for both layouts has a cost in each, and every image between two of them
the cost of its transpose; a minimum cut finds the cheapest assignment for the entire graph. Regions
therefore convert only images that cross their border.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.host.compiler.costs.layout_table import CHAIN, LayoutTable
from edgekit.host.compiler.costs.layouts import LayoutCosts, Saved, saved_by_chain, transpose_cost
from edgekit.host.compiler.costs.methods.operators import Form, MethodCost, OperatorMethod
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.ops.channels_first import TO_NCHW, TO_NHWC
from edgekit.host.compiler.ir.types import Graph, Node, Tensor
from edgekit.host.compiler.lowering.channels_first.forms import (
    channels_first_form,
    costs,
    is_sparse,
    measured_form,
)
from edgekit.host.compiler.lowering.conv.chains import chain_for_time
from edgekit.host.compiler.lowering.groups import MethodGroups
from edgekit.host.compiler.lowering.methods import zero_tenths
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.compiler.transforms.passes.cut import TwoLabels
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import BoardProfile

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

    def costs(self, node: Node) -> LayoutCosts | None:
        return costs(self.graph, node, self.table, self.vl)


def choose_channels_first(
    graph: Graph,
    table: LayoutTable | None,
    vl: int,
    groups: MethodGroups | None = None,
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
    cheapest = _min_cost_nodes(costed)
    chosen = _surely_cheaper(costed, cheapest)
    if groups is not None:
        asked = (
            _select_region_nodes(costed, r, cheapest, chosen, groups) for r in _find_regions(costed)
        )
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
    for part in _connected_components(graph, cheapest):
        gains = _region_cost(costed, part, part) <= _MUST_TAKE * _region_cost(costed, part, set())
        kept |= part if gains and part & pruned else set()
    return kept


def _select_region_nodes(
    costed: _Costed, inside: set[str], cheapest: set[str], sure: set[str], groups: MethodGroups
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
    chosen = sure & inside or cheapest & inside or _min_cost_nodes(costed, first.name) & inside
    y, data = graph.tensors[first.outputs[0]].shape, graph.tensors[first.inputs[1] or ""].data
    assert data is not None
    n, k = data.shape[0], math.prod(data.shape[1:])
    form = Form(
        "region",
        GemmShape(math.prod(y[:3]), k, n),
        "f32",
        (y[0], y[1], y[2]),
        zeros=zero_tenths(data),
    )
    candidates = [
        MethodCost(OperatorMethod("in_place", "f32"), _region_cost(costed, inside, set())),
        MethodCost(OperatorMethod("sparse", "f32"), _region_cost(costed, inside, chosen), proven),
    ]
    around = {t for n in graph.nodes if n.name in inside for t in (*n.inputs, *n.outputs) if t}
    moves = {f"{t}{kind}" for t in around for kind in (".moved", ".nchw.moved")}
    method = groups.choose(first.name, form, candidates, inside, moves)
    return chosen if method.family == "sparse" else set()


def _dense_products(graph: Graph, node: Node) -> int:
    weights = graph.tensors[node.inputs[1] or ""]
    return graph.tensors[node.outputs[0]].elements * math.prod(weights.shape[1:])


def _find_regions(costed: _Costed) -> list[set[str]]:
    """Connected operators that all support channels-first images, at least one of them pruned."""
    graph, table, vl = costed.graph, costed.table, costed.vl
    able = {n.name for n in graph.nodes if measured_form(graph, n, table, vl) is not None}
    pruned = {n.name for n in graph.nodes if is_sparse(graph, n, table)}
    return [region for region in _connected_components(graph, able) if region & pruned]


def _connected_components(graph: Graph, names: set[str]) -> list[set[str]]:
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


def _region_cost(costed: _Costed, inside: set[str], chosen: set[str]) -> float:
    """Cost of a region with the operators `chosen` channels-first, including transposes."""
    graph, table = costed.graph, costed.table
    producer, consumers = graph.producer(), graph.consumers()
    kept = (s for s in costed.saved if s.names & inside and not s.names & chosen)
    total = -sum(s.cost for s in kept)
    for node in graph.nodes:
        found = costed.costs(node) if node.name in inside else None
        if found is not None:
            total += found.channels_first if node.name in chosen else found.channels_last
    for name, tensor in graph.tensors.items():
        if len(tensor.shape) == 4 and tensor.data is None:
            made = name in producer and producer[name].name in chosen
            users = {n.name in chosen for n in consumers[name]}
            users |= {False} if name in graph.outputs else set()
            total += transpose_cost(tensor, table) if users - {made} else 0.0
    return total


def _min_cost_nodes(costed: _Costed, forced: str = "") -> set[str]:
    """Names of the nodes to run channels-first at least cost; `forced` must be among them."""
    graph = costed.graph
    labels = TwoLabels()
    at: dict[str, int] = {}
    outside = labels.thing(0, math.inf)
    for node in graph.nodes:
        found = costed.costs(node)
        at[node.name] = outside
        if found is not None:
            last = math.inf if node.name == forced else found.channels_last
            at[node.name] = labels.thing(last, found.channels_first)
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
        self._channels_first: dict[str, str] = {}
        self._names = set(graph.tensors) | {n.name for n in graph.nodes}
        self._nodes: list[Node] = []

    def run(self) -> Graph:
        for node in self._graph.nodes:
            if node.name in self._chosen:
                self._emit_channels_first(node)
            else:
                for name in node.inputs:
                    self._to_channels_last(name)
                self._tensors |= {name: self._graph.tensors[name] for name in node.outputs}
                self._nodes.append(node)
        for name in self._graph.outputs:
            self._to_channels_last(name)
        return dataclasses.replace(self._graph, tensors=self._tensors, nodes=tuple(self._nodes))

    def _emit_channels_first(self, node: Node) -> None:
        op = channels_first_form(self._graph, node, 1)
        assert op is not None
        images = op.images if isinstance(op, ops.ChannelsFirst) else range(len(node.inputs))
        inputs = tuple(
            self._to_channels_first(name) if i in images and name is not None else name
            for i, name in enumerate(node.inputs)
        )
        self._nodes.append(
            Node(node.name, op, inputs, (self._new_channels_first(node.outputs[0]),))
        )

    def _new_channels_first(self, name: str) -> str:
        """Declares the channels-first version of a tensor without computing it."""
        old, own = self._graph.tensors[name], fresh_name(f"{name}.nchw", self._names)
        shape = tuple(old.shape[p] for p in TO_NCHW)
        self._tensors[own] = Tensor(own, shape, old.dtype)
        self._channels_first[name] = own
        return own

    def _to_channels_first(self, name: str) -> str:
        if name not in self._channels_first:
            own = self._new_channels_first(name)
            self._add_transpose(self._tensors[name], TO_NCHW, own)
        return self._channels_first[name]

    def _to_channels_last(self, name: str | None) -> None:
        if name is None or name in self._tensors:
            return
        self._tensors[name] = self._graph.tensors[name]
        self._add_transpose(self._tensors[self._channels_first[name]], TO_NHWC, name)

    def _add_transpose(self, x: Tensor, permutation: tuple[int, ...], name: str) -> None:
        long = [p for p in permutation if x.shape[p] != 1]
        shape = tuple(x.shape[p] for p in permutation)
        still = long == sorted(long)
        op = ops.Reshape(shape) if still else ops.Transpose(permutation)
        node = fresh_name(f"{name}.moved", self._names)
        self._nodes.append(Node(node, op, (x.name,), (name,)))


def channels_last_chains(
    graph: Graph,
    board: BoardProfile,
    table: LayoutTable | None,
    rows: KnowledgeBase,
    threads: int = 1,
) -> tuple[Saved, ...]:
    """Returns the savings of each chain that compile would build in a channels-last `graph`. They
    are lost if one of the chain's convolutions runs on channels-first images.

    Empty if nothing is pruned or the table has no cost for chains. For chains of three operators,
    only the savings of the last two are counted. Chains that `graph` has already stay anyway.
    """
    if table is None or not table.knows(CHAIN):
        return ()
    if not any(is_sparse(graph, node, table) for node in graph.nodes):
        return ()
    nodes = {node.name: node for node in graph.nodes}
    chained = chain_for_time(graph, board, rows, MethodGroups(board, rows, threads))
    pairs = [
        (nodes[node.op.names[-2]], nodes[node.op.names[-1]])
        for node in chained.nodes
        if type(node.op) is ops.RowChain
        and type(node.op.members[-1]) is ops.Conv2D
        and node.op.names[-2] in nodes
    ]
    every = [saved_by_chain(graph, pair, table, board.isa.vl) for pair in pairs]
    return tuple(saved for saved in every if saved.cost > 0)
