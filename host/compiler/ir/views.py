"""Tensor aliasing: finds tensors that can share memory instead of being copied."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.quantization import concat_rescale
from edgekit.host.compiler.ir.types import DType, Graph, Node, Tensor


def view_sources(tensors: Mapping[str, Tensor], node: Node) -> dict[str, str]:
    """Map each output to the input it aliases, for nodes that move no data."""
    op = node.op
    source = node.inputs[0] if node.inputs else None
    if source is None:
        return {}
    if isinstance(op, ops.Reshape):
        return {node.outputs[0]: source}
    if isinstance(op, ops.StridedSlice) and op.is_run(tensors[source].shape):
        return {node.outputs[0]: source}
    if isinstance(op, ops.Split) and math.prod(tensors[source].shape[: op.axis]) == 1:
        return dict.fromkeys(node.outputs, source)
    return {}


def joins_runs(node: Node, out: Tensor) -> bool:
    """Whether `node` concatenates its inputs as contiguous blocks."""
    return isinstance(node.op, ops.Concat) and math.prod(out.shape[: node.op.axis]) == 1


def can_be_made_inside(graph: Graph, base: str, part: Tensor, whole: Tensor) -> bool:
    """Whether `part`, which fills the memory of tensor `base`, can be written directly into the
    concatenation `whole`.

    Not if it already has a fixed location (input, output, constant, view of part of a tensor) or
    is quantized differently.
    """
    held = graph.tensors.get(base)
    if held is None or held.data is not None or held.bytes != part.bytes:
        return False
    if base in graph.inputs or base in graph.outputs:
        return False
    return not part.dtype.is_quantized or _same_quantization(part, whole)


_NONE: Mapping[str, str] = MappingProxyType({})
_PIXELS = 8  # of a tile
_SETS_BYTES = 16 << 10  # of a line of each set of an L1
_NEAR_BYTES = 24 << 10  # of an L1 of 32 KiB or more
_PITCHED = ({DType.F32}, {DType.F16}, {DType.I8}, {DType.U8})  # x and weights of convolutions


@dataclass(frozen=True)
class RowSlice:
    """A tensor whose rows (usually of channels) are slices of a wider tensor's rows; `offset` and
    `pitch` are in bytes."""

    whole: str
    offset: int
    pitch: int
    bytes: int  # from the start of the first row to the end of the last


def parts_of_rows(
    graph: Graph, inside: Mapping[str, str] = _NONE, alone: Collection[str] = ()
) -> dict[str, RowSlice]:
    """Tensors that can be written directly into a concatenation, and slices of channels that can be
    read where they are.

    Their producers must support a row pitch: some of channels, moves of any axes. So must other
    readers: slices that copy, convolutions of channels. `inside` maps nodes to the node whose
    kernel includes them; nodes in `alone` have kernels without a pitch argument.
    """
    producer, consumers = graph.producer(), graph.consumers()
    nodes = {node.name: node for node in graph.nodes if inside}
    found: dict[str, RowSlice] = {}
    for node in graph.nodes:
        if not isinstance(node.op, ops.Concat):
            continue
        whole = graph.tensors[node.outputs[0]]
        if joins_runs(node, whole):
            continue
        axis, offset = node.op.axis, 0
        pitch = math.prod(whole.shape[axis:]) * whole.dtype.bytes
        for name in node.inputs:
            part = graph.tensors[name or ""]
            run = math.prod(part.shape[axis:]) * part.dtype.bytes
            maker = producer.get(part.name)
            if maker is not None and maker.name in inside:
                maker = nodes[inside[maker.name]]
            of_channels = axis == len(whole.shape) - 1
            others = [n for n in consumers[part.name] if n is not node]
            apart = pitch if of_channels else 0
            only = node.inputs.count(name) == 1 and all(
                n.name not in alone and _reads_rows(graph, n, part.name, apart) for n in others
            )
            fits = can_be_made_inside(graph, part.name, part, whole)
            free = (
                maker is not None
                and maker.name not in alone
                and _leaves_room(graph, maker, of_channels)
            )
            if only and fits and free:
                found[part.name] = RowSlice(whole.name, offset, pitch, whole.bytes - pitch + run)
            offset += run
    for node in graph.nodes:
        if isinstance(node.op, ops.StridedSlice | ops.Split) and node.name not in alone:
            found |= _slices_in_place(graph, node, consumers, found, alone)
    return found


def _slices_in_place(
    graph: Graph,
    node: Node,
    consumers: Mapping[str, Sequence[Node]],
    parts: Mapping[str, RowSlice],
    alone: Collection[str],
) -> dict[str, RowSlice]:
    """The outputs of a slice or split that convolutions read where its input holds them."""
    x = graph.tensors[node.inputs[0] or ""]
    held = parts.get(x.name, RowSlice(x.name, 0, x.shape[-1] * x.dtype.bytes, x.bytes))
    rows = held.pitch == graph.tensors[held.whole].shape[-1] * x.dtype.bytes
    if x.data is not None or not rows or not _copies_rows(graph, node):
        return {}
    found: dict[str, RowSlice] = {}
    for name, begin in _channels_of(graph, node):
        y, readers = graph.tensors[name], consumers[name]
        reads = [n.name not in alone and _reads_rows(graph, n, name, held.pitch) for n in readers]
        if not reads or not all(reads) or name in parts or name in graph.outputs:
            continue
        run = y.shape[-1] * y.dtype.bytes
        size = (y.elements // y.shape[-1] - 1) * held.pitch + run
        offset = held.offset + begin * x.dtype.bytes
        found[name] = RowSlice(held.whole, offset, held.pitch, size)
    return found


def _channels_of(graph: Graph, node: Node) -> list[tuple[str, int]]:
    """The outputs of a slice or split that are all rows of consecutive channels of its input, and
    the first of these channels."""
    x, op = graph.tensors[node.inputs[0] or ""], node.op
    if isinstance(op, ops.Split):
        firsts = itertools.accumulate(op.sizes, initial=0)
        return list(zip(node.outputs, firsts, strict=False)) if op.axis == len(x.shape) - 1 else []
    assert isinstance(op, ops.StridedSlice)
    entire = op.extent[:-1] == x.shape[:-1] and {*op.stride} == {1}
    return [(node.outputs[0], op.begin[-1])] if entire else []


def _reads_rows(graph: Graph, node: Node, part: str, pitch: int) -> bool:
    """Whether the kernel of a node can read rows at a pitch: of channels, unless it is 0."""
    if isinstance(node.op, ops.StridedSlice | ops.Split):
        return _copies_rows(graph, node)
    if not pitch or node.inputs.count(part) != 1:
        return False
    return _is_of_channels(graph, node) or _is_dense(graph, node, part, pitch)


def _is_dense(graph: Graph, node: Node, part: str, pitch: int) -> bool:
    """Whether a node is a float convolution, which reads its image and its residual at a pitch.

    The image only if the windows of a few pixels stay in L1, where rows whose pitch is a multiple
    of a power of two use only some of the sets.
    """
    op = node.op
    if type(op) is not ops.Conv2D:
        return False
    x, w = (graph.tensors[name or ""] for name in node.inputs[:2])
    if w.data is None or {x.dtype, w.dtype} not in _PITCHED[:2]:
        return False
    row = x.shape[3] * x.dtype.bytes
    wide = (_PIXELS - 1) * op.stride[1] + (w.shape[2] - 1) * op.dilation[1] + 1
    sets = min(row / math.gcd(pitch, _SETS_BYTES), 1.0)
    return part != x.name or w.shape[1] * wide * row <= _NEAR_BYTES * sets


def _copies_rows(graph: Graph, node: Node) -> bool:
    """Whether a slice or split is a copy that keeps all axes."""
    keeps = not isinstance(node.op, ops.StridedSlice) or node.op.shape == node.op.extent
    return keeps and not view_sources(graph.tensors, node)


def _is_of_channels(graph: Graph, node: Node) -> bool:
    """Whether a node is a depthwise convolution with a filter for each of several channels."""
    if type(node.op) is not ops.DepthwiseConv2D or node.op.multiplier > 1:
        return False
    x, w = (graph.tensors[name or ""] for name in node.inputs[:2])
    return x.shape[3] > 1 and w.data is not None and {x.dtype, w.dtype} in _PITCHED


def _leaves_room(graph: Graph, node: Node, of_channels: bool) -> bool:
    if isinstance(node.op, ops.Transpose):
        return True
    if isinstance(node.op, ops.StridedSlice | ops.Split):
        return _copies_rows(graph, node)
    if not of_channels:
        return False
    if isinstance(node.op, ops.Gather):
        image, picks = (graph.tensors[name or ""] for name in node.inputs)
        return len(picks.shape) == 1 and node.op.axis == len(image.shape) - 2
    if type(node.op) is ops.Conv2D:
        return {graph.tensors[name or ""].dtype for name in node.inputs[:2]} in _PITCHED
    if isinstance(node.op, ops.Add):
        return _adds_bytes(graph, node)
    return _is_of_channels(graph, node) or isinstance(
        node.op, ops.ResizeBilinear | ops.MaxPool2D | ops.AveragePool2D
    )


def _adds_bytes(graph: Graph, node: Node) -> bool:
    """Whether a node adds two computed tensors of quantized bytes and of one shape."""
    out = graph.tensors[node.outputs[0]]
    ins = [graph.tensors[name or ""] for name in node.inputs]
    alike = all((t.shape, t.dtype) == (out.shape, out.dtype) for t in ins)
    computed = all(t.data is None for t in ins)
    return alike and computed and out.dtype in (DType.I8, DType.U8) and out.is_quantized


def _same_quantization(x: Tensor, y: Tensor) -> bool:
    quantized = np.arange(256, dtype=np.uint8).view(x.dtype.numpy)
    return bool(np.array_equal(concat_rescale(quantized, x, y), quantized))


def memory_bases(graph: Graph) -> dict[str, str]:
    """Map each non-constant tensor to the tensor whose memory holds it, often itself."""
    found = {name: part.whole for name, part in parts_of_rows(graph).items()}

    def base(name: str) -> str:
        while name in found:
            name = found[name]
        return name

    for node in graph.nodes:
        found.update(view_sources(graph.tensors, node))
        whole = graph.tensors[node.outputs[0]] if node.outputs else None
        if whole is None or not joins_runs(node, whole):
            continue
        for name in node.inputs:
            if name is None:
                continue
            held = base(name)
            if held != whole.name and can_be_made_inside(graph, held, graph.tensors[name], whole):
                found[held] = whole.name
    return {t.name: base(t.name) for t in graph.tensors.values() if t.data is None}
