"""Times all contenders of the GEMM benchmark in one process, on the same cores.

    python -m edgekit.host.lab.bench.gemm_worker SETTINGS    the fields of Settings as JSON

Prints {"versions": {...}, "missing": {...}}, then answers each line {"m", "k", "n", "weights",
"dtype"} with {"times": {name: [nanoseconds of one product, per round]}, "missing": {...}}. If the
weights are the left operand, names ending in " transposed" denote the transposed product: networks
store images with channels first or last, and no library is tied to the order that suits it less.
A single process ensures the same cores, caches and clock for all; rounds go back and forth through
the contenders so that drift affects all alike.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.host.lab.bench.answering import Answer, Message, answer_questions
from edgekit.host.lab.bench.gemm_cases import TRANSPOSED, GemmCase, transposed
from edgekit.host.lab.bench.gemm_contenders import (
    Array,
    Edgekit,
    GemmContender,
    OneDnn,
    OnnxRuntime,
    OpenBlas,
    Runner,
    Torch,
    UnavailableError,
    WrongResultError,
)
from edgekit.host.lab.bench.operands import aligned
from edgekit.kb.features import GemmShape

_ROUNDS = 15
_BLOCK_NS = 500_000
_LEAST_BLOCK = 4  # products
_WARM = 2  # untimed products before each block
_WARM_UP_NS = 3_000_000
_CASE_NS = 3_000_000_000  # slow products get fewer rounds
_LEAST_ROUNDS = 5
_SETTLE_S = 0.5  # OpenBLAS threads keep spinning for 0.1 s after a product


@dataclass(frozen=True)
class Settings:
    """Files of our library, its table and OpenBLAS's loop; `peers`: whether to time peers."""

    library: str
    table: str
    loop: str
    threads: int
    cpus: tuple[int, ...]
    peers: bool


def open_contenders(settings: Settings) -> tuple[list[GemmContender], dict[str, str]]:
    """Our contender and the available peers; and why the other peers are missing."""
    threads = settings.threads
    found: list[GemmContender] = [Edgekit(Path(settings.library), Path(settings.table), threads)]
    missing: dict[str, str] = {}
    peers: dict[str, Callable[[], GemmContender]] = {
        OpenBlas.name: lambda: OpenBlas(Path(settings.loop), threads),
        OnnxRuntime.name: lambda: OnnxRuntime(threads),
        OneDnn.name: lambda: OneDnn(threads),
        Torch.name: lambda: Torch(threads),
    }
    for name, opened in peers.items() if settings.peers else ():
        try:
            found.append(opened())
        except UnavailableError as error:
            missing[name] = str(error)
    return found, missing


def time_case(
    contenders: list[GemmContender], case: GemmCase, dtype: str, settle: bool
) -> dict[str, Any]:
    """Times one product with every contender that can compute it."""
    a, b = _random_operands(case.shape, dtype)
    forms: list[tuple[str, GemmCase, Array, Array]] = [("", case, a, b)]
    if (other := transposed(case)) is not None:
        columns, rows = (aligned(operand.T) for operand in (a, b))
        forms.append((TRANSPOSED, other, rows, columns))
    runners: dict[str, Runner] = {}
    missing: dict[str, str] = {}
    for contender in contenders:
        for suffix, form, left, right in forms:
            if form.weights == "a" and not contender.left:
                continue
            try:
                runners[contender.name + suffix] = contender.prepare(form, left, right)
            except (UnavailableError, WrongResultError) as error:
                missing[contender.name + suffix] = str(error)
    return {"times": in_turns(runners, settle), "missing": missing}


def in_turns(runners: Mapping[str, Runner], settle: bool = False) -> dict[str, list[float]]:
    """Nanoseconds of one product, per round and contender, in blocks long enough to time, going
    back and forth through the contenders.

    Each contender also computes the product before its block, and blocks have at least
    _LEAST_BLOCK products: otherwise the cache contents left by others would decide large products,
    and some contenders share operands. settle: wait for the previous one's threads to go to sleep.
    """
    counts = {name: _block_size(runner) for name, runner in runners.items()}
    times: dict[str, list[float]] = {name: [] for name in runners}
    order = list(runners)
    start = time.perf_counter_ns()
    for turn in range(_ROUNDS):
        if turn >= _LEAST_ROUNDS and time.perf_counter_ns() - start > _CASE_NS:
            break
        for name in order:
            if settle:
                wait_for_others()
            runners[name](_WARM)
            times[name].append(runners[name](counts[name]) / counts[name])
        order.reverse()
    return times


def wait_for_others(seconds: float = _SETTLE_S) -> bool:
    """Waits until no other thread of the process is running, up to `seconds`; whether it succeeded.

    Libraries keep their threads spinning for a while, and a spinning sibling takes half a core."""
    deadline = time.perf_counter() + seconds
    own = f"/proc/self/task/{threading.get_native_id()}"
    tasks = Path("/proc/self/task")
    while any(_is_running(task) for task in tasks.iterdir() if str(task) != own):
        if time.perf_counter() > deadline:
            return False
        time.sleep(0.001)
    return True


def _is_running(task: Path) -> bool:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] == "R"
    except OSError:  # the thread has ended
        return False


def _block_size(runner: Runner) -> int:
    """A number of consecutive products long enough to time, determined while warming up."""
    spent, count = runner(1), 1
    total = spent
    while total < _WARM_UP_NS and count < 1 << 20:
        count = max(count, min(int(_BLOCK_NS * count / max(spent, 1)), count * 8))
        spent = runner(count)
        total += max(spent, 1)
    return max(int(_BLOCK_NS * count / max(spent, 1)), _LEAST_BLOCK)


def _random_operands(shape: GemmShape, dtype: str) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    sizes = (shape.m, shape.k), (shape.k, shape.n)
    if dtype == "f32":
        floats = [rng.standard_normal(size, dtype=np.float32) for size in sizes]
        return aligned(floats[0]), aligned(floats[1])
    small = [rng.integers(-128, 128, size, dtype=np.int8) for size in sizes]
    return aligned(small[0]), aligned(small[1])


def main(text: str) -> None:
    """Answers questions until EOF."""

    def begin() -> tuple[Message, Answer]:
        fields = json.loads(text)
        settings = Settings(**{**fields, "cpus": tuple(fields["cpus"])})
        os.sched_setaffinity(0, settings.cpus)
        contenders, missing = open_contenders(settings)

        def answer(question: Message) -> Message:
            shape = GemmShape(question["m"], question["k"], question["n"])
            case = GemmCase(shape, "file", question["weights"])
            return time_case(contenders, case, question["dtype"], settings.threads > 1)

        return {"versions": {c.name: c.version for c in contenders}, "missing": missing}, answer

    answer_questions(begin)


if __name__ == "__main__":
    main(*sys.argv[1:])
