"""Input copies before an 8-bit convolution.

These are images with explicit padding (conv/i8_border.h), and unsigned bytes converted to signed
ones (conv/i8_windows.h).
"""

from __future__ import annotations

import math

from edgekit.device.runtime.kernel_facts import I8_KEPT_TILES, I8_SCRATCH_BYTES
from edgekit.host.compiler.costs.methods.operators import OperatorMethod
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.types import DType, Node
from edgekit.host.compiler.lowering.common.window import Window
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.plan import Field
from edgekit.kb.targets.isa import ByteProduct, Tile

_VECTOR = 16  # bytes per copy
_LONGEST_ROW = 1024  # bytes per image row: copying these costs less than locating border crossings
_MOST_BORDERED = 36864  # bytes of all images including padding, so that they stay in L1
_FLIPPED_PANELS = 5  # panels that share one sign flip; with fewer, the kernel flips as it reads


def border_fields(ctx: Context, window: Window, tile: Tile) -> dict[str, Field]:
    """The argument for padding images of a product that reads window rows in place.

    The kernel copies all images on out-of-order cores with dot product instructions, where locating
    windows takes a larger share of the time. With several threads each would make its own copy, so
    it does not.
    """
    row = window.x[2] * window.x[3]
    # The last vector is written completely
    size = round_up(math.prod(window.whole.x), _VECTOR) + _VECTOR
    if (
        not window.padding.any
        or ctx.threads > 1
        or not ctx.isa.i8.is_signed_dot
        or ctx.board.in_order
        or not _VECTOR <= row <= _LONGEST_ROW
        or size > _MOST_BORDERED
        or size + tile.mr * window.border > I8_SCRATCH_BYTES
    ):
        return {}
    return {"bordered": size}


def flips_as_it_copies(
    ctx: Context, node: Node, window: Window, method: OperatorMethod, in_place: bool, depth: int
) -> bool:
    """True if unsigned windows are made signed once for all panels instead of once per panel.

    Per-panel flips process only eight bytes at a time on ARM without dot products. `in_place`:
    window rows larger than 1x1 are not copied; `depth`: bytes per copied window.
    """
    unsigned = ctx.tensor(node.inputs[0]).dtype is DType.U8
    panels = window.y[3] / (method.nr or 1)
    if ctx.isa.i8 is not ByteProduct.MULL16 or not unsigned or panels < _FLIPPED_PANELS:
        return False
    if method.split != "n":
        return window.pixels > 1 and (window.pointwise or not in_place)
    # Each panel visits all pixels, so the copies must be kept or they would be repeated.
    tiles = math.ceil(window.pixels / (method.mr or 1))
    fits = tiles <= I8_KEPT_TILES and window.pixels * depth <= I8_SCRATCH_BYTES
    return window.pixels > 1 and window.pointwise and fits
