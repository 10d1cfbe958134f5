"""How windows of bytes are laid out along k, and read."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.device.runtime.kernel_facts import I8_SEGMENTS
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.types import Array
from edgekit.host.compiler.lowering.common.window import Window
from edgekit.host.compiler.lowering.context import Context
from edgekit.kb.targets.isa import ByteProduct

# Acceptable growth in multiplications from padding rows instead of packing windows
_SEGMENT_WASTE = 1.3
_CHEAP_WASTE = 1.5  # for ARM dot products, whose steps are so short that packing costs more


@dataclass(frozen=True)
class Depth:
    """The layout of k in an 8-bit product.

    With `segments`, window rows are read in place, each rounded up to `segment` values; otherwise
    the entire window is packed and rounded up to `total`.
    """

    segments: bool
    segment: int
    total: int

    def ends_in_half(self, window: Window) -> bool:
        """Whether the last of several steps of 16 values along a row has at most 8."""
        row = window.kernel[1] * window.x[3] if self.segments else window.k
        return row > 16 and 0 < row % 16 <= 8


def depth_of(ctx: Context, window: Window, w_zero: Array) -> Depth:
    step = ctx.isa.k_step
    row = window.kernel[1] * window.x[3]
    whole = round_up(max(window.k, 1), step)
    segment = round_up(max(row, 1), step)
    waste = _CHEAP_WASTE if ctx.isa.i8.is_signed_dot else _SEGMENT_WASTE
    in_place = (
        ctx.isa.i8.reads_bytes
        and (window.pointwise or _needs_no_sums(ctx.isa.i8, w_zero))
        and window.dilation[1] == 1
        and window.kernel[0] <= I8_SEGMENTS
        and window.kernel[0] * segment <= waste * whole
    )
    total = window.kernel[0] * segment if in_place else whole
    return Depth(in_place, segment, total)


def _needs_no_sums(kind: ByteProduct, w_zero: Array) -> bool:
    """True if the weights' zero point can be subtracted without summing windows."""
    return w_zero.size == 1 and (not w_zero.any() or kind is ByteProduct.WIDE16)
