"""Finds the functions in which a child's threads spend their time, by our own samples.

Uses Linux's performance events where permitted, with or without the perf tool; otherwise ptrace.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, List, Sequence, Tuple

from edgekit.device.runtime.agent.perf_events import sample_threads
from edgekit.device.runtime.agent.ptrace_sampler import stop_threads
from edgekit.device.runtime.agent.symbols import UNKNOWN, CodePlace, Symbols
from edgekit.device.runtime.agent.threads import threads_of
from edgekit.device.runtime.record import Record

EVENTS, STOPS = "perf_event_open", "ptrace"
_SECONDS = 2.0
# Name prefixes of functions that distribute work, or wait for work or its end.
_WAITS = ("ek_parallel", "ek_pool_", "ek_run_units", "sched_yield", "pthread_", "__pthread_")
_NEEDS = {
    EVENTS: "kernel.perf_event_paranoid of 2 at most, and a container that allows it",
    STOPS: "kernel.yama.ptrace_scope of 1 at most, and a container that allows it",
}


class SampledPlaces(Record):
    """`sampler` is EVENTS, STOPS or, if neither is allowed, empty; `places` are the sampled
    locations of each thread, by its id."""

    sampler: str
    places: Dict[int, Tuple[CodePlace, ...]]

    @property
    def count(self) -> int:
        return sum(map(len, self.places.values()))

    def functions(self) -> List[Tuple[float, CodePlace]]:
        """Returns percent of all samples and the function, hottest first, without waiting
        functions."""
        all_places = Counter(place for found in self.places.values() for place in found)
        hot = [(place, n) for place, n in all_places.most_common() if not is_wait(place)]
        return [(100.0 * n / self.count, place) for place, n in hot]

    def waiting(self, thread: int) -> float:
        """Returns the percent of a thread's samples spent taking or awaiting work from the pool."""
        found = self.places.get(thread, ())
        return 100.0 * sum(map(is_wait, found)) / len(found) if found else 0.0


def is_wait(place: CodePlace) -> bool:
    """Whether threads wait for each other in this function."""
    return place.function.startswith(_WAITS)


def sample(process: int, missing: List[str]) -> SampledPlaces:
    """Samples a child for some seconds; adds refused methods to `missing`."""
    threads, symbols = threads_of(process), Symbols(process)
    for sampler, take in ((EVENTS, sample_threads), (STOPS, stop_threads)):
        try:
            found = take(threads, _SECONDS)
        except OSError as error:
            missing.append(f"{sampler}: {error.strerror or error}; it needs {_NEEDS[sampler]}")
            continue
        return SampledPlaces(sampler, {t: _symbolize(found[t], symbols) for t in threads})
    return SampledPlaces("", {})


def _symbolize(addresses: Sequence[int], symbols: Symbols) -> Tuple[CodePlace, ...]:
    return tuple(symbols.at(address) for address in addresses)


def shown(place: CodePlace) -> str:
    """Formats like perf: library, function."""
    return f"{place.library} {place.function}" if place.function != UNKNOWN else place.library
