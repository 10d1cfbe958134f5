"""2-, 3-, 4- and 8-bit weights with a scale per group as one stream of weights and scales.

For a row (outlier/grouped_row.c) few prefetches fetch all of a panel, and the kernel adds outliers
from it while it is in the cache. For several rows (conv/i8_stream.h) a panel is unpacked once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edgekit.device.runtime.kernel_facts import I8_UNPACKED_BYTES
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.ops import OutlierFullyConnected
from edgekit.host.compiler.ir.types import Array, Node
from edgekit.host.compiler.lowering.common.window import bias_vector
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.gemm.prefetch import ahead_of, reads_in_turn, runs_alone
from edgekit.host.compiler.lowering.packing import fits_int2, fits_int3, fits_int4
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value, Weights
from edgekit.kb.targets.isa import ByteProduct, Isa

STREAM_SCALES = ("STREAM_F32", "STREAM_BF16", "STREAM_F16")  # numbered as in outlier/stream.h
_KINDS = (ByteProduct.DOT4_SS, ByteProduct.MULL16, ByteProduct.WIDE16, ByteProduct.MADOT)
_MOST_DEPTH, _WIDE_VL = {2: 512, 3: 256, 4: 128}, 8  # so that 16-bit sums of a group fit
STREAM_TABLES, TABLE_COLUMNS = 16, 64  # of outlier/stream.h; columns of its panels
# Per line of weights on a core in order: a row times 2048 x 2048, in simulated time. On rpi3 (A53),
# four threads took 1.3 times as long as one with 4 bits in groups of 32, and 0.7 with 2 bits.
_CYCLES = {
    (ByteProduct.MULL16, 4): 57.0,
    (ByteProduct.MULL16, 3): 91.0,
    (ByteProduct.MULL16, 2): 93.0,
    (ByteProduct.MULL16, 2 + STREAM_TABLES): 64.0,
    (ByteProduct.DOT4_SS, 4): 25.0,
    (ByteProduct.DOT4_SS, 3): 49.0,
    (ByteProduct.DOT4_SS, 2): 32.0,
}
_IN_TURN = 57344  # bytes of weights: on rk3566, 18 KB at a time take 10% longer, 72 KB 3%
_REGISTERS = 32  # that hold the sums of four vectors of columns
_LOOK_UP = 16  # columns at once
_IN_A_BYTE = 4  # values of 2 bits
_SHARED = 16  # bytes whose third bits share bytes with those of the next ones
_AT_ONCE = 256  # panels that are packed together
_LEAST_HALF, _MOST_HALF = np.float32(2**-14), np.float32(65504)  # normal f16


@dataclass(frozen=True)
class Stream:
    """Weights [panel][group][values, then scales]: panels have `columns` columns, the last one only
    as many full vectors as it needs; `groups` are `depth` deep, of `bits` bits per value; `scales`
    is the type of scales, which outlier/stream.h has. `tables`: in the order for look-ups."""

    at: Weights
    groups: int
    columns: int
    depth: int
    bits: int
    scales: str
    tables: bool = False

    @property
    def form(self) -> int:
        """Number of the order of values in outlier/stream.h."""
        return self.bits + (STREAM_TABLES if self.tables else 0)

    @property
    def panel_bytes(self) -> int:
        scale = 4 if self.scales == "STREAM_F32" else 2
        return self.columns * self.groups * (self.depth * self.bits // 8 + scale)

    def padded(self, n: int, isa: Isa) -> int:
        """Columns of all panels."""
        return round_up(n, _unit(isa, self.bits, self.tables))


def is_streamed(ctx: Context, node: Node) -> bool:
    """Whether the weights of an OutlierFullyConnected are stored as a stream: for a row, for
    several rows where another variant streams them for one, and where unpacking costs little.

    Of 64 rows by bytes, copying panels adds 4% of the time on rpi4 and 14% on bpi-f3; on rpi5,
    fetching them ahead saves 9%. 4-bit weights are unpacked anyway: from a stream at most 2%
    slower, on rpi5 and rk3566 10% and more faster.
    """
    isa, (weights, scale) = ctx.isa, operands_of(ctx, node)
    fits = isa.groups_tile.nv * isa.vl * weights.shape[1] // len(scale) <= I8_UNPACKED_BYTES
    if not _has_kernels(isa) or not fits:
        return False
    few = bits_of(ctx, node) <= 4
    if len(scale) == 1:  # there are kernels without groups, for short rows better ones
        return few and _for_a_row(ctx, node) and weights.shape[1] % (2 * isa.k_step) == 0
    if isa.i8 is ByteProduct.MADOT:  # its row by bytes does not fetch them ahead
        return few
    return few or _for_a_row(ctx, node) or isa.i8 is ByteProduct.DOT4_SS


def operands_of(ctx: Context, node: Node) -> tuple[Array, Array]:
    """Weights s8 [n, k] and scales f32 [groups, n] of an OutlierFullyConnected. For a row, the only
    scale of few bits is repeated, so that groups are not deeper than kernels take."""
    weights, scale = ctx.constant(node, 1, "weights"), ctx.constant(node, 2, "scales")
    k, isa = weights.shape[1], ctx.isa
    if len(scale) > 1 or not _has_kernels(isa) or not _for_a_row(ctx, node):
        return weights, scale
    for bits, fits in ((2, fits_int2), (3, fits_int3), (4, fits_int4)):
        step = (2 if bits == 4 else 4) * isa.k_step
        most = min(k, _MOST_DEPTH[bits]) // step * step
        depth = next((d for d in range(most, 0, -step) if k % d == 0), 0)
        if depth and fits(weights):
            return weights, np.repeat(scale, k // depth, axis=0)
    return weights, scale


def _has_kernels(isa: Isa) -> bool:
    return isa.i8 in _KINDS and (isa.i8 is not ByteProduct.WIDE16 or isa.vl == _WIDE_VL)


def _for_a_row(ctx: Context, node: Node) -> bool:
    """Whether this or another variant of a product has a single row."""
    one = ctx.tensor(node.inputs[0]).elements == ctx.tensor(node.inputs[1]).shape[1]
    return one or node.inputs[1] in ctx.weights.panels


def bits_of(ctx: Context, node: Node) -> int:
    """Bits per weight of an OutlierFullyConnected in its stream."""
    weights, scale = operands_of(ctx, node)
    depth = round_up(weights.shape[1] // len(scale), ctx.isa.k_step)
    return 2 if _looks_up(ctx, node) else _bits(ctx.isa, weights, depth)


def stream_of(ctx: Context, node: Node) -> Stream:
    """Stores the weights of an OutlierFullyConnected."""
    isa, (weights, scale) = ctx.isa, operands_of(ctx, node)
    depth = round_up(weights.shape[1] // len(scale), isa.k_step)
    bits, (stored, kind) = bits_of(ctx, node), _stored_scales(scale)
    nv = 2 if isa.i8 is ByteProduct.MULL16 and isa.registers < _REGISTERS else 4
    tables = _looks_up(ctx, node)
    columns = TABLE_COLUMNS if tables else nv * isa.vl
    at = ctx.weights.add(_packed(weights, stored, isa, columns, depth, bits, tables))
    return Stream(at, len(scale), columns, depth, bits, f"STREAM_{kind}", tables)


def _looks_up(ctx: Context, node: Node) -> bool:
    """Whether a product, or another variant of it for a row, looks sums up in tables."""
    assert isinstance(node.op, OutlierFullyConnected)
    others = ctx.weights.panels.get(node.inputs[1] or "") == (TABLE_COLUMNS, None)
    return node.op.tables or (others and ctx.isa.i8 is ByteProduct.MULL16)


def _bits(isa: Isa, weights: Array, depth: int) -> int:
    """Bits per weight in which the kernel can have them."""
    quarters = depth % (4 * isa.i8.group) == 0
    for bits, fits in ((2, fits_int2), (3, fits_int3)):
        if bits == 3 and isa.i8 is ByteProduct.MADOT:
            continue  # no kernel: 4 bits
        if quarters and depth <= _MOST_DEPTH[bits] and fits(weights):
            return bits
    halves = depth % (2 * isa.k_step) == 0 and depth <= _MOST_DEPTH[4]
    return 4 if halves and fits_int4(weights) else 8


def raised_by(isa: Isa, bits: int) -> int:
    """What is added to values before they are stored: 0 for signed ones."""
    if bits == 4:
        return 0 if isa.i8 is ByteProduct.DOT4_SS else 8
    return 1 << bits - 1 if bits < 4 else 0


def sums_of(isa: Isa, bits: int) -> int:
    """Numbers that sums of products of a row and a group begin with (outlier/layer.h)."""
    return _IN_A_BYTE - 1 if _by_columns(isa, bits) else 1


def _by_columns(isa: Isa, bits: int) -> bool:
    """Whether the values of a byte are of several columns (outlier/stream.h)."""
    return bits == 2 and isa.i8 in (ByteProduct.DOT4_SS, ByteProduct.MADOT)


def _unit(isa: Isa, bits: int, tables: bool) -> int:
    """Columns that panels are padded to."""
    if tables:
        return _LOOK_UP
    return isa.vl * (_IN_A_BYTE if _by_columns(isa, bits) else 1)


def grouped_row(
    ctx: Context, node: Node, row: Mapping[str, Field], channel: Value, count: Value
) -> KernelCall:
    """The product of a row, whose fields are x1, sums and x_scale, and of outliers."""
    op = node.op
    assert isinstance(op, OutlierFullyConnected)
    isa, stream = ctx.isa, stream_of(ctx, node)
    n, k = ctx.constant(node, 1, "weights").shape
    ctx.weights.note_panels(node.inputs[1] or "", (stream.columns, None))
    alone = runs_alone(ctx, _CYCLES.get((isa.i8, stream.form)))
    # A row by few bits then loads lines ahead, and has its own distance.
    loads = isa.i8 is ByteProduct.DOT4_SS and ctx.board.in_order and stream.bits < 8
    ahead = {} if loads else ahead_of(ctx, alone)
    tasks, grain = -(-n // stream.columns), 1
    variant = "_ahead" if ahead else ""
    if stream.bits < 8 and not alone and reads_in_turn(ctx):
        ahead, variant = {"IN_TURN": _IN_TURN}, "_in_turn"
        grain = max(1, min(_IN_TURN // stream.panel_bytes, tasks // (2 * ctx.threads)))
    kind = stream.scales.removeprefix("STREAM_").lower()
    name = f"int{stream.bits}_{'look_up' if stream.tables else 'row'}"
    kernel = ctx.kernel(
        f"{name}_{stream.columns}_{stream.depth}_{kind}{variant}",
        "outlier/grouped_row.c",
        "outlier/grouped_row.h",
        "ek_grouped_row_args",
        NV=stream.columns // isa.vl,
        BITS=stream.form,
        GROUPS=stream.depth,
        SCALES=stream.scales,
        **ahead,
    )
    low, high = op.activation.bounds
    residual = ctx.optional(node, 4)
    fields: dict[str, Field] = {
        "n": n,
        "groups": stream.groups,
        "group": k // stream.groups,
        **row,
        "x": Value(node.inputs[0] or ""),
        "channel": channel,
        "count": count,
        "weights": stream.at,
        "bias": ctx.weights.add(
            bias_vector(ctx.optional(node, 3), stream.padded(n, isa), np.dtype(np.float32))
        ),
        "residual": None if residual is None else Value(residual.name),
        "low": low,
        "high": high,
        "y": Value(node.outputs[0]),
    }
    return KernelCall(kernel, fields, tasks, tasks if alone else grain)


def _stored_scales(scale: Array) -> tuple[Array, str]:
    """Scales in as few bytes as hold them exactly, and the name of their type."""
    bits = np.ascontiguousarray(scale, np.float32).view(np.uint32)
    if not np.any(bits & np.uint32(0xFFFF)):
        return (bits >> np.uint32(16)).astype(np.uint16), "BF16"
    size = np.abs(scale)
    if np.all((size == 0) | (size >= _LEAST_HALF) & (size <= _MOST_HALF)):
        half = scale.astype(np.float16)
        if np.array_equal(half.astype(np.float32), scale):
            return half.view(np.uint16), "F16"
    return np.ascontiguousarray(scale, np.float32), "F32"


def _packed(
    weights: Array, scale: Array, isa: Isa, columns: int, depth: int, bits: int, tables: bool
) -> Array:
    """[panel][group][values, then scales], u8, of weights [n, k] and scales [groups, n]."""
    n, full = len(weights), len(weights) // columns * columns
    size = columns * len(scale) * (depth * bits // 8 + scale.itemsize)
    made = np.empty((full // columns, size), np.uint8)
    for at in range(0, full, columns * _AT_ONCE):
        end = min(at + columns * _AT_ONCE, full)
        made[at // columns : end // columns] = _panels(
            weights[at:end], scale[:, at:end], isa, columns, depth, bits, tables
        )
    if full == n:
        return made.reshape(-1)
    last = round_up(n - full, _unit(isa, bits, tables))
    rows = np.zeros((last, weights.shape[1]), np.int8)
    rows[: n - full] = weights[full:]
    scales = np.zeros((len(scale), last), scale.dtype)
    scales[:, : n - full] = scale[:, full:]
    packed = _panels(rows, scales, isa, last, depth, bits, tables)
    return np.concatenate([made.reshape(-1), *packed])


def _panels(
    weights: Array, scale: Array, isa: Isa, columns: int, depth: int, bits: int, tables: bool
) -> Array:
    """Full panels, u8 [panels, size]."""
    (n, k), groups, run = weights.shape, len(scale), 4 if tables else isa.i8.group
    deep = np.zeros((n, groups, depth), np.int8)
    deep[:, :, : k // groups] = weights.reshape(n, groups, -1)
    parts = deep.reshape(n // columns, columns, groups, depth // run, run)
    values = parts.transpose(0, 2, 3, 1, 4).reshape(n // columns, groups, -1).view(np.uint8)
    if tables:
        fours = (values.reshape(*values.shape[:2], -1, 4) + np.uint8(2)) & np.uint8(3)
        values = np.bitwise_or.reduce(fours << np.arange(0, 8, 2, dtype=np.uint8), axis=-1)
    elif _by_columns(isa, bits):
        values = _by_four_vectors(values, isa)
    elif bits < 8:
        codes = (values + np.uint8(raised_by(isa, bits))) & np.uint8((1 << bits) - 1)
        values = _three_bits(codes, isa, columns) if bits == 3 else _shared_bytes(codes, bits)
    tail = scale.reshape(groups, -1, columns).transpose(1, 0, 2)
    tail = np.ascontiguousarray(tail).view(np.uint8)
    return np.concatenate([values, tail], axis=2).reshape(n // columns, -1)


def _by_four_vectors(values: Array, isa: Isa) -> Array:
    """Bytes u8 [..., count / 4] of 2-bit values u8 [..., count] of steps of four vectors: the first
    three plus 2, the last one signed."""
    vectors = values.reshape(*values.shape[:-1], -1, _IN_A_BYTE, isa.vl * isa.i8.group)
    codes = (vectors + np.array([[2], [2], [2], [0]], np.uint8)) & np.uint8(3)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    shared: Array = np.bitwise_or.reduce(codes << shifts, axis=-2)
    return shared.reshape(*values.shape[:-1], -1)


def _shared_bytes(codes: Array, bits: int) -> Array:
    """Bytes u8 [..., count * bits / 8] of codes u8 [..., count] with several in each, the first
    part of them in the lowest bits."""
    runs = codes.reshape(*codes.shape[:-1], 8 // bits, -1)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    shared: Array = np.bitwise_or.reduce(runs << shifts, axis=-2)
    return shared


def _three_bits(codes: Array, isa: Isa, columns: int) -> Array:
    """Bytes of 3-bit codes u8 [..., count]: of each step the lower two bits of two runs of bytes,
    then their third bits, for both in a byte; and so on (outlier/stream.h)."""
    step, vectors = columns * isa.i8.group, -(-columns // isa.vl)
    run = _SHARED if isa.i8.group > 1 else (vectors + 1) // 2 * isa.vl
    pairs = -(-step // (2 * run))
    lower = _shared_bytes(codes & np.uint8(3), 2).reshape(*codes.shape[:-1], -1, step)
    third = (codes >> np.uint8(2)).reshape(*codes.shape[:-1], 4, -1, step)
    room = [(0, 0)] * (third.ndim - 1) + [(0, 2 * run * pairs - step)]
    third = np.pad(third, room).reshape(*third.shape[:-1], pairs, 2, run)
    shifts = np.array([[2, 0], [3, 1], [6, 4], [7, 5]], np.uint8)[:, None, None, :, None]
    upper = np.bitwise_or.reduce(third << shifts, axis=(-5, -2))
    parts = [
        part
        for pair in range(pairs)
        for part in (lower[..., 2 * run * pair : 2 * run * (pair + 1)], upper[..., pair, :])
    ]
    return np.concatenate(parts, axis=-1).reshape(*codes.shape[:-1], -1)
