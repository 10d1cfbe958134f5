"""Cost of intermediate images that leave the caches when operators run one by one, unchained."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.host.compiler.costs.methods.bands import read_ns
from edgekit.host.compiler.costs.methods.rule import LINE
from edgekit.host.compiler.costs.sharing import reached
from edgekit.kb.targets.board import BoardProfile, last_cache
from edgekit.kb.targets.clusters import timed_core
from edgekit.kb.targets.core import Core

# Overhead of a chain's many short calls, as a fraction of its members' cost. Simulated board time,
# mean of the 13 chains of a face detector whose images stay in cache: 0.4 to 1.6% on eight cores.
STRIPS = 0.01
_SHARE = 0.25  # of the bytes touched: a smaller image was just written and is still in cache


@dataclass(frozen=True)
class Between:
    """An image between two operators, and the total bytes of images that the two read and write."""

    image_bytes: int
    touched_bytes: int


def beyond_caches(board: BoardProfile, between: Between) -> float:
    """Cost, in vector multiply-adds, of the part of an image that goes to memory and back because
    the last cache cannot hold all that the two operators touch.

    0 if the board's core has no timing model, or if the image is small next to the others: in
    simulated time such a chain gained at most 0.3% of a face detector, on an A55, and cost
    0.8% on an A53.
    """
    core = timed_core(board)
    if core is None or between.image_bytes < _SHARE * between.touched_bytes:
        return 0.0
    held = last_cache(board)
    left = max(1 - held / between.touched_bytes, 0.0)
    lines = between.image_bytes / LINE * left
    return lines * _line_cycles(core) * reached(core.name, core.order == "in")


def _line_cycles(core: Core) -> float:
    """Cycles to write a cache line to memory and read it back."""
    written = LINE / (core.dram.write_gb_s or core.dram.core_gb_s)
    return (read_ns(core) + written) * core.clock_mhz * 1e-3
