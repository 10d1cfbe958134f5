"""What an 8-bit convolution copies before it multiplies: images with their padding
(conv/i8_border.h), and unsigned bytes as signed ones (conv/i8_windows.h)."""

from __future__ import annotations

import math

from edgekit.device.runtime.kernel_facts import I8_KEPT_TILES, I8_SCRATCH_BYTES
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.types import DType, Node
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.conv.window import Window
from edgekit.host.compiler.lowering.plan import Field
from edgekit.kb.tables.operators import OperatorMethod
from edgekit.kb.targets.isa import ByteProduct, Tile

_VECTOR = 16  # bytes that are copied at a time
_LONGEST_ROW = 1024  # bytes of an image: copying it costs less than finding what crosses its ends
_MOST_BORDERED = 36864  # bytes of all images and their padding: they stay in the L1 cache
_FLIPPED_PANELS = 5  # that share what is flipped once: fewer flip as they read


def border_fields(ctx: Context, window: Window, tile: Tile) -> dict[str, Field]:
    """Of a product that reads rows of windows in place.

    The kernel copies all images where products are dots on cores out of order, where finding
    windows is a larger part; of several threads each would copy them.
    """
    row = window.x[2] * window.x[3]
    size = round_up(math.prod(window.whole.x), _VECTOR) + _VECTOR  # what is written at the end, too
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
    """Whether windows of unsigned bytes are made signed ones once for all panels of weights, where
    each panel's products would do that: they are eight bytes wide on ARM without dot products.
    `in_place`: rows of windows larger than 1x1 stay where they are; `depth`: bytes of a copy.
    """
    unsigned = ctx.tensor(node.inputs[0]).dtype is DType.U8
    panels = window.y[3] / (method.nr or 1)
    if ctx.isa.i8 is not ByteProduct.MULL16 or not unsigned or panels < _FLIPPED_PANELS:
        return False
    if method.split != "n":
        return window.pixels > 1 and (window.pointwise or not in_place)
    # Each panel goes through all pixels: they stay, or would be copied again.
    tiles = math.ceil(window.pixels / (method.mr or 1))
    fits = tiles <= I8_KEPT_TILES and window.pixels * depth <= I8_SCRATCH_BYTES
    return window.pixels > 1 and window.pointwise and fits
