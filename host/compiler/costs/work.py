"""Amounts of work in an operator, which the cost model multiplies by a core's rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

import numpy as np

from edgekit.device.runtime.kernel_facts import OUTLIER_CHANNELS
from edgekit.host.compiler.costs.methods.operators import Form, candidates_of
from edgekit.host.compiler.costs.methods.winograd import POINTS, channels_computed, count_tiles
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.by_operator import ByOperator
from edgekit.host.compiler.ir.chains import members_of
from edgekit.host.compiler.ir.exact import can_be_exact, rows_of
from edgekit.host.compiler.ir.quantization import zero_point_of, zero_points_of
from edgekit.host.compiler.ir.traits import CostKind
from edgekit.host.compiler.ir.types import DType, Graph, Node, Operator, Shape, Tensor
from edgekit.host.compiler.ir.winograd import is_exact
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import BoardProfile

_BILINEAR_TAPS = 4
_COLUMN_BYTES = 2  # column index of a nonzero float weight, typically; 1 for a quantized weight
_TILE_ROWS = 8  # approximate rows of a register tile
_NODE_LINE = 64  # bytes that a test of a tree brings into the cache
WINOGRAD = "winograd"  # operator name of a `Work` that uses Winograd's transform

# Costs in float multiply-adds, from simulated time of layers on A76, A55 and X60:
_QUANTIZED = 8  # quantize a value
_GROUP = 6  # convert and scale the sum of a group
_GATHERED = 64  # gather a weight for an outlier
_PASS = 8  # read and write an output once more, per batch of outliers


@dataclass(frozen=True)
class Amounts:
    """Work in an operator, each field with its own rate: calls; multiply-adds or elements;
    contiguous memory runs; register tiles or rows of windows; bytes of computed tensors; bytes of
    constants; float multiply-adds in an 8-bit operator."""

    calls: float = 0.0
    steps: float = 0.0
    runs: float = 0.0
    tiles: float = 0.0
    moved: float = 0.0
    loaded: float = 0.0
    floats: float = 0.0

    def values(self) -> tuple[float, ...]:
        return astuple(self)


AMOUNTS = tuple(Amounts.__dataclass_fields__)


@dataclass(frozen=True)
class Work:
    """The work of one operator. Operators of the same `family` (operator and dtype) share rates.
    A chain or a loop does the work of its `members`, `times` over."""

    kind: CostKind
    op: str
    dtype: str
    amounts: Amounts
    members: tuple[Work, ...] = ()
    times: int = 1

    @property
    def family(self) -> str:
        return f"{self.op}/{self.dtype}"

    @property
    def groups(self) -> tuple[str, str, str]:
        """Keys for looking up a core's rates, most specific first."""
        dtype = "s8" if self.dtype == "u8" else self.dtype
        return f"{self.op}/{dtype}", f"{self.kind}/{dtype}", self.kind


def work_of(graph: Graph, node: Node, lanes: int, board: BoardProfile | None = None) -> Work:
    """Return the work of `node` on vectors of `lanes` 32-bit values; none if it only renames.
    With `board`, convolutions that its kernels run by Winograd's transform are counted that way."""
    tensors = graph.tensors
    kind = node.op.cost_kind
    # 8-bit weights make it an 8-bit product, whatever the dtype of the other operand.
    dtypes = [tensors[t].dtype for t in node.inputs if t is not None] or [DType.F32]
    dtype = min(dtypes[:2], key=lambda d: d.bytes) if kind == "matrix" else dtypes[0]
    if kind == "none":
        return Work(kind, node.op.kind, dtype.value, Amounts())
    named = [tensors[t] for t in dict.fromkeys((*node.inputs, *node.outputs)) if t is not None]
    packs = isinstance(node.op, ops.OutlierFullyConnected)
    loaded = sum(t.packed_bytes if packs else t.bytes for t in named if t.data is not None)
    moved = sum(t.bytes for t in named if t.data is None)
    steps, runs, tiles = _count_steps(graph, node, lanes)
    if node.op.skips_zeros:
        steps, loaded = _nonzero_work(graph, node, loaded)
    if node.op.reads_parts:
        loaded = min(loaded, steps * _NODE_LINE)
    tiles_of = _winograd_sizes(graph, node, dtype, board) if board else None
    if tiles_of is not None:
        steps, runs, tiles = tiles_of
    amounts = Amounts(
        1.0,
        float(steps),
        float(runs),
        float(tiles),
        float(moved),
        float(loaded),
        float(_float_work(graph, node)),
    )
    op = node.op.kind if tiles_of is None else WINOGRAD
    members, times = _member_works(graph, node, lanes, board)
    return Work(kind, op, dtype.value, amounts, members, times)


def _member_works(
    graph: Graph, node: Node, lanes: int, board: BoardProfile | None
) -> tuple[tuple[Work, ...], int]:
    """Work of the operators in a chain or a loop's body, and the number of repetitions."""
    inside = _members(graph, node)
    if inside is None:
        return (), 1
    members = (work_of(inside.graph, member, lanes, board) for member in inside.nodes)
    return tuple(members), inside.times


class _Members(NamedTuple):
    """The nodes of a chain or of a loop's body, the graph that they are in, and how often they
    run."""

    graph: Graph
    nodes: Sequence[Node]
    times: int


def _members(graph: Graph, node: Node) -> _Members | None:
    """The operators that a node runs, or None if it is a single one."""
    op = node.op
    if isinstance(op, ops.RowChain):
        return _Members(*members_of(graph, node), 1)
    if isinstance(op, ops.Loop):
        return _Members(op.body, op.body.nodes, op.steps)
    return None


def _winograd_sizes(
    graph: Graph, node: Node, dtype: DType, board: BoardProfile
) -> tuple[int, int, int] | None:
    """Products, 4x4 tiles and tile channels if Winograd's transform is the cheapest method; None
    otherwise."""
    op = node.op
    if type(op) is not ops.Conv2D:
        return None
    x, weights, y = (graph.tensors[t or ""] for t in (*node.inputs[:2], node.outputs[0]))
    of_bytes = dtype.is_quantized and x.dtype is weights.dtype is y.dtype
    if not (dtype is DType.F32 or of_bytes or op.winograd):
        return None
    oc, kh, kw, ic = weights.shape
    n, height, width, _ = y.shape
    pixels = (n, height, width)
    shape = GemmShape(n * height * width, kh * kw * ic, oc)
    form = Form("conv", shape, dtype.value, pixels, (kh, kw), op.stride, op.dilation)
    isa = board.isa.of_half if op.winograd else board.isa
    able = (c for c in candidates_of(form, isa, board) if c.proven)
    best = min(able, key=lambda c: c.cost, default=None)
    if best is None or best.method.family != WINOGRAD or _is_direct(op, weights):
        return None
    tiles, (c, many) = count_tiles(pixels), channels_computed(dtype.value, (ic, oc))
    return tiles * POINTS * c * many, tiles, tiles * (c + many)


def _is_direct(op: ops.Conv2D, weights: Tensor) -> bool:
    """Whether a convolution is direct although the transform is cheaper: its sums are exact, or
    exceed the integers of the transform."""
    if op.winograd or weights.data is None:
        return False
    if weights.dtype.is_quantized:
        return not is_exact(rows_of(op, weights.data.astype(np.int64) - zero_points_of(weights)))
    return can_be_exact(rows_of(op, weights.data))


def multiply_adds(graph: Graph, node: Node) -> int:
    """Number of multiply-adds with weights or between two computed matrices, zeros of pruned
    weights excluded; 0 for other operators."""
    if inside := _members(graph, node):
        return inside.times * sum(multiply_adds(inside.graph, member) for member in inside.nodes)
    # One lane avoids rounding up to full vectors.
    return int(work_of(graph, node, 1).amounts.steps) if node.op.multiplies else 0


_floats = ByOperator[Callable[[Graph, Node], int]]()


def _float_work(graph: Graph, node: Node) -> int:
    """Float work in 8-bit products, in multiply-adds: quantizing rows, scaling group sums and
    multiplying outliers separately, in batches."""
    count = _floats.of(type(node.op))
    return 0 if count is None else count(graph, node)


@_floats(ops.Loop)
def _loop_floats(graph: Graph, node: Node) -> int:
    inside = _members(graph, node)
    assert inside is not None
    return inside.times * sum(_float_work(inside.graph, member) for member in inside.nodes)


@_floats(ops.DynamicConv2D)
def _image_floats(graph: Graph, node: Node) -> int:
    return _QUANTIZED * graph.tensors[node.inputs[0] or ""].elements


@_floats(ops.DynamicFullyConnected)
def _row_floats(graph: Graph, node: Node) -> int:
    n, k = graph.tensors[node.inputs[1] or ""].shape
    m = graph.tensors[node.outputs[0]].elements // n
    return _QUANTIZED * m * k


@_floats(ops.OutlierFullyConnected)
def _outlier_floats(graph: Graph, node: Node) -> int:
    assert isinstance(node.op, ops.OutlierFullyConnected)
    n, k = graph.tensors[node.inputs[1] or ""].shape
    m = graph.tensors[node.outputs[0]].elements // n
    groups, residual = graph.tensors[node.inputs[2] or ""].shape[0], node.inputs[4:] != ()
    scaled, outliers = _GROUP * groups if groups > 1 else 0, node.op.outliers
    passes = max(-(-outliers // OUTLIER_CHANNELS), int(residual))
    apart = _PASS * (passes + 1) * m + (m + _GATHERED) * outliers if passes else 0
    return _QUANTIZED * m * k + (scaled * m + apart) * n


def _nonzero_work(graph: Graph, node: Node, loaded: int) -> tuple[int, int]:
    """Multiply-adds and bytes of the nonzero weights, including their column indices."""
    weights = graph.tensors[node.inputs[1] or ""]
    zero = zero_point_of(weights) if weights.dtype.is_quantized else 0
    held = 0 if weights.data is None else int(np.count_nonzero(weights.data != zero))
    rows = graph.tensors[node.outputs[0]].elements // weights.shape[0]
    column = 1 if weights.dtype.is_quantized else _COLUMN_BYTES
    return held * rows, loaded - weights.bytes + held * (weights.dtype.bytes + column)


class _Steps(NamedTuple):
    steps: int
    runs: int
    tiles: int = 0


@dataclass(frozen=True)
class _Operands:
    """The shapes of a node's operands, () for absent ones, and its results."""

    shapes: list[Shape]
    outs: list[Tensor]
    lanes: int

    @property
    def out(self) -> int:
        """The elements of the largest result."""
        return max((t.elements for t in self.outs), default=0)

    def round_up(self, n: int) -> int:
        return -(-n // self.lanes) * self.lanes

    def tiles(self, rows: int, columns: int) -> int:
        """Register tiles of a matrix."""
        return -(-rows // _TILE_ROWS) * -(-columns // self.lanes)


_counts = ByOperator[Callable[[Any, _Operands], _Steps]]()


def _count_steps(graph: Graph, node: Node, lanes: int) -> _Steps:
    """Steps, runs and tiles: of a registered function, else those of a copy of the widest
    operand."""
    if inside := _members(graph, node):
        counts = [_count_steps(inside.graph, member, lanes) for member in inside.nodes]
        return _Steps(*(inside.times * sum(each) for each in zip((0, 0, 0), *counts, strict=True)))
    op = getattr(node.op, "inner", node.op)
    shapes = [graph.tensors[t].shape if t is not None else () for t in node.inputs]
    of = _Operands(shapes, [graph.tensors[t] for t in node.outputs], lanes)
    count = _counts.of(type(op))
    if count is not None:
        return count(op, of)
    widest = max([of.out, *(math.prod(shape) for shape in shapes)])
    return _Steps(widest, _count_runs(shapes, [t.shape for t in of.outs]))


@_counts(ops.Conv2D, ops.DynamicConv2D, ops.Conv2D16x8, ops.GroupedConv2D)
def _count_conv(_op: Operator, of: _Operands) -> _Steps:
    oc, kh, kw, ic = of.shapes[1]
    pixels, taps = of.out // oc, kh * kw
    return _Steps(pixels * taps * ic * of.round_up(oc), pixels * taps, of.tiles(pixels, oc))


@_counts(ops.TransposeConv2D)
def _count_transpose_conv(_op: Operator, of: _Operands) -> _Steps:
    oc, kh, kw, ic = of.shapes[1]
    pixels, width = math.prod(of.shapes[0][:3]), oc * kh * kw
    return _Steps(pixels * ic * of.round_up(width), pixels, of.tiles(pixels, width))


@_counts(ops.FullyConnected, ops.OutlierFullyConnected, ops.DynamicFullyConnected)
def _count_rows(_op: Operator, of: _Operands) -> _Steps:
    n, k = of.shapes[1]
    rows = of.out // n
    return _Steps(rows * k * of.round_up(n), rows, of.tiles(rows, n))


@_counts(ops.Recurrent)
def _count_recurrent(_op: Operator, of: _Operands) -> _Steps:
    (time, batch, _), (n, k) = of.shapes[:2]
    rows = time * batch
    return _Steps(rows * k * of.round_up(n), rows, rows * -(-n // of.lanes))


@_counts(ops.QuantizedLSTM)
def _count_quantized_lstm(_op: Operator, of: _Operands) -> _Steps:
    (time, batch, size), (n, k) = of.shapes[0], of.shapes[2]
    return _Steps(time * batch * n * (size + k), time * batch, time * batch * n)


@_counts(ops.QuantizedSVDF)
def _count_quantized_svdf(op: ops.QuantizedSVDF, of: _Operands) -> _Steps:
    return _Steps(of.out * of.shapes[0][1] * op.rank, of.out * op.rank)


@_counts(ops.Fourier)
def _count_fourier(op: ops.Fourier, of: _Operands) -> _Steps:
    """In terms of radix-2 steps, of two multiply-adds a number."""
    return _Steps(2 * of.out * op.points.bit_length(), of.out // op.shown)


@_counts(ops.MatMul)
def _count_matmul(_op: Operator, of: _Operands) -> _Steps:
    n = of.outs[0].shape[-1]
    rows = of.out // n
    return _Steps(of.out * of.shapes[0][-1], rows, of.tiles(rows, n))


@_counts(ops.DepthwiseConv2D)
def _count_depthwise(_op: Operator, of: _Operands) -> _Steps:
    _, kh, kw, channels = of.shapes[1]
    pixels = of.out // channels
    return _Steps(pixels * kh * kw * of.round_up(channels), pixels, of.outs[0].shape[1] * kh)


@_counts(ops.AveragePool2D, ops.MaxPool2D)
def _count_pool(op: ops.AveragePool2D | ops.MaxPool2D, of: _Operands) -> _Steps:
    return _Steps(of.out * math.prod(op.window), of.out // of.outs[0].shape[-1])


@_counts(ops.ResizeBilinear)
def _count_resize(_op: Operator, of: _Operands) -> _Steps:
    return _Steps(of.out * _BILINEAR_TAPS, of.out // of.outs[0].shape[-1])


@_counts(ops.TreeEnsemble)
def _count_trees(_op: Operator, of: _Operands) -> _Steps:
    (rows, _), (nodes,), (trees,) = of.shapes[0], of.shapes[1], of.shapes[3]
    depth = math.ceil(math.log2(nodes / max(trees, 1) + 1)) + 1
    return _Steps(rows * trees * depth, rows * trees)


def _count_runs(ins: list[Shape], outs: list[Shape]) -> int:
    """Maximum row count of all shapes: a lower bound on contiguous runs."""
    return max((math.prod(shape[:-1]) for shape in (*ins, *outs) if shape), default=0)
