"""Operators that multiply: their form, the methods that compute them, and what these cost."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from edgekit.device.runtime.kernel_facts import I8_SCRATCH_BYTES, WINOGRAD_CHANNELS
from edgekit.kb.costs.bands import (
    BANDS,
    Rows,
    band_rows,
    blocks_outside,
    cost_of_memory,
    cost_of_weights,
    shares_weights,
)
from edgekit.kb.costs.depthwise import cost_of_rows, lines_of
from edgekit.kb.costs.steps import VECTORS, cost_of_parts
from edgekit.kb.costs.winograd import POINTS, Transformed, has_winograd
from edgekit.kb.features import GemmKey, GemmShape
from edgekit.kb.tables.method import Split
from edgekit.kb.targets.board import BoardProfile
from edgekit.kb.targets.clusters import makes_whole_products
from edgekit.kb.targets.isa import ByteProduct, Isa, Tile

Kind = Literal[
    "conv",
    "dense",
    "depthwise",
    "chain",  # the depthwise convolution of what may be a chain
    "region",  # the largest pruned convolution of images that may be channel-major
    "pruned",  # a pruned layer of one row
    "product",  # of two computed operands
]
Family = Literal[
    "in_place",  # operands where they are, weights packed: conv/f32_conv.c, conv/i8_conv.c
    "winograd",
    "depthwise",
    "wide",  # 16-bit images
    "unpacked",  # both operands as they are: product/matmul.c
    "packed",  # computed operands, packed as they are multiplied: product/packed.c
    "streamed",  # a few rows by a matrix that is read once, where it lies: product/streamed.c
    "planar",  # depthwise, on channel-major images
    "sparse",  # pairs of weights that are not zero, on channel-major images
    "strips",  # the same for a single row
    "outlier",  # products of bytes, and of floats where these are large
    "recurrent",
    "chain",  # several convolutions, some rows at a time
    "nna",
]
NEAR = 100  # hundredths of squared distance beyond what was measured that a row holds for
_FIXED_WINDOWS = ((3, 3), (5, 5), (7, 7))  # depthwise ones that have kernels of their own
_FEW_TILES = 4  # of Winograd: more channels at once instead of more of them
BLOCKS_OF_K = (128, 256, 512)
ROW_OF_BYTES = Tile(1, 4)  # of a single row: the wider, the less often it is read
_FEW_ROWS = 4  # of a matrix that meets the other one where it lies
_GAIN = 0.85  # fewer instructions than this share of the direct convolution's, or it does not pay


@dataclass(frozen=True, order=True)
class OperatorMethod:
    """The kernels of a family, the register tile of `mr` rows (pixels) and `nr` columns (channels)
    where they have one, the axis that is walked last and shared by threads first ("m": rows), the
    type that is multiplied, the block of k that is walked at a time (None: all of it), how many
    operators are computed together: 1, in a chain more, and, with channels walked last, the
    quarters of the last cache that a band of rows fills (None: by the rule of `band_rows`)."""

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
    """An operator as far as its method depends on it: its product, whose m are the pixels of all
    images `y` [n, oh, ow], whose k is the window, and whose n are the channels; and the window."""

    kind: Kind
    shape: GemmShape
    dtype: str
    y: tuple[int, int, int] = (1, 1, 1)
    window: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    weight_bytes: int = 0  # packed
    row_bytes: int = 0  # of scratch for each row of a tile of 8-bit values
    has_border: bool = False  # windows that reach beyond the image
    zeros: int = 0  # tenths of pruned weights
    x_bytes: int = 0  # of all images that are read
    order: Literal["", "_rows", "_columns"] = ""  # what of a product's b is contiguous, if viewed

    @property
    def name(self) -> str:
        """The feature of a key: rows answer for operators of the same form only."""
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
        """Whether rows of x are multiplied as they lie: in f32, with a window of one."""
        return (self.dtype, self.window, self.stride) == ("f32", (1, 1), (1, 1))

    @property
    def has_fixed_window(self) -> bool:
        """Whether there are depthwise kernels of just this window."""
        return self.window in _FIXED_WINDOWS and self.dilation == (1, 1) and max(self.stride) <= 2

    @property
    def depth(self) -> int:
        """Channels of x that a window multiplies."""
        return self.shape.k // math.prod(self.window)


@dataclass(frozen=True)
class OperatorRow:
    """The best known method of an operator's key; None: the analytic one, than which none was
    found to be better. `radius` as in `Row`."""

    key: GemmKey
    method: OperatorMethod | None
    shape: GemmShape
    source: str
    ratio: float | None = None  # its time over the analytic method's
    radius: int | None = None
    gflops: float | None = None


@dataclass(frozen=True)
class Candidate:
    """A method that computes a form, and its cost: vector multiply-adds and what is like them.
    Those that are not `proven` are only taken where a row says so: they may spill registers, or
    are walked otherwise than `by_rule`, which says axis, bands and blocks of k."""

    method: OperatorMethod
    cost: float
    proven: bool = True
    by_rule: bool = True


def candidates_of(form: Form, isa: Isa, board: BoardProfile, threads: int = 1) -> list[Candidate]:
    """All methods that compute a form on so many threads, the first of equally dear ones first.
    None for windows that need more scratch than there is. x86 keeps those of one thread."""
    return list(_candidates(form, isa, board, threads if board.arch != "x86_64" else 1))


@functools.lru_cache(8192)  # passes and searches ask for the same operators again and again
def _candidates(form: Form, isa: Isa, board: BoardProfile, threads: int) -> tuple[Candidate, ...]:
    if form.kind == "depthwise":
        return tuple(_depthwise(form, isa, board, threads))
    if form.kind == "product":
        return tuple(products_of(form, isa, board))
    return (*_in_place(form, isa, board, threads), *_winograd(form, isa, board, threads))


def packs_products(isa: Isa, board: BoardProfile) -> bool:
    """Whether product/packed.c is there for a core, and faster than plain C's."""
    return board.arch in ("aarch64", "riscv64") and isa.vl > 1


def products_of(form: Form, isa: Isa, board: BoardProfile) -> list[Candidate]:
    """The methods of a product of two computed operands; x86 keeps the one that it had. Halves, and
    operands that are not stored as they are seen, have no other kernel than product/packed.c."""
    m, k, n = form.shape.m, form.shape.k, form.shape.n
    alone = bool(form.order) or form.dtype == "f16"
    tile, packs = isa.f32_tiles[0], alone or packs_products(isa, board)
    steps, long = k * math.ceil(n / isa.vl), (k if form.order == "_columns" else n) >= isa.vl
    loads = 0.5 * math.ceil(m / tile.mr) + packs  # a vector that is packed is stored, too
    family: Family = "packed" if packs else "unpacked"
    method = OperatorMethod(family, form.dtype, tile.mr, tile.nv * isa.vl)
    found = [Candidate(method, steps * (m + loads))]
    if m <= _FEW_ROWS and long and form.dtype == "f32" and (form.order or board.arch != "x86_64"):
        found.insert(0, Candidate(OperatorMethod("streamed", "f32"), steps * (m + 0.5)))
    return found


def rows_at_once(method: OperatorMethod, form: Form, board: BoardProfile, threads: int) -> int:
    """The rows of a band of a method, 0 where it has none: with channels inside each tile of rows
    goes through all panels, and blocks of k are walked with all rows."""
    if method.mr is None or method.split == "m" or method.kc or method.family != "in_place":
        return 0
    return band_rows(method.band, _rows(form, method.mr), board, threads)


def is_block_outer(method: OperatorMethod, form: Form, board: BoardProfile) -> bool:
    """Whether the blocks of k of a method are walked with all panels, rather than with one."""
    if method.mr is None or method.kc is None or method.split == "m":
        return False
    sizes = form.shape.k, form.shape.n
    return blocks_outside(method.kc, _rows(form, method.mr), *sizes, board)


def banded(
    method: OperatorMethod, rows: int, form: Form, board: BoardProfile, threads: int
) -> OperatorMethod:
    """The method with bands of so many rows; of several bands that are so many, by the rule or the
    least: two methods that are walked alike are one."""
    every = (dataclasses.replace(method, band=band) for band in (None, *BANDS))
    return next(m for m in every if rows_at_once(m, form, board, threads) == rows)


def _rows(form: Form, mr: int) -> Rows:
    return Rows(form.shape.m, mr, form.x_bytes)


def panel_outer(board: BoardProfile, weight_bytes: int) -> bool:
    """Weights that do not stay in the cache are walked once, with the pixels inside."""
    return weight_bytes > (board.l2_bytes or 262144) // 2


def sums_at_once(isa: Isa, is_float: bool) -> int:
    """BLOCK of conv/dwconv_values.h: the channels of one vector of sums."""
    return 8 if not is_float and isa.widens_eight else isa.vl


def _depthwise(form: Form, isa: Isa, board: BoardProfile, threads: int) -> Iterator[Candidate]:
    """Rows of the output that are made at once: two share inputs where registers hold both."""
    columns = sums_at_once(isa, form.is_float)
    blocks = math.ceil(form.shape.n / columns)
    shares = isa.shares_rows and form.has_fixed_window and form.y[1] > 1
    y, window, stride = form.y, form.window, form.stride
    costs = {n: blocks * cost_of_rows(y, window, stride, n, threads) for n in (1, 2)}
    shares = shares and (threads == 1 or costs[2] < costs[1])
    for rows in (1, 2) if form.has_fixed_window else (1,):
        usual = rows == 1 + (shares and _two_rows_pay(form, isa, board, threads))
        method = OperatorMethod("depthwise", form.dtype, rows, columns)
        yield Candidate(method, costs[rows], usual)


def _two_rows_pay(form: Form, isa: Isa, board: BoardProfile, threads: int) -> bool:
    """With a stride, by board time on ARM: on one thread, while the lines they read stay in L1; not
    of floats where a product is two micro-operations: 1.2 to 1.3 times as long on an A72."""
    if form.stride[0] == 1:
        return True
    size = isa.vector_bits // 8 // isa.vl if form.is_float else 1
    pixels = (lines_of(2, form.window, form.stride) * form.stride[1] + 2) * form.y[2]
    near = pixels * form.shape.n * size <= board.l1d_bytes
    whole = not form.is_float or makes_whole_products(board)
    return isa.lanes and threads == 1 and near and whole


def _in_place(form: Form, isa: Isa, board: BoardProfile, threads: int) -> Iterator[Candidate]:
    """The walk that reads more from beyond L2 is for rows of a table only. A single tile of rows
    reads weights once by either, and finds its rows once with channels inside."""
    outer = panel_outer(board, form.weight_bytes)
    outer |= form.is_of_points and shares_weights(form.weight_bytes, form.x_bytes, threads)
    walks: tuple[Split, Split] = ("m", "n")
    for split in walks:
        for tile, proven in _tiles(form, isa, board):
            usual = "n" if outer and form.shape.m > tile.mr else "m"
            method = OperatorMethod("in_place", form.dtype, tile.mr, tile.nv * isa.vl, split)
            cost = form.shape.k * _cost_of_step(tile, form, isa, board)
            blocks = list(_blocks(form, tile.mr, tile.nv * isa.vl, board))
            block = _shared_block(method, blocks, form, board) if threads > 1 else None
            by_rule = split == usual and block is None
            yield Candidate(method, cost, proven and by_rule, by_rule)
            yield from _with_bands(Candidate(method, cost), form, board, threads)
            for kc in blocks:
                kept = 2 * (math.ceil(form.shape.k / kc) - 1) * form.shape.m * form.shape.n
                blocked = dataclasses.replace(method, kc=kc)
                by_rule = split == usual and kc == block
                yield Candidate(blocked, cost + kept / isa.vl, proven and by_rule, by_rule)


def _shared_block(
    method: OperatorMethod, blocks: list[int], form: Form, board: BoardProfile
) -> int | None:
    """The largest block of k whose rows several threads share in the last cache, where they do not
    stay there whole."""
    outer = (kc for kc in blocks if is_block_outer(dataclasses.replace(method, kc=kc), form, board))
    return max(outer, default=None)


def _with_bands(
    usual: Candidate, form: Form, board: BoardProfile, threads: int
) -> Iterator[Candidate]:
    """The same method with other bands than those of the rule; their cost is what they read from
    memory beyond that. For rows of a table only."""
    mr, nr = usual.method.mr, usual.method.nr
    assert mr is not None and nr is not None
    panels = math.ceil(form.shape.n / nr)

    def read(method: OperatorMethod) -> float:
        at_once = rows_at_once(method, form, board, threads)
        return cost_of_memory(at_once, _rows(form, mr), panels, form.weight_bytes, board)

    for band in BANDS:
        method = dataclasses.replace(usual.method, band=band)
        if (
            banded(method, rows_at_once(method, form, board, threads), form, board, threads)
            == method
        ):
            more = max(read(method) - read(usual.method), 0.0)
            yield Candidate(method, usual.cost + more, False, False)


def _blocks(form: Form, mr: int, nr: int, board: BoardProfile) -> Iterator[int]:
    """Blocks of k worth a row: of pointwise products with several tiles of rows, whose panel of
    weights does not stay in half of L1 as a whole, but does so block by block. Sums go through y
    between them."""
    held = 4 * nr
    whole = form.shape.m <= mr or form.shape.k * held <= board.l1d_bytes // 2
    if not form.is_of_points or form.has_border or whole:
        return
    yield from (kc for kc in BLOCKS_OF_K if kc < form.shape.k and kc * held <= board.l1d_bytes // 2)


def _tiles(form: Form, isa: Isa, board: BoardProfile) -> Iterator[tuple[Tile, bool]]:
    """Register tiles that the kernels of the core's library have, and whether they are proven."""
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
    """Of all tiles, for each k: vector multiply-adds plus what loading operands adds."""
    vectors = math.ceil(form.shape.n / isa.vl)
    whole, rest = divmod(vectors, tile.nv)
    panels = [tile.nv] * whole + ([rest] if rest else [])
    floats = isa.lanes and isa.registers >= VECTORS and form.dtype == "f32"
    measured = board.in_order or (makes_whole_products(board) and form.shape.m > 1)
    if floats and measured:
        return cost_of_parts(tile, panels, form.shape.m, board.in_order)
    return _products(tile, panels, isa, form, board)


def _products(tile: Tile, panels: list[int], isa: Isa, form: Form, board: BoardProfile) -> float:
    """Half a multiply-add for a row or vector that is loaded; a whole one for a vector of bytes
    that is widened, where bytes are not multiplied as such. A last tile counts as a whole one.
    Products of matrices take rows two by two, half of one for each, and as much to pair them."""
    rows = 1 if _is_single(form, isa, board) else tile.mr
    kind = None if form.is_float else isa.i8
    vector = 1.0 if kind is ByteProduct.WIDE16 else 0.5
    row, products = 0.5, float(rows)
    if kind is ByteProduct.MMLA:
        row, products = 1.0, math.ceil(rows / 2)
    tiles = math.ceil(form.shape.m / tile.mr)
    return tiles * sum(products * nv + row * rows + vector * nv for nv in panels)


def _is_single(form: Form, isa: Isa, board: BoardProfile) -> bool:
    """Whether it is one row of floats on a core that gains by wide panels for it: by board time 32
    columns took 0.93 of 12 on an A76, 0.97 to 1.01 on an A72, 1.5 on an A53."""
    one = form.shape.m == 1 and form.is_float and isa.lanes
    return one and not board.in_order and makes_whole_products(board)


def _winograd(form: Form, isa: Isa, board: BoardProfile, threads: int) -> Iterator[Candidate]:
    """The candidates by Winograd's transform, with costs as they were measured on 64-bit ARM."""
    c, oc, vl = form.depth, form.shape.n, isa.vl
    whole = not (c % vl or oc % vl) and 0 < c <= WINOGRAD_CHANNELS
    if not (whole and has_winograd(form.dtype, isa)):
        return
    if (form.kind, form.window, form.stride, form.dilation) != ("conv", (3, 3), (1, 1), (1, 1)):
        return
    n, height, width = form.y
    tiles = n * math.ceil(height / 4) * math.ceil(width / 4)
    known = (Tile(4, 4), Tile(8, 2)) if tiles <= _FEW_TILES else (Tile(8, 2), Tile(4, 4))
    waits = cost_of_weights(POINTS * c * oc * 4, board, threads)
    for tile in known:
        cost = Transformed(tiles, c, oc, vl, tile).cost(threads) / _GAIN + waits
        method = OperatorMethod("winograd", "f32", tile.mr, tile.nv * vl)
        yield Candidate(method, cost, threads > 1 or tile == known[0])
