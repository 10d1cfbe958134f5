"""Bands of rows and blocks of k: how much is processed with all weight panels before moving on.

With panels in the outer loop, each panel reads all rows. Rows that have left the last-level cache
by then come from memory for every panel. With bands of rows that stay cached, rows are read once,
and the weights once per band. With cached blocks of k, both are read once, and partial sums are
kept in the output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgekit.host.compiler.costs.methods.rule import LINE, SUM_BYTES
from edgekit.host.compiler.costs.sharing import reached
from edgekit.host.compiler.ir.align import round_up
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import BoardProfile, last_cache
from edgekit.kb.targets.clusters import timed_core
from edgekit.kb.targets.core import Core

# Layers of this size that the last-level cache holds if weights stay cached between runs
_LAYERS = 3
NETWORK = 8  # the same in networks whose weights do not all stay cached
_STALLED = 2.5  # times the time to read weights that in-order cores wait while they prefetch them
_TOGETHER = 2  # times that several threads read weights which each of them walks
BANDS = (0, 1, 2, 4)  # quarters of the last-level cache that a band may fill; 0: no bands


@dataclass(frozen=True)
class RowTiles:
    """The rows of a product: `count` of them in tiles of `mr`, and their total bytes. A band reads
    `step` bytes for each row and `edge` around them, with each of `panels` panels of weights, of
    `panel` bytes."""

    count: int
    mr: int
    bytes: int
    step: int
    edge: int
    panel: int
    panels: int


def row_tiles(
    shape: GemmShape,
    tile: tuple[int, int],
    window: tuple[int, int],
    stride: int,
    size: int,
    sizes: tuple[int, int],
) -> RowTiles:
    """The rows of a product in register tiles of `tile`; they are windows, `stride` columns apart,
    of elements of `size` bytes. `sizes`: bytes of all inputs and of the weights."""
    mr, nr = tile
    line = shape.k // window[1] * size  # of a column of pixels in a window
    panels = max(math.ceil(shape.n / nr), 1)
    panel = math.ceil(sizes[1] / panels)
    return RowTiles(shape.m, mr, sizes[0], line * stride, line * (window[1] - 1), panel, panels)


def band_rows(band: int | None, rows: RowTiles, board: BoardProfile, threads: int) -> int:
    """The rows of a band that fills `band` quarters of the last-level cache; 0: all rows.

    If `band` is None, the rule applies: on one thread the entire cache, or half of it, next to
    weights and outputs, on cores that stall on each line; for several threads, see `_shared_bands`;
    no bands without a core model.
    """
    if band is None and threads > 1:
        return _shared_bands(rows, board, threads)
    if band is None:
        band = 0 if timed_core(board) is None else _usual_band(board)
    if band == 0:
        return 0
    return _rows_of(rows, math.ceil(rows.bytes / (last_cache(board) * band // 4)))


def _shared_bands(rows: RowTiles, board: BoardProfile, threads: int) -> int:
    """Rows per band if each of several threads walks its own.

    Threads share panels of rows that the last-level cache holds, or blocks of k. If it does not,
    each panel would read all rows from memory; bands are so small that those of all threads stay
    cached, next to their panels. For the 3x3 convolution of YOLO11n from 80 x 80 to 40 x 40 pixels
    in f32, four threads take 0.63 of the time without bands on A76, 0.70 on A72 and A55, and 0.86
    on A53, in simulated time; with bands of twice the size, which leave the cache, 1.3 on A55 and
    1.6 on A53.
    """
    cache = last_cache(board)
    if timed_core(board) is None or rows.bytes <= cache:
        return 0
    fitting = (cache * 3 // 4 // threads - rows.panel - rows.edge) // max(rows.step, 1)
    if fitting < 2 * rows.mr:
        return 0
    bands = round_up(math.ceil(rows.count / (fitting // rows.mr * rows.mr)), threads)
    # Threads that walk their bands at the same time read weights together, though not all of them.
    if _TOGETHER * bands // threads * rows.panel * rows.panels >= (rows.panels - 1) * rows.bytes:
        return 0  # weights would be read more often than rows are now
    return _rows_of(rows, bands)


def _rows_of(rows: RowTiles, bands: int) -> int:
    return math.ceil(math.ceil(rows.count / rows.mr) / bands) * rows.mr if bands > 1 else 0


def blocks_outside(kc: int, rows: RowTiles, k: int, n: int, board: BoardProfile) -> bool:
    """True if the block loop is outside the panel loop.

    That pays if all rows exceed the last-level cache, but one block of them and the partial sums
    fit next to the weights. For f32 128 x 1536 by 384 this halves the time of four threads compared
    to complete rows, in simulated time on A55 and A53; with blocks of 512, which leave only a
    tenth of 512 KB free, 4% less on A55 and 14% more on A53.
    """
    leaves = rows.bytes > last_cache(board) * _usual_band(board) // 4
    block = rows.bytes * min(kc, k) // k + SUM_BYTES * rows.count * n
    return timed_core(board) is not None and leaves and block <= last_cache(board) * 3 // 4


def _usual_band(board: BoardProfile) -> int:
    return 2 if board.in_order else 4


def cost_of_memory(at_once: int, rows: RowTiles, weight_bytes: int, board: BoardProfile) -> float:
    """Cost of waiting for a product's operands in vector multiply-adds; 0 without a core model.

    `at_once` is the number of rows per band (0: all). Weights are read once per band; rows are read
    again for each panel to the extent that a band and a panel exceed the last-level cache.
    """
    core = timed_core(board)
    if core is None:
        return 0.0
    bands = math.ceil(rows.count / at_once) if at_once else 1
    touched = rows.bytes / bands + weight_bytes / rows.panels
    left = max(1 - last_cache(board) / touched, 0.0)
    read = bands * weight_bytes + rows.bytes * (1 + (rows.panels - 1) * left)
    per_line = read_ns(core) * core.clock_mhz * 1e-3
    return read / LINE * per_line * reached(core.name, core.order == "in")


def shares_weights(weight_bytes: int, row_bytes: int, threads: int) -> bool:
    """True if threads should split a product's weights rather than its rows.

    That pays if each thread avoids reading at least twice as many bytes of weights as there are
    bytes of rows, which then come from other cores. For 36 x 128 by 128 (weights 3.6 times the
    rows), in simulated time: four threads take 0.83 to 1.01 of the time on A53, A55, A72, A76
    and X60, two take 1.03 on A76; at a ratio of 1.5, four take 1.0 to 1.3 on A53 and A55.
    """
    return weight_bytes * (threads - 1) >= 2 * threads * row_bytes > 0


def cost_of_weights(
    weight_bytes: int, board: BoardProfile, threads: int, layers: int = _LAYERS
) -> float:
    """Time that all threads of a product wait for its weights, in vector multiply-adds.

    It is the memory time of all weights if they fill so much of the last-level cache, which holds
    `layers` of less, that other layers evict them. It is 0 on one thread, where products hide the
    latency, and without a core model.
    """
    core = timed_core(board)
    if threads == 1 or core is None or weight_bytes <= last_cache(board) // layers:
        return 0.0
    line_ns = LINE / core.dram.gb_s + core.dram.turn_ns
    cycles = weight_bytes / LINE * line_ns * core.clock_mhz * 1e-3
    return threads * cycles * reached(core.name, core.order == "in")


def cost_of_new_weights(weight_bytes: int, board: BoardProfile) -> float:
    """Time that one thread waits for weights that other layers evicted, in vector multiply-adds; 0
    for weights that may stay cached, and without a core model.

    Fitted to YOLOv8n's f16 layers in simulated time on A76 and A55.
    """
    core = timed_core(board)
    if core is None or weight_bytes <= last_cache(board) // NETWORK:
        return 0.0
    in_order = core.order == "in"
    ns = weight_bytes / core.dram.core_gb_s * (_STALLED if in_order else 1)
    return ns * core.clock_mhz * 1e-3 * reached(core.name, in_order)


def read_ns(core: Core) -> float:
    """Nanoseconds to read a cache line from memory.

    In-order cores stall on each line; others prefetch at the memory's bandwidth.
    """
    return core.dram.latency_ns if core.order == "in" else LINE / core.dram.core_gb_s
