"""Bands of rows and blocks of k: what goes through all panels of weights before the next does.

Where panels are walked outside, each of them reads all rows. Rows that have left the last cache by
then come from memory for every panel; in bands that stay there they come once, and the weights once
for each band. In blocks of k that stay there both come once, and sums wait in the output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgekit.kb.costs.rule import LINE, SUM_BYTES
from edgekit.kb.costs.sharing import reached
from edgekit.kb.targets.board import BoardProfile, last_cache
from edgekit.kb.targets.clusters import timed_core
from edgekit.kb.targets.core import Core

_LAYERS = 3  # as large as this one, that the last cache holds if weights are still there
BANDS = (0, 1, 2, 4)  # quarters of the last cache that a band may fill; 0: there are no bands


@dataclass(frozen=True)
class Rows:
    """Those of a product, `count` of them in tiles of `mr`, and all their bytes."""

    count: int
    mr: int
    bytes: int


def band_rows(band: int | None, rows: Rows, board: BoardProfile, threads: int) -> int:
    """How many rows a band has that fills so many quarters of the last cache; 0: all of them.

    None: by the rule. On one thread all of the cache, half of it, beside weights and outputs, on
    cores that wait for each line; none where there is no model of the core. More threads would have
    a band each, which together leave the cache: they share panels of all rows, or blocks of k.
    """
    if band is None:
        band = 0 if threads > 1 or timed_core(board) is None else _usual_band(board)
    if band == 0:
        return 0
    bands = math.ceil(rows.bytes / (last_cache(board) * band // 4))
    return math.ceil(math.ceil(rows.count / rows.mr) / bands) * rows.mr if bands > 1 else 0


def blocks_outside(kc: int, rows: Rows, k: int, n: int, board: BoardProfile) -> bool:
    """Whether a block of k is walked with all panels: the rows leave the last cache, but such a
    block of them and the sums that wait stay, beside weights. Four threads take half of the time
    of whole rows for 128 x 1536 by 384 of f32, by board time on A55 and A53; in blocks of 512, with
    which all but a tenth of 512 KB is full, 4 % less on A55 and 14 % more on A53."""
    leaves = rows.bytes > last_cache(board) * _usual_band(board) // 4
    block = rows.bytes * min(kc, k) // k + SUM_BYTES * rows.count * n
    return timed_core(board) is not None and leaves and block <= last_cache(board) * 3 // 4


def _usual_band(board: BoardProfile) -> int:
    return 2 if board.in_order else 4


def cost_of_memory(
    at_once: int, rows: Rows, panels: int, weight_bytes: int, board: BoardProfile
) -> float:
    """What it costs to wait for the operands of a product, walked with so many rows `at_once` (0:
    all), in multiply-adds of vectors: weights once for each band, rows again for each panel as far
    as a band and a panel leave the last cache. 0 where there is no model of the core."""
    core = timed_core(board)
    if core is None:
        return 0.0
    bands = math.ceil(rows.count / at_once) if at_once else 1
    touched = rows.bytes / bands + weight_bytes / panels
    left = max(1 - last_cache(board) / touched, 0.0)
    read = bands * weight_bytes + rows.bytes * (1 + (panels - 1) * left)
    per_line = read_ns(core) * core.clock_mhz * 1e-3
    return read / LINE * per_line * reached(core.name, core.order == "in")


def shares_weights(weight_bytes: int, row_bytes: int, threads: int) -> bool:
    """Whether threads share the weights of a product rather than its rows: each is spared more
    weights than twice all rows, which come from other cores then. Of 36 x 128 by 128 (3.6 times as
    many weights) by board time: four threads take 0.83 to 1.01 of their time on A53, A55, A72, A76
    and X60, two 1.03 on A76; at 1.5 times as many four take 1.0 to 1.3 on A53 and A55."""
    return weight_bytes * (threads - 1) >= 2 * threads * row_bytes > 0


def cost_of_weights(weight_bytes: int, board: BoardProfile, threads: int) -> float:
    """What threads that share a product wait for its weights, in multiply-adds of vectors, all
    threads' together: as long as memory takes for all of them, where they fill so much of the last
    cache that other layers' drive them out. 0 on one thread, whose products hide that, and where
    there is no model of the core."""
    core = timed_core(board)
    if threads == 1 or core is None or weight_bytes <= last_cache(board) // _LAYERS:
        return 0.0
    line_ns = LINE / core.dram.gb_s + core.dram.turn_ns
    cycles = weight_bytes / LINE * line_ns * core.clock_mhz * 1e-3
    return threads * cycles * reached(core.name, core.order == "in")


def read_ns(core: Core) -> float:
    """What a line of the cache takes from memory. A core that issues in order waits for each that
    it reads; others read ahead, as fast as the memory gives."""
    return core.dram.latency_ns if core.order == "in" else LINE / core.dram.core_gb_s
