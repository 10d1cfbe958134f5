"""Imports corrupted copies of the models; any outcome but a graph or an `InputError` is a bug.

    python -m tests.long.fuzz_importer --count 10000 [--seed 1] [MODEL.tflite ...]

Without models: all in models/, and in $EDGEKIT_EXTRA_DATA/models if that is set. Corruption targets
the structure of a file more than its weights. Prints the seed of each failure, and the slowest
case; exit code 1 if anything failed. Memory is capped, so that a bomb shows up as a failure.
"""

from __future__ import annotations

import argparse
import os
import resource
import struct
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.frontends.tflite.schema import read_model
from edgekit.host.compiler.transforms.passes.dead import dead
from edgekit.host.compiler.transforms.passes.fold import fold
from edgekit.host.errors import InputError

_ROOT = Path(__file__).parents[2]
_SECONDS_LIMIT = 10.0
_MEMORY_LIMIT = 6 << 30  # of address space; NumPy's thread stacks use much of it
EDGES = (0, 1, 2, 3, 4, 7, 8, 255, 256, 65535, 65536, 2**24, 2**31 - 1, 2**31, 2**32 - 1)


@dataclass(frozen=True)
class Edit:
    """One change at a file position; the meaning of `value` depends on `kind`."""

    kind: str
    position: int
    value: int


KINDS = ("byte", "bit", "word16", "word32", "zero", "copy", "delete", "insert", "cut")


def apply(content: bytes, edits: list[Edit]) -> bytes:
    """Return a corrupted copy."""
    data = bytearray(content)
    for edit in edits:
        if not data:
            break
        _apply(data, edit)
    return bytes(data)


def _apply(data: bytearray, edit: Edit) -> None:
    at, value = edit.position % len(data), edit.value
    if edit.kind == "byte":
        data[at] = value & 255
    elif edit.kind == "bit":
        data[at] ^= 1 << (value & 7)
    elif edit.kind == "word16" and at + 2 <= len(data):
        struct.pack_into("<H", data, at, value & 0xFFFF)
    elif edit.kind == "word32" and at + 4 <= len(data):
        struct.pack_into("<I", data, at, value & 0xFFFFFFFF)
    elif edit.kind == "zero":
        size = min(value % 32, len(data) - at)
        data[at : at + size] = bytes(size)
    elif edit.kind == "copy":
        source = value % len(data)
        size = min(32, len(data) - at, len(data) - source)
        data[at : at + size] = data[source : source + size]
    elif edit.kind == "delete":
        del data[at : at + value % 16]
    elif edit.kind == "insert":
        data[at:at] = bytes(value % 16)
    elif edit.kind == "cut":
        del data[at:]


def structure(content: bytes) -> np.ndarray:
    """Positions outside the weights."""
    base = np.frombuffer(content, np.uint8)
    mask = np.ones(len(content), bool)
    start = base.__array_interface__["data"][0]
    for graph in read_model(content).subgraphs:
        for tensor in graph.tensors:
            if tensor.data is not None:
                first = tensor.data.__array_interface__["data"][0] - start
                mask[first : first + tensor.data.size] = False
    return np.flatnonzero(mask)


def draw(positions: np.ndarray, size: int, seed: int) -> list[Edit]:
    """A few edits; cuts and shifts are rare, since those rarely get past the root table."""
    rng = np.random.default_rng(seed)
    weights = np.array([4, 4, 4, 8, 1, 2, 0.3, 0.3, 0.3])
    edits = []
    for _ in range(int(rng.integers(1, 5))):
        kind = str(rng.choice(KINDS, p=weights / weights.sum()))
        inside = rng.random() < 0.9
        position = int(rng.choice(positions)) if inside else int(rng.integers(size))
        if kind == "word32":
            position -= position % 4
        value = int(rng.choice(EDGES)) if rng.random() < 0.5 else int(rng.integers(2**32))
        edits.append(Edit(kind, position, value))
    return edits


def outcome(content: bytes) -> str:
    """ "graph", or the message of an `InputError`; other exceptions propagate."""
    try:
        dead(fold(graph_from_tflite(content, "fuzz")))
    except InputError as error:
        message = str(error)
        assert message and "\n" not in message, f"expected one line, found {message!r}"
        return message
    return "graph"


def models(extra: str | None) -> list[Path]:
    folders = [_ROOT / "models", *([Path(extra) / "models"] if extra else [])]
    return sorted(p for folder in folders for p in folder.rglob("*.tflite"))


def run(files: list[Path], count: int, first_seed: int) -> list[str]:
    """Failures, one line each."""
    contents = [p.read_bytes() for p in files]
    positions = [structure(c) for c in contents]
    seen: Counter[str] = Counter()
    failures, slowest = [], (0.0, "")
    for seed in range(first_seed, first_seed + count):
        which = seed % len(files)
        damaged = apply(contents[which], draw(positions[which], len(contents[which]), seed))
        case, begin = f"seed {seed} ({files[which].name})", time.perf_counter()
        try:
            seen["graph" if outcome(damaged) == "graph" else "InputError"] += 1
        except Exception as error:
            failures.append(f"{case}: {type(error).__name__}: {error}")
        seconds = time.perf_counter() - begin
        slowest = max(slowest, (seconds, case))
        if seconds > _SECONDS_LIMIT:
            failures.append(f"{case}: took {seconds:.1f} s")
    print(f"{count} copies: {dict(seen)}; slowest {slowest[0]:.2f} s, {slowest[1]}")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("models", nargs="*", type=Path)
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_LIMIT, _MEMORY_LIMIT))
    files = arguments.models or models(os.environ.get("EDGEKIT_EXTRA_DATA"))
    failures = run(files, arguments.count, arguments.seed)
    for line in failures:
        print(line)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
