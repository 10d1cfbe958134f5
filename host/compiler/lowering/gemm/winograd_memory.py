"""Keeps the memory of transformed f32 weights, which are four times as large, within an allowance.

They are stored in the weights file, or made in the arena from the layer's own weights by every
inference, which costs time but shares memory with other layers. Layers that get neither run direct.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from edgekit.host.compiler.costs.methods.bands import cost_of_new_weights
from edgekit.host.compiler.costs.methods.winograd import making_cost, transformed_bytes
from edgekit.host.compiler.ir.ops import Conv2D
from edgekit.host.compiler.ir.types import DType, Graph, Node
from edgekit.host.compiler.lowering.choice import choose
from edgekit.host.compiler.lowering.common.window import window_of
from edgekit.host.compiler.lowering.context import Context, Kept
from edgekit.host.compiler.lowering.gemm.product_f32 import float_form
from edgekit.host.compiler.lowering.narrow import narrow_bytes
from edgekit.host.compiler.transforms.split.live import Live
from edgekit.kb.targets.board import BoardProfile

_PART = 5  # of what the model needs without transformed weights
_LEAST = 1 << 20  # bytes that any model may take: small ones gain much speed for little memory
_SHARE = 8  # the part of the board's memory that may pay for faster kernels


@dataclass(frozen=True)
class _Layer:
    """A convolution that Winograd's transform makes cheaper by `gain`.

    Stored weights take `more` bytes than its own; making them costs `making` and enlarges the arena
    by `growth` bytes.
    """

    name: str
    more: int
    growth: int
    gain: float
    making: float


def keep_transformed(ctx: Context, allowed: Collection[Kept]) -> Mapping[str, Kept]:
    """How each convolution that uses Winograd's transform gets its weights."""
    layers = _find_layers(ctx) if allowed else []
    if not layers:
        return {}
    room = _allowance(ctx.graph, ctx.board)
    if sum(layer.more for layer in layers) <= room:
        return {layer.name: "stored" for layer in layers}
    if "made" not in allowed:
        return _fill(layers, -1, room)[1]
    growths = sorted({0, *(layer.growth for layer in layers if layer.growth <= room)})
    tried = (_fill(layers, growth, room - growth) for growth in growths)
    return max(tried, key=lambda found: found[0])[1]


def _fill(layers: Sequence[_Layer], growth: int, room: int) -> tuple[float, dict[str, Kept]]:
    """The best use of `room` bytes of weights if the arena may grow by `growth` (-1: it is not
    used), and its gain."""
    kept: dict[str, Kept] = {}
    gains = {}
    for layer in layers:
        made = layer.gain - layer.making if layer.growth <= growth else 0.0
        gains[layer.name] = max(made, 0.0)
        if made > 0:
            kept[layer.name] = "made"
    by_value = sorted(layers, key=lambda x: (gains[x.name] - x.gain) / max(x.more, 1))
    for layer in by_value:
        if layer.more <= room:
            room -= max(layer.more, 0)
            kept[layer.name], gains[layer.name] = "stored", layer.gain
    return sum(gains.values()), kept


def _allowance(graph: Graph, board: BoardProfile) -> int:
    size = narrow_bytes(graph) + Live(graph).peak
    return min(max(size // _PART, _LEAST), board.memory_bytes // _SHARE or size)


def _find_layers(ctx: Context) -> list[_Layer]:
    live: Live | None = None
    layers = []
    for index, node in enumerate(ctx.graph.nodes):
        costs = _costs(ctx, node)
        if costs is None:
            continue
        live = live or Live(ctx.graph)
        w = ctx.tensor(node.inputs[1])
        oc, _, _, c = w.shape
        size = transformed_bytes(c, oc, "f32")
        making = making_cost(c, oc, ctx.isa.vl) + cost_of_new_weights(size, ctx.board)
        growth = max(live.bytes_at(index) + size - live.peak, 0)
        direct, winograd = costs
        own = narrow_bytes(replace(ctx.graph, nodes=(node,)))
        layers.append(_Layer(node.name, size - own, growth, direct - winograd, making))
    return layers


def _costs(ctx: Context, node: Node) -> tuple[float, float] | None:
    """The costs of a direct convolution and of Winograd's, if that is chosen."""
    if type(node.op) is not Conv2D:
        return None
    x, w, y = (ctx.tensor(name) for name in (*node.inputs[:2], node.outputs[0]))
    if {x.dtype, w.dtype, y.dtype} != {DType.F32} or w.data is None or w.shape[1:3] != (3, 3):
        return None
    form = float_form(node, window_of(node.op, x, w, y), w.data.reshape(len(w.data), -1), DType.F32)
    found, direct = (
        choose(ctx.table, ctx.board, ctx.isa, each, ctx.threads)
        for each in (form, replace(form, direct=True))
    )
    if found is None or found[0].family != "winograd":
        return None
    return math.inf if direct is None else direct[1].cost, found[1].cost
