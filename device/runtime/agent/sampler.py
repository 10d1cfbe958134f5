"""Samples the inferences of a model in whatever process runs it, for a small share of their time.

    sampler = sampler_for(store, manifest, variant=0, threads=1)
    for each inference:
        outputs, times = model.run(inputs)
        if sampler.due():
            sampler.record(times)
    sampler.close()

A process asks `due` once per inference and needs time stamps of those only that are. One sampler
goes with one loaded model: as that, it is for one thread at a time.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, List, Optional, Protocol, Sequence, Tuple

from edgekit.device.runtime import features
from edgekit.device.runtime.agent.batch import Batch, OperatorSpread, Spread, Subject, Surroundings
from edgekit.device.runtime.agent.cores import core_kinds
from edgekit.device.runtime.agent.kernel_files import read_text
from edgekit.device.runtime.agent.manifest import Manifest
from edgekit.device.runtime.agent.model import RunTimes
from edgekit.device.runtime.agent.noise import Sample, noise_since, sample
from edgekit.device.runtime.agent.probe import conditions
from edgekit.device.runtime.agent.specs import OperatorSpec
from edgekit.device.runtime.agent.spool import Spool
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.errors import DeviceError

BUDGET = 0.01  # of the time of the inferences
EVERY = 10
PERIOD_SECONDS = 600.0
MOST_SAMPLES = 256  # of a batch: the rest of its period is not sampled
_FIRST_SAMPLES = 32  # as they come, then spread over the period
_LONGEST_SKIP = 1 << 20
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Clocks(Protocol):
    """Time, as a sampler needs it; nanoseconds."""

    def cost(self) -> int:
        """For what the sampler itself takes."""

    def boot(self) -> int:
        """Since the board started, its sleep included."""


class _SystemClocks:
    def cost(self) -> int:
        return time.perf_counter_ns()

    def boot(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Pace:
    """Every `every`-th inference at most, for `budget` of the time of all; a batch closes after
    `period_seconds`."""

    every: int = EVERY
    budget: float = BUDGET
    period_seconds: float = PERIOD_SECONDS


class Sampler:
    """Collects samples of one model and hands a batch of them to `write` now and then.

    The first inference, which meets cold caches, is not sampled. `write` runs in a thread of its
    own, so that no inference waits for a disk; a batch that it cannot write is counted in the next.
    """

    def __init__(
        self,
        subject: Subject,
        operators: Sequence[OperatorSpec],
        write: Callable[[Batch], None],
        pace: Optional[Pace] = None,
        clocks: Optional[Clocks] = None,
    ) -> None:
        self._subject = subject
        self._operators = operators
        self._write = write
        self._pace = pace or Pace()
        self._clocks = clocks or _SystemClocks()
        self._writer: Optional[threading.Thread] = None
        self._lost = 0
        self._spent_ns = 0
        self._inference_ns = 0
        self._count = 0
        self._counted = 0  # of them in `_inference_ns`
        self._skip = 1
        self._collected: Optional[_Collected] = None

    def due(self) -> bool:
        """Counts an inference; whether it is to be recorded."""
        self._count += 1
        if self._skip:
            self._skip -= 1
            return False
        return True

    def record(self, times: RunTimes) -> None:
        """Takes the inference that was due; its operators as in the release."""
        start = self._clocks.cost()
        now = self._clocks.boot()
        if self._collected is None:
            self._collected = _Collected(now, self._counted, len(self._operators))
        self._collected.add(times)
        self._inference_ns += times.total * (self._count - self._counted)
        self._counted = self._count
        if now - self._collected.began_ns >= self._pace.period_seconds * 1e9:
            self._finish(now)
        self._spent_ns += self._clocks.cost() - start
        self._skip = min(self._inferences_to_skip(times.total, now), _LONGEST_SKIP)

    def close(self, wait: bool = True) -> None:
        """Hands over what was collected; unless told, waits until it is written. Without waiting,
        what comes while the last batch is still being written is lost, and counted."""
        if wait:
            self._join()
            if writing := self._taken(self._clocks.boot()):
                writing()
        else:
            self._finish(self._clocks.boot())

    @property
    def cost(self) -> float:
        """What sampling took beside the inferences so far, as a share of their time."""
        return self._spent_ns / max(self._inference_ns, 1)

    def _inferences_to_skip(self, each_ns: int, now: int) -> int:
        """Until the next sample: by the budget, and so that samples are spread over the period."""
        skip = self._pace.every - 1
        debt = self._spent_ns - self._pace.budget * self._inference_ns
        if debt > 0:
            skip = max(skip, int(debt / (self._pace.budget * max(each_ns, 1))) + 1)
        collected = self._collected
        if collected is not None:
            elapsed = now - collected.began_ns
            apart = self._pace.period_seconds * 1e9 / (MOST_SAMPLES - _FIRST_SAMPLES)
            if len(collected.totals) >= min(_FIRST_SAMPLES + elapsed / apart, MOST_SAMPLES):
                wall = elapsed / max(self._count - collected.first, 1)
                skip = max(skip, int(apart / max(wall, each_ns, 1)))
        return skip

    def _finish(self, now: int) -> None:
        """Writes in the background; if the last batch is still being written, later."""
        if self._writer and self._writer.is_alive():
            return
        work = self._taken(now)
        if work is None:
            return
        self._writer = threading.Thread(target=work, name="edgekit-profile")
        try:
            self._writer.start()
        except RuntimeError:  # the system has no thread to give; the model is to run on
            self._writer = None
            self._lost += 1

    def _taken(self, now: int) -> Optional[Callable[[], None]]:
        """What writes that which was collected by now; None if that is nothing."""
        collected = self._collected
        if collected is None:
            return None
        self._collected = None
        inferences = self._count - collected.first

        def work() -> None:
            start = time.thread_time_ns()
            try:
                self._write(self._batch(collected, inferences, now))
                self._lost = 0
            except (OSError, DeviceError):
                self._lost += 1
            self._spent_ns += time.thread_time_ns() - start

        return work

    def _join(self) -> None:
        if self._writer:
            self._writer.join()

    def _batch(self, collected: _Collected, inferences: int, now: int) -> Batch:
        return Batch(
            uuid=os.urandom(16).hex(),
            boot=(read_text(_BOOT) or "").replace("-", ""),
            began_ns=collected.began_ns,
            ended_ns=now,
            clock=time.time(),
            lost=self._lost,
            subject=self._subject,
            inferences=inferences,
            every=inferences / len(collected.totals),
            whole=Spread(*_spread(collected.totals)),
            operators=tuple(
                OperatorSpread(spec.name, spec.op, spec.kernel, *_spread(row))
                for spec, row in zip(self._operators, collected.rows)
            ),
            surroundings=surroundings(collected.before),
        )


class _Collected:
    """The samples of a batch that is on its way; packed, as Python's integers they take tenfold."""

    def __init__(self, began_ns: int, first: int, operators: int) -> None:
        self.began_ns = began_ns
        self.first = first
        self.before = sample()
        self.totals = array("Q")
        self.rows: List["array[int]"] = [array("Q") for _ in range(operators)]

    def add(self, times: RunTimes) -> None:
        if len(self.totals) < MOST_SAMPLES:
            self.totals.append(times.total)
            for row, ns in zip(self.rows, times.operators):
                row.append(ns)


def sampler_for(
    store: Store, manifest: Manifest, variant: int, threads: int, pace: Optional[Pace] = None
) -> Optional[Sampler]:
    """The sampler of a release's variant, which writes into the board's spool. None where sampling
    is off, and for what is only tried aside."""
    spool = spool_of(store)
    if spool.is_off or (store.board != store.root and not store.name):
        return None
    subject = subject_of(manifest, variant, threads)
    return Sampler(subject, manifest.every_variant()[variant].operators, spool.add, pace)


def subject_of(manifest: Manifest, variant: int, threads: int) -> Subject:
    """What is measured when a release's variant runs."""
    return Subject(
        release=manifest.id,
        model=manifest.model.name,
        model_sha256=manifest.model.sha256,
        profile=manifest.board.profile,
        kit=manifest.kit_version,
        variant=variant,
        threads=threads,
    )


def spool_of(store: Store) -> Spool:
    """The one spool of a board, whichever of its models is asked about."""
    return Spool(store.board / "spool")


def surroundings(before: Sample) -> Surroundings:
    """This board now, and what disturbed it since `before`."""
    noise, now = noise_since(before), conditions()
    load = None if noise.load is None else round(noise.load, 2)
    return Surroundings(
        cluster=_cluster(),
        governor=now.governor,
        frequency_mhz=now.frequency_mhz,
        temperature_c=now.temperature_c,
        throttled=noise.throttled,
        others=None if noise.others is None else round(noise.others, 3),
        load=load,
        available_bytes=features.memory_bytes().available,
        resident_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def _cluster() -> str:
    """The kind of core that this process was last on; "" where that is not told."""
    with contextlib.suppress(ValueError, IndexError):
        core = int((read_text(Path("/proc/self/stat")) or "").rpartition(")")[2].split()[36])
        return core_kinds(features.cpuinfo()).get(core, "")
    return ""


def _spread(values: Sequence[int]) -> Tuple[int, int, int, int]:
    """Samples, median, 90th percentile and the greatest, as one of the values each."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return len(ordered), ordered[last // 2], ordered[-(-last * 9 // 10)], ordered[last]
