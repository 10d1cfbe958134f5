"""Amounts of work in an operator, which the cost model multiplies by a core's rates."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

import numpy as np

from edgekit.device.runtime.kernel_facts import OUTLIER_CHANNELS
from edgekit.host.compiler.costs.methods.operators import Form, candidates_of
from edgekit.host.compiler.costs.methods.winograd import POINTS
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.chains import members_of
from edgekit.host.compiler.ir.exact import can_be_exact, rows_of
from edgekit.host.compiler.ir.quantization import zero_point_of
from edgekit.host.compiler.ir.traits import CostKind
from edgekit.host.compiler.ir.types import DType, Graph, Node, Operator, Shape
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
    loaded = sum(t.bytes for t in named if t.data is not None)
    moved = sum(t.bytes for t in named if t.data is None)
    steps, runs, tiles = _count_steps(graph, node, lanes)
    if _skips_zeros(node.op):
        steps, loaded = _nonzero_work(graph, node, loaded)
    if isinstance(node.op, ops.TreeEnsemble):
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
    """Work of the operators in a chain or loop body, and the number of repetitions."""
    op = node.op
    if isinstance(op, ops.RowChain):
        whole, members = members_of(graph, node)
        return tuple(work_of(whole, member, lanes, board) for member in members), 1
    if isinstance(op, ops.Loop):
        body = op.body
        return tuple(work_of(body, member, lanes, board) for member in body.nodes), op.steps
    return (), 1


def _winograd_sizes(
    graph: Graph, node: Node, dtype: DType, board: BoardProfile
) -> tuple[int, int, int] | None:
    """Products, 4x4 tiles and tile channels if Winograd's transform is the cheapest method; None
    otherwise."""
    op = node.op
    if type(op) is not ops.Conv2D or not (dtype is DType.F32 or op.winograd):
        return None
    weights = graph.tensors[node.inputs[1] or ""]
    oc, kh, kw, ic = weights.shape
    n, height, width, _ = graph.tensors[node.outputs[0]].shape
    y = (n, height, width)
    shape = GemmShape(n * height * width, kh * kw * ic, oc)
    direct = weights.data is not None and can_be_exact(rows_of(op, weights.data))
    direct = direct and not op.winograd
    form = Form("conv", shape, dtype.value, y, (kh, kw), op.stride, op.dilation, direct=direct)
    isa = board.isa.of_half if op.winograd else board.isa
    able = (c for c in candidates_of(form, isa, board) if c.proven)
    best = min(able, key=lambda c: c.cost, default=None)
    if best is None or best.method.family != WINOGRAD:
        return None
    tiles = n * -(-height // 4) * -(-width // 4)
    return tiles * POINTS * ic * oc, tiles, tiles * (ic + oc)


def multiply_adds(graph: Graph, node: Node) -> int:
    """Number of multiply-adds with weights or between two computed matrices, zeros of pruned
    weights excluded; 0 for other operators."""
    op = getattr(node.op, "inner", node.op)
    if isinstance(op, ops.RowChain):
        whole, members = members_of(graph, node)
        return sum(multiply_adds(whole, member) for member in members)
    if isinstance(op, ops.Loop):
        return op.steps * sum(multiply_adds(op.body, member) for member in op.body.nodes)
    multiplies = op.cost_kind == "matrix" or isinstance(
        op, ops.DepthwiseConv2D | ops.QuantizedLSTM | ops.QuantizedSVDF
    )
    # One lane avoids rounding up to full vectors.
    return int(work_of(graph, node, 1).amounts.steps) if multiplies else 0


def _float_work(graph: Graph, node: Node) -> int:
    """Float work in 8-bit products, in multiply-adds: quantizing rows, scaling group sums and
    multiplying outliers separately, in batches."""
    op = node.op
    if isinstance(op, ops.Loop):
        return op.steps * sum(_float_work(op.body, member) for member in op.body.nodes)
    if isinstance(op, ops.DynamicConv2D):
        return _QUANTIZED * graph.tensors[node.inputs[0] or ""].elements
    if not isinstance(op, ops.OutlierFullyConnected | ops.DynamicFullyConnected):
        return 0
    n, k = graph.tensors[node.inputs[1] or ""].shape
    m = graph.tensors[node.outputs[0]].elements // n
    if isinstance(op, ops.DynamicFullyConnected):
        return _QUANTIZED * m * k
    groups, residual = graph.tensors[node.inputs[2] or ""].shape[0], node.inputs[4:] != ()
    scaled = _GROUP * groups if groups > 1 else 0
    passes = max(-(-op.outliers // OUTLIER_CHANNELS), int(residual))
    apart = _PASS * (passes + 1) * m + (m + _GATHERED) * op.outliers if passes else 0
    return _QUANTIZED * m * k + (scaled * m + apart) * n


def _skips_zeros(op: Operator) -> bool:
    """Whether its kernel multiplies only weights that are not zero."""
    return isinstance(op, ops.PrunedConv2D | ops.PrunedFullyConnected | ops.ChannelsFirstConv2D)


def _nonzero_work(graph: Graph, node: Node, loaded: int) -> tuple[int, int]:
    """Multiply-adds and bytes of the nonzero weights, including their column indices."""
    weights = graph.tensors[node.inputs[1] or ""]
    zero = zero_point_of(weights) if weights.dtype.is_quantized else 0
    held = 0 if weights.data is None else int(np.count_nonzero(weights.data != zero))
    rows = graph.tensors[node.outputs[0]].elements // weights.shape[0]
    column = 1 if weights.dtype.is_quantized else _COLUMN_BYTES
    return held * rows, loaded - weights.bytes + held * (weights.dtype.bytes + column)


def _count_steps(graph: Graph, node: Node, lanes: int) -> tuple[int, int, int]:
    """Steps, runs and tiles."""
    op = getattr(node.op, "inner", node.op)
    if isinstance(op, ops.RowChain):
        whole, members = members_of(graph, node)
        counts = [_count_steps(whole, member, lanes) for member in members]
        steps, runs, tiles = (sum(each) for each in zip(*counts, strict=True))
        return steps, runs, tiles
    if isinstance(op, ops.Loop):
        counts = [_count_steps(op.body, member, lanes) for member in op.body.nodes]
        steps, runs, tiles = (op.steps * sum(each) for each in zip((0, 0, 0), *counts, strict=True))
        return steps, runs, tiles
    shapes = [graph.tensors[t].shape if t is not None else () for t in node.inputs]
    outs = [graph.tensors[t] for t in node.outputs]
    out = max((t.elements for t in outs), default=0)
    if isinstance(op, ops.Conv2D | ops.DynamicConv2D | ops.TransposeConv2D | ops.Conv2D16x8):
        return _product_counts(op, shapes, out, lanes)
    if isinstance(op, ops.FullyConnected | ops.OutlierFullyConnected | ops.DynamicFullyConnected):
        n, k = shapes[1]
        rows = out // n
        return rows * k * _round_up(n, lanes), rows, -(-rows // _TILE_ROWS) * -(-n // lanes)
    if isinstance(op, ops.Recurrent):
        (time, batch, _), (n, k) = shapes[:2]
        return time * batch * k * _round_up(n, lanes), time * batch, time * batch * -(-n // lanes)
    if isinstance(op, ops.QuantizedLSTM):
        (time, batch, size), (n, k) = shapes[0], shapes[2]
        return time * batch * n * (size + k), time * batch, time * batch * n
    if isinstance(op, ops.QuantizedSVDF):
        return out * shapes[0][1] * op.rank, out * op.rank, 0
    if isinstance(op, ops.MatMul):
        n = outs[0].shape[-1]
        rows = out // n
        return out * shapes[0][-1], rows, -(-rows // _TILE_ROWS) * -(-n // lanes)
    if isinstance(op, ops.DepthwiseConv2D):
        kh, kw = shapes[1][1:3]
        pixels = out // shapes[1][3]
        return pixels * kh * kw * _round_up(shapes[1][3], lanes), pixels, outs[0].shape[1] * kh
    if isinstance(op, ops.AveragePool2D | ops.MaxPool2D):
        channels = outs[0].shape[-1]
        return out * math.prod(op.window), out // channels, 0
    if isinstance(op, ops.ResizeBilinear):
        return out * _BILINEAR_TAPS, out // outs[0].shape[-1], 0
    if isinstance(op, ops.TreeEnsemble):
        (rows, _), (nodes,), (trees,) = shapes[0], shapes[1], shapes[3]
        depth = math.ceil(math.log2(nodes / max(trees, 1) + 1)) + 1
        return rows * trees * depth, rows * trees, 0
    widest = max([out, *(math.prod(shape) for shape in shapes)])
    return widest, _count_runs(shapes, [t.shape for t in outs]), 0


def _product_counts(
    op: ops.Conv2D | ops.DynamicConv2D | ops.TransposeConv2D | ops.Conv2D16x8,
    shapes: list[Shape],
    out: int,
    lanes: int,
) -> tuple[int, int, int]:
    oc, kh, kw, ic = shapes[1]
    if isinstance(op, ops.TransposeConv2D):
        pixels, width, taps = math.prod(shapes[0][:3]), oc * kh * kw, 1
    else:
        pixels, width, taps = out // oc, oc, kh * kw
    steps = pixels * taps * ic * _round_up(width, lanes)
    return steps, pixels * taps, -(-pixels // _TILE_ROWS) * -(-width // lanes)


def _count_runs(ins: list[Shape], outs: list[Shape]) -> int:
    """Maximum row count of all shapes: a lower bound on contiguous runs."""
    return max((math.prod(shape[:-1]) for shape in (*ins, *outs) if shape), default=0)


def _round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple
