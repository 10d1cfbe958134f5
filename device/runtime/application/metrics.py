"""An application's numbers for Prometheus: inferences, their times and failures."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Dict, Iterator, List, Protocol, Tuple

from edgekit.device.runtime.agent.probe import conditions
from edgekit.device.runtime.exposition import CONTENT_TYPE, Family, Labels, Number, exposition

BOUNDS = tuple(digit * 10.0**power for power in range(-4, 1) for digit in (1, 2, 5))  # seconds


class Named(Protocol):
    """A model: its name, and the release that runs now."""

    @property
    def name(self) -> str: ...
    @property
    def release(self) -> str: ...


class Metrics:
    """Counts a model's inferences. Put each into `with metrics.inference():`, and answer Prometheus
    with `metrics.text()` and `content_type`. Safe to use from threads.
    """

    content_type = CONTENT_TYPE

    def __init__(self, model: Named) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._counts = [0] * (len(BOUNDS) + 1)  # by the first bound that is not exceeded
        self._seconds = 0.0
        self._failures = 0

    @contextlib.contextmanager
    def inference(self) -> Iterator[None]:
        """Times the block; one that raises counts as a failure."""
        began = time.monotonic()
        try:
            yield
        except BaseException:
            with self._lock:
                self._failures += 1
            raise
        seconds = time.monotonic() - began
        place = sum(bound < seconds for bound in BOUNDS)
        with self._lock:
            self._counts[place] += 1
            self._seconds += seconds

    def text(self) -> bytes:
        """The metrics in Prometheus' exposition format."""
        with self._lock:
            counts, seconds, failures = list(self._counts), self._seconds, self._failures
        of: Labels = {"model": self._model.name}
        heat = conditions().temperature_c
        return exposition(
            (
                _family(
                    "inference_seconds",
                    "histogram",
                    "Time of an inference.",
                    _buckets(of, counts, seconds),
                ),
                _family(
                    "failures_total", "counter", "Inferences that failed.", [("", of, failures)]
                ),
                _family(
                    "release",
                    "gauge",
                    "1 for the release that runs.",
                    [("", {**of, "release": self._model.release}, 1)],
                ),
                _family(
                    "temperature_celsius",
                    "gauge",
                    "Temperature of the core.",
                    [] if heat is None else [("", {}, heat)],
                ),
            )
        )


def _family(
    name: str, kind: str, about: str, samples: List[Tuple[str, Dict[str, str], Number]]
) -> Family:
    return Family(f"edgekit_application_{name}", kind, about, tuple(samples))


def _buckets(
    of: Labels, counts: List[int], seconds: float
) -> List[Tuple[str, Dict[str, str], Number]]:
    rows: List[Tuple[str, Dict[str, str], Number]] = []
    total = 0
    for bound, count in zip((*map("{:g}".format, BOUNDS), "+Inf"), counts):
        total += count
        rows.append(("_bucket", {**of, "le": bound}, total))
    return [*rows, ("_sum", of, seconds), ("_count", of, total)]
