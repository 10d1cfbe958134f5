"""Hot spots of a benchmarked release: profiles all of its threads during runs."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any, Callable, Dict, List, Tuple

from edgekit.device.runtime import features
from edgekit.device.runtime.agent.golden import golden_inputs
from edgekit.device.runtime.agent.hotspots import watch_threads
from edgekit.device.runtime.agent.manifest import Manifest
from edgekit.device.runtime.agent.model import open_model
from edgekit.device.runtime.agent.placement import Placement
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.agent.variants import numbered
from edgekit.device.runtime.record import asdict

_CALL_MS = 100.0  # of inferences per call into the library: Python must not show up
_MOST_BYTES = 64 << 20  # of each of the two copied blocks: beyond the caches of boards
_FREE_SHARE = 8  # of the free memory, if that is less
_COPIES = 3  # at least, and as many as fit into _COPY_SECONDS
_COPY_SECONDS = 0.5


def add_hotspots(
    timing: Dict[str, Any],
    current: Tuple[Manifest, ReleaseFiles],
    placement: Placement,
    number: int,
) -> None:
    """Adds `hotspots` to the document edgekit.runtime.bench/1 of variant `number` of a release."""
    manifest, files = current
    variant = numbered(manifest.every_variant(), number)
    count = max(int(_CALL_MS / timing["latency_ms"]["median"]), 1)

    def prepare() -> Callable[[], object]:
        model = open_model(files, manifest, placement, variant)
        model.set_inputs(golden_inputs(files, variant))
        runs = model.prepared_calls(count)

        def work(_: object = model) -> int:  # keeps the model's memory alive
            return runs()

        return work

    found = watch_threads(prepare)
    rate = copy_rate(placement.threads)
    timing["hotspots"] = {**asdict(found), "memory_bytes_per_second": rate}


def copy_rate(threads: int) -> float:
    """Returns the bytes per second that `threads` threads read and write together when copying
    large blocks: the best of several, because other programs may use the cores."""
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
    """Copies with the C library, which runs without the GIL."""
    kind = ctypes.c_char * len(source)
    ctypes.memmove(kind.from_buffer(target), kind.from_buffer(source), len(source))
