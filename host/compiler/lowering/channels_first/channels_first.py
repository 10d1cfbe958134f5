"""Lowers operators on channels-first images."""

from __future__ import annotations

import math

import numpy as np

from edgekit.device.runtime.arrays.sparse_input import Csr
from edgekit.device.runtime.arrays.sparse_library import STORED
from edgekit.device.runtime.arrays.sparse_pairs import pack_pairs
from edgekit.device.runtime.kernel_facts import (
    DWCONV_CHW_DIRECT_ROWS,
    DWCONV_CHW_ROWS,
    DWCONV_CHW_SCRATCH,
    DWCONV_CHW_WIDTH,
    MOST_TAPS,
    SPMM_COLUMNS,
    SPMM_COLUMNS_OF_16,
)
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.ops import ChannelsFirstConv2D, ChannelsFirstDepthwiseConv2D
from edgekit.host.compiler.ir.types import Activation, Array, Node, Shape
from edgekit.host.compiler.lowering.common.window import Window, bias_vector
from edgekit.host.compiler.lowering.context import Context, lowers
from edgekit.host.compiler.lowering.narrow import Narrow, narrowed
from edgekit.host.compiler.lowering.plan import Field, Kernel, KernelCall, Value
from edgekit.host.compiler.lowering.sparse.sparse_window import lower_sparse_window
from edgekit.kb.targets.isa import Isa

_F32 = np.dtype(np.float32)
_FIXED_WINDOWS = {(3, 3), (5, 5)}  # windows with specialized kernels, at stride 1 and 2
# Target scratch size in floats: two bands fit in any L1 cache along with streamed data
_BAND = 2560
_DIRECT_BAND = 9216  # floats of x per task when the input is read in place
_PLANNED_COLUMNS = 1 << 16
_TASK = 4096  # outputs: minimum work per thread
_LANES = 16  # of the longest vectors, which read beyond the last f16 weight


@lowers(ops.ChannelsFirstConv2D)
def lower_channels_first_conv(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ChannelsFirstConv2D)
    x, residual = ctx.tensor(node.inputs[0]), ctx.optional(node, 3)
    data = ctx.constant(node, 1, "weights")
    window = channels_first_window(op, x.shape, data.shape, ctx.tensor(node.outputs[0]).shape)
    if not window.pointwise:
        return lower_sparse_window(ctx, node, window)
    rows, cols = data.shape[0], data.shape[3]
    low, high = op.activation.bounds
    weights, pixels = data.reshape(rows, cols), math.prod(x.shape[2:])
    # With a plan, only the row offsets of `a` are read.
    planned = pixels > 1 and cols <= _PLANNED_COLUMNS
    # On x86-64, products of f16 weights were not timed.
    narrow = narrowed(weights) if planned and ctx.board.arch != "x86_64" else None
    fields: dict[str, Field] = {
        **_sparse_layer_fields(ctx, weights, narrow, planned),
        "images": x.shape[0],
        "pixels": pixels,
        "x": Value(x.name),
        "y": Value(node.outputs[0]),
        "bias": ctx.weights.add(bias_vector(ctx.optional(node, 2), rows, _F32)),
        "residual": None if residual is None else Value(residual.name),
        "low": low,
        "high": high,
    }
    in_order = (("EK_IN_ORDER", "1"),) if ctx.board.in_order else ()
    suffix = "" if narrow is None else narrow.suffix
    product = f"ek_model_spmm{suffix}"
    macros = (("EK_STORED", f"{_stored(narrow)}"), ("EK_NAME", product), ("EK_BYTE_COLUMNS", "1"))
    part = Kernel(product, "sparse/spmm.c", "", "", (*macros, *in_order))
    kernel = Kernel(
        f"ek_sparse_layer{suffix}",
        "sparse/layer.c",
        "sparse/layer.h",
        "ek_sparse_layer_args",
        (("PRODUCT", product),),
        (part,),
    )
    return [KernelCall(kernel, fields, None)]


def _stored(narrow: Narrow | None) -> int:
    """The ek_sparse_dtype of weights."""
    if narrow is None:
        return STORED.index("f32")
    return STORED.index("f16" if narrow.scales is None else "s8f")


def _sparse_layer_fields(
    ctx: Context, weights: Array, narrow: Narrow | None, planned: bool
) -> dict[str, Field]:
    """`a` and `plan` of ek_sparse_layer_args, with zero weights omitted."""
    row, col = np.nonzero(weights)
    start = np.searchsorted(row, np.arange(weights.shape[0] + 1)).astype(np.int64)
    values = weights[row, col].astype(np.float32) if narrow is None else narrow.values[row, col]
    size = 1 if weights.shape[1] <= 1 << 8 else 2 if weights.shape[1] <= 1 << 16 else 4
    scales = None if narrow is None else narrow.scales
    entries: dict[str, Field] = {
        "dtype": _stored(narrow),
        "index_bytes": size,
        "rows": weights.shape[0],
        "cols": weights.shape[1],
        "start": ctx.weights.add(start),
        "index": None if planned else ctx.weights.add(col.astype(f"u{size}")),
        "values": None if planned else ctx.weights.add(values),
        "scale": None if scales is None else ctx.weights.add(scales),
    }
    if not planned:
        return {"a": entries, "plan": {"pairs": 0}}
    csr = Csr(weights.shape, start, col.astype(np.int32), values)
    pairs = pack_pairs(csr, SPMM_COLUMNS_OF_16 if ctx.isa.vl == 16 else SPMM_COLUMNS)
    plan: dict[str, Field] = {
        "panels": pairs.panels,
        "pairs": pairs.pairs,
        "pair": ctx.weights.add(pairs.pair),
        "columns": ctx.weights.add(_bytes_of(pairs.columns)),
        "values": ctx.weights.add(pairs.values),
    }
    return {"a": entries, "plan": plan}


def _bytes_of(words: Array) -> Array:
    """Words of two columns below 256, with 8 bits for each."""
    return (words & 0xFF | words >> 16 << 8).astype(np.uint16)


@lowers(ops.ChannelsFirstDepthwiseConv2D)
def lower_channels_first_depthwise(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ChannelsFirstDepthwiseConv2D)
    x, y = ctx.tensor(node.inputs[0]), ctx.tensor(node.outputs[0])
    data = ctx.constant(node, 1, "weights")
    window = channels_first_window(op, x.shape, data.shape, y.shape)
    channels, rows, columns = x.shape[1], y.shape[2], y.shape[3]
    weights = np.ascontiguousarray(data.reshape(-1, channels).T.astype(np.float32))
    narrow = narrowed(weights)
    if narrow is not None and narrow.scales is None:
        weights = np.pad(narrow.values.ravel(), (0, _LANES))
    kernel, band = _depthwise_kernel(ctx, window, op.activation is not Activation.NONE, weights)
    if band == 0 or math.prod(window.kernel) > MOST_TAPS:
        raise ctx.unsupported(node, f"a window of {window.kernel[0]}x{window.kernel[1]}")
    bands = math.ceil(rows / band)
    low, high = op.activation.bounds
    fields: dict[str, Field] = {
        "win": window.fields,
        "x": Value(x.name),
        "weights": ctx.weights.add(weights),
        "bias": ctx.weights.add(bias_vector(ctx.optional(node, 2), channels, _F32)),
        "y": Value(y.name),
        "low": low,
        "high": high,
        "band": band,
        "bands": bands,
    }
    grain = max(1, _TASK // (band * columns))
    return [KernelCall(kernel, fields, x.shape[0] * channels * bands, grain)]


def channels_first_window(
    op: ChannelsFirstConv2D | ChannelsFirstDepthwiseConv2D, x: Shape, weights: Shape, y: Shape
) -> Window:
    n, c, h, w = x
    size = (weights[1], weights[2])
    return Window((n, h, w, c), (n, y[2], y[3], y[1]), size, op.stride, op.dilation, op.padding)


def band_of(window: Window, vl: int) -> int:
    """Output rows of one task whose input rows all fit in scratch; 0 if not even one fits.

    Must match the scratch layout in conv/dwconv_chw.c.
    """
    kh, kw = window.kernel
    sh, sw = window.stride
    dh, dw = window.dilation
    reach = window.y[2] + (kw - 1) * dw // sw + 1
    held = (window.padding.left + window.x[2] + sw - 1) // sw
    line = sw * ((max(reach, held) + 2 * vl - 1) // vl * vl)

    def rows(floats: int) -> int:
        return min((floats // line - (kh - 1) * dh - 1) // sh + 1, window.y[1])

    aimed = rows(_BAND)
    if aimed < 1:
        return max(min(rows(DWCONV_CHW_SCRATCH), 1), 0)
    return math.ceil(window.y[1] / math.ceil(window.y[1] / aimed))


def _depthwise_kernel(
    ctx: Context, window: Window, clamp: bool, weights: Array
) -> tuple[Kernel, int]:
    """The kernel for a window and the output rows per task; 0 rows if scratch cannot hold one."""
    if _is_direct(window, ctx.isa):
        stride, left = window.stride[1], window.padding.left
        name, source = f"f32_dwconv_chw_direct_s{stride}_{left}", "conv/dwconv_chw_direct.c"
        macros: dict[str, str | int] = {"SW": stride, "LEFT": left}
        band = _band_in_place(window, DWCONV_CHW_DIRECT_ROWS)
    elif _reads_rows(ctx, window):
        kh, kw = window.kernel
        name, source = f"f32_dwconv_chw_rows_{kh}x{kw}", "conv/dwconv_chw_rows.c"
        macros = {"KH": kh, "KW": kw}
        band = _band_in_place(window, DWCONV_CHW_ROWS)
    else:
        (name, macros), source = _copying_kernel(window), "conv/dwconv_chw.c"
        band = band_of(window, ctx.isa.vl)
    if clamp and _is_fixed(window):
        name += "_clamp"
    macros.setdefault("CLAMP", int(clamp))
    if weights.dtype == np.float16:
        name += "_f16"
        macros["NARROW"] = 16
    kernel = ctx.kernel(name, source, "conv/dwconv_chw.h", "ek_dwconv_chw_args", **macros)
    return kernel, band


def _is_direct(window: Window, isa: Isa) -> bool:
    """True if conv/dwconv_chw_direct.c applies: 3x3, with all taps within a vector's reach."""
    if not isa.masks_loads or not _is_fixed(window) or window.kernel != (3, 3):
        return False
    left, stride = window.padding.left, window.stride[1]
    return 2 - stride <= left <= 1 and (window.y[2] - 1) * stride < window.x[2]


def _reads_rows(ctx: Context, window: Window) -> bool:
    """True if conv/dwconv_chw_rows.c applies; not on x86-64, where it was never timed."""
    side, width = window.kernel[1] // 2, window.x[2]
    same = window.stride == (1, 1) and window.padding.left == side and window.y[2] == width
    long = ctx.isa.vl + 2 * side <= width <= DWCONV_CHW_WIDTH
    return ctx.board.arch != "x86_64" and ctx.isa.vl > 1 and _is_fixed(window) and same and long


def _band_in_place(window: Window, at_once: int) -> int:
    """Output rows of a task that reads its input in place and writes `at_once` rows at a time.

    The band is sized so that the input stays in the cache.
    """
    groups = max(_DIRECT_BAND // (window.stride[0] * window.x[2] * at_once), 1)
    return min(groups * at_once, window.y[1])


def _is_fixed(window: Window) -> bool:
    """True if a kernel is specialized for this window."""
    stride = window.stride
    same = stride[0] == stride[1] <= 2 and window.dilation == (1, 1)
    return same and window.kernel in _FIXED_WINDOWS


def _copying_kernel(window: Window) -> tuple[str, dict[str, str | int]]:
    if not _is_fixed(window):
        return "f32_dwconv_chw", {"KH": 0, "CLAMP": 1}
    (kh, kw), stride = window.kernel, window.stride[1]
    return f"f32_dwconv_chw_{kh}x{kw}s{stride}", {"KH": kh, "KW": kw, "SW": stride}
