"""Keeps the memory of transformed f32 weights, which are four times as large, within an allowance.

They are stored in the weights file, or made in the arena from the layer's own weights by every
inference, which costs time but shares memory with other layers. Layers that get neither run direct.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from edgekit.host.compiler.costs.methods.bands import cost_of_new_weights, cost_of_weights
from edgekit.host.compiler.costs.methods.operators import OperatorMethod
from edgekit.host.compiler.costs.methods.winograd import (
    input_cost,
    making_cost,
    transformed_bytes,
)
from edgekit.host.compiler.ir.ops import Conv2D
from edgekit.host.compiler.ir.types import DType, Graph, Node
from edgekit.host.compiler.lowering.choice import Choice, choose
from edgekit.host.compiler.lowering.common.window import window_of
from edgekit.host.compiler.lowering.context import Context, Kept
from edgekit.host.compiler.lowering.gemm.product_f32 import float_form
from edgekit.host.compiler.lowering.narrow import narrow_bytes
from edgekit.host.compiler.transforms.split.live import Live
from edgekit.kb.targets.board import BoardProfile

_PART = 5  # of what the model needs without transformed weights
_LEAST = 1 << 20  # bytes that any model may take: small ones gain much speed for little memory
_MOST_PARTS = 8  # in which weights are made: x is transformed again for each
_SHARE = 8  # the part of the board's memory that may pay for faster kernels


@dataclass(frozen=True)
class _Layer:
    """A convolution that Winograd's transform makes cheaper by `gain`.

    Stored weights take `more` bytes than its own. Making them costs `making`, and `again` for each
    further part, as x is transformed again; parts that `board` cannot cache cost more, but none
    wait `waits` for stored weights. A panel takes `panel` bytes; `free` ones of the arena are not
    used meanwhile.
    """

    name: str
    more: int
    panels: int
    panel: int
    free: int
    gain: float
    making: float
    again: float
    waits: float
    board: BoardProfile

    def _size(self, parts: int) -> int:
        return math.ceil(self.panels / parts) * self.panel

    def growth(self, parts: int) -> int:
        """Bytes by which the arena grows if weights are made in `parts` parts."""
        return max(self._size(parts) - self.free, 0)

    def _gain(self, parts: int) -> float:
        waits = parts * cost_of_new_weights(self._size(parts), self.board) - self.waits
        return self.gain - self.making - (parts - 1) * self.again - waits

    def made(self, growth: int) -> tuple[int, float]:
        """The parts in which weights are made if the arena may grow by `growth`, and the gain; 0 if
        that does not pay."""
        fitting = [n for n in range(1, _MOST_PARTS + 1) if self.growth(n) <= growth]
        best = max(fitting, key=self._gain, default=0)
        gain = self._gain(best) if best else 0.0
        return (best, gain) if gain > 0 else (0, 0.0)


def keep_transformed(ctx: Context, allowed: Collection[Kept]) -> Mapping[str, int]:
    """`ctx.transformed`; layers that are not in it run direct."""
    layers = _find_layers(ctx) if allowed else []
    if not layers:
        return {}
    room = _allowance(ctx.graph, ctx.board)
    if sum(layer.more for layer in layers) <= room:
        return {layer.name: 0 for layer in layers}
    if "made" not in allowed:
        return _fill(layers, -1, room)[1]
    parts = range(1, _MOST_PARTS + 1)
    growths = {0, *(layer.growth(n) for layer in layers for n in parts)}
    tried = (_fill(layers, g, room - g) for g in sorted(growths) if g <= room)
    return max(tried, key=lambda found: found[0])[1]


def _fill(layers: Sequence[_Layer], growth: int, room: int) -> tuple[float, dict[str, int]]:
    """The best use of `room` bytes of weights if the arena may grow by `growth` (-1: it is not
    used), and its gain."""
    made = {layer.name: layer.made(growth) for layer in layers}
    kept = {name: parts for name, (parts, _) in made.items() if parts}
    gains = {name: gain for name, (_, gain) in made.items()}
    by_value = sorted(layers, key=lambda x: (gains[x.name] - x.gain) / max(x.more, 1))
    for layer in by_value:
        if layer.more <= room:
            room -= max(layer.more, 0)
            kept[layer.name], gains[layer.name] = 0, layer.gain
    return sum(gains.values()), kept


def _allowance(graph: Graph, board: BoardProfile) -> int:
    size = narrow_bytes(graph) + Live(graph).peak
    return min(max(size // _PART, _LEAST), board.memory_bytes // _SHARE or size)


def _find_layers(ctx: Context) -> list[_Layer]:
    live: Live | None = None
    layers = []
    for index, node in enumerate(ctx.graph.nodes):
        found = _choices(ctx, node)
        if found is None:
            continue
        live = live or Live(ctx.graph)
        (winograd, choice), gain = found
        assert winograd.nr is not None and choice.form is not None
        oc, _, _, c = ctx.tensor(node.inputs[1]).shape
        size = transformed_bytes(c, oc, "f32")
        own = narrow_bytes(replace(ctx.graph, nodes=(node,)))
        n, height, width = choice.form.y
        tiles = n * math.ceil(height / 4) * math.ceil(width / 4)
        layer = _Layer(
            node.name,
            size - own,
            math.ceil(oc / winograd.nr),
            transformed_bytes(c, min(winograd.nr, oc), "f32"),
            live.peak - live.bytes_at(index),
            gain,
            making_cost(c, oc, ctx.isa.vl),
            input_cost(tiles, c, ctx.isa.vl),
            cost_of_weights(size, ctx.board, ctx.threads),
            ctx.board,
        )
        layers.append(layer)
    return layers


def _choices(ctx: Context, node: Node) -> tuple[tuple[OperatorMethod, Choice], float] | None:
    """Winograd's method if it is chosen for a node, and what it costs less than a direct one."""
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
    return found, (math.inf if direct is None else direct[1].cost) - found[1].cost
