"""Byte products whose weights have a scale per group of k and per output.

Uses conv/i8_conv.c with GROUPS; each call covers as many groups as keep their panels in L1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edgekit.device.runtime.kernel_facts import I8_SCRATCH_BYTES, I8_UNPACKED_BYTES
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.types import Array, DType, Node
from edgekit.host.compiler.lowering.common.arguments import C_TYPES
from edgekit.host.compiler.lowering.common.window import Window, count_tasks
from edgekit.host.compiler.lowering.context import Context, padded
from edgekit.host.compiler.lowering.gemm.grouped_row import Stream, operands_of
from edgekit.host.compiler.lowering.gemm.prefetch import AHEAD, ahead_of
from edgekit.host.compiler.lowering.packing import fits_int4, pack_byte_panels, pack_int4
from edgekit.host.compiler.lowering.plan import Field, Kernel
from edgekit.kb.targets.isa import ByteProduct, Tile

ROOM_BYTES = 64  # bytes that kernels may read past x: one k step of any instruction set
_ROW_VECTORS = 4  # of columns, for a single row
_SHIFT = 128  # offset of an unsigned X1
_F32 = np.dtype(np.float32)


@dataclass(frozen=True, eq=False)
class GroupsPart:
    """The groups of a product that one call covers.

    The caller adds to `fields` the addresses of x from group `first` on, bias and y, and, of
    weights that are not streamed, those of `weights` (packed, `bits` bits per value), which it
    stores, and of scales from that group on.
    """

    kernel: Kernel
    fields: dict[str, Field]
    tasks: int
    weights: Array
    first: int


@dataclass(frozen=True, eq=False)
class GroupsProduct:
    """A product split into parts of `groups` groups each; the last part may have fewer.

    Packed weights have `bits` bits per value, `depth` values per group, and `columns` columns per
    panel.
    """

    parts: tuple[GroupsPart, ...]
    groups: int
    depth: int
    bits: int
    columns: int


def x1_type(ctx: Context) -> DType:
    """The type of X1; for VNNI, which multiplies unsigned by signed bytes, X1 is offset by 128."""
    return DType.U8 if ctx.isa.i8 is ByteProduct.DOT4_US else DType.I8


def groups_product(
    ctx: Context, node: Node, m: int, short: bool, stream: Stream | None = None
) -> GroupsProduct:
    """X1 [m, k] of bytes times a node's weights [n, k], which may be stored as a stream.

    Scales [groups, n] are stored as bfloat16 if `short`.
    """
    weights, scale = operands_of(ctx, node)
    kind, groups, x_type = ctx.isa.i8, len(scale), x1_type(ctx)
    n, k = weights.shape
    group = k // groups
    depth = round_up(group, ctx.isa.k_step)
    tile = _select_tile(ctx, node, m, group, stream is not None)
    columns = tile.nv * ctx.isa.vl
    group_bytes = columns * depth
    halve = fits_int4(weights) and group_bytes <= I8_UNPACKED_BYTES
    bits = stream.form if stream else 4 if halve else 8
    at_once = min(max(I8_UNPACKED_BYTES // group_bytes, 1), groups)
    if not kind.reads_bytes:  # rows are widened in scratch
        at_once = min(at_once, max(I8_SCRATCH_BYTES // (2 * tile.mr * depth), 1))
    name, macros = _stored_form(ctx, stream, bits, short)
    macros |= {
        "GROUPS": depth,
        "W_ZERO": 0,
        **({"NARROW": 1} if kind in (ByteProduct.MULL16, ByteProduct.WIDE16) else {}),
        **(ahead_of(ctx) if m == 1 else {}),
    }
    kernel = ctx.kernel(
        f"{x_type.value}_groups_{tile.mr}x{columns}_{depth}{name}"
        f"{'_ahead' if AHEAD in macros else ''}",
        "conv/i8_conv.c",
        "conv/i8_conv.h",
        "ek_i8_conv_args",
        MR=tile.mr,
        NV=tile.nv,
        TX=C_TYPES[x_type],
        TY="float",
        FLOAT_OUTPUT=1,
        **macros,
    )
    window = Window((1, 1, m, k), (1, 1, m, n), (1, 1))
    tasks, panels = count_tasks(window, tile, ctx.isa.vl)
    common: dict[str, Field] = {
        "win": window.fields,
        "panel_outer": 1,  # a panel (unpacked if 4-bit) stays in L1 for all pixels
        "band": 0,
        "panels": panels,
        "pitch": n,
        "group": group,
        "start": None,
    }
    parts = []
    if stream:
        for first in range(0, groups, at_once):
            fields = {
                **common,
                "groups": min(at_once, groups - first),
                "weights": stream.at,
                "first": first,
                "streamed": groups,
            }
            parts.append(GroupsPart(kernel, fields, tasks, np.zeros(0, np.uint8), first))
        return GroupsProduct(tuple(parts), groups, stream.depth, bits, stream.columns)
    for first, count, packed in _packed_parts(ctx, weights, groups, at_once, depth, columns):
        fields = {**common, "groups": count, "scale_pitch": round_up(n, ctx.isa.vl)}
        if x_type is DType.U8:
            used = slice(first, first + count)
            fields["start"] = ctx.weights.add(_offset_correction(ctx, weights, scale, group, used))
        stored = pack_int4(packed, columns * count * depth) if halve else packed
        parts.append(GroupsPart(kernel, fields, tasks, stored, first))
    return GroupsProduct(tuple(parts), at_once, depth, bits, columns)


def _stored_form(
    ctx: Context, stream: Stream | None, bits: int, short: bool
) -> tuple[str, dict[str, int | str]]:
    """The part of a kernel's name, and the macros, that say how weights and scales are stored."""
    macros: dict[str, int | str] = {} if bits == 8 else {"INT4": 1}
    if stream is None:
        macros |= {"BF16_SCALES": 1} if short else {}
        return f"{'_int4' if bits == 4 else ''}{'_bf16' if short else ''}", macros
    vectors = stream.columns // ctx.isa.vl
    macros |= {"STREAM": vectors, "STREAM_BITS": bits, "SCALES": stream.scales}
    return f"_{stream.scales.lower()}{vectors}_int{bits}", macros


def _select_tile(ctx: Context, node: Node, m: int, group: int, streams: bool) -> Tile:
    """The register tile; wide for a single row if instructions multiply by a lane, and then for
    several rows by weights that another variant packed for a row."""
    isa, name = ctx.isa, node.inputs[1] or ""
    tile = isa.groups_tile
    if m == 1 and isa.lanes:
        tile = Tile(1, _ROW_VECTORS)
        ctx.weights.note_panels(name, (tile.nv * isa.vl, None))
    elif not streams and ctx.weights.panels.get(name) == (_ROW_VECTORS * isa.vl, None):
        tile = Tile(isa.columns.of("s8")[_ROW_VECTORS - 1], _ROW_VECTORS)
    if not isa.i8.reads_bytes:
        most = I8_SCRATCH_BYTES // (2 * round_up(group, isa.k_step))
        if most < 1:
            raise ctx.unsupported(node, f"groups of {group} 8-bit values")
        tile = Tile(min(tile.mr, most), tile.nv)
    return tile


def _packed_parts(
    ctx: Context, weights: Array, groups: int, at_once: int, depth: int, columns: int
) -> Iterator[tuple[int, int, Array]]:
    """Yields first group, groups and packed weights [groups][depth][columns] of each part."""
    n, k = weights.shape
    deep = np.zeros((n, groups, depth), np.int8)
    deep[:, :, : k // groups] = weights.reshape(n, groups, -1)
    for first in range(0, groups, at_once):
        part = deep[:, first : first + at_once]
        count = part.shape[1]
        flat = part.reshape(n, -1)
        yield first, count, pack_byte_panels(flat, columns, ctx.isa, count * depth)


def _offset_correction(
    ctx: Context, weights: Array, scale: Array, group: int, used: slice
) -> Array:
    """Correction for x being `_SHIFT` too large over the groups `used`: [n], in units of sum times
    scale."""
    sums = weights.reshape(len(weights), -1, group).sum(axis=2, dtype=np.int64)[:, used]
    found = -_SHIFT * (sums.T * scale[used].astype(np.float64)).sum(axis=0)
    return padded(found.astype(np.float32), round_up(len(weights), ctx.isa.vl), _F32)
