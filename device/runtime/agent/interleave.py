"""Contenders that run in turns, so that drift hits all alike; standard library only."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Callable, Dict, Iterator, List, Sequence

from edgekit.device.runtime import features
from edgekit.device.runtime.agent.bench import percentile

Timer = Callable[[int], int]  # nanoseconds of so many products in a row
_BLOCK_NS = 250_000  # of products in a row: far above the clock's own cost
_LEAST_TURNS = 9
_FEW_TURNS = 3  # when the time is up already
_CUTOFF = 1.3  # times the best: a method this far behind after _FEW_TURNS is out


def interleave(
    timers: Sequence[Timer], seconds: float, cutoff: float = _CUTOFF
) -> List[List[float]]:
    """Nanoseconds of one product: for each timer, one value per turn.

    A timer that takes `cutoff` times as long as the best in the first turns gets no more of
    them; the last, the default, stays.
    """
    clock = time.perf_counter
    samples: List[List[float]] = [[] for _ in timers]
    start = clock()
    blocks = [_block(timer) for timer in timers]
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
            last = len(timers) - 1  # the default stays
            active = [i for i in active if i == last or min(samples[i]) <= best * cutoff]
    return samples


def _block(timer: Timer) -> int:
    """How many products in a row make a block long enough to time."""
    timer(1)  # faults the memory in
    count = 1
    while count < 1 << 20:
        spent = max(timer(count), 1)
        if spent * 4 >= _BLOCK_NS:
            return max(count * _BLOCK_NS // spent, 1)
        count *= 4
    return count


def summary(nanoseconds: List[float]) -> Dict[str, float]:
    """Median, p10 and p90 in microseconds, and how many there are."""
    ordered = sorted(nanoseconds)
    found = {f"p{p}_us": percentile(ordered, p) / 1e3 for p in (10, 90)}
    return {"median_us": percentile(ordered, 50) / 1e3, **found, "n": len(ordered)}


def call(timer: Timer, count: int) -> Callable[[], int]:
    """A function that makes `count` products."""
    return lambda: timer(count)


@contextlib.contextmanager
def pinned(threads: int) -> Iterator[None]:
    """Runs on the last cores, as many as threads: the first often serves interrupts."""
    before = features.cores()
    os.sched_setaffinity(0, set(before[-threads:]))
    try:
        yield
    finally:
        os.sched_setaffinity(0, set(before))
