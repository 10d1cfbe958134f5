"""Samples the products that a program computes, if its release asks for that."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, NamedTuple, Optional, Protocol, Sequence, Tuple

from edgekit.device.runtime.arrays.calls import Call

Trial = Tuple[str, int]  # a method, and the nanoseconds of the product with it


class TimedCall(NamedTuple):
    """A call and the nanoseconds of its product. whole: those of all the call, as the program sees
    it; 0 if unknown. trials: the times of the product with the call's and with another method;
    added: the nanoseconds that they took in addition."""

    call: Call
    total: int
    whole: int = 0
    trials: Sequence[Trial] = ()
    added: int = 0


class CallSampler(Protocol):
    """The part of a sampler that products use."""

    def due(self) -> bool: ...
    def tries(self, call: Call) -> bool: ...
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
