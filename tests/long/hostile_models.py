"""Takes hostile model files to the C compiler's door, each with 10 CPU seconds and 1 GiB.

    python -m tests.long.hostile_models --count 6000 [--seed 1] [--only onnx-built] [--keep FOLDER]

A case imports a file, runs all transforms, plans and generates C in a process of its own, whose
address space, edgekit included, has 1 GiB. Only generated C or one line of an error that edgekit
raises on purpose is right; an exception, a signal, or a spent limit is a failure. Prints the seed
of each failure, then the outcomes by format and attack; `--keep` also writes the failing files.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

from edgekit.host.compiler.driver import check_memory, prepare, units_of
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.lowering.groups import choices_of
from edgekit.host.compiler.options import DEFAULT_OPTIONS
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.errors import EdgekitError
from edgekit.kb.targets.board import load_board
from tests.support import hostile_onnx, hostile_operators, hostile_tflite
from tests.support.hostile_files import damaged, seeds

CPU_SECONDS = 10
MEMORY_BYTES = 1 << 30  # of address space, with Python, NumPy and edgekit in it
_WALL_SECONDS = 300  # a case that waits rather than computes
_BOARDS = ("rpi4", "a7", "rv64gcv", "rpi5")
_SHOWN = 160
_seeds = cache(seeds)


def _damaged(suffix: str) -> Callable[[random.Random], bytes]:
    return lambda rng: damaged(rng, rng.choice(_seeds(suffix)), _seeds(suffix))


ATTACKS: dict[str, Callable[[random.Random], bytes]] = {
    "onnx-bytes": _damaged(".onnx"),
    "onnx-fields": lambda rng: hostile_onnx.changed_messages(rng, rng.choice(_seeds(".onnx"))),
    "onnx-operators": hostile_operators.drawn,
    "onnx-built": hostile_onnx.built,
    "tflite-bytes": _damaged(".tflite"),
    "tflite-fields": lambda rng: hostile_tflite.changed_fields(rng, rng.choice(_seeds(".tflite"))),
    "tflite-operators": hostile_tflite.drawn,
    "tflite-built": hostile_tflite.built,
}


def case(name: str, seed: int) -> bytes:
    """The file of an attack; equal for equal seeds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # casts that overflow are meant
        return ATTACKS[name](random.Random(f"{name} {seed}"))


def compiled(path: Path, board: str, cache_folder: Path) -> None:
    """Everything that a compile does before it starts a C compiler."""
    target, options = load_board(board), DEFAULT_OPTIONS
    made = prepare(path, target, options, cache_folder)
    _, plan = plan_of(
        made.graph, target, options, None, table_of(target), 1, choices_of(made.groups)
    )
    check_memory(plan, target, made.limit)
    units_of(plan, target)


def outcome(path: Path, board: str, cache_folder: Path) -> str:
    """ "compiled", "refused", or a failure, which begins with "!"."""
    try:
        compiled(path, board, cache_folder)
    except EdgekitError as error:
        message = str(error)
        clean = message.isprintable() and 0 < len(message) < 2000
        return "refused" if clean else f"!expected one line, found {message!r:.{_SHOWN}}"
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        frame = next((f for f in reversed(frames) if "edgekit/" in f.filename), frames[-1])
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        return f"!{type(error).__name__} ({where}): {error}"[:_SHOWN].replace("\n", " ")
    return "compiled"


def forked(path: Path, board: str, cache_folder: Path, held: int = 0) -> tuple[str, float]:
    """`outcome` in a process with limits, and its CPU seconds. `held`: bytes of address space that
    this process has and that do not count."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
            resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY_BYTES, held + MEMORY_BYTES))
            signal.alarm(_WALL_SECONDS)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.write(writer, outcome(path, board, cache_folder).encode("utf-8", "replace")[:4000])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found = pipe.read().decode("utf-8", "replace")
    _, status, usage = os.wait4(child, 0)
    if os.WIFSIGNALED(status):
        found = f"!{signal.Signals(os.WTERMSIG(status)).name}"
    return found or "!no outcome", usage.ru_utime + usage.ru_stime


def warm(folder: Path) -> None:
    """Loads what all cases share before a process is forked."""
    for suffix in (".onnx", ".tflite"):
        path = folder / f"warm{suffix}"
        path.write_bytes(_seeds(suffix)[0])
        for board in _BOARDS:
            compiled(path, board, folder / "cache")


def attack(name: str, seed: int, folder: Path, keep: Path | None) -> tuple[str, float]:
    """Runs one case; the file of a failure is kept if asked."""
    path = folder / f"{name}-{seed}.{name.partition('-')[0]}"
    path.write_bytes(case(name, seed))
    found, seconds = forked(path, _BOARDS[seed % len(_BOARDS)], folder / "cache")
    if keep and found.startswith("!"):
        shutil.copy(path, keep)
    path.unlink()
    return found, seconds


def run(names: list[str], count: int, first_seed: int, keep: Path | None = None) -> list[str]:
    """Failures, one line each; prints the outcomes."""
    seen: dict[str, Counter[str]] = {name: Counter() for name in names}
    spent = dict.fromkeys(names, 0.0)
    failures, slowest = [], (0.0, "")
    with tempfile.TemporaryDirectory() as folder:
        warm(Path(folder))
        for number in range(count):
            name, seed = names[number % len(names)], first_seed + number // len(names)
            found, seconds = attack(name, seed, Path(folder), keep)
            slowest = max(slowest, (seconds, f"{name} {seed}"))
            seen[name]["failed" if found.startswith("!") else found] += 1
            spent[name] += seconds
            if found.startswith("!"):
                failures.append(f"{name} {seed}: {found[1:]} ({seconds:.1f} CPU s)")
                print(failures[-1], flush=True)
            if number % 100 == 99:
                print(f"{number + 1} files, {len(failures)} failed", file=sys.stderr, flush=True)
    print(f"{count} files, {len(failures)} failed; slowest {slowest[0]:.1f} s: {slowest[1]}")
    for name, counts in seen.items():
        outcomes = ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))
        print(f"  {name}: {outcomes}; {spent[name] / max(counts.total(), 1):.3f} CPU s each")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=sorted(ATTACKS))
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    names = [arguments.only] if arguments.only else [*ATTACKS]
    failures = run(names, arguments.count, arguments.seed, arguments.keep)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
