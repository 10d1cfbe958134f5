"""Requantization of 8-bit products: kernel factors, and the kernels that support them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.ir.ops import FullyConnected
from edgekit.host.compiler.ir.quantization import (
    Multiplier,
    activation_range,
    convolution_multiplier,
    dense_multiplier,
    quantized_range,
    zero_point_of,
)
from edgekit.host.compiler.ir.types import Activation, Array, Node, Tensor
from edgekit.host.compiler.lowering.common.window import bias_vector
from edgekit.host.compiler.lowering.context import Context, padded
from edgekit.host.compiler.lowering.gemm.float_requant import Lines, lines_of
from edgekit.host.compiler.lowering.plan import Field

_I32, _F32 = np.dtype(np.int32), np.dtype(np.float32)


def wrap_i32(values: Array) -> Array:
    """Wraps int64 sums to int32, as kernels add modulo 2^32."""
    return (values & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def shift_macro(factor: Multiplier, largest_sum: Array) -> str:
    """The macro of the shortest sequence that supports all channels: NO_SHIFT, RIGHT_ONLY or none;
    sums are at most `largest_sum`."""
    if np.all(factor.shift == 0):
        return "NO_SHIFT"
    right = np.all(factor.shift < 0) and largest_sum.max(initial=0) < 1 << 30
    return "RIGHT_ONLY" if right else ""


def saturates(factor: Multiplier, largest_sum: Array, y: Tensor, low: int, high: int) -> bool:
    """True if all scaled sums fit into 16 bits with the zero point and only the type clamps.

    Sums are at most `largest_sum`, per channel."""
    info = np.iinfo(y.dtype.numpy)
    scale = np.ldexp(factor.multiplier.astype(np.float64), factor.shift - 31)
    most = float((largest_sum * scale).max(initial=0)) + 2 + abs(zero_point_of(y))
    return (low, high) == (info.min, info.max) and most < 1 << 15


def requantize_fields(
    ctx: Context, factor: Multiplier, width: int, rounds_once: bool = False
) -> dict[str, Field]:
    """Per-channel factors. With single rounding there is one shift: `right` = 31 - shift."""
    shift = factor.shift.astype(np.int32)
    parts = {"multiplier": factor.multiplier, "right": np.maximum(-shift, 0)}
    if rounds_once:
        parts["right"] = 31 - shift
    else:
        parts["left"] = np.maximum(shift, 0)
    return {key: ctx.weights.add(padded(v, width, _I32)) for key, v in parts.items()}


def requant_fields(ctx: Context, lines: Lines, width: int) -> dict[str, Field]:
    """The arguments of a kernel that requantizes by lines, for `width` channels."""
    values = {"slope": lines.slope, "offset": lines.offset}
    if lines.second is not None:
        values["second_slope"], values["second_offset"] = lines.second
    return {key: ctx.weights.add(padded(v, width, _F32)) for key, v in values.items()}


@dataclass(frozen=True, eq=False)
class SumRange:
    """The least and the largest sum of each channel (i64 [n]) for any 8-bit values of x."""

    least: Array
    most: Array

    @property
    def largest(self) -> Array:
        """The largest absolute sums."""
        sizes: Array = np.maximum(np.abs(self.least), np.abs(self.most))
        return sizes


def sum_range(ctx: Context, node: Node, weights: Array) -> SumRange:
    """The sums of a product with `weights` [n, k], less their zero point."""
    x = ctx.tensor(node.inputs[0])
    low, high = (code - zero_point_of(x) for code in quantized_range(x.dtype))
    bias = bias_vector(ctx.optional(node, 2), len(weights), _I32).astype(np.int64)
    ends = weights * np.int64(low), weights * np.int64(high)
    least, most = np.minimum(*ends).sum(axis=1), np.maximum(*ends).sum(axis=1)
    return SumRange(bias + least, bias + most)


def lines_for(ctx: Context, node: Node, sums: SumRange, factor: Multiplier) -> Lines | None:
    """The requantization lines of a product that clamps to its type only; None if not applicable.

    On in-order cores each float product stalls longer than the integer path, so only one line is
    worth using, and only with dot product instructions.
    """
    if not ctx.isa.requantizes_in_float or (ctx.board.in_order and not ctx.isa.i8.is_dot):
        return None
    count = 1 if ctx.board.in_order else 2
    return lines_of(factor, sums.least, sums.most, ctx.tensor(node.outputs[0]), count)


@dataclass(frozen=True, eq=False)
class Requantized:
    """How a kernel requantizes sums: a part of its name, its macros, and its arguments."""

    kind: str
    macros: Mapping[str, int]
    fields: Mapping[str, Field]


def requantized_by(
    ctx: Context,
    node: Node,
    weights: Array,
    correction: Array,
    activation: Activation,
    width: int,
) -> Requantized:
    """For a product with `weights` [n, k], less their zero point. `correction` is added to the
    bias; parameters of channels are padded to `width`."""
    x, w, y = (ctx.tensor(name) for name in (*node.inputs[:2], node.outputs[0]))
    dense = isinstance(node.op, FullyConnected)
    factor = dense_multiplier(x, w, y) if dense else convolution_multiplier(x, w, y)
    bias = bias_vector(ctx.optional(node, 2), width, _I32).astype(np.int64)
    bias += padded(correction, width, np.dtype(np.int64))
    bounds = low, high = activation_range(activation, y)
    sums = sum_range(ctx, node, weights)
    kind, macros, lines = _select_rounding(ctx, node, sums, factor, bounds)
    if lines is None:
        fields = requantize_fields(ctx, factor, width, rounds_once=dense)
    else:
        bias += padded(lines.start, width, np.dtype(np.int64))
        fields = requant_fields(ctx, lines, width)
    fields |= {
        "bias": ctx.weights.add(wrap_i32(bias)),
        "y_zero": zero_point_of(y),
        "low": low,
        "high": high,
    }
    return Requantized(kind, macros, fields)


def _select_rounding(
    ctx: Context,
    node: Node,
    sums: SumRange,
    factor: Multiplier,
    bounds: tuple[int, int],
) -> tuple[str, dict[str, int], Lines | None]:
    """How sums are requantized: kernel kind, macros, and lines, if used."""
    y = ctx.tensor(node.outputs[0])
    if isinstance(node.op, FullyConnected):
        return "dense", {"ROUND_ONCE": 1}, None
    if not (macro := shift_macro(factor, sums.largest)):
        return "conv", {}, None
    kind = "conv_unshifted" if macro == "NO_SHIFT" else "conv"
    if not (ctx.isa.widens_eight and saturates(factor, sums.largest, y, *bounds)):
        return f"{kind}_right", {macro: 1}, None
    lines = lines_for(ctx, node, sums, factor)
    if lines is None:
        return f"{kind}_short", {macro: 1, "SHORT": 1}, None
    count = 1 if lines.second is None else 2
    return f"conv_lines{count}", {"FLOAT_REQUANT": count}, lines
