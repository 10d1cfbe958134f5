"""From sums of 8-bit products to codes: factors of kernels, and which kernels serve them."""

from __future__ import annotations

import numpy as np

from edgekit.host.graph.quantization import Multiplier, zero_point_of
from edgekit.host.graph.types import Array, Tensor
from edgekit.host.lower.context import Context, padded
from edgekit.host.lower.plan import Field

_I32 = np.dtype(np.int32)


def wrap_i32(values: Array) -> Array:
    """int64 sums as the int32 the kernels add modulo 2^32."""
    return (values & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def shifts_right_only(factor: Multiplier, largest_sum: Array) -> bool:
    """Whether vi_requantize_right serves all channels, whose sums are at most `largest_sum`."""
    return bool(np.all(factor.shift < 0) and largest_sum.max(initial=0) < 1 << 30)


def saturates(factor: Multiplier, largest_sum: Array, y: Tensor, low: int, high: int) -> bool:
    """Whether all scaled sums fit into 16 bits with the zero point, and only the type clamps."""
    info = np.iinfo(y.dtype.numpy)
    scale = float(np.ldexp(factor.multiplier.astype(np.float64), factor.shift - 31).max())
    most = float(largest_sum.max(initial=0)) * scale + 2 + abs(zero_point_of(y))
    return (low, high) == (info.min, info.max) and most < 1 << 15


def requantize_fields(
    ctx: Context, factor: Multiplier, width: int, rounds_once: bool = False
) -> dict[str, Field]:
    """Per-channel factors. Rounded once there is one shift: `right` = 31 - shift."""
    shift = factor.shift.astype(np.int32)
    parts = {"multiplier": factor.multiplier, "right": np.maximum(-shift, 0)}
    if rounds_once:
        parts["right"] = 31 - shift
    else:
        parts["left"] = np.maximum(shift, 0)
    return {key: ctx.weights.add(padded(v, width, _I32)) for key, v in parts.items()}
