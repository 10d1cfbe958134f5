"""Samples the products that a program computes with a release of kernels; see sampler.py."""

from __future__ import annotations

import random
from array import array
from typing import Callable, Dict, Iterator, Optional, Tuple

from edgekit.device.runtime.agent.batch import Batch, MeasuredRelease
from edgekit.device.runtime.agent.manifest import Manifest
from edgekit.device.runtime.agent.sampler import (
    Clocks,
    Collected,
    Sampler,
    SamplingPace,
    measured_release,
    open_spool,
)
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.arrays.calls import TRIAL
from edgekit.device.runtime.arrays.sampling import TimedCall

_Names = Tuple[str, str, str]


class ProductSampler(Sampler):
    """Collects the times of a program's products on a number of threads.

    Gaps between samples vary, because the products of a loop come at regular intervals. If
    `explores`, each sampled product is computed again with the same and with another method, and
    the time that takes is part of the overhead.
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

    def _open_batch(self, now: int, first: int) -> Collected:
        return _OfCalls(now, first, self._explores)

    def _inferences_to_skip(self, each_ns: int, now: int) -> int:
        skip = super()._inferences_to_skip(each_ns, now)
        return random.randint(skip, 2 * skip)


class _OfCalls(Collected):
    """Parts are products by method; trials are counted separately."""

    def __init__(self, began_ns: int, first: int, explores: bool) -> None:
        super().__init__(began_ns, first)
        self._explores = explores
        self._rows: Dict[_Names, "array[int]"] = {}

    def add_parts(self, times: TimedCall) -> None:
        call = times.call
        self._add(call.product, call.kind, call.method, times.total)
        for method, ns in times.compare() if self._explores else ():
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
