"""What transformed weights cost: stored in the file, or made by each inference, in several parts.

All tiles of an image are multiplied by one part after the other, so that the arena holds one part
at a time; each part transforms the tiles again. Fitted to simulated time of f32 layers of 64 to 256
channels on A53, A55, A72 and A76.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from edgekit.device.runtime.kernel_facts import WINOGRAD_BYTES, WINOGRAD_FAR_BYTES
from edgekit.host.compiler.costs.methods.bands import (
    cost_of_new_weights,
    cost_of_weights,
)
from edgekit.host.compiler.costs.methods.rule import LINE
from edgekit.host.compiler.costs.methods.winograd import (
    BYTES,
    POINTS,
    Transformed,
    making_cost,
    transformed_bytes,
)
from edgekit.host.compiler.costs.sharing import reached
from edgekit.kb.targets.board import BoardProfile, last_cache
from edgekit.kb.targets.clusters import timed_core
from edgekit.kb.targets.core import Core

_MOST_PARTS = 8
_NETWORK = 8  # layers that the last-level cache holds if their weights stay cached between runs
_CACHED = 3, 4  # the part of the last-level cache that weights and tiles may fill to stay there
_LINE_VECTORS = 4
_HIDDEN = 2  # a line is read in time if its predecessor's products take this many times as long
_WAITED = 0.75  # the part of other lines' time that one thread waits on cores in order
_AGAIN = 3.0  # times the cost of transforming tiles whose lines have left the first-level cache
_SHARED = 0.5  # the part of weights that one thread waits for if groups of tiles share panels
_MISSED = 3.5  # in-order cores wait for one of so many lines of tiles that left the cache
_PRODUCTS = 1.7, 1.2  # vector operations per cycle of products / `reached`; in order, out of order
_PRODUCTS_OF_BYTES = 1.7, 2.7  # the same of bytes, as direct products count them
_USUAL_SPEED = 1.0  # vector operations per nanosecond, of cores without a model of time


@dataclass(frozen=True)
class WinogradWeights:
    """The transformed weights of a convolution on a board. `own` are the bytes of its weights."""

    work: Transformed
    dtype: str
    own: int
    board: BoardProfile
    threads: int

    @property
    def bytes(self) -> int:
        return self.size(1)

    def size(self, parts: int) -> int:
        """Bytes of the largest part."""
        return transformed_bytes(self.work.c, self._channels(parts), self.dtype)

    @property
    def possible(self) -> range:
        """The numbers of parts to consider."""
        return range(1, min(_MOST_PARTS, self.work.panels) + 1)

    def cost_of_stored(self) -> float:
        """The cost of waiting for stored weights, which are used in one part."""
        first = self._cost_of_reading(self.bytes)
        if self.dtype == "f16" and self.threads == 1:
            first = cost_of_new_weights(self.bytes, self.board)
        return first + self._cost_of_parts(1)

    def cost_of_made(self, parts: int) -> float:
        """The same for weights that are made, and of transforming tiles again for each part."""
        work = self.work
        first = self._cost_of_reading(self.own) if self.threads == 1 else 0.0
        return first + making_cost(work.c, work.oc, work.vl) + self._cost_of_parts(parts)

    def waiting_for(self, size: int, *layers: int) -> float:
        """`cost_of_weights`; of bytes, in direct products of bytes."""
        core = timed_core(self.board)
        cost = cost_of_weights(size, self.board, self.threads, *layers)
        if core is None or self.dtype not in BYTES:
            return cost
        in_order = core.order == "in"
        return cost * _PRODUCTS_OF_BYTES[not in_order] / reached(core.name, in_order)

    def microseconds(self, cost: float) -> float:
        """The time that `cost` takes on one core."""
        core = timed_core(self.board)
        return cost / (1e3 * (self._speed(core) if core else _USUAL_SPEED))

    def _channels(self, parts: int) -> int:
        """Channels of y of the largest part."""
        work = self.work
        return min(math.ceil(work.panels / parts) * work.tile.nv * work.vl, work.oc)

    def _cost_of_parts(self, parts: int) -> float:
        """The cost of transforming tiles for further parts, and of reading from memory again:
        weights for each group of tiles, and transformed tiles for each panel but the first."""
        work, threads = self.work, self.threads
        whole, rest = divmod(work.oc, self._channels(parts))
        some = replace(work, oc=self._channels(parts)).cost(threads) * whole
        last = replace(work, oc=rest).cost(threads) if rest else 0.0
        again = _AGAIN * (some + last - work.cost(threads))
        tiles = transformed_bytes(work.c, work.tile.mr, self.dtype)
        panel = transformed_bytes(work.c, work.tile.nv * work.vl, self.dtype)
        cache, (part, of) = last_cache(self.board), _CACHED
        # Tiles stay in caches of each core if there is another behind them.
        held = 0 if self.board.l3_bytes else threads * tiles
        if self.size(parts) + held <= cache * part // of:
            return again
        if work.groups > threads:  # else all threads read a panel at the same time
            waited = _SHARED if threads == 1 else 1.0
            again += waited * (self._readings(parts) - 1) * self._cost_of_reading(self.bytes)
        if held and held + min(threads * panel, self.size(parts)) > cache:
            again += self._cost_of_tiles((work.panels - 1) * work.groups * tiles)
        return again

    def _readings(self, parts: int) -> int:
        """How often weights are read: one thread multiplies several groups by each panel."""
        if self.threads > 1 or self.size(parts) <= WINOGRAD_FAR_BYTES:
            return self.work.groups
        group = transformed_bytes(self.work.c, self.work.tile.mr, self.dtype) // POINTS + LINE
        return math.ceil(self.work.groups / ((WINOGRAD_BYTES + 2 * LINE) // group))

    def _cost_of_reading(self, size: int) -> float:
        """Time to wait for `size` bytes of weights that may have left the cache. One thread waits
        only on cores that multiply about as fast as they read."""
        core = timed_core(self.board)
        if self.threads > 1:
            return self.waiting_for(size)
        if core is None or size <= last_cache(self.board) // _NETWORK:
            return 0.0
        line_ns = LINE / core.dram.core_gb_s
        products = float(_LINE_VECTORS * self.work.tile.mr)
        if self.dtype in BYTES:  # whose weights have 16 bits
            products *= 2 * self.work.rates.products
        products_ns = products / self._speed(core)
        if products_ns >= _HIDDEN * line_ns:
            return 0.0
        waited = _WAITED if core.order == "in" else 1.0
        return self._cost_of_lines(size, waited * line_ns, core)

    def _cost_of_tiles(self, size: int) -> float:
        core = timed_core(self.board)
        if core is None:
            return 0.0
        line_ns = LINE / core.dram.core_gb_s
        if self.threads > 1:
            line_ns = LINE / core.dram.gb_s + core.dram.turn_ns
        elif core.order == "in":
            line_ns = core.dram.latency_ns / _MISSED
        return self._cost_of_lines(size, line_ns, core)

    def _cost_of_lines(self, size: int, line_ns: float, core: Core) -> float:
        return self.threads * size / LINE * line_ns * self._speed(core)

    def _speed(self, core: Core) -> float:
        """Vector operations of products per nanosecond; of bytes, direct products of bytes."""
        in_order, clock_ghz = core.order == "in", core.clock_mhz * 1e-3
        if self.dtype in BYTES:
            return _PRODUCTS_OF_BYTES[not in_order] * clock_ghz
        return reached(core.name, in_order) * _PRODUCTS[not in_order] * clock_ghz
