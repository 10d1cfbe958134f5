"""Joins convolutions of the groups of an image's channels, and lowers them as one.

Importers write a convolution of groups as one of each. Of few channels, each spends most of its
time on finding the pixels of its windows, which are the same for all groups. On an A76 that takes
0.35 to 0.8 of the time for up to 16 channels, unless each can run by Winograd's transform on more
than a few pixels.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.checks import FLOATS
from edgekit.host.compiler.ir.types import Array, Graph, Node
from edgekit.host.compiler.lowering.common.window import (
    Window,
    bias_vector,
    count_tasks,
    window_of,
)
from edgekit.host.compiler.lowering.context import Context, lowers
from edgekit.host.compiler.lowering.gemm.epilogues import epilogue_of
from edgekit.host.compiler.lowering.gemm.product_f32 import float_form, kernel_instance
from edgekit.host.compiler.lowering.methods import method_of
from edgekit.host.compiler.lowering.packing import pack_panels
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.compiler.transforms.passes.rewrite import Users, rewrite
from edgekit.kb.targets.board import BoardProfile
from edgekit.kb.targets.isa import Isa, Tile

_MOST_VECTORS = 6  # of a group's outputs: wider ones are products large enough on their own
_WIDEST = 3  # vectors of a tile
_MOST_JOINED = 4  # groups that share a vector of outputs, with zeros where they do not meet
_ROWS = 12  # of a tile, at most
_FEW_PIXELS = 36  # of an image that tiles of Winograd's transform cover badly


def join_groups(graph: Graph, board: BoardProfile, table: KnowledgeBase) -> Graph:
    """The graph with float convolutions of the parts of a split image that are concatenated again
    as one, if groups are few vectors wide."""
    ctx = Context(graph, board.isa, board, table)
    return rewrite(graph, lambda users, node: _joined(ctx, users, node))


def _joined(ctx: Context, users: Users, split: Node) -> dict[str, Node | None] | None:
    if not isinstance(split.op, ops.Split) or split.op.axis != 3:
        return None
    convs = [users.only_consumer(name) for name in split.outputs]
    first = convs[0]
    if first is None or type(first.op) is not ops.Conv2D:
        return None
    found = [c for c in convs if c is not None and _is_alike(users.graph, c, first)]
    concat = users.only_consumer(first.outputs[0])
    if len(found) != len(convs) or concat is None or concat.op != ops.Concat(3):
        return None
    made = tuple(c.outputs[0] for c in found)
    if concat.inputs != made or any(users.only_consumer(name) is not concat for name in made):
        return None
    weights = _stacked(users, found, 1)
    groups, share = len(found), len(weights) // len(found)
    times = _groups_per_vector(ctx.of_floats(ctx.tensor(made[0]).dtype).isa, groups, share)
    if times == 0 or _is_transformed(ctx, first):
        return None
    like = users.graph.tensors[first.inputs[1] or ""]
    inputs = [
        split.inputs[0],
        users.constant(f"{first.name}.groups", like, _beside(weights, groups, times)),
    ]
    if len(first.inputs) > 2 and first.inputs[2] is not None:
        inputs.append(users.constant(f"{first.name}.bias", like, _stacked(users, found, 2)))
    op = first.op
    grouped = ops.GroupedConv2D(
        op.stride, op.dilation, op.padding, groups // times, op.activation, op.epilogue
    )
    gone: dict[str, Node | None] = {n.name: None for n in (split, *found)}
    return gone | {concat.name: Node(first.name, grouped, tuple(inputs), concat.outputs)}


def _is_alike(graph: Graph, node: Node, first: Node) -> bool:
    """Whether both are the same convolution of floats, with other constants and no addends."""
    if type(node.op) is not ops.Conv2D or type(first.op) is not ops.Conv2D:
        return False
    if replace(node.op, winograd=False) != replace(first.op, winograd=False):
        return False
    if any(name is not None for name in node.inputs[3:]):
        return False
    mine, others = (
        [None if name is None else graph.tensors[name] for name in n.inputs[1:3]]
        for n in (node, first)
    )
    if any(t is not None and t.data is None for t in mine):
        return False
    facts = [[None if t is None else (t.shape, t.dtype) for t in ts] for ts in (mine, others)]
    x = graph.tensors[node.inputs[0] or ""]
    return facts[0] == facts[1] and mine[0] is not None and mine[0].dtype is x.dtype in FLOATS


def _is_transformed(ctx: Context, conv: Node) -> bool:
    """Whether the convolution of a single group would run by Winograd's transform."""
    assert isinstance(conv.op, ops.Conv2D)
    x, w, y = (ctx.tensor(name) for name in (*conv.inputs[:2], conv.outputs[0]))
    assert w.data is not None
    asked = replace(ctx.of_floats(x.dtype), choices={})
    method = method_of(asked, conv, float_form(conv, window_of(conv.op, x, w, y), w.data, x.dtype))
    few = math.prod(y.shape[:3]) <= _FEW_PIXELS
    return method is not None and method.family == "winograd" and not few


def _stacked(users: Users, convs: list[Node], at: int) -> Array:
    data = [users.graph.tensors[c.inputs[at] or ""].data for c in convs]
    return np.concatenate([each for each in data if each is not None])


def _groups_per_vector(isa: Isa, groups: int, share: int) -> int:
    """How many neighboring groups are computed as one, so that their outputs fill vectors; 0: they
    should stay apart."""
    times = math.lcm(share, isa.vl) // share
    few = share * times <= _MOST_VECTORS * isa.vl
    return times if few and times <= _MOST_JOINED and groups % times == 0 else 0


def _beside(weights: Array, groups: int, times: int) -> Array:
    """Weights [oc, kh, kw, depth] → [oc, kh, kw, times · depth]: zeros for channels of others."""
    oc, kh, kw, depth = weights.shape
    wide = np.zeros((groups // times, times, oc // groups, kh, kw, times, depth), weights.dtype)
    apart = weights.reshape(groups // times, times, oc // groups, kh, kw, depth)
    for i in range(times):
        wide[:, i, :, :, :, i] = apart[:, i]
    return wide.reshape(oc, kh, kw, times * depth)


@lowers(ops.GroupedConv2D)
def lower_grouped_conv(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ops.GroupedConv2D)
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    weights = ctx.constant(node, 1, "weights")
    ctx = ctx.of_floats(y.dtype)
    oc, kh, kw, depth = weights.shape
    (n, h, w, c), (_, oh, ow, _) = x.shape, y.shape
    window = Window((n, h, w, depth), (n, oh, ow, oc), (kh, kw), op.stride, op.dilation, op.padding)
    vectors = oc // op.groups // ctx.isa.vl
    tile = _tile(ctx.isa, vectors)
    macros, suffix = kernel_instance(window, tile, y.dtype, kh * kw)
    function, called, epilogue = epilogue_of(ctx, node, oc)
    width = tile.nv * ctx.isa.vl
    macros |= {"GROUPED": vectors // tile.nv, **function}
    suffix += f"_grouped{macros['GROUPED']}{called}"
    name = f"{y.dtype.value}_conv_{tile.mr}x{width}{suffix}"
    kernel = ctx.kernel(name, "conv/f32_conv.c", "conv/f32_conv.h", "ek_f32_conv_args", **macros)
    tasks, panels = count_tasks(window, tile, ctx.isa.vl)
    low, high = op.activation.bounds
    packed = pack_panels(weights.reshape(oc, -1).astype(y.dtype.numpy), width, ctx.isa.vl)
    fields: dict[str, Field] = {
        "win": window.fields,
        "pointwise": 0,
        "row_segments": 0,
        "panel_outer": 0,
        "panels": panels,
        "band": 0,
        "block_outer": 0,
        "x": Value(x.name),
        "x_pitch": c,
        "weights": ctx.weights.add(packed),
        "bias": ctx.weights.add(bias_vector(ctx.optional(node, 2), oc, y.dtype.numpy)),
        "zeros": ctx.weights.add(np.zeros(c, y.dtype.numpy)),
        "residual": None,
        "residual_pitch": 0,
        "y": Value(y.name),
        "pitch": ctx.pitch(y.name),
        "low": low,
        "high": high,
        **epilogue,
    }
    return [KernelCall(kernel, fields, tasks)]


def _tile(isa: Isa, vectors: int) -> Tile:
    """An equal part of a group's outputs by as many pixels as registers hold, with an element of
    each and the weights."""
    nv = max(n for n in range(1, _WIDEST + 1) if vectors % n == 0)
    rows = (isa.registers - nv - 1) // (nv + 1)
    return Tile(max(min(rows, _ROWS) // 2 * 2, 1), nv)
