"""The shadow check: repeats some inferences of a quantized release with its float model.

    state = shadow.state_before(block)
    ...
    if shadow.due(nanoseconds, state is not None):
        shadow.repeat(inputs, outputs, state)

Inputs, outputs and states are copied, computed again at idle times and forgotten; what is sent home
is how often the two models agreed, and sketches of the float model's tensors. The overhead,
including the repeated inferences, stays within a fraction of the time of all inferences.
"""

from __future__ import annotations

import mmap
import os
import random
import threading
import time
from array import array
from typing import Callable, List, Optional, Protocol, Sequence, Tuple

from edgekit.device.runtime.agent.batch import (
    Batch,
    FieldReport,
    MeasuredRelease,
    RangeSketch,
)
from edgekit.device.runtime.agent.float_model import Comparison, FloatModel
from edgekit.device.runtime.agent.manifest import Manifest
from edgekit.device.runtime.agent.noise import sample
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.agent.sampler import (
    BUDGET,
    Clocks,
    SamplingPace,
    SystemClocks,
    boot_id,
    environment,
    measured_release,
    open_spool,
    spread_of,
)
from edgekit.device.runtime.agent.shadow_spec import CLASS, ShadowSpec
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.errors import DeviceError

PERIOD_SECONDS = 3600.0
# Upper limits of a difference: its RMS as a fraction of the float output's. The last class has the
# others. An inference agrees up to AGREES, which is a cosine of 0.995.
NOISES = (0.01, 0.03, 0.1, 0.3)
AGREES = 0.1


class Repeats(Protocol):
    """The float model; see FloatModel."""

    def compare(
        self, inputs: Sequence[bytes], outputs: Sequence[bytes], state: bytes
    ) -> Comparison: ...

    def take_ranges(self) -> Tuple[RangeSketch, ...]: ...

    def close(self) -> None: ...


class Shadow:
    """Repeats inferences of one release; any number of threads may use it.

    `open_model` is called for the first repeated inference; if it fails, or the model does, there
    are no more. `write` runs in the thread that repeats.
    """

    def __init__(
        self,
        spec: ShadowSpec,
        subject: MeasuredRelease,
        open_model: Callable[[], Repeats],
        write: Callable[[Batch], None],
        pace: Optional[SamplingPace] = None,
        clocks: Optional[Clocks] = None,
    ) -> None:
        self._spec, self._subject = spec, subject
        self._open_model, self._write = open_model, write
        self._pace = pace or SamplingPace(spec.every, BUDGET / 2, PERIOD_SECONDS)
        self._clocks = clocks or SystemClocks()
        self._at_work = threading.Lock()  # guards the model and the results
        self._lock = threading.Lock()  # guards the numbers below
        self._inference_ns = self._spent_ns = 0
        self._count = self._reported = self._lost = 0  # inferences; those in earlier batches
        self._skip = 1  # the first, since its caches are cold
        self._busy = self._off = False
        self._model: Optional[Repeats] = None
        self._thread: Optional[threading.Thread] = None
        self._results: Optional[_Results] = None

    def state_before(self, block: mmap.mmap) -> Optional[bytes]:
        """A copy of the states that an inference begins with, for `repeat`; None if it will not be
        repeated."""
        size = self._spec.memory.state_bytes
        if not size:
            return b""
        with self._lock:
            if self._skip or not self._may_repeat():
                return None
            start = self._clocks.cost()
            state = block[:size]
            self._spent_ns += self._clocks.cost() - start
            return state

    def due(self, ns: int, ready: bool = True) -> bool:
        """Counts an inference of so many nanoseconds; returns whether to pass it to `repeat`.
        `ready`: its states before it were copied."""
        with self._lock:
            self._count += 1
            self._inference_ns += ns
            if self._skip:
                self._skip -= 1
                return False
            if not ready or not self._may_repeat():
                return False
            self._busy = True
            # Irregular, since the inputs of a program may come in a regular order.
            self._skip = random.randint(0, 2 * (self._pace.every - 1))
            return True

    def repeat(
        self, inputs: Sequence[bytes], outputs: Sequence[bytes], state: Optional[bytes]
    ) -> None:
        """Repeats the inference that was due, in the background; `outputs` are the release's, and
        `state` is that of `state_before`."""
        start = self._clocks.cost()
        thread = threading.Thread(
            target=self._work,
            args=(inputs, outputs, state or b""),
            name="edgekit-shadow",
            daemon=True,
        )
        try:
            thread.start()
            self._thread = thread
        except RuntimeError:  # no thread available, or the interpreter is about to end
            self._busy = False
        with self._lock:
            self._spent_ns += self._clocks.cost() - start

    @property
    def every(self) -> int:
        return self._pace.every

    def count(self, inferences: int, ns: int, spent_ns: int) -> None:
        """Counts inferences of another process, their time, and what it spent for `repeat_now`."""
        with self._lock:
            self._count += inferences
            self._inference_ns += ns
            self._spent_ns += spent_ns

    def repeat_now(self, inputs: Sequence[bytes], outputs: Sequence[bytes], state: bytes) -> None:
        """Does the same as `repeat` in this thread, for a process that counts for itself."""
        self._work(inputs, outputs, state)

    def next_ns(self) -> Optional[int]:
        """The time of all inferences, in nanoseconds, that pays for those repeated so far; None if
        the model cannot repeat any."""
        with self._lock:
            return None if self._off else int(self._spent_ns / self._pace.budget)

    def write_results(self) -> None:
        """Waits for a repeated inference, and writes the results so far."""
        if self._thread is not None:
            self._thread.join()
        with self._at_work:
            self._write_batch()

    def close(self) -> None:
        """Writes the results, and frees the float model."""
        with self._lock:
            self._off = True
        self.write_results()
        if self._model is not None:
            self._model.close()
            self._model = None

    def _may_repeat(self) -> bool:
        """Whether no other inference is repeated, and the budget allows it; with `_lock` held."""
        spare = self._spent_ns <= self._pace.budget * self._inference_ns
        return spare and not self._busy and not self._off

    def _work(self, inputs: Sequence[bytes], outputs: Sequence[bytes], state: bytes) -> None:
        with self._at_work:
            start, ns = time.thread_time_ns(), 0
            try:
                if self._model is None:
                    self._model = self._open_model()
                found = self._model.compare(inputs, outputs, state)
                ns = found.ns
                self._add(found)
            except (DeviceError, OSError):
                self._off = True
            with self._lock:
                self._spent_ns += time.thread_time_ns() - start + ns
                self._busy = False

    def _add(self, found: Comparison) -> None:
        now = self._clocks.boot()
        if self._results is None:
            self._results = _Results(now)
        agrees = found.same if self._spec.measure == CLASS else found.noise <= AGREES
        self._results.add(found, agrees)
        if now - self._results.began_ns >= self._pace.period_seconds * 1e9:
            self._write_batch()

    def _write_batch(self) -> None:
        results, self._results = self._results, None
        if results is None or self._model is None:
            return
        report = FieldReport(
            self._spec.model_sha256,
            self._spec.measure,
            results.agreed,
            tuple(results.noises),
            self._model.take_ranges(),
        )
        inferences, self._reported = self._count - self._reported, self._count
        try:
            self._write(
                Batch(
                    uuid=os.urandom(16).hex(),
                    boot=boot_id(),
                    began_ns=results.began_ns,
                    ended_ns=self._clocks.boot(),
                    clock=time.time(),
                    lost=self._lost,
                    subject=self._subject,
                    inferences=inferences,
                    every=inferences / len(results.times),
                    whole=spread_of(results.times),
                    operators=(),
                    environment=environment(results.before),
                    field=report,
                )
            )
            self._lost = 0
        except (OSError, DeviceError):
            self._lost += 1


class _Results:
    """The repeated inferences of an open batch; `times` are those of the float model."""

    def __init__(self, began_ns: int) -> None:
        self.began_ns = began_ns
        self.before = sample()
        self.agreed = 0
        self.noises: List[int] = [0] * (len(NOISES) + 1)
        self.times = array("Q")

    def add(self, found: Comparison, agrees: bool) -> None:
        self.agreed += agrees
        self.noises[sum(found.noise > limit for limit in NOISES)] += 1
        self.times.append(found.ns)


def shadow_for(
    store: Store, manifest: Manifest, files: ReleaseFiles, pace: Optional[SamplingPace] = None
) -> Optional[Shadow]:
    """The shadow check of a release, whose `files` stay open until it is closed. None if the
    release has no float model, sampling is off, or the deploy is temporary."""
    spec, spool = manifest.shadow, open_spool(store)
    if spec is None or spool is None:
        return None
    variant = manifest.every_variant()[0]
    subject = measured_release(manifest, 0, 1)
    return Shadow(
        spec,
        subject,
        lambda: FloatModel(files, manifest.board, variant, spec),
        spool.add,
        pace,
    )
