"""Runs a deployed model with and without sampling, alternately, and reports the cost of each turn.

    python3 sampling_probe.py ROOT TURNS INFERENCES

Runs on the board with its installed runtime. Counts the instructions of its thread if the kernel
supports that, otherwise CPU nanoseconds. The first turn of each, which meets cold caches, is
omitted. Finally reports the cost of a batch, which this thread then writes.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_ENABLE = 0x2400  # PERF_EVENT_IOC_ENABLE


@contextlib.contextmanager
def meter() -> Iterator[tuple[str, Callable[[], int]]]:
    from edgekit.device.runtime.agent.count import counter
    from edgekit.device.runtime.errors import IncompatibleError

    try:
        with counter() as (descriptor, _):
            fcntl.ioctl(descriptor, _ENABLE)
            yield "instructions", lambda: int(struct.unpack("Q", os.read(descriptor, 8))[0])
    except IncompatibleError:
        yield "nanoseconds", time.thread_time_ns


def main(root: Path, turns: int, inferences: int) -> None:
    sys.path.insert(0, str(root / "current" / "runtime.pyz"))
    runtime: Any = importlib.import_module("edgekit_runtime")

    off = root / "spool" / "off"
    off.parent.mkdir(exist_ok=True)
    off.touch()
    plain = runtime.open(root=root, threads=1)
    plain.run({spec.name: bytes(spec.bytes) for spec in plain.inputs})
    off.unlink()
    sampled = runtime.open(root=root, threads=1)
    given = {spec.name: bytes(spec.bytes) for spec in plain.inputs}
    with meter() as (unit, read):

        def turn(model: Any) -> int:
            begin = read()
            for _ in range(inferences):
                model.run(given)
            return read() - begin

        pairs = []
        for i in range(turns + 1):
            models = (plain, sampled) if i % 2 else (sampled, plain)
            first, second = map(turn, models)
            pairs.append((first, second) if i % 2 else (second, first))
        begin = read()
        sampled.close()
        batch = read() - begin
    plain.close()
    print(json.dumps({"unit": unit, "turns": pairs[1:], "batch": batch}))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3]))
