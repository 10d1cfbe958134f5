"""Costs of computing several rows or channel blocks of a depthwise convolution at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgekit.device.runtime.kernel_facts import DEPTHWISE_BLOCKS, DEPTHWISE_TILE
from edgekit.kb.targets.board import BoardProfile
from edgekit.kb.targets.clusters import makes_whole_products, timed_core
from edgekit.kb.targets.isa import LANE_REGISTERS, Isa

_ALONE = 17.0  # extra multiply-adds of a column outside any tile, in simulated time on A76

_WIDEST, _SMALL = 5, 3  # columns of a window
_FEW_LINES, _FEWEST_LINES = 32, 16  # of the same channels, that L1 holds; out of and in order


@dataclass(frozen=True)
class Walk:
    """How the images of a depthwise convolution are walked. `pixel` is the size of a pixel of x and
    of y in bytes, `block` of a channel block, `width` the columns of y."""

    window: tuple[int, int]
    stride: tuple[int, int]
    width: int
    pixel: int
    block: int
    dtype: str

    def two_rows_pay(self, isa: Isa, board: BoardProfile, threads: int) -> bool:
        """For stride > 1, measured in simulated time on ARM: pays on one thread if input lines
        stay in L1, but not for floats if a multiply-add is two micro-operations: 1.2 to 1.3 times
        as long on an A72."""
        if self.stride[0] == 1:
            return True
        pixels = (lines_of(2, self.window, self.stride) * self.stride[1] + 2) * self.width
        near = pixels * self.pixel <= board.l1d_bytes
        whole = self.dtype in ("s8", "u8") or makes_whole_products(board)
        return isa.lanes and threads == 1 and near and whole

    def fitting_columns(self, rows: int, l1_bytes: int) -> int:
        """Columns of y whose lines, with those of x that they need, fill at most half of L1."""
        lines = lines_of(rows, self.window, self.stride)
        return l1_bytes // 2 // ((lines * self.stride[1] + rows) * self.pixel)

    def has_blocks(self, isa: Isa) -> bool:
        """True if conv/dwconv_blocks.c computes it, with all sums and a pair of blocks of a line in
        registers."""
        whole = self.pixel % self.block == 0 and self.pixel >= DEPTHWISE_BLOCKS * self.block
        floats = self.dtype == "f32" and isa.lanes and isa.registers >= LANE_REGISTERS
        return floats and whole and max(self.window) <= _WIDEST

    def blocks_pay(self, rows: int, isa: Isa, board: BoardProfile) -> bool:
        """Whether to compute several channel blocks at once, as measured in simulated time.

        A block at a time reads a quarter of each cache line; the lines of a tile are evicted before
        the next block if they share few sets of L1, as with channels by powers of two. Small
        windows are faster in whole lines, too, on cores that stall on L2 and whose L1 does not hold
        a tile of dwconv.c.
        """
        core = timed_core(board)
        if core is None or not self.has_blocks(isa):
            return False
        way = core.l1d.bytes // core.l1d.ways
        lines = core.l1d.ways * way // math.gcd(way, self.pixel)
        if core.order == "in":
            return lines <= _FEWEST_LINES and self.stride == (1, 1)
        far = self.fitting_columns(rows, core.l1d.bytes) < DEPTHWISE_TILE
        small = max(self.window) <= _SMALL
        return bool(core.l2.line) and (lines <= _FEW_LINES or (small and far))


def lines_of(rows: int, window: tuple[int, int], stride: tuple[int, int]) -> int:
    """Input lines read by `rows` output rows."""
    return (rows - 1) * stride[0] + window[0]


def cost_of_rows(
    y: tuple[int, int, int],
    window: tuple[int, int],
    stride: tuple[int, int],
    rows: int,
    threads: int,
) -> float:
    """Cost, in multiply-adds, of a channel block of y (images, rows, columns), `rows` rows at once.

    A load counts as half a multiply-add. A remaining row is computed separately. Threads share
    groups of rows. Pixels are computed in tiles of columns; if the window crosses both borders of
    y, as if padded, and no tile fits in between, each column is computed separately.
    """
    loads, alone = ((DEPTHWISE_TILE - 1) * stride[1] + window[1]) / DEPTHWISE_TILE, 0.0
    if y[2] < DEPTHWISE_TILE + (window[1] - 1) // stride[1]:
        loads, alone = float(window[1]), _ALONE
    one, several = (
        n * math.prod(window) + lines_of(n, window, stride) * loads / 2 + alone for n in (1, rows)
    )
    groups, left = divmod(y[1], rows)
    if threads > 1:
        most = math.ceil(y[0] * math.ceil(y[1] / rows) / threads)
        return threads * y[2] * most * (several if groups else one)
    return y[0] * y[2] * (groups * several + left * one)
