"""Images of bytes that a convolution copies with their padding: conv/i8_border.h."""

from __future__ import annotations

import math

from edgekit.device.kernel_facts import I8_SCRATCH_BYTES
from edgekit.host.align import round_up
from edgekit.host.lower.context import Context
from edgekit.host.lower.plan import Field
from edgekit.host.lower.window import Window
from edgekit.kb.isa import Tile

_VECTOR = 16  # bytes that are copied at a time
_LONGEST_ROW = 1024  # bytes of an image: copying it costs less than finding what crosses its ends
_MOST_BORDERED = 36864  # bytes of all images and their padding: they stay in the L1 cache


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
