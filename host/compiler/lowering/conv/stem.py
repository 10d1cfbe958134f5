"""Lowers a convolution fused with its neighbors, a few rows at a time (conv/stem.c)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.device.runtime.kernel_facts import CHAIN_BYTES
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import ALIGN, round_up
from edgekit.host.compiler.ir.chains import members_of
from edgekit.host.compiler.ir.types import DType, Node
from edgekit.host.compiler.lowering.common.arguments import C_TYPES
from edgekit.host.compiler.lowering.context import Context, UnsupportedFormError, lowers
from edgekit.host.compiler.lowering.conv.chw_conv import line_width, lower_chw_conv
from edgekit.host.compiler.lowering.conv.conv import lower_conv2d
from edgekit.host.compiler.lowering.elementwise.elementwise import lower_pool
from edgekit.host.compiler.lowering.plan import Field, Kernel, KernelCall, Value

# Bytes between members: larger ones leave the core's cache, and with fewer rows less is shared.
_HELD = 65536
_PIECES = 8  # minimum pieces to share among threads, if the image is tall enough


@dataclass(frozen=True)
class Pieces:
    """How a stem is cut: `rows` of the result per piece; image rows start at element `held` of the
    buffer."""

    rows: int
    held: int


def pieces_of(ctx: Context, members: Sequence[Node]) -> Pieces | None:
    """Cuts a stem; None if a single row does not fit the buffer.

    The graph of `ctx` must contain the members' tensors.
    """
    conv = next(n for n in members if isinstance(n.op, ops.Conv2D))
    image, made = ctx.tensor(conv.inputs[0]), ctx.tensor(conv.outputs[0])
    height = ctx.tensor(members[-1].outputs[0]).shape[1]
    fitting = None
    for rows in range(1, max(height // _PIECES, 1) + 1):
        lines, behind = rows, 0
        if isinstance(pool := members[-1].op, ops.MaxPool2D):
            lines = min((rows - 1) * pool.stride[0] + pool.window[0], made.shape[1])
            size = lines * made.shape[2] * made.shape[3] * made.dtype.bytes
            behind = round_up(size, ALIGN) // made.dtype.bytes
        need = behind
        if conv is not members[0]:
            above = _input_rows(ctx, conv, lines)
            width = line_width(ctx, conv)
            need += image.shape[3] * (
                above * width if width else min(above, image.shape[1]) * image.shape[2]
            )
        need *= made.dtype.bytes
        if need > CHAIN_BYTES or (fitting and need > _HELD):
            break
        fitting = Pieces(rows, behind)
    return fitting


def _input_rows(ctx: Context, conv: Node, rows: int) -> int:
    """Image rows needed for `rows` rows of the convolution's result."""
    op, window = conv.op, ctx.tensor(conv.inputs[1]).shape
    assert isinstance(op, ops.Conv2D)
    return (rows - 1) * op.stride[0] + (window[1] - 1) * op.dilation[0] + 1


@lowers(ops.ImageStem)
def lower_stem(ctx: Context, node: Node) -> list[KernelCall]:
    graph, members = members_of(ctx.graph, node)
    inner = dataclasses.replace(ctx, graph=graph, strips=True)
    pieces = pieces_of(inner, members)
    if pieces is None:
        raise UnsupportedFormError("a stem whose rows do not fit the kernel's buffer")
    conv = next(n for n in members if isinstance(n.op, ops.Conv2D))
    dtype = ctx.tensor(node.outputs[0]).dtype
    width = line_width(inner, conv) if conv is not members[0] else None
    product = lower_chw_conv(inner, conv) if width else lower_conv2d(inner, conv)[0]
    # All channels of a pixel come before the next pixel.
    own: dict[str, Field] = {**product.fields, "panel_outer": 0}
    fields: dict[str, Field] = {"rows": pieces.rows, "held": pieces.held, "conv": own}
    macros: dict[str, str | int] = {
        "T": C_TYPES[dtype],
        "CONV": product.kernel.symbol,
        "CONV_PIXELS": dict(product.kernel.macros)["MR"],
    }
    if width:
        fields["line"] = width
        macros["CHW_LINES"] = 1
    if conv is not members[0]:
        _, channels, height, row = ctx.tensor(node.inputs[0]).shape
        cut = members[0].op
        above = cut.begin[2] if isinstance(cut, ops.StridedSlice) else 0
        fields["x"] = Value(str(node.inputs[0]), above * row * DType.F32.bytes)
        fields["plane"] = height * row
        own["x"] = None
        macros["CHW_CHANNELS"] = channels
    parts: list[Kernel] = [product.kernel]
    if conv is not members[-1]:
        (pool,) = lower_pool(inner, members[-1])
        own["y"] = None
        fields["pool"] = {**pool.fields, "x": None}
        macros["POOL"] = pool.kernel.symbol
        parts.append(pool.kernel)
    half = ctx.of_floats(dtype)
    short = [p.symbol.removeprefix("ek_").removesuffix(f"_{half.isa.simd}") for p in parts]
    name = f"stem{macros.get('CHW_CHANNELS', '')}_{'_'.join(short)}"
    kernel = half.kernel(name, "conv/stem.c", "conv/stem.h", "ek_stem_args", **macros)
    count = math.ceil(ctx.tensor(node.outputs[0]).shape[1] / pieces.rows)
    return [KernelCall(dataclasses.replace(kernel, parts=tuple(parts)), fields, count)]
