"""Alternates timed candidates, so that drift affects all equally; standard library only."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Callable, Dict, Iterator, List, Sequence

from edgekit.device.runtime import features
from edgekit.device.runtime.agent.bench import percentile

Timer = Callable[[int], int]  # nanoseconds of that many consecutive products
_BLOCK_NS = 250_000  # of consecutive products: far above the clock's own overhead
_LEAST_TURNS = 9
_FEW_TURNS = 3  # even if the time is up
CUTOFF = 1.3  # relative to the best: a method slower than this after _FEW_TURNS is dropped


def interleave(
    timers: Sequence[Timer], seconds: float, cutoff: float = CUTOFF
) -> List[List[float]]:
    """Returns nanoseconds per product: for each timer, one value per round.

    A timer that takes `cutoff` times as long as the best in the first rounds is dropped, except the
    last one, the default.
    """
    clock = time.perf_counter
    samples: List[List[float]] = [[] for _ in timers]
    start = clock()
    blocks = [_block_length(timer) for timer in timers]
    turns, active = 0, list(range(len(timers)))
    while (
        turns < _FEW_TURNS
        or (turns < _LEAST_TURNS and clock() - start < 4 * seconds)
        or (clock() - start < seconds)
    ):
        for i in active:
            samples[i].append(timers[i](blocks[i]) / blocks[i])
        turns += 1
        active.reverse()
        if turns == _FEW_TURNS:
            best = min(min(found) for found in samples)
            last = len(timers) - 1  # the default is never dropped
            active = [i for i in active if i == last or min(samples[i]) <= best * cutoff]
    return samples


def _block_length(timer: Timer) -> int:
    """Returns how many consecutive products make a block long enough to time."""
    timer(1)  # faults the memory in
    count = 1
    while count < 1 << 20:
        spent = max(timer(count), 1)
        if spent * 4 >= _BLOCK_NS:
            return max(count * _BLOCK_NS // spent, 1)
        count *= 4
    return count


def summary(nanoseconds: List[float]) -> Dict[str, float]:
    """Returns median, p10 and p90 in microseconds, and the count."""
    ordered = sorted(nanoseconds)
    found = {f"p{p}_us": percentile(ordered, p) / 1e3 for p in (10, 90)}
    return {"median_us": percentile(ordered, 50) / 1e3, **found, "n": len(ordered)}


def call(timer: Timer, count: int) -> Callable[[], int]:
    """Returns a function that computes `count` products."""
    return lambda: timer(count)


@contextlib.contextmanager
def pinned(threads: int) -> Iterator[None]:
    """Pins to the last cores, one per thread: the first core often serves interrupts."""
    before = features.cores()
    os.sched_setaffinity(0, set(before[-threads:]))
    try:
        yield
    finally:
        os.sched_setaffinity(0, set(before))
