"""Hot spots of a release that was timed: all of its threads are watched as they work."""

from __future__ import annotations

import ctypes
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

from edgekit.device.runtime import features
from edgekit.device.runtime.agent.golden import golden_inputs
from edgekit.device.runtime.agent.hotspots import watch_threads
from edgekit.device.runtime.agent.manifest import Manifest
from edgekit.device.runtime.agent.model import open_model
from edgekit.device.runtime.agent.placement import Placement
from edgekit.device.runtime.agent.variants import numbered

_CALL_MS = 100.0  # of inferences in one call into the library: Python must not be seen
_MOST_BYTES = 64 << 20  # of each of the two blocks that are copied: beyond the caches of boards
_FREE_SHARE = 8  # of the free memory, where that is less
_COPIES = 3  # at least, and as many as fit into _COPY_SECONDS
_COPY_SECONDS = 0.5


def add_hotspots(
    timing: Dict[str, Any], current: Tuple[Manifest, Path], placement: Placement, number: int
) -> None:
    """Adds `hotspots` to the document edgekit.runtime.bench/1 of variant `number` of a release."""
    manifest, folder = current
    variant = numbered(manifest.every_variant(), number)
    count = max(int(_CALL_MS / timing["latency_ms"]["median"]), 1)

    def prepare() -> Callable[[], object]:
        model = open_model(folder, manifest, placement, variant)
        model.set_inputs(golden_inputs(folder, variant))
        runs = model.prepared_calls(count)

        def work(_: object = model) -> int:  # its memory goes with the model
            return runs()

        return work

    found = watch_threads(prepare)
    rate = copy_rate(placement.threads)
    timing["hotspots"] = {**asdict(found), "memory_bytes_per_second": rate}


def copy_rate(threads: int) -> float:
    """Bytes per second that so many threads read and write together when they copy large blocks:
    the best of some times, as other programs may take the cores."""
    free = features.memory_bytes().available or _MOST_BYTES
    size = min(_MOST_BYTES, free // _FREE_SHARE) // threads
    blocks = [(bytearray(size), bytearray(size)) for _ in range(threads)]
    rates: List[float] = []
    end = time.monotonic() + _COPY_SECONDS
    while len(rates) < _COPIES or time.monotonic() < end:
        workers = [threading.Thread(target=_copy, args=pair) for pair in blocks]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        rates.append(2.0 * size * threads / (time.perf_counter() - start))
    return max(rates)


def _copy(source: bytearray, target: bytearray) -> None:
    """By the C library, which runs without Python's lock."""
    kind = ctypes.c_char * len(source)
    ctypes.memmove(kind.from_buffer(target), kind.from_buffer(source), len(source))
