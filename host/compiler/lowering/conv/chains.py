"""Chooses convolutions to run as a chain (ops.RowChain).

A chain pays if the image between two convolutions would leave the core's cache or does not fit into
memory. Measured: chains gain if two operators touch more than the core's last-level cache holds,
and cost a few percent if everything stays there (host/compiler/costs/chain.py). On x86 and A53 the
bytes touched decide.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from edgekit.host.compiler.costs.chain import STRIPS, Between, beyond_caches
from edgekit.host.compiler.costs.methods.operators import (
    Form,
    Kind,
    MethodCost,
    OperatorMethod,
    candidates_of,
    panel_outer,
)
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.chains import with_chains
from edgekit.host.compiler.ir.checks import FLOATS
from edgekit.host.compiler.ir.types import Graph, Node, Tensor
from edgekit.host.compiler.lowering.common.window import window_of
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.conv.row_chain import cut
from edgekit.host.compiler.lowering.groups import MethodGroups
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.compiler.transforms.passes.rewrite import Users
from edgekit.host.compiler.transforms.split.live import Live
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import BoardProfile, caches_of

# Targets that chain by bytes touched: x86-64 has no memory cost model, and the A53 gains more by
# chaining the largest images first. Per-site costs do not see that two sites may compete for one
# pointwise convolution, which made MobileNet 0.25 4% slower on the A53.
_BY_SIZE = frozenset({"x86_64", "cortex-a53"})
# Multiple of L2 that counts as large; most profiles state only the minimum L2 of their cores.
_MUCH = 2
_MUCH_WHERE_L2_IS_SURE = MappingProxyType({"x86-64-v4-amx": 1})
_SHARE = 0.25  # fraction of touched bytes above which copying shared window rows pays
NO_CHAINS: Mapping[str, tuple[Node, ...]] = MappingProxyType({})


@dataclass(frozen=True)
class _Link:
    """Two convolutions connected by an image that nothing else reads."""

    image: Tensor
    before: Node
    after: Node
    touched: int  # bytes of the images read and written by both

    @property
    def is_behind(self) -> bool:
        """True if the image is the depthwise result, of which no row is needed twice."""
        return isinstance(self.before.op, ops.DepthwiseConv2D)


@dataclass(frozen=True)
class _Site:
    """A depthwise convolution and its candidate links: the one after it, then the one before it.

    The pointwise convolution of the latter belongs to no other site.
    """

    links: tuple[_Link, ...]

    @property
    def node(self) -> Node:
        return self.links[0].before

    @property
    def names(self) -> set[str]:
        return {node.name for k in self.links for node in (k.before, k.after)}


def chain_for_time(
    graph: Graph, board: BoardProfile, table: KnowledgeBase, groups: MethodGroups | None = None
) -> Graph:
    """Chains convolutions where that costs less than running them separately.

    A chain may not increase peak memory, although its input and output are live together. Boards
    with unknown memory costs get no chains. Entries of `groups` for a depthwise convolution and its
    neighbors override the costs.
    """
    links = _find_links(graph, board)
    empty = _Chains(graph, Context(graph, board.isa, board, table))
    sites = {site.node.name: site for site in _group_sites(links)}
    costs = {name: _costs_by_length(empty, site, board) for name, site in sites.items()}
    if not _BY_SIZE.isdisjoint((board.arch, *board.platforms)):
        usual = _for_time(empty, links, board)
    else:
        usual = _build_chains(
            empty, sites, {k: min(p, key=lambda n: p[n]) for k, p in costs.items()}
        )
    if groups is None:
        return usual.graph
    today = {name: usual.members_at(site.node) for name, site in sites.items()}
    wanted = {
        name: _by_rows(graph, site, costs[name], today[name], groups)
        for name, site in sites.items()
    }
    return usual.graph if wanted == today else _build_chains(empty, sites, wanted).graph


def _build_chains(
    empty: _Chains, sites: Mapping[str, _Site], members: Mapping[str, int]
) -> _Chains:
    """Chains `members` operators at each site, keyed by site name."""
    made = empty
    for name in sorted(members):
        made = made.joined_all(sites[name].links[: members[name] - 1]) or made
    return made


def _for_time(made: _Chains, links: Sequence[_Link], board: BoardProfile) -> _Chains:
    """Chains the links that touch more than the cache limit."""
    much = _MUCH_WHERE_L2_IS_SURE.get(board.platform, _MUCH) * caches_of(board).l2
    large = [k for k in links if k.touched > much]
    large = [k for k in large if k.is_behind or k.image.bytes >= k.touched * _SHARE]
    for link in sorted(large, key=lambda k: -k.image.bytes):
        made = made.joined_all((link,)) or made
    return made.ending_pointwise()


def _group_sites(links: Sequence[_Link]) -> list[_Site]:
    """The sites in graph order."""
    behind = {k.before.name: k for k in links if k.is_behind}
    ends = {k.after.name for k in behind.values()}
    before = {k.after.name: k for k in links if not k.is_behind and k.before.name not in ends}
    return [_Site((k, before[name]) if name in before else (k,)) for name, k in behind.items()]


def _costs_by_length(empty: _Chains, site: _Site, board: BoardProfile) -> dict[int, float]:
    """The cost of a site by chain length: products, and images between unchained operators."""
    graph = empty.graph
    nodes = {node.name: node for k in site.links for node in (k.before, k.after)}
    products = sum(_product_cost(graph, node, board) for node in nodes.values())
    between = [beyond_caches(board, Between(k.image.bytes, k.touched)) for k in site.links]
    most = [i for i in range(1, len(site.links) + 1) if empty.joined_all(site.links[:i])]
    chains = {i + 1: products * (1 + STRIPS) + sum(between[i:]) for i in most}
    return {1: products + sum(between), **chains}


def _product_cost(graph: Graph, node: Node, board: BoardProfile) -> float:
    form = _member_form(
        graph, node, "depthwise" if isinstance(node.op, ops.DepthwiseConv2D) else "conv"
    )
    isa = board.isa.of_half if form.dtype == "f16" else board.isa
    return min(c.cost for c in candidates_of(form, isa, board) if c.proven)


def _member_form(graph: Graph, node: Node, kind: Kind) -> Form:
    """The form of a chain member's product, as if it ran separately."""
    x, w, y = (graph.tensors[t or ""] for t in (*node.inputs[:2], *node.outputs))
    assert isinstance(node.op, ops.Conv2D | ops.DepthwiseConv2D)
    window = window_of(node.op, x, w, y)
    k = window.k if isinstance(node.op, ops.Conv2D) else math.prod(window.kernel)
    shape = GemmShape(window.pixels, k, y.shape[3])
    return Form(
        kind, shape, x.dtype.value, window.y[:3], window.kernel, window.stride, window.dilation
    )


def _by_rows(
    graph: Graph, site: _Site, costs: Mapping[int, float], today: int, groups: MethodGroups
) -> int:
    """The chain length at a site. `today` may be a chain that includes another site's operator,
    whose cost is unknown."""
    form = _member_form(graph, site.node, "chain")
    known = {today: min(costs.values()), **costs}
    candidates = [
        MethodCost(
            OperatorMethod("chain" if n > 1 else "depthwise", form.dtype, members=n),
            cost,
            n == today,
        )
        for n, cost in sorted(known.items())
    ]
    return groups.choose(site.node.name, form, candidates, site.names).members


def chain_for_memory(graph: Graph, board: BoardProfile, table: KnowledgeBase, limit: int) -> Graph:
    """Adds chains that reduce peak memory until at most `limit` bytes are live or none helps."""
    links = _find_links(graph, board)
    made = _Chains(graph, Context(graph, board.isa, board, table))
    while (live := Live(made.graph)).peak > limit:
        alive = _images_across(made.graph, live.worst)
        tried = (made.joined(k) for k in links if k.image.name in alive)
        better = [m for m in tried if m is not None]
        least = min(better, key=lambda m: Live(m.graph).summit, default=made)
        if Live(least.graph).summit >= live.summit:
            break
        made = least
    return made.graph


def _images_across(graph: Graph, at: int) -> set[str]:
    """Tensors produced at or before node `at` and read at or after it."""
    made = {t for node in graph.nodes[: at + 1] for t in node.outputs}
    return made & {t for node in graph.nodes[at:] for t in node.inputs if t is not None}


def _find_links(graph: Graph, board: BoardProfile) -> list[_Link]:
    """All links; none on boards with separate units for products, since an operator runs on one
    unit."""
    if board.nna is not None or any(u.kind in ("matrix", "vector") for u in board.speeds):
        return []
    users = Users(graph)
    found = []
    for node in graph.nodes:
        after = users.only_consumer(node.outputs[0]) if node.outputs else None
        if after is None or not _are_linked(graph, board, node, after):
            continue
        if after.inputs[0] != node.outputs[0] or after.inputs.count(node.outputs[0]) != 1:
            continue
        images = [graph.tensors[t or ""] for t in (node.inputs[0], *node.outputs, *after.outputs)]
        found.append(_Link(images[1], node, after, sum(t.bytes for t in images)))
    return found


def _are_linked(graph: Graph, board: BoardProfile, before: Node, after: Node) -> bool:
    kinds = (type(before.op), type(after.op))
    if kinds not in ((ops.Conv2D, ops.DepthwiseConv2D), (ops.DepthwiseConv2D, ops.Conv2D)):
        return False
    return all(_may_be_member(graph, board, node) for node in (before, after))


def _may_be_member(graph: Graph, board: BoardProfile, node: Node) -> bool:
    """True for a single image and constant operands of one type if the kernel rereads weights per
    tile."""
    x, w, *rest = (None if t is None else graph.tensors[t] for t in node.inputs)
    y = graph.tensors[node.outputs[0]]
    if x is None or w is None or w.data is None or x.shape[0] != 1 or x.data is not None:
        return False
    if len({x.dtype, w.dtype, y.dtype}) != 1 or not (x.dtype in FLOATS or x.dtype.is_quantized):
        return False
    if rest and rest[0] is not None and rest[0].data is None:
        return False
    op = node.op
    if isinstance(op, ops.DepthwiseConv2D):
        return op.multiplier == 1 and x.shape[3] > 1
    assert isinstance(op, ops.Conv2D)
    plain = w.shape[1:3] == (1, 1) and op.stride == (1, 1) and not op.padding.any
    return plain and not panel_outer(board, w.bytes)


class _Chains:
    """A graph with some links chained; each chain replaces its last member."""

    def __init__(
        self,
        plain: Graph,
        context: Context,
        chain: Mapping[str, tuple[Node, ...]] = NO_CHAINS,
        live: Live | None = None,
    ) -> None:
        self._plain, self._context = plain, context
        self._chain = chain  # keyed by the name of each member
        self._live = live or Live(plain)

    @functools.cached_property
    def graph(self) -> Graph:
        return with_chains(self._plain, self._chain) if self._chain else self._plain

    def members_at(self, node: Node) -> int:
        """The length of the chain that contains `node`, at least 1."""
        return len(self._chain.get(node.name, (node,)))

    def joined_all(self, links: Iterable[_Link]) -> _Chains | None:
        """Chains several more links; None if one cannot be chained or peak memory would exceed that
        without chains."""
        made: _Chains | None = self
        for link in links:
            made = made and made.joined(link)
        return made if made is not None and made._fits() else None

    def _fits(self) -> bool:
        """Whether peak memory is at most that without chains.

        The bound decides nearly always; live bytes of the whole graph for each of its chains would
        take time quadratic in its size.
        """
        limit = self._live.peak
        chains = {nodes[-1].name: nodes for nodes in self._chain.values()}
        return self._live.peak_if_joined(chains.values()) <= limit or Live(self.graph).peak <= limit

    def ending_pointwise(self) -> _Chains:
        """Drops chains that end with the depthwise convolution, which gain nothing
        (docs/performance.md)."""
        kept = {k: v for k, v in self._chain.items() if isinstance(v[-1].op, ops.Conv2D)}
        return _Chains(self._plain, self._context, kept, self._live)

    def joined(self, link: _Link) -> _Chains | None:
        """Chains one more link.

        Returns None unless the chain has exactly one depthwise convolution and its rows fit the
        buffer.
        """
        before = self._chain.get(link.before.name, (link.before,))
        after = self._chain.get(link.after.name, (link.after,))
        both = (*before, *after)
        if before is after or sum(isinstance(n.op, ops.DepthwiseConv2D) for n in both) != 1:
            return None
        if cut(self._context, both) is None:
            return None
        chain = {**self._chain, **{n.name: both for n in both}}
        return _Chains(self._plain, self._context, chain, self._live)
