"""Samples the products that a program computes, if its release asks for that."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, NamedTuple, Optional, Protocol, Sequence, Tuple

from edgekit.device.runtime.arrays.calls import Call

Trial = Tuple[str, int]  # a method, and the nanoseconds of the product with it


class TimedCall(NamedTuple):
    """A call and its nanoseconds. `compare` computes the product again with the same and another
    method, and times both; it is called only on boards that opted in."""

    call: Call
    total: int
    compare: Callable[[], Sequence[Trial]] = tuple


class CallSampler(Protocol):
    """The part of a sampler that products use."""

    def due(self) -> bool: ...
    def record(self, times: Any) -> None: ...


def use_sampler(find: Callable[[int], Optional[CallSampler]]) -> None:
    """Makes this process sample its products; `find` returns the sampler for a number of
    threads."""
    global _find
    _find = find


def due(threads: int) -> Optional[CallSampler]:
    """Counts a call; returns a sampler if its time is to be recorded."""
    if _find is None:
        return None
    with _LOCK:
        sampler = _find(threads)
        return sampler if sampler is not None and sampler.due() else None


def record(sampler: CallSampler, times: TimedCall) -> None:
    """Records the time of a call that was due."""
    with _LOCK:
        sampler.record(times)


def nanoseconds(run: Callable[[], Any]) -> int:
    """Runs a product; returns its time."""
    start = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - start


_find: Optional[Callable[[int], Optional[CallSampler]]] = None
_LOCK = threading.Lock()  # a sampler may be used by one thread at a time
