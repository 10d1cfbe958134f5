"""Samples the inferences of a model in the process that runs it, at a small fraction of their time.

    sampler = sampler_for(store, manifest, variant=0, threads=1)
    for each inference:
        outputs, times = model.run(inputs)
        if sampler.due():
            sampler.record(times)
    sampler.close()

A process calls `due` once per inference, and needs time stamps only for those that are due. There
is one sampler per loaded model; like the model, it may be used by one thread at a time.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from array import array
from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional, Protocol, Sequence, Tuple

from edgekit.device.runtime import features
from edgekit.device.runtime.agent.batch import (
    Batch,
    Environment,
    MeasuredRelease,
    OperatorSpread,
    Spread,
)
from edgekit.device.runtime.agent.cores import core_kinds
from edgekit.device.runtime.agent.kernel_files import read_text
from edgekit.device.runtime.agent.manifest import Manifest
from edgekit.device.runtime.agent.model import RunTimes
from edgekit.device.runtime.agent.noise import LoadSnapshot, noise_since, sample
from edgekit.device.runtime.agent.probe import conditions
from edgekit.device.runtime.agent.specs import OperatorSpec
from edgekit.device.runtime.agent.spool import Spool
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.errors import DeviceError
from edgekit.device.runtime.record import Record

BUDGET = 0.01  # of the time of the inferences
EVERY = 10
PERIOD_SECONDS = 600.0
MOST_SAMPLES = 256  # of a batch: the rest of its period is not sampled
_FIRST_SAMPLES = 32  # taken at once, the rest spread over the period
_LONGEST_SKIP = 1 << 20
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Clocks(Protocol):
    """The clocks of a sampler, in nanoseconds."""

    def cost(self) -> int:
        """For the sampler's own overhead."""

    def boot(self) -> int:
        """Since boot, including suspend."""


class SystemClocks:
    """The clocks of this machine."""

    def cost(self) -> int:
        return time.perf_counter_ns()

    def boot(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class SamplingPace(Record):
    """At most every `every`-th inference, within `budget` of the total inference time; a batch
    closes after `period_seconds`."""

    every: int = EVERY
    budget: float = BUDGET
    period_seconds: float = PERIOD_SECONDS


class TimedEvent(Protocol):
    """A recorded event: an inference, or a call of a product."""

    @property
    def total(self) -> int:
        """Nanoseconds."""


class Sampler:
    """Collects samples of one model and periodically passes a batch of them to `write`.

    The first inference is not sampled, because its caches are cold. `write` runs in its own thread,
    so that no inference waits for a disk; the next batch counts batches that it failed to write.
    """

    def __init__(
        self,
        subject: MeasuredRelease,
        operators: Sequence[OperatorSpec],
        write: Callable[[Batch], None],
        pace: Optional[SamplingPace] = None,
        clocks: Optional[Clocks] = None,
    ) -> None:
        self._subject = subject
        self._operators = operators
        self._write = write
        self._pace = pace or SamplingPace()
        self._clocks = clocks or SystemClocks()
        self._writer: Optional[threading.Thread] = None
        self._lost = 0
        self._spent_ns = 0  # by inferences; a sum of two threads would lose additions
        self._written_ns = 0  # by the only writer at a time
        self._inference_ns = 0
        self._count = 0
        self._counted = 0  # inferences included in `_inference_ns`
        self._skip = 1
        self._collected: Optional[Collected] = None

    def due(self) -> bool:
        """Counts an inference; returns whether to record it."""
        self._count += 1
        if self._skip:
            self._skip -= 1
            return False
        return True

    def record(self, times: TimedEvent) -> None:
        """Records the inference that was due, with its operators in release order."""
        start = self._clocks.cost()
        now = self._clocks.boot()
        if self._collected is None:
            self._collected = self._open_batch(now, self._counted)
        self._collected.add(times)
        each = self._waited_ns(times)
        self._inference_ns += each * (self._count - self._counted)
        self._counted = self._count
        if now - self._collected.began_ns >= self._pace.period_seconds * 1e9:
            self._start_writing(now)
        self._spent_ns += self._clocks.cost() - start
        self._skip = min(self._inferences_to_skip(each, now), _LONGEST_SKIP)

    def close(self, wait: bool = True) -> None:
        """Passes on the collected samples; by default waits until they are written. Without
        waiting, they are lost, and counted, while the previous batch is still being written."""
        if wait:
            self._join_writer()
            if writing := self._take_pending_write(self._clocks.boot()):
                writing()
        else:
            self._start_writing(self._clocks.boot())

    @property
    def cost(self) -> float:
        """The sampling overhead so far, as a fraction of the inferences' time."""
        return (self._spent_ns + self._written_ns) / max(self._inference_ns, 1)

    def _open_batch(self, now: int, first: int) -> Collected:
        return _OfModel(now, first, self._operators)

    def _inferences_to_skip(self, each_ns: int, now: int) -> int:
        """Returns the gap to the next sample, from the budget and the spread over the period."""
        skip = max(self._pace.every - 1, self._inferences_to_earn(0, each_ns))
        collected = self._collected
        if collected is not None:
            elapsed = now - collected.began_ns
            apart = self._pace.period_seconds * 1e9 / (MOST_SAMPLES - _FIRST_SAMPLES)
            if len(collected.totals) >= min(_FIRST_SAMPLES + elapsed / apart, MOST_SAMPLES):
                wall = elapsed / max(self._count - collected.first, 1)
                skip = max(skip, int(apart / max(wall, each_ns, 1)))
        return skip

    def _waited_ns(self, times: Any) -> int:
        """The time of an event to which the overhead is related."""
        total: int = times.total
        return total

    def _earned_ns(self) -> float:
        """The part of the budget that is not spent yet; below 0 if more was."""
        return self._pace.budget * self._inference_ns - self._spent_ns - self._written_ns

    def _inferences_to_earn(self, ns: float, each_ns: int) -> int:
        """The number of inferences after which the budget has `ns` left."""
        missing = ns - self._earned_ns()
        return int(missing / (self._pace.budget * max(each_ns, 1))) + 1 if missing > 0 else 0

    def _start_writing(self, now: int) -> None:
        """Writes in the background; deferred while the previous batch is still being written."""
        if self._writer and self._writer.is_alive():
            return
        work = self._take_pending_write(now)
        if work is None:
            return
        self._writer = threading.Thread(target=work, name="edgekit-profile")
        try:
            self._writer.start()
        except RuntimeError:  # no thread available; the model must keep running
            self._writer = None
            self._lost += 1

    def _take_pending_write(self, now: int) -> Optional[Callable[[], None]]:
        """Returns a function that writes the samples collected so far; None if there are none."""
        collected = self._collected
        if collected is None:
            return None
        self._collected = None
        inferences = self._count - collected.first

        def work() -> None:
            start = time.thread_time_ns()
            try:
                self._write(self._build_batch(collected, inferences, now))
                self._lost = 0
            except (OSError, DeviceError):
                self._lost += 1
            self._written_ns += time.thread_time_ns() - start

        return work

    def _join_writer(self) -> None:
        if self._writer:
            self._writer.join()

    def _build_batch(self, collected: Collected, inferences: int, now: int) -> Batch:
        return Batch(
            uuid=os.urandom(16).hex(),
            boot=boot_id(),
            began_ns=collected.began_ns,
            ended_ns=now,
            clock=time.time(),
            lost=self._lost,
            subject=self._subject,
            inferences=inferences,
            every=inferences / len(collected.totals),
            whole=spread_of(collected.totals),
            operators=tuple(
                OperatorSpread(*names, *_summarize_samples(row)) for names, row in collected.rows()
            ),
            environment=environment(collected.before),
        )


class Collected:
    """The samples of an open batch, packed: as Python integers they would take ten times the
    memory."""

    def __init__(self, began_ns: int, first: int) -> None:
        self.began_ns = began_ns
        self.first = first
        self.before = sample()
        self.totals = array("Q")

    def add(self, times: Any) -> None:
        """Adds a sample, as long as there is room for more."""
        if len(self.totals) < MOST_SAMPLES:
            self.totals.append(times.total)
            self.add_parts(times)

    def add_parts(self, times: Any) -> None:
        """Adds the times of a sample's parts."""
        raise NotImplementedError

    def rows(self) -> Iterator[Tuple[Tuple[str, str, str], "array[int]"]]:
        """Yields name, kind and kernel of each part, and its samples."""
        raise NotImplementedError


class _OfModel(Collected):
    """Parts are the operators of a model."""

    def __init__(self, began_ns: int, first: int, operators: Sequence[OperatorSpec]) -> None:
        super().__init__(began_ns, first)
        self._operators = operators
        self._rows: List["array[int]"] = [array("Q") for _ in operators]

    def add_parts(self, times: RunTimes) -> None:
        for row, ns in zip(self._rows, times.operators):
            row.append(ns)

    def rows(self) -> Iterator[Tuple[Tuple[str, str, str], "array[int]"]]:
        for spec, row in zip(self._operators, self._rows):
            yield (spec.name, spec.op, spec.kernel), row


def sampler_for(
    store: Store,
    manifest: Manifest,
    variant: int,
    threads: int,
    pace: Optional[SamplingPace] = None,
) -> Optional[Sampler]:
    """Returns a sampler that writes a release variant's batches to the board's spool.

    Returns None if sampling is off, or for a temporary deploy.
    """
    spool = open_spool(store)
    if spool is None:
        return None
    subject = measured_release(manifest, variant, threads)
    if manifest.shadow is not None and pace is None:  # shadow.py has the other half
        pace = SamplingPace(budget=BUDGET / 2)
    return Sampler(subject, manifest.every_variant()[variant].operators, spool.add, pace)


def open_spool(store: Store) -> Optional[Spool]:
    """Returns the spool for samples of a release; None if sampling is off, or for a temporary
    deploy."""
    spool = spool_of(store)
    temporary = store.board != store.root and not store.name
    return None if spool.is_off or temporary else spool


def measured_release(manifest: Manifest, variant: int, threads: int) -> MeasuredRelease:
    """Returns the `subject` of batches of a release's variant."""
    return MeasuredRelease(
        release=manifest.id,
        model=manifest.model.name,
        model_sha256=manifest.model.sha256,
        profile=manifest.board.profile,
        kit=manifest.kit_version,
        variant=variant,
        threads=threads,
    )


def spool_of(store: Store) -> Spool:
    """Returns the board's only spool, for any of its models."""
    return Spool(store.spool)


def boot_id() -> str:
    """Names the time since the board started; empty if unknown."""
    return (read_text(_BOOT) or "").replace("-", "")


def spread_of(nanoseconds: Sequence[int]) -> Spread:
    """Statistics of at least one sample."""
    return Spread(*_summarize_samples(nanoseconds))


def environment(before: LoadSnapshot) -> Environment:
    """Returns the board's current conditions, and the disturbance since `before`."""
    noise, now = noise_since(before), conditions()
    load = None if noise.load is None else round(noise.load, 2)
    return Environment(
        cluster=_current_core_type(),
        governor=now.governor,
        frequency_mhz=now.frequency_mhz,
        temperature_c=now.temperature_c,
        throttled=noise.throttled,
        others=None if noise.others is None else round(noise.others, 3),
        load=load,
        available_bytes=features.memory_bytes().available,
        resident_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def _current_core_type() -> str:
    """Returns the core type this process last ran on; "" if unknown."""
    with contextlib.suppress(ValueError, IndexError):
        core = int((read_text(Path("/proc/self/stat")) or "").rpartition(")")[2].split()[36])
        return core_kinds(features.cpuinfo()).get(core, "")
    return ""


def _summarize_samples(values: Sequence[int]) -> Tuple[int, int, int, int]:
    """Returns count, median, 90th percentile and maximum, each an actual sample."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return len(ordered), ordered[last // 2], ordered[-(-last * 9 // 10)], ordered[last]
