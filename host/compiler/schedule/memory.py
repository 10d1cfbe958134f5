"""The memory that an order keeps live, computed from the graph alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import ALIGN, round_up
from edgekit.host.compiler.ir.by_operator import ByOperator
from edgekit.host.compiler.ir.types import DType, Graph, Node, Operator, Tensor
from edgekit.host.compiler.ir.views import memory_bases


@dataclass(frozen=True)
class Buffers:
    """Memory shared by the nodes of a part; nodes are numbers, sets of nodes are bit masks.

    Buffer b of `sizes[b]` bytes is live from the first to the last node of `users[b]`, from the
    start of the part if `given[b]`, and to its end if `kept[b]`. Node i uses the buffers
    `touched[i]` and needs `scratch[i]` bytes while it runs.
    """

    sizes: tuple[int, ...]
    users: tuple[int, ...]
    given: tuple[bool, ...]
    kept: tuple[bool, ...]
    touched: tuple[tuple[int, ...], ...]
    scratch: tuple[int, ...]

    @property
    def at_start(self) -> int:
        """Bytes live before the first node."""
        return sum(size for size, given in zip(self.sizes, self.given, strict=True) if given)

    def made(self, node: int, done: int) -> int:
        """Bytes that become live when `node` starts after the nodes in `done`."""
        return sum(
            self.sizes[b]
            for b in self.touched[node]
            if not self.given[b] and not self.users[b] & done
        )

    def freed(self, node: int, done: int) -> int:
        """Bytes that are no longer needed once `node`, the last of `done`, has run."""
        return sum(
            self.sizes[b]
            for b in self.touched[node]
            if not self.kept[b] and not self.users[b] & ~done
        )

    def peak(self, order: Sequence[int]) -> int:
        """The maximum of live bytes at any node of an order."""
        alive = peak = self.at_start
        done = 0
        for node in order:
            alive += self.made(node, done)
            peak = max(peak, alive + self.scratch[node])
            done |= 1 << node
            alive -= self.freed(node, done)
        return peak


def users_of(graph: Graph) -> dict[str, list[int]]:
    """The nodes that use each buffer of the arena, by number.

    Inputs, outputs, constants and states are not in the arena; views are aliases of the same bytes.
    """
    base = _storage_bases(graph)
    users: dict[str, list[int]] = {}
    for i, node in enumerate(graph.nodes):
        for name in dict.fromkeys(base[t] for t in (*node.inputs, *node.outputs) if t in base):
            users.setdefault(name, []).append(i)
    return users


def buffers_of(
    graph: Graph, first: int, end: int, users: Mapping[str, Sequence[int]] | None = None
) -> Buffers:
    """The buffers of the nodes from `first` to `end`, as the lowering will create them.

    `users` is `users_of(graph)`, for callers that query many parts.
    """
    users = users_of(graph) if users is None else users
    here = {n: u for n, u in users.items() if u[0] < end and u[-1] >= first}
    place = {name: b for b, name in enumerate(here)}
    touched: list[list[int]] = [[] for _ in range(end - first)]
    for name, nodes in here.items():
        for i in nodes:
            if first <= i < end:
                touched[i - first].append(place[name])
    return Buffers(
        sizes=tuple(round_up(graph.tensors[n].bytes, ALIGN) for n in here),
        users=tuple(sum(1 << (i - first) for i in u if first <= i < end) for u in here.values()),
        given=tuple(u[0] < first for u in here.values()),
        kept=tuple(u[-1] >= end for u in here.values()),
        touched=tuple(tuple(t) for t in touched),
        scratch=tuple(_scratch_bytes(graph, graph.nodes[i]) for i in range(first, end)),
    )


def _storage_bases(graph: Graph) -> dict[str, str]:
    """The tensor whose memory holds each tensor of the arena."""
    found = memory_bases(graph)
    # A tensor that makes up an entire output is written directly to the caller's memory.
    outside = {*graph.inputs, *graph.outputs}
    outside |= {
        found[name]
        for name in graph.outputs
        if name in found  # excludes constants
        and graph.tensors[found[name]].bytes == graph.tensors[name].bytes
    }
    return {name: base for name, base in found.items() if base not in outside}


_scratch = ByOperator[Callable[[Any, Sequence[Tensor], Tensor], int]]()


def _scratch_bytes(graph: Graph, node: Node) -> int:
    """Bytes of scratch needed by a node's kernel."""
    scratch = _scratch.of(type(node.op))
    if scratch is None or not node.inputs or not node.inputs[0]:
        return 0
    ins = [graph.tensors[name] for name in node.inputs if name]
    return scratch(node.op, ins, graph.tensors[node.outputs[0]])


@_scratch(ops.Conv2D, ops.FullyConnected)
def _product_scratch(_op: Operator, ins: Sequence[Tensor], _y: Tensor) -> int:
    x = ins[0]
    quantized = x.dtype is DType.F32 and ins[1].dtype is DType.I8
    return round_up(x.elements // x.shape[0], ALIGN) + ALIGN if quantized else 0


@_scratch(ops.OutlierFullyConnected)
def _split_scratch(op: Operator, ins: Sequence[Tensor], _y: Tensor) -> int:
    tables = 8 * (ins[0].elements + ins[2].shape[0]) if getattr(op, "tables", False) else 0
    return round_up(tables, ALIGN) + _outlier_scratch(ins[0], ins[2].shape[0], ins[1])


@_scratch(ops.DynamicFullyConnected)
def _quantized_scratch(_op: Operator, ins: Sequence[Tensor], y: Tensor) -> int:
    return _dynamic_scratch(ins[0].elements, y.shape[-1])


@_scratch(ops.DynamicConv2D)
def _padded_quantized_scratch(op: ops.DynamicConv2D, ins: Sequence[Tensor], y: Tensor) -> int:
    (n, h, w, c), pad = ins[0].shape, op.padding
    image = n * (h + pad.top + pad.bottom) * (w + pad.left + pad.right) * c
    return _dynamic_scratch(image, y.shape[-1])


@_scratch(ops.DepthwiseConv2D)
def _repeated_scratch(op: ops.DepthwiseConv2D, ins: Sequence[Tensor], _y: Tensor) -> int:
    """The image with each channel repeated; with one channel it is an ordinary convolution."""
    repeats = op.multiplier > 1 and ins[0].shape[-1:] != (1,)
    return round_up(ins[0].bytes * op.multiplier, ALIGN) if repeats else 0


@_scratch(ops.TransposeConv2D)
def _canvas_scratch(_op: Operator, _ins: Sequence[Tensor], y: Tensor) -> int:
    return round_up(y.bytes, ALIGN)


def _dynamic_scratch(values: int, columns: int) -> int:
    """Bytes of quantized `values`, their scale and zero point, and a bias."""
    return round_up(values, ALIGN) + round_up(4 * columns, ALIGN) + 2 * ALIGN


def _outlier_scratch(x: Tensor, slices: int, weights: Tensor) -> int:
    """Bytes of quantized values (doubled if sliced), row scales, and channel lists."""
    channels = weights.shape[1]
    parts = (4 * (x.elements // channels), 4, channels // 8 + 4, 4 * channels)
    return min(slices, 2) * round_up(x.elements, ALIGN) + sum(round_up(p, ALIGN) for p in parts)
