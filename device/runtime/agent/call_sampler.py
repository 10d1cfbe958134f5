"""Samples the products that a program computes with a release of kernels; see sampler.py."""

from __future__ import annotations

import random
from array import array
from typing import Any, Callable, Dict, Iterator, NamedTuple, Optional, Tuple

from edgekit.device.runtime.agent.batch import Batch, MeasuredRelease
from edgekit.device.runtime.agent.manifest import Manifest
from edgekit.device.runtime.agent.sampler import (
    MOST_SAMPLES,
    Clocks,
    Collected,
    Sampler,
    SamplingPace,
    measured_release,
    open_spool,
)
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.arrays.calls import GEMM, SPMV, TRIAL, Call
from edgekit.device.runtime.arrays.sampling import TimedCall

_MOST_TRIALS = 64  # of a product in a process
_MOST_PRODUCTS = 256
_OVERHEAD_NS = 1_000_000  # of a first trial, beside its products
_TRIED = {GEMM: 1, SPMV: 100}  # products that a first trial may take, with what prepares them
_Names = Tuple[str, str, str]


class _Trials(NamedTuple):
    """How often a product was tried, and the nanoseconds to expect of another trial."""

    tried: int
    expected_ns: int


class ProductSampler(Sampler):
    """Collects the times of a program's products on a number of threads.

    Gaps between samples vary, because the products of a loop come at regular intervals. If
    `explores`, sampled products are computed once more with another method, as soon as the calls so
    far have earned the time that this takes.
    """

    def __init__(
        self,
        subject: MeasuredRelease,
        write: Callable[[Batch], None],
        explores: bool,
        pace: Optional[SamplingPace] = None,
        clocks: Optional[Clocks] = None,
    ) -> None:
        super().__init__(subject, (), write, pace, clocks)
        self._explores = explores
        self._trials: Dict[str, _Trials] = {}  # by product
        self._trying = ""
        self._each_ns = 0  # of the last call recorded

    def tries(self, call: Call) -> bool:
        """Whether to compute a product that is due with another method, too."""
        trials = self._trials.get(call.product) if self._explores else None
        if trials is None or trials.tried >= _MOST_TRIALS or self._is_full():
            return False
        uncounted = (self._count - self._counted) * self._each_ns
        if self._earned_ns() + self._pace.budget * uncounted < trials.expected_ns:
            return False
        self._trying = call.product
        return True

    def record(self, times: Any) -> None:
        self._spent_ns += times.added
        if self._explores and times.call.kind in _TRIED:
            self._note(times)
        super().record(times)

    def _note(self, times: TimedCall) -> None:
        if len(self._trials) >= _MOST_PRODUCTS:
            self._trials.clear()
        first = _Trials(0, _TRIED[times.call.kind] * times.total + _OVERHEAD_NS)
        known = self._trials.get(times.call.product, first)
        if self._trying == times.call.product:  # though there may have been nothing to try
            known, self._trying = _Trials(known.tried + 1, times.added), ""
        self._trials[times.call.product] = known

    def _waited_ns(self, times: Any) -> int:
        self._each_ns = max(times.whole, times.total)
        return self._each_ns

    def _is_full(self) -> bool:
        return self._collected is not None and len(self._collected.totals) >= MOST_SAMPLES

    def _open_batch(self, now: int, first: int) -> Collected:
        return _OfCalls(now, first)

    def _inferences_to_skip(self, each_ns: int, now: int) -> int:
        """Samples would use up the budget before there is enough for the cheapest trial."""
        skip = super()._inferences_to_skip(each_ns, now)
        waiting = [t.expected_ns for t in self._trials.values() if t.tried < _MOST_TRIALS]
        if waiting:
            skip = max(skip, self._inferences_to_earn(min(waiting), each_ns))
        return random.randint(skip, 2 * skip)


class _OfCalls(Collected):
    """Parts are products by method; trials are counted separately."""

    def __init__(self, began_ns: int, first: int) -> None:
        super().__init__(began_ns, first)
        self._rows: Dict[_Names, "array[int]"] = {}

    def add_parts(self, times: TimedCall) -> None:
        call = times.call
        self._add(call.product, call.kind, call.method, times.total)
        for method, ns in times.trials:
            self._add(call.product, call.kind + TRIAL, method, ns)

    def _add(self, product: str, kind: str, method: str, ns: int) -> None:
        self._rows.setdefault((product, kind, method), array("Q")).append(ns)

    def rows(self) -> Iterator[Tuple[_Names, "array[int]"]]:
        yield from self._rows.items()


def call_sampler_for(
    store: Store, manifest: Manifest, threads: int, pace: Optional[SamplingPace] = None
) -> Optional[ProductSampler]:
    """Returns a sampler for products on `threads` threads; None if sampling is off, or for a
    temporary deploy."""
    spool = open_spool(store)
    if spool is None:
        return None
    subject = measured_release(manifest, 0, threads)
    return ProductSampler(subject, spool.add, spool.explores, pace)
