"""Decides where the transformed weights of Winograd convolutions are stored.

They are four times as large as the weights, those of bytes eight times. They are stored in the
weights file, or, if they are floats, computed in the arena by every inference, which costs time but
shares memory with other layers; layers that get neither use a direct convolution. Layers that gain
the most time per byte are stored first, as long as the board has memory.

f16 convolutions are marked before, because golden outputs then have the rounding of the transform,
which is two to three times that of direct f16 sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from edgekit.host.compiler.costs.methods.bands import NETWORK
from edgekit.host.compiler.costs.methods.operators import Form
from edgekit.host.compiler.costs.methods.winograd import (
    transformed,
    transformed_bytes,
)
from edgekit.host.compiler.costs.methods.winograd_weights import WinogradWeights
from edgekit.host.compiler.ir.ops import Conv2D
from edgekit.host.compiler.ir.types import DType, Graph, Node
from edgekit.host.compiler.lowering.choice import choose
from edgekit.host.compiler.lowering.common.window import window_of
from edgekit.host.compiler.lowering.context import Context, Spending
from edgekit.host.compiler.lowering.gemm.prefetch import bytes_per_run
from edgekit.host.compiler.lowering.gemm.product_f32 import float_form
from edgekit.host.compiler.lowering.gemm.product_i8 import may_transform
from edgekit.host.compiler.lowering.methods import tile_of
from edgekit.host.compiler.lowering.narrow import narrow_bytes
from edgekit.host.compiler.lowering.plan import STORED, KeptWeights
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.compiler.transforms.split.live import Live
from edgekit.kb.targets.board import BoardProfile, last_cache

_PART = 5  # of what the model needs without transformed weights
_LEAST = 1 << 20  # bytes that any model may take: small ones gain much speed for little memory
_SHARE = 32  # the part of the board's memory that may be taken by layers that gain much:
_MUCH = 30  # 1% of the model's time for so many % of its memory
_TYPES = ({DType.F32}, {DType.F16})
_MOST_SHARE = 8  # the part that no model exceeds
_AWAITED = 0.7  # of the time to read evicted weights: the rest is read ahead, in layers before


@dataclass(frozen=True)
class Layer:
    """A convolution that Winograd's transform with stored weights makes cheaper by `gain`; they
    take `more` bytes than its own."""

    name: str
    more: int
    gain: float
    weights: WinogradWeights


@dataclass(frozen=True)
class _Made:
    """Weights that are made: by how much the arena grows, and what the layer then gains."""

    growth: int
    gain: float
    kept: KeptWeights


def keep_transformed(ctx: Context, spending: Spending, time_us: float) -> Mapping[str, KeptWeights]:
    """`ctx.transformed`; f32 layers that are not in it run direct. The model takes `time_us` on one
    core."""
    if spending == "none":
        return {}
    graph, machine = ctx.graph, (ctx.board, ctx.table, ctx.threads)
    found = (winograd_layer(graph, node, *machine) for node in graph.nodes)
    layers = {layer.name: layer for layer in found if layer is not None}
    halves = [x for x in layers.values() if x.weights.dtype == "f16"]
    floats = [x for x in layers.values() if x.weights.dtype == "f32"]
    forms = ((node, may_transform(ctx, node)) for node in graph.nodes)
    of_bytes = (_layer(graph, node, form, *machine) for node, form in forms if form is not None)
    stored = [*floats, *(layer for layer in of_bytes if layer is not None)]
    kept = {layer.name: STORED for layer in halves}
    if stored:
        spent = sum(layer.more for layer in halves)
        little = allowance(graph, ctx.board, "little") - spent
        much = allowance(graph, ctx.board, spending) - spent
        made = _made(graph, floats) if spending == "freely" else {}
        price = time_us / _MUCH / max(_bytes_without(graph), 1)
        kept |= _best_use(stored, made, little, much, price)
    return kept


def winograd_note(graph: Graph, kept: Mapping[str, KeptWeights]) -> str:
    """Describes what stored weights take; empty if there are none."""
    found = [n for n in graph.nodes if n.name in kept and kept[n.name].kept == "stored"]
    stored = list({n.inputs[1]: n for n in found}.values())  # parts of a layer share its weights
    if not stored:
        return ""
    weights = [graph.tensors[n.inputs[1] or ""] for n in stored]
    dtypes = [graph.tensors[n.outputs[0]].dtype.value for n in stored]
    taken = sum(
        transformed_bytes(w.shape[3], w.shape[0], dtype)
        for w, dtype in zip(weights, dtypes, strict=True)
    )
    own = sum(narrow_bytes(replace(graph, nodes=(n,))) for n in stored)
    layers = "1 convolution" if len(stored) == 1 else f"{len(stored)} convolutions"
    return (
        f"Winograd's transform: the weights of {layers} take {taken:,} bytes on the board instead "
        f"of {own:,}; with --order memory they do not"
    )


def allowance(graph: Graph, board: BoardProfile, spending: Spending) -> int:
    """Bytes that the weights of Winograd's transform may add to what `graph` needs without them."""
    need = _bytes_without(graph)
    share = board.memory_bytes // _SHARE if spending == "freely" else 0
    return min(max(need // _PART, _LEAST, share), board.memory_bytes // _MOST_SHARE or need)


def _bytes_without(graph: Graph) -> int:
    """The memory that a graph needs without transformed weights."""
    return narrow_bytes(graph) + Live(graph).peak


def winograd_layer(
    graph: Graph, node: Node, board: BoardProfile, table: KnowledgeBase, threads: int
) -> Layer | None:
    """None if Winograd's transform is not chosen for a node, even with stored weights."""
    if type(node.op) is not Conv2D:
        return None
    x, w, y = (graph.tensors[name or ""] for name in (*node.inputs[:2], node.outputs[0]))
    if w.data is None or w.shape[1:3] != (3, 3) or {x.dtype, w.dtype, y.dtype} not in _TYPES:
        return None
    form = float_form(node, window_of(node.op, x, w, y), w.data.reshape(len(w.data), -1), y.dtype)
    return _layer(graph, node, form, board, table, threads)


def _layer(
    graph: Graph,
    node: Node,
    form: Form,
    board: BoardProfile,
    table: KnowledgeBase,
    threads: int,
) -> Layer | None:
    """The same for a node of a form."""
    isa = board.isa.of_half if form.dtype == "f16" else board.isa
    found, direct = (
        choose(table, board, isa, each, threads) for each in (form, replace(form, direct=True))
    )
    if found is None or found[0].family != "winograd":
        return None
    tile = tile_of(found[0], isa.vl)
    channels = form.depth, form.shape.n
    work = transformed(form.dtype, form.y, channels, isa.vl, tile, board.in_order)
    own = narrow_bytes(replace(graph, nodes=(node,)))
    weights = WinogradWeights(work, form.dtype, own, board, threads)
    waits = _cost_of_evicted(graph, weights)
    gain = (math.inf if direct is None else direct[1].cost) - found[1].cost - waits
    if gain <= 0:
        return None
    return Layer(node.name, weights.bytes - own, gain, weights)


def _cost_of_evicted(graph: Graph, weights: WinogradWeights) -> float:
    """The further cost of stored weights that would stay cached in a smaller network. With it, four
    threads of an A76 take 0.96 of the simulated time for YOLO11n and 0.85 for YOLOv8n, of an A72
    0.98; on cores in order it changes nothing."""
    board = weights.board
    if board.in_order or bytes_per_run(graph) <= last_cache(board):
        return 0.0
    evicted = weights.waiting_for(weights.bytes, NETWORK) - weights.waiting_for(weights.bytes)
    return _AWAITED * evicted


def _best_use(
    layers: Sequence[Layer],
    made: Mapping[str, Sequence[_Made]],
    little: int,
    much: int,
    price: float,
) -> dict[str, KeptWeights]:
    """What gains most if stored weights and a larger arena may take `little` bytes, and `much`
    with layers that gain `price` microseconds per byte, compared with made weights."""
    most = max(little, 0)
    best = _gains(_best_made(made, most))
    budgets = {}
    for layer in layers:
        gain_us = layer.weights.microseconds(layer.gain - best.get(layer.name, 0.0))
        budgets[layer.name] = much if gain_us >= price * layer.more else little
    growths = {0, *(each.growth for several in made.values() for each in several)}
    tried = (_fill(layers, _best_made(made, g), g, budgets) for g in sorted(growths) if g <= most)
    return max(tried, key=lambda found: found[0])[1]


def _best_made(made: Mapping[str, Sequence[_Made]], growth: int) -> dict[str, _Made]:
    """How weights are made that gain by it, if the arena may grow by `growth`."""
    fitting = {
        name: [each for each in several if each.growth <= growth and each.gain > 0]
        for name, several in made.items()
    }
    return {n: max(several, key=lambda x: x.gain) for n, several in fitting.items() if several}


def _gains(made: Mapping[str, _Made]) -> dict[str, float]:
    return {name: each.gain for name, each in made.items()}


def _made(graph: Graph, layers: Sequence[Layer]) -> dict[str, list[_Made]]:
    """The ways in which the weights of layers can be made, by name."""
    live = Live(graph)
    index = {node.name: i for i, node in enumerate(graph.nodes)}
    every = {}
    for layer in layers:
        free, weights = live.peak - live.bytes_at(index[layer.name]), layer.weights
        stored = weights.cost_of_stored() + _cost_of_evicted(graph, weights)
        every[layer.name] = [
            _Made(
                max(weights.size(parts) - free, 0),
                layer.gain + stored - weights.cost_of_made(parts),
                KeptWeights("made", parts),
            )
            for parts in weights.possible
        ]
    return every


def _fill(
    layers: Sequence[Layer], made: Mapping[str, _Made], growth: int, budgets: Mapping[str, int]
) -> tuple[float, dict[str, KeptWeights]]:
    """The best use of memory if the arena grows by `growth`, and its gain. All that is spent when a
    layer's weights are stored may take the layer's `budgets`."""
    kept = {name: each.kept for name, each in made.items()}
    gains, spent = _gains(made), growth
    further = {x.name: x.gain - gains.get(x.name, 0.0) for x in layers}
    for layer in sorted(layers, key=lambda x: -further[x.name] / max(x.more, 1)):
        if further[layer.name] > 0 and spent + layer.more <= budgets[layer.name]:
            spent += max(layer.more, 0)
            kept[layer.name], gains[layer.name] = STORED, layer.gain
    return sum(gains.values()), kept


def with_winograd(
    graph: Graph,
    board: BoardProfile,
    table: KnowledgeBase,
    threads: int,
    spending: Spending = "freely",
) -> Graph:
    """Marks f16 convolutions that the transform computes faster on a board, those that gain most
    per byte of their transformed weights as long as `spending` permits; `graph` if none gains."""
    if spending == "none":
        return graph
    nodes = [_marked(graph, node) for node in graph.nodes]
    found = (winograd_layer(graph, node, board, table, threads) for node in nodes if node)
    layers = sorted((x for x in found if x is not None), key=lambda x: -x.gain / max(x.more, 1))
    room = allowance(graph, board, spending) if layers else 0
    marked = set()
    for layer in layers:
        if layer.more <= room:
            room -= layer.more
            marked.add(layer.name)
    if not marked:
        return graph
    pairs = zip(graph.nodes, nodes, strict=True)
    return replace(
        graph, nodes=tuple(new if new and new.name in marked else old for old, new in pairs)
    )


def _marked(graph: Graph, node: Node) -> Node | None:
    """An f16 convolution that is computed by Winograd's transform."""
    if type(node.op) is not Conv2D or graph.tensors[node.outputs[0]].dtype is not DType.F16:
        return None
    return replace(node, op=replace(node.op, winograd=True))
