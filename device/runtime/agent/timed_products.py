"""Costs of products on this board: interleaved times, or instruction counts."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Sequence

from edgekit.device.runtime.agent.count import count_calls, counter
from edgekit.device.runtime.agent.interleave import Timer, call, interleave, pinned, summary
from edgekit.device.runtime.agent.npz import Array
from edgekit.device.runtime.arrays.gemm_library import Block
from edgekit.device.runtime.errors import InputError

MOST_THREADS = 256
MOST_SECONDS = 600.0
_REPEATS = 3


def product_costs(
    prepare: Callable[[], Sequence[Timer]],
    threads: int,
    seconds: float,
    count: bool,
    cutoff: float = math.inf,
) -> List[Dict[str, Any]]:
    """For each timer, {"time": summary} or, to `count`, {"instructions": number}. Times are taken
    in turns; a timer that takes `cutoff` times as long as the best is dropped, except the last.
    `prepare` makes the timers on the cores that they run on, where it starts threads."""
    with pinned(threads):
        timers = prepare()
        if not count:
            return [{"time": summary(times)} for times in interleave(timers, seconds, cutoff)]
        with counter() as (descriptor, _):
            samples = (count_calls(descriptor, call(t, 0), call(t, 1), _REPEATS) for t in timers)
            return [{"instructions": min(found)} for found in samples]


def read_request(path: Path, command: str) -> Dict[str, Any]:
    """Reads the request in a file: an object with `threads`, `seconds` and `count`."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        fields = {"threads": 1, "seconds": 1.0, "count": False, **fields}
        threads, seconds = int(fields["threads"]), float(fields["seconds"])
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path.name}: expected a {command} request, found: {error}") from None
    if not 1 <= threads <= MOST_THREADS or not 0 < seconds <= MOST_SECONDS:
        raise InputError(
            f"{path.name}: expected 1 to {MOST_THREADS} threads and at most {MOST_SECONDS:g} "
            f"seconds, found {threads} and {seconds:g}"
        )
    if fields["count"] and threads > 1:
        raise InputError("expected 1 thread for counting instructions, found more")
    return fields


def placed(arrays: Mapping[str, Array]) -> Dict[str, Block]:
    """The bytes of arrays at aligned addresses."""
    blocks = {}
    for name, array in arrays.items():
        blocks[name] = Block(len(array.data))
        blocks[name].memory[: len(array.data)] = bytes(array.data)
    return blocks
