"""Depthwise convolutions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from edgekit.device.runtime.kernel_facts import DEPTHWISE_BLOCKS_TILE, DEPTHWISE_TILE, MOST_TAPS
from edgekit.host.compiler.costs.methods.operators import Form, sums_at_once, walk_of
from edgekit.host.compiler.costs.methods.rule import LINE
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.ops import DepthwiseConv2D
from edgekit.host.compiler.ir.quantization import (
    activation_range,
    convolution_multiplier,
    zero_point_of,
)
from edgekit.host.compiler.ir.types import Array, DType, Node, Tensor
from edgekit.host.compiler.lowering.common.arguments import C_TYPES
from edgekit.host.compiler.lowering.common.tables import look_up_of
from edgekit.host.compiler.lowering.common.window import Window, window_of
from edgekit.host.compiler.lowering.context import Context, lowers, padded
from edgekit.host.compiler.lowering.conv.conv import product
from edgekit.host.compiler.lowering.gemm.epilogues import epilogue_of
from edgekit.host.compiler.lowering.gemm.requantize import (
    requantize_fields,
    saturates,
    shift_macro,
    sum_range,
    wrap_i32,
)
from edgekit.host.compiler.lowering.methods import form_of, method_of
from edgekit.host.compiler.lowering.packing import signed_weights
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.clusters import timed_core

_REPEATED = 2048  # values per task, where channels are repeated
_BLOCKS_OF_LINE = 4  # minimum channel blocks per cache line for column strips to pay


@lowers(ops.DepthwiseConv2D)
def lower_depthwise(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, DepthwiseConv2D)
    x, w = ctx.tensor(node.inputs[0]), ctx.tensor(node.inputs[1])
    y = ctx.tensor(node.outputs[0])
    window = window_of(op, x, w, y)
    data = ctx.constant(node, 1, "weights")
    if window.x[3] == 1:
        # With one input channel this is an ordinary convolution with a different weight layout.
        rows = np.ascontiguousarray(data.reshape(-1, data.shape[3]).T)
        return product(ctx, node, window, rows, op.activation)
    if math.prod(window.kernel) > MOST_TAPS:
        raise ctx.unsupported(node, f"a window of {window.kernel[0]}x{window.kernel[1]}")
    calls: list[KernelCall] = []
    source = Value(x.name)
    if op.multiplier > 1:
        source, repeat = _repeat_channels(ctx, node, x, op.multiplier)
        calls.append(repeat)
        n, h, w_, _ = window.x
        window = dataclasses.replace(window, x=(n, h, w_, window.y[3]))
    if x.dtype is w.dtype and x.dtype in (DType.F32, DType.F16):
        return [*calls, _lower_float(ctx, node, window, data, source)]
    if x.dtype == w.dtype == y.dtype and x.dtype.is_quantized:
        return [*calls, _lower_int8(ctx, node, window, data, source)]
    raise ctx.unsupported(node, f"the types {x.dtype.value} and {w.dtype.value}")


def _repeat_channels(ctx: Context, node: Node, x: Tensor, times: int) -> tuple[Value, KernelCall]:
    """x with each channel repeated `times` times, to match the channels of the weights."""
    target = ctx.scratch(node, x.bytes * times)
    kernel = ctx.kernel(
        f"repeat_{x.dtype.bytes}_{times}",
        "layout/repeat.c",
        "layout/repeat.h",
        "ek_repeat_args",
        ITEM=f"uint{8 * x.dtype.bytes}_t",
        TIMES=times,
        BLOCK=_REPEATED,
    )
    fields: dict[str, Field] = {"count": x.elements, "x": Value(x.name), "y": target}
    return target, KernelCall(kernel, fields, math.ceil(x.elements / _REPEATED))


def _block_channels(ctx: Context, dtype: DType) -> int:
    return sums_at_once(ctx.isa, dtype.is_float)


def _depthwise_form(node: Node, window: Window, dtype: DType) -> Form:
    form = form_of(node, window, dtype.value, 0)
    shape = GemmShape(window.pixels, math.prod(window.kernel), window.y[3])
    return dataclasses.replace(form, kind="depthwise", shape=shape)


def rows_at_once(ctx: Context, node: Node, window: Window, dtype: DType) -> int:
    """Output rows computed per pass."""
    method = method_of(ctx, node, _depthwise_form(node, window, dtype))
    assert method is not None and method.mr is not None
    return method.mr


def _several_blocks(ctx: Context, node: Node, window: Window, dtype: DType) -> bool:
    """True if a tile computes several channel blocks at once."""
    method = method_of(ctx, node, _depthwise_form(node, window, dtype))
    assert method is not None and method.nr is not None
    return method.nr > _block_channels(ctx, dtype)


def _kernel_name(
    ctx: Context, node: Node, window: Window, dtype: DType
) -> tuple[str, dict[str, str | int]]:
    kh, kw = window.kernel
    stride = window.stride
    macros: dict[str, str | int] = {"TX": C_TYPES[dtype], "KH": 0}
    if dtype.is_float:
        macros["FLOAT_X"] = 1
    rows = rows_at_once(ctx, node, window, dtype)
    if not _depthwise_form(node, window, dtype).has_fixed_window:
        return f"{dtype.value}_dwconv", macros
    macros |= {"KH": kh, "KW": kw, "SH": stride[0], "SW": stride[1], "ROWS": rows}
    strides = f"{stride[0]}" if stride[0] == stride[1] else f"{stride[0]}x{stride[1]}"
    return f"{dtype.value}_dwconv_{kh}x{kw}s{strides}_{rows}", macros


def _common_fields(
    ctx: Context, node: Node, window: Window, source: Value, weights: Array, border: Array
) -> dict[str, Field]:
    dtype = ctx.tensor(node.outputs[0]).dtype
    block, rows = _block_channels(ctx, dtype), rows_at_once(ctx, node, window, dtype)
    pitch = ctx.pitch(source.tensor) if source.tensor == node.inputs[0] else window.x[3]
    look_up = ctx.look_ups.get(node.name)
    out = node.outputs[0] if look_up is None else look_up.out
    return {
        "win": window.fields,
        "x_pitch": pitch,
        "pitch": ctx.pitch(out),
        "x": source,
        "weights": ctx.weights.add(_pack_taps(weights.reshape(-1, weights.shape[3]), block)),
        "border": ctx.weights.add_filled(border, window.x[2] * pitch),
        "y": Value(node.outputs[0]),
        "strip": _tiles_per_strip(ctx, node, window, rows, dtype),
    }


def _tiles_per_strip(ctx: Context, node: Node, window: Window, rows: int, dtype: DType) -> int:
    """Column tiles per strip, the `strip` field of ek_dwconv_args.

    If the lines of x and y for `rows` rows exceed L1, each channel block reloads them; then a strip
    is as many tiles as fit into half of L1. Measured in simulated time, that pays if a line
    holds four blocks and the core stalls on L2 (in-order) or on its lines. In-order cores get at
    least 8 columns because their prefetchers track few lines.
    """
    form, core = _depthwise_form(node, window, dtype), timed_core(ctx.board)
    walk, several = walk_of(form, ctx.isa), _several_blocks(ctx, node, window, dtype)
    tile = DEPTHWISE_BLOCKS_TILE if several else DEPTHWISE_TILE
    whole = math.ceil(walk.width / tile)
    if core is None or min(LINE, walk.pixel) < _BLOCKS_OF_LINE * walk.block:
        return whole
    fitting = walk.fitting_columns(rows, core.l1d.bytes) // tile
    if core.order == "in":
        return fitting if 2 <= fitting < whole else whole
    return min(max(fitting, 1), whole) if core.l2.line else whole


def _pack_taps(taps: Array, block: int) -> Array:
    """[tap][channel] → [block][tap][block's channels]; the last block overlaps the previous one."""
    channels = taps.shape[1]
    if channels < block:
        return np.pad(taps, ((0, 0), (0, block - channels)))
    starts = [*range(0, channels - block, block), channels - block]
    return np.concatenate([taps[:, at : at + block] for at in starts])


def _build_call(
    ctx: Context,
    node: Node,
    window: Window,
    dtype: DType,
    fields: dict[str, Field],
    extra: Mapping[str, int],
    suffix: str,
) -> KernelCall:
    name, macros = _kernel_name(ctx, node, window, dtype)
    name, macros = name + suffix, {**macros, **extra}
    if (fields["x_pitch"], fields["pitch"]) != (window.x[3], window.x[3]):
        name, macros = f"{name}_pitched", {**macros, "PITCHED": 1}
    source = "conv/dwconv.c"
    if _several_blocks(ctx, node, window, dtype):
        name, source = f"{name}_blocks", "conv/dwconv_blocks.c"
    kernel = ctx.kernel(name, source, "conv/dwconv.h", "ek_dwconv_args", **macros)
    groups = math.ceil(window.y[1] / int(macros.get("ROWS", 1)))
    return KernelCall(kernel, fields, window.y[0] * groups)


def _lower_float(
    ctx: Context, node: Node, window: Window, data: Array, source: Value
) -> KernelCall:
    assert isinstance(node.op, DepthwiseConv2D)
    dtype = ctx.tensor(node.outputs[0]).dtype
    ctx = ctx.of_floats(dtype)
    border = np.zeros((), dtype.numpy)
    fields = _common_fields(ctx, node, window, source, data.astype(dtype.numpy), border)
    low, high = node.op.activation.bounds
    bias = ctx.optional(node, 2)
    width = round_up(window.x[3], ctx.isa.vl)
    values = np.zeros(1) if bias is None or bias.data is None else bias.data
    fields |= {
        "bias": ctx.weights.add(padded(values, width, dtype.numpy)),
        "low_f32": low,
        "high_f32": high,
    }
    function, called, epilogue = epilogue_of(ctx, node, window.x[3])
    return _build_call(ctx, node, window, dtype, fields | epilogue, function, called)


def _lower_int8(ctx: Context, node: Node, window: Window, data: Array, source: Value) -> KernelCall:
    assert isinstance(node.op, DepthwiseConv2D)
    x, w = ctx.tensor(node.inputs[0]), ctx.tensor(node.inputs[1])
    y = ctx.tensor(node.outputs[0])
    x_zero = zero_point_of(x)
    signed, points = signed_weights(data, np.asarray(zero_point_of(w)))
    w_zero = int(points)
    shifted = signed - np.int16(w_zero)
    border = np.asarray(x_zero, x.dtype.numpy)
    fields = _common_fields(ctx, node, window, source, signed.astype(np.int8), border)
    width = round_up(window.x[3], _block_channels(ctx, x.dtype))
    bias = ctx.optional(node, 2)
    sums = np.zeros(1, np.int64) if bias is None or bias.data is None else bias.data
    total = padded(sums, width, np.dtype(np.int64))
    taps = shifted.reshape(-1, shifted.shape[3]).sum(axis=0, dtype=np.int64)
    total -= padded(x_zero * taps, width, np.dtype(np.int64))
    low, high = activation_range(node.op.activation, y)
    factor = convolution_multiplier(x, w, y)
    fields |= requantize_fields(ctx, factor, width)
    largest = sum_range(ctx, node, shifted.reshape(-1, shifted.shape[3]).T).largest
    fields |= {
        "bias": ctx.weights.add(wrap_i32(total)),
        "w_zero": w_zero,
        "y_zero": zero_point_of(y),
        "low": low,
        "high": high,
    }
    after, called, table = look_up_of(ctx, node)
    extra: dict[str, int] = {}
    suffix = ""
    if w_zero:
        extra, suffix = {"W_ZERO": 1}, "_zero"
    elif _takes_bytes(ctx, node, window, x, signed):
        extra, suffix = {"BYTES": 1}, "_bytes"
    if macro := shift_macro(factor, largest):
        short = ctx.isa.widens_eight and saturates(factor, largest, y, low, high)
        extra |= {macro: 1, **({"SHORT": 1} if short else {})}
        suffix += "_unshifted" if macro == "NO_SHIFT" else ""
        suffix += "_short" if short else "_right"
    return _build_call(ctx, node, window, x.dtype, fields | table, extra | after, suffix + called)


def _takes_bytes(ctx: Context, node: Node, window: Window, x: Tensor, weights: Array) -> bool:
    """True if two byte products may be added in 16 bits.

    They must fit, and the core must have more adders than multipliers, which in-order cores do not.
    """
    return (
        ctx.isa.widens_eight
        and not ctx.board.in_order
        and x.dtype is DType.I8
        and _depthwise_form(node, window, x.dtype).has_fixed_window
        and int(weights.min(initial=0)) > -128
    )
