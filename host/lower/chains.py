"""The choice of convolutions that run as a chain (ops.RowChain): where an image between them would
leave the core's cache, or does not fit the memory that there is.

Measured: chains gain where two operators touch more than a core's L2 holds,
and lose some percent where all of that stays there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from edgekit.host.graph import ops
from edgekit.host.graph.chains import with_chains
from edgekit.host.graph.types import DType, Graph, Node, Tensor
from edgekit.host.lower.context import Context
from edgekit.host.lower.row_chain import strips_of
from edgekit.host.passes.rewrite import Users
from edgekit.host.split.live import Live
from edgekit.kb.board import BoardProfile, caches_of
from edgekit.kb.gemm_table import KnowledgeBase
from edgekit.kb.operators import panel_outer

_TIMED = frozenset({"x86_64", "cortex-a53"})  # an architecture and a core
# What is much, times L2: most profiles know only the least that such cores have.
_MUCH = 2
_MUCH_WHERE_L2_IS_SURE = MappingProxyType({"x86-64-v4-amx": 1})
_SHARE = 0.25  # of what is touched, for rows that windows share to be worth their copies
NO_CHAINS: Mapping[str, tuple[Node, ...]] = MappingProxyType({})


@dataclass(frozen=True)
class _Link:
    """Two convolutions with an image between them that nothing else reads."""

    image: Tensor
    before: Node
    after: Node
    touched: int  # bytes of the images that the two read and write

    @property
    def is_behind(self) -> bool:
        """Whether it is the depthwise convolution's result: no row of it is needed twice."""
        return isinstance(self.before.op, ops.DepthwiseConv2D)


def chain_for_time(graph: Graph, board: BoardProfile, table: KnowledgeBase) -> Graph:
    """`graph` with chains where two convolutions touch much more than the core's own cache holds,
    and no more has to be alive than before: what a chain reads and makes is alive at once. As it
    is for boards where that was never timed."""
    if _TIMED.isdisjoint((board.arch, *board.platforms)):
        return graph
    much = _MUCH_WHERE_L2_IS_SURE.get(board.platform, _MUCH) * caches_of(board).l2
    large = [k for k in _links(graph, board) if k.touched > much]
    large = [k for k in large if k.is_behind or k.image.bytes >= k.touched * _SHARE]
    made = _Chains(graph, Context(graph, board.isa, board, table))
    for link in sorted(large, key=lambda k: -k.image.bytes):
        more = made.joined(link)
        if more is not None and Live(more.graph).peak <= Live(graph).peak:
            made = more
    return made.ending_pointwise().graph


def chain_for_memory(graph: Graph, board: BoardProfile, table: KnowledgeBase, limit: int) -> Graph:
    """`graph` with chains where more than `limit` bytes are alive, as far as they help."""
    links = _links(graph, board)
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
    """What is made at or before node `at`, and read there or behind it."""
    made = {t for node in graph.nodes[: at + 1] for t in node.outputs}
    return made & {t for node in graph.nodes[at:] for t in node.inputs if t is not None}


def _links(graph: Graph, board: BoardProfile) -> list[_Link]:
    """None on boards with units of their own for products: an operator runs on one unit."""
    if board.nna is not None or any(u.kind in ("matrix", "vector") for u in board.speeds):
        return []
    users = Users(graph)
    found = []
    for node in graph.nodes:
        after = users.only_consumer(node.outputs[0]) if node.outputs else None
        if after is None or list(after.inputs).count(node.outputs[0]) != 1:
            continue
        if after.inputs[0] != node.outputs[0] or not _are_linked(graph, board, node, after):
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
    """One image, constant operands of one type, and one kernel that reads weights at every tile."""
    x, w, *rest = (None if t is None else graph.tensors[t] for t in node.inputs)
    y = graph.tensors[node.outputs[0]]
    if x is None or w is None or w.data is None or x.shape[0] != 1 or x.data is not None:
        return False
    if len({x.dtype, w.dtype, y.dtype}) != 1 or not (x.dtype is DType.F32 or x.dtype.is_quantized):
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
    """A graph with the chains that some links make of it, each where its last member was."""

    def __init__(
        self, plain: Graph, context: Context, chain: Mapping[str, tuple[Node, ...]] = NO_CHAINS
    ) -> None:
        self._plain, self._context = plain, context
        self._chain = chain  # by the name of each member
        self.graph = with_chains(plain, chain) if chain else plain

    def ending_pointwise(self) -> _Chains:
        """The chains without those that end with the depthwise convolution, which gain nothing
        (docs/measurements.md)."""
        kept = {k: v for k, v in self._chain.items() if isinstance(v[-1].op, ops.Conv2D)}
        return _Chains(self._plain, self._context, kept)

    def joined(self, link: _Link) -> _Chains | None:
        """The chains with one more link; None if the chain would not be of one depthwise
        convolution, or its rows do not fit."""
        before = self._chain.get(link.before.name, (link.before,))
        after = self._chain.get(link.after.name, (link.after,))
        both = (*before, *after)
        if before is after or sum(isinstance(n.op, ops.DepthwiseConv2D) for n in both) != 1:
            return None
        if strips_of(self._context, both) is None:
            return None
        return _Chains(self._plain, self._context, {**self._chain, **{n.name: both for n in both}})
