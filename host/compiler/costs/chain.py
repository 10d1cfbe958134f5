"""What operators that run one after the other cost beside a chain of them: an image between two
that has left the caches when it is read."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.kb.costs.bands import read_ns
from edgekit.kb.costs.rule import LINE
from edgekit.kb.costs.sharing import reached
from edgekit.kb.targets.board import BoardProfile, last_cache
from edgekit.kb.targets.clusters import timed_core
from edgekit.kb.targets.core import Core

# Of the cost of its members, what a chain takes longer for its many short calls: by board time, in
# the mean of the 13 of a face detector whose images stay in the cache, 0.4 to 1.6 % on eight cores.
STRIPS = 0.01
_SHARE = 0.25  # of what is touched: smaller images were written last, and are near


@dataclass(frozen=True)
class Between:
    """An image between two operators, and all bytes of images that the two read and write."""

    image_bytes: int
    touched_bytes: int


def beyond_caches(board: BoardProfile, between: Between) -> float:
    """The cost, in multiply-adds of vectors, of the part of an image that is written to memory and
    read from it again: of what the two operators touch, the last cache holds the rest. 0 where
    there is no model of a board's core, and for an image that is small beside the others: by board
    time such a chain gained 0.3 % of a face detector at best, on an A55, and cost 0.8 % on an A53.
    """
    core = timed_core(board)
    if core is None or between.image_bytes < _SHARE * between.touched_bytes:
        return 0.0
    held = last_cache(board)
    left = max(1 - held / between.touched_bytes, 0.0)
    lines = between.image_bytes / LINE * left
    return lines * _line_cycles(core) * reached(core.name, core.order == "in")


def _line_cycles(core: Core) -> float:
    """What a core takes to write a line of the cache to memory and to read it again."""
    written = LINE / (core.dram.write_gb_s or core.dram.core_gb_s)
    return (read_ns(core) + written) * core.clock_mhz * 1e-3
