"""What models cost each other that run at the same time, each on cores of its own.

They share the last level of cache and the DRAM. Where the cache cannot hold all that they touch,
each has the part that its accesses win, bytes touched per time relative to the others', but not
more than it touches. Of the DRAM's bandwidth each has what the others leave, but at least an equal
part. With these parts each is estimated again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgekit.host.simulator.model import ModelEstimate
from edgekit.kb.targets.core import Core
from edgekit.kb.targets.core_parts import Cache


@dataclass(frozen=True)
class SharedCore:
    """A core with the part of the memory that one of several models has: bytes of the shared
    cache (0: no cache is shared), and GB/s of DRAM."""

    core: Core
    cache_bytes: int
    gb_s: float


def shared_cores(core: Core, alone: Sequence[ModelEstimate]) -> tuple[SharedCore, ...]:
    """The core as each model sees it while all are at work; `alone`: their estimates without the
    others."""
    cache = _shared_cache(core)
    parts = _parts(cache, alone) if cache else [None] * len(alone)
    held = [part.bytes if part else 0 for part in parts]
    # Bytes per ms are MB/s and what does not stay in the cache is read again by each inference.
    demands = [
        max(_touched(found) - kept, 0) / found.total_ms / 1e6
        for found, kept in zip(alone, held, strict=True)
    ]
    least = core.dram.gb_s / len(alone)
    left = [max(least, core.dram.gb_s - (sum(demands) - own)) for own in demands]
    return tuple(
        SharedCore(_with_memory(core, part, gb_s), kept, gb_s)
        for part, kept, gb_s in zip(parts, held, left, strict=True)
    )


def _touched(found: ModelEstimate) -> int:
    return found.weights_bytes + found.arena_bytes + found.state_bytes


def _shared_cache(core: Core) -> Cache | None:
    """The cache that all cores share; None if each has its own."""
    if core.l3 is not None:
        return core.l3
    return None if core.l2.per_core else core.l2


def _parts(cache: Cache, alone: Sequence[ModelEstimate]) -> list[Cache | None]:
    """Each model's part, in whole ways, so that the number of sets stays a power of two."""
    way = cache.bytes // cache.ways
    wanted = [-(-_touched(found) // way) + 1 for found in alone]  # one for code and stack
    if sum(wanted) <= cache.ways:
        ways = [cache.ways - (sum(wanted) - own) for own in wanted]
    else:
        ways = _won(cache.ways, wanted, [_touched(found) / found.total_ms for found in alone])
    return [replace(cache, ways=count, bytes=way * count) for count in ways]


def _won(ways: int, wanted: Sequence[int], rates: Sequence[float]) -> list[int]:
    """Ways by rates of access; what a model does not want, the others share."""
    won: dict[int, float] = {}
    while True:
        rest = [i for i in range(len(rates)) if i not in won]
        left, total = ways - sum(won.values()), sum(rates[i] for i in rest)
        content = {i: wanted[i] for i in rest if left * rates[i] / total >= wanted[i]}
        if not content:
            won |= {i: left * rates[i] / total for i in rest}
            return [max(round(won[i]), 1) for i in range(len(rates))]
        won |= content


def _with_memory(core: Core, part: Cache | None, gb_s: float) -> Core:
    dram = core.dram
    scaled = replace(
        dram,
        gb_s=gb_s,
        core_gb_s=min(dram.core_gb_s, gb_s),
        write_gb_s=dram.write_gb_s * gb_s / dram.gb_s,
    )
    if part is None:
        return replace(core, dram=scaled)
    if core.l3 is not None:
        return replace(core, dram=scaled, l3=part)
    return replace(core, dram=scaled, l2=part)
