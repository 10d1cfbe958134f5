"""Operators that multiply: their forms, the methods that compute them, and the costs of these."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from edgekit.device.runtime.kernel_facts import DEPTHWISE_BLOCKS, DEPTHWISE_TILE, I8_SCRATCH_BYTES
from edgekit.host.compiler.costs.methods.bands import (
    BANDS,
    RowTiles,
    band_rows,
    blocks_outside,
    cost_of_memory,
    row_tiles,
    shares_weights,
)
from edgekit.host.compiler.costs.methods.depthwise import Walk, cost_of_rows
from edgekit.host.compiler.costs.methods.gemm import Split
from edgekit.host.compiler.costs.methods.panel_cost import VECTORS, cost_of_parts
from edgekit.host.compiler.costs.methods.winograd import (
    has_winograd,
    tiles_of,
    transformed,
)
from edgekit.host.compiler.costs.methods.winograd_weights import WinogradWeights
from edgekit.host.compiler.ir.types import DType
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import BoardProfile
from edgekit.kb.targets.clusters import makes_whole_products
from edgekit.kb.targets.isa import ByteProduct, Isa, Tile

Kind = Literal[
    "conv",
    "dense",
    "depthwise",
    "chain",  # the depthwise convolution of a potential chain
    "region",  # the largest pruned convolution of images that may be channels-first
    "pruned",  # a pruned single-row layer
    "product",  # of two computed operands
]
Family = Literal[
    "in_place",  # operands in place, weights packed: conv/f32_conv.c, conv/i8_conv.c
    "winograd",
    "depthwise",
    "wide",  # 16-bit images
    "lines",  # channels-first images of few channels, row by row: conv/chw_conv.c
    "unpacked",  # both operands unpacked: product/matmul.c
    "packed",  # computed operands, packed at run time: product/packed.c
    "streamed",  # a few rows by a matrix that is read once, in place: product/streamed.c
    "depthwise_chw",  # on channels-first images
    "sparse",  # pairs of nonzero weights, on channels-first images
    "strips",  # the same for a single row
    "outlier",  # products of bytes, with outliers multiplied as floats
    "recurrent",
    "chain",  # several convolutions, a few rows at a time
    "nna",
]
NEAR = 100  # hundredths of squared distance that a row covers beyond the measured products
_FIXED_WINDOWS = ((3, 3), (5, 5), (7, 7))  # whose specialized depthwise kernels always pay
BLOCKS_OF_K = (128, 256, 512)
ROW_OF_BYTES = Tile(1, 4)  # for a single row: wider tiles read it less often
_FEW_ROWS = 4  # maximum rows of a matrix that multiplies another one in place
# Winograd must take fewer instructions than this fraction of the direct convolution to pay
_GAIN = 0.85


@dataclass(frozen=True, order=True)
class OperatorMethod:
    """A method: kernel family, type multiplied, and register tile of `mr` rows (pixels) x `nr`
    columns (channels), if any. `split` is the outer axis, which threads divide ("m": rows); `kc`
    the block of k (None: all of it); `members` the operators computed together (more than 1 in a
    chain); `band`, with split "n", the quarters of the last-level cache per band of rows (None: see
    `band_rows`)."""

    family: Family
    precision: str
    mr: int | None = None
    nr: int | None = None
    split: Split = "m"
    kc: int | None = None
    members: int = 1
    band: int | None = None


@dataclass(frozen=True)
class Form:
    """The properties of an operator that determine its method: its window and its product, where m
    = pixels of all images `y` [n, oh, ow], k = window, n = channels."""

    kind: Kind
    shape: GemmShape
    dtype: str
    y: tuple[int, int, int] = (1, 1, 1)
    window: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    weight_bytes: int = 0  # packed
    row_bytes: int = 0  # of scratch per row of a tile of 8-bit values
    has_border: bool = False  # windows extend beyond the image
    zeros: int = 0  # tenths of pruned weights
    x_bytes: int = 0  # of all input images
    order: Literal["", "_rows", "_columns"] = ""  # contiguous dim of a product's b, if viewed
    direct: bool = False  # not by Winograd's transform: its rounding or its weights are too large

    @property
    def name(self) -> str:
        """The form as part of a key: rows apply to operators of the same form only."""
        if self.kind in ("dense", "product"):
            return f"{self.kind}{self.order}"
        if self.kind in ("region", "pruned"):
            return f"{self.kind}{self.zeros}"
        window, stride, dilation = (
            f"{a}" if a == b else f"{a}x{b}" for a, b in (self.window, self.stride, self.dilation)
        )
        apart = "" if self.dilation == (1, 1) else f"d{dilation}"
        return f"{self.kind}{window}s{stride}{apart}"

    @property
    def is_float(self) -> bool:
        return self.dtype not in ("s8", "u8")

    @property
    def is_of_points(self) -> bool:
        """True if rows of x are multiplied in place: f32 with a 1x1 window."""
        return (self.dtype, self.window, self.stride) == ("f32", (1, 1), (1, 1))

    @property
    def has_fixed_window(self) -> bool:
        """True if a specialized depthwise kernel pays: for most windows, if a tile fits."""
        tile = DEPTHWISE_TILE + (self.window[1] - 1) // self.stride[1]
        known = self.window in _FIXED_WINDOWS or (max(self.window) <= 7 and self.y[2] >= tile)
        return known and self.dilation == (1, 1) and max(self.stride) <= 2

    @property
    def depth(self) -> int:
        """Input channels per window position."""
        return self.shape.k // math.prod(self.window)


@dataclass(frozen=True)
class MethodCost:
    """A method that computes a form, and its cost in vector multiply-adds and equivalents. Methods
    that are not `proven` are used only if a row requests them: they may spill registers, or deviate
    from the axis, bands and k blocks of the analytic rule (not `by_rule`)."""

    method: OperatorMethod
    cost: float
    proven: bool = True
    by_rule: bool = True


def candidates_of(form: Form, isa: Isa, board: BoardProfile, threads: int = 1) -> list[MethodCost]:
    """All methods for a form on `threads` threads, in order of preference among equal costs. Empty
    for windows that exceed the available scratch. On x86 always the cost on one thread."""
    return list(_enumerate_candidates(form, isa, board, threads if board.arch != "x86_64" else 1))


@functools.lru_cache(8192)  # passes and searches repeatedly query the same operators
def _enumerate_candidates(
    form: Form, isa: Isa, board: BoardProfile, threads: int
) -> tuple[MethodCost, ...]:
    if form.kind == "depthwise":
        return tuple(_depthwise_candidates(form, isa, board, threads))
    if form.kind == "product":
        return tuple(products_of(form, isa, board))
    return (*_in_place(form, isa, board, threads), *_winograd_candidates(form, isa, board, threads))


def packs_products(isa: Isa, board: BoardProfile) -> bool:
    """True if product/packed.c exists for a core and is faster than plain C."""
    return board.arch in ("aarch64", "riscv64") and isa.vl > 1


def products_of(form: Form, isa: Isa, board: BoardProfile) -> list[MethodCost]:
    """The methods of a product of two computed operands; x86 keeps its previous one. Only
    product/packed.c supports halves and operands that are views of stored tensors."""
    m, k, n = form.shape.m, form.shape.k, form.shape.n
    alone = bool(form.order) or form.dtype == "f16"
    tile, packs = isa.f32_tiles[0], alone or packs_products(isa, board)
    steps, long = k * math.ceil(n / isa.vl), (k if form.order == "_columns" else n) >= isa.vl
    loads = 0.5 * math.ceil(m / tile.mr) + packs  # packing a vector also stores it
    family: Family = "packed" if packs else "unpacked"
    method = OperatorMethod(family, form.dtype, tile.mr, tile.nv * isa.vl)
    found = [MethodCost(method, steps * (m + loads))]
    if m <= _FEW_ROWS and long and form.dtype == "f32" and (form.order or board.arch != "x86_64"):
        found.insert(0, MethodCost(OperatorMethod("streamed", "f32"), steps * (m + 0.5)))
    return found


def rows_at_once(method: OperatorMethod, form: Form, board: BoardProfile, threads: int) -> int:
    """Rows per band of a method; 0: no bands. With channels inside, each row tile meets all panels,
    and blocks of k are walked with all rows."""
    if method.mr is None or method.split == "m" or method.kc or method.family != "in_place":
        return 0
    return band_rows(method.band, _row_tiling(form, method), board, threads)


def is_block_outer(method: OperatorMethod, form: Form, board: BoardProfile) -> bool:
    """True if a method walks each block of k with all panels, rather than with one."""
    if method.mr is None or method.kc is None or method.split == "m":
        return False
    return blocks_outside(method.kc, _row_tiling(form, method), form.shape.k, form.shape.n, board)


def banded(
    method: OperatorMethod, rows: int, form: Form, board: BoardProfile, threads: int
) -> OperatorMethod:
    """The method with the band that yields `rows` rows. If several do, the rule's or the smallest
    is used, so that methods with the same walk compare equal."""
    every = (dataclasses.replace(method, band=band) for band in (None, *BANDS))
    return next(m for m in every if rows_at_once(m, form, board, threads) == rows)


def _row_tiling(form: Form, method: OperatorMethod) -> RowTiles:
    assert method.mr is not None and method.nr is not None
    size, sizes = DType(form.dtype).bytes, (form.x_bytes, form.weight_bytes)
    return row_tiles(form.shape, (method.mr, method.nr), form.window, form.stride[1], size, sizes)


def panel_outer(board: BoardProfile, weight_bytes: int) -> bool:
    """True if weights exceed the cache, so that they are walked once, with the pixels inside."""
    return weight_bytes > (board.l2_bytes or 262144) // 2


def sums_at_once(isa: Isa, is_float: bool) -> int:
    """Channels per vector of sums; BLOCK of conv/dwconv_values.h."""
    return 8 if not is_float and isa.widens_eight else isa.vl


def _depthwise_candidates(
    form: Form, isa: Isa, board: BoardProfile, threads: int
) -> Iterator[MethodCost]:
    """Output rows computed at once: two rows share inputs if registers hold both."""
    columns = sums_at_once(isa, form.is_float)
    blocks = math.ceil(form.shape.n / columns)
    shares = isa.shares_rows and form.has_fixed_window and form.y[1] > 1
    y, window, stride, walk = form.y, form.window, form.stride, walk_of(form, isa)
    costs = {n: blocks * cost_of_rows(y, window, stride, n, threads) for n in (1, 2)}
    shares = shares and (threads == 1 or costs[2] < costs[1])
    for rows in (1, 2) if form.has_fixed_window else (1,):
        usual = rows == 1 + (shares and walk.two_rows_pay(isa, board, threads))
        several = form.has_fixed_window and walk.blocks_pay(rows, isa, board)
        method = OperatorMethod("depthwise", form.dtype, rows, columns)
        yield MethodCost(method, costs[rows], usual and not several)
        if form.has_fixed_window and walk.has_blocks(isa):
            method = dataclasses.replace(method, nr=DEPTHWISE_BLOCKS * columns)
            yield MethodCost(method, costs[rows], usual and several)


def walk_of(form: Form, isa: Isa) -> Walk:
    """The walk of a depthwise convolution's images."""
    size = isa.vector_bits // 8 // isa.vl if form.is_float else 1
    block = sums_at_once(isa, form.is_float) * size
    return Walk(form.window, form.stride, form.y[2], form.shape.n * size, block, form.dtype)


def _in_place(form: Form, isa: Isa, board: BoardProfile, threads: int) -> Iterator[MethodCost]:
    """The walk that reads more from beyond L2 is for table rows only. A single row tile reads
    weights once in either walk, but with channels inside its rows are located only once."""
    outer = panel_outer(board, form.weight_bytes)
    outer |= form.is_of_points and shares_weights(form.weight_bytes, form.x_bytes, threads)
    walks: tuple[Split, Split] = ("m", "n")
    for split in walks:
        for tile, proven in _register_tiles(form, isa, board):
            usual = "n" if outer and form.shape.m > tile.mr else "m"
            method = OperatorMethod("in_place", form.dtype, tile.mr, tile.nv * isa.vl, split)
            cost = form.shape.k * _cost_of_step(tile, form, isa, board)
            blocks = list(_k_blocks(form, tile.mr, tile.nv * isa.vl, board))
            block = _shared_block(method, blocks, form, board) if threads > 1 else None
            by_rule = split == usual and block is None
            yield MethodCost(method, cost, proven and by_rule, by_rule)
            yield from _with_bands(MethodCost(method, cost), form, board, threads)
            for kc in blocks:
                kept = 2 * (math.ceil(form.shape.k / kc) - 1) * form.shape.m * form.shape.n
                blocked = dataclasses.replace(method, kc=kc)
                by_rule = split == usual and kc == block
                yield MethodCost(blocked, cost + kept / isa.vl, proven and by_rule, by_rule)


def _shared_block(
    method: OperatorMethod, blocks: list[int], form: Form, board: BoardProfile
) -> int | None:
    """The largest block of k whose rows several threads share in the last-level cache, if the
    complete rows do not fit."""
    outer = (kc for kc in blocks if is_block_outer(dataclasses.replace(method, kc=kc), form, board))
    return max(outer, default=None)


def _with_bands(
    usual: MethodCost, form: Form, board: BoardProfile, threads: int
) -> Iterator[MethodCost]:
    """The same method with other bands, which cost further reads from memory; for tables."""
    rows = _row_tiling(form, usual.method)

    def read(method: OperatorMethod) -> float:
        at_once = rows_at_once(method, form, board, threads)
        return cost_of_memory(at_once, rows, form.weight_bytes, board)

    for band in BANDS:
        method = dataclasses.replace(usual.method, band=band)
        if (
            banded(method, rows_at_once(method, form, board, threads), form, board, threads)
            == method
        ):
            more = max(read(method) - read(usual.method), 0.0)
            yield MethodCost(method, usual.cost + more, False, False)


def _k_blocks(form: Form, mr: int, nr: int, board: BoardProfile) -> Iterator[int]:
    """Blocks of k worth measuring: for pointwise products with several row tiles, if a weight panel
    exceeds half of L1 but a block of it fits. Partial sums are kept in y."""
    held = 4 * nr
    whole = form.shape.m <= mr or form.shape.k * held <= board.l1d_bytes // 2
    if not form.is_of_points or form.has_border or whole:
        return
    yield from (kc for kc in BLOCKS_OF_K if kc < form.shape.k and kc * held <= board.l1d_bytes // 2)


def _register_tiles(form: Form, isa: Isa, board: BoardProfile) -> Iterator[tuple[Tile, bool]]:
    """The register tiles of the board's kernel library, and whether they are proven."""
    lanes = "f32" if form.is_float else form.dtype
    proven, heights = isa.tiles(lanes), isa.columns.of(lanes)
    most = isa.columns.vector_rows(lanes) or max(heights)
    if not form.is_float:
        if form.shape.m == 1 and isa.lanes:
            proven = (ROW_OF_BYTES,)
        if all(t.mr * form.row_bytes > I8_SCRATCH_BYTES for t in proven):
            proven = (Tile(1, isa.i8_tiles[0].nv),)
    more = [Tile(min(height, most), nv) for nv, height in enumerate(heights, 1)]
    if _is_single(form, isa, board):  # no tile spills with one row
        usual = sorted(proven, key=lambda t: -t.nv)
        proven = (*usual, *(t for t in more if t.nv > usual[0].nv))
    for tile in dict.fromkeys((*proven, *more)):
        if tile.mr * form.row_bytes <= I8_SCRATCH_BYTES:
            yield tile, tile in proven


def _cost_of_step(tile: Tile, form: Form, isa: Isa, board: BoardProfile) -> float:
    """Cost of all tiles per k: vector multiply-adds plus loads of operands."""
    vectors = math.ceil(form.shape.n / isa.vl)
    whole, rest = divmod(vectors, tile.nv)
    panels = [tile.nv] * whole + ([rest] if rest else [])
    floats = isa.lanes and isa.registers >= VECTORS and form.is_float
    out_of_order = makes_whole_products(board) and form.shape.m > 1 and form.dtype == "f32"
    if floats and (board.in_order or out_of_order):
        return cost_of_parts(tile, panels, form.shape.m, board.in_order)
    return _multiply_cost(tile, panels, isa, form, board)


def _multiply_cost(
    tile: Tile, panels: list[int], isa: Isa, form: Form, board: BoardProfile
) -> float:
    """A loaded row or vector costs half a multiply-add; a widened vector of bytes a full one, if
    bytes are not multiplied directly. A partial tile costs as much as a full one. Matrix
    instructions take two or four rows; pairing them costs half a multiply-add per row."""
    rows = 1 if _is_single(form, isa, board) else tile.mr
    kind = None if form.is_float else isa.i8
    vector = 1.0 if kind is ByteProduct.WIDE16 else 0.5
    row, products = 0.5, float(rows)
    if kind in (ByteProduct.MMLA, ByteProduct.MADOT):
        row, products = 1.0, math.ceil(rows / (2 if kind is ByteProduct.MMLA else 4))
    tiles = math.ceil(form.shape.m / tile.mr)
    return tiles * sum(products * nv + row * rows + vector * nv for nv in panels)


def _is_single(form: Form, isa: Isa, board: BoardProfile) -> bool:
    """True for a single float row on a core where wide panels help: in simulated time 32
    columns take 0.93 of 12 on an A76, 0.97 to 1.01 on an A72, 1.5 on an A53."""
    one = form.shape.m == 1 and form.is_float and isa.lanes
    return one and not board.in_order and makes_whole_products(board)


def _winograd_candidates(
    form: Form, isa: Isa, board: BoardProfile, threads: int
) -> Iterator[MethodCost]:
    """The candidates that use Winograd's transform, with costs measured on 64-bit ARM."""
    c, oc, vl = form.depth, form.shape.n, isa.vl
    whole = c > 0 and not (form.is_float and (c % vl or oc % vl))
    if form.direct or not (whole and has_winograd(form.dtype, isa)):
        return
    if (form.kind, form.window, form.stride, form.dilation) != ("conv", (3, 3), (1, 1), (1, 1)):
        return
    for place, tile in enumerate(tiles_of(form.dtype, form.y, c, isa)):
        work = transformed(form.dtype, form.y, (c, oc), vl, tile, board.in_order)
        weights = WinogradWeights(work, form.dtype, form.weight_bytes, board, threads)
        cost = work.cost(threads) / _GAIN + weights.cost_of_stored()
        method = OperatorMethod("winograd", form.dtype, tile.mr, tile.nv * vl)
        yield MethodCost(method, cost, threads > 1 or place == 0)
