"""Chooses stems (ops.ImageStem).

A stem pays if the image between a convolution and its pool would leave the core's cache, or if the
input is channels-first. A pool whose image exceeds L2 waits for memory longer than it computes.
"""

from __future__ import annotations

import dataclasses

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.chains import with_chains
from edgekit.host.compiler.ir.types import DType, Graph, Node
from edgekit.host.compiler.lowering.common.window import window_of
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.conv.stem import pieces_of
from edgekit.host.compiler.lowering.gemm.product_f32 import float_form
from edgekit.host.compiler.lowering.methods import method_of
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.compiler.transforms.passes.rewrite import Users
from edgekit.kb.targets.board import BoardProfile, caches_of

_ESTIMATED = ("aarch64",)
_FLOATS = (DType.F32, DType.F16)
_CHANNELS_LAST = (0, 2, 3, 1)
_MAX_CHW_CHANNELS = 4  # maximum channels of a channels-first input


def with_stems(graph: Graph, board: BoardProfile, table: KnowledgeBase) -> Graph:
    """Builds stems, except on boards without estimates or with separate units for products."""
    found = stems_of(graph, board, table)
    return with_chains(graph, found, ops.ImageStem) if found else graph


def stems_of(
    graph: Graph, board: BoardProfile, table: KnowledgeBase
) -> dict[str, tuple[Node, ...]]:
    """The members of each stem, keyed by the name of each."""
    units = board.nna is not None or any(u.kind in ("matrix", "vector") for u in board.speeds)
    if board.arch not in _ESTIMATED or units:
        return {}
    ctx, users = Context(graph, board.isa, board, table), Users(graph)
    found: dict[str, tuple[Node, ...]] = {}
    for node in graph.nodes:
        if _may_be_member(ctx, node):
            members = (*_leading_nodes(graph, users, node), node, *_trailing_pool(ctx, users, node))
            if len(members) > 1 and pieces_of(ctx, members) is not None:
                found |= {n.name: members for n in members}
    return found


def _may_be_member(ctx: Context, node: Node) -> bool:
    """True for an in-place convolution of one float image: constant weights, no residual."""
    if type(node.op) is not ops.Conv2D or ctx.optional(node, 3) is not None:
        return False
    x, w, y = (ctx.tensor(name) for name in (*node.inputs[:2], node.outputs[0]))
    bias = ctx.optional(node, 2)
    if len({x.dtype, w.dtype, y.dtype}) != 1 or x.dtype not in _FLOATS or x.shape[0] != 1:
        return False
    if x.data is not None or w.data is None or (bias is not None and bias.data is None):
        return False
    asked = dataclasses.replace(ctx.of_floats(x.dtype), choices={})
    form = float_form(node, window_of(node.op, x, w, y), w.data, x.dtype)
    method = method_of(asked, node, form)
    return method is not None and method.family == "in_place"


def _leading_nodes(graph: Graph, users: Users, conv: Node) -> tuple[Node, ...]:
    """The transpose to channels-last before the image, and its conversion if any; else empty."""
    producer = graph.producer()
    found: list[Node] = []
    name = conv.inputs[0] or ""
    for wanted in (ops.Convert, ops.Transpose):
        node = producer.get(name)
        if node is None or users.only_consumer(name) is None:
            return ()
        if isinstance(node.op, wanted):
            found.insert(0, node)
            name = node.inputs[0] or ""
    if not found or not isinstance(found[0].op, ops.Transpose):
        return ()
    x = graph.tensors[name]
    is_nchw = found[0].op.permutation == _CHANNELS_LAST and x.shape[1] <= _MAX_CHW_CHANNELS
    if not is_nchw or x.dtype is not DType.F32 or x.data is not None:
        return ()
    band = producer.get(name)
    cuts = band is not None and users.only_consumer(name) is not None and _cuts_rows(graph, band)
    return (band, *found) if band is not None and cuts else tuple(found)


def _cuts_rows(graph: Graph, node: Node) -> bool:
    """Whether a node is a slice of complete rows of all channels of one image."""
    if not isinstance(node.op, ops.StridedSlice):
        return False
    source, op = graph.tensors[node.inputs[0] or ""].shape, node.op
    whole = (*source[:2], op.extent[2], *source[3:])
    return len(source) == 4 and op.shape == op.extent == whole and set(op.stride) == {1}


def _trailing_pool(ctx: Context, users: Users, conv: Node) -> tuple[Node, ...]:
    """The pool after the convolution if its input exceeds L2; else empty."""
    after = users.only_consumer(conv.outputs[0])
    if after is None or not isinstance(after.op, ops.MaxPool2D):
        return ()
    return (after,) if ctx.tensor(conv.outputs[0]).bytes > caches_of(ctx.board).l2 else ()
