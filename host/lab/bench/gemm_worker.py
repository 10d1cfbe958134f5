"""All contenders of a comparison of matrix products in one process, on the same cores.

    python -m edgekit.host.lab.bench.gemm_worker SETTINGS    the fields of Settings as JSON

Says {"versions": {...}, "missing": {...}}, then answers each line {"m", "k", "n", "weights",
"dtype"} with {"times": {name: [nanoseconds of one product, per round]}, "missing": {...}}. With
weights at the left, names that end with " transposed" belong to the transposed product: networks
have images with channels first or last, and nobody is held to the order that suits him less. One
process, so that all see the same cores, caches and clock; rounds run forth and back through the
contenders, so that drift hits all alike.
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
from edgekit.host.lab.bench.gemm_cases import TRANSPOSED, Case, transposed
from edgekit.host.lab.bench.gemm_contenders import (
    Array,
    Contender,
    Edgekit,
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
_WARM = 2  # and so many before
_WARM_UP_NS = 3_000_000
_CASE_NS = 3_000_000_000  # a slow product gets fewer rounds
_LEAST_ROUNDS = 5
_SETTLE_S = 0.5  # threads of OpenBLAS yield to nobody for 0.1 s after a product


@dataclass(frozen=True)
class Settings:
    """Files of our library, its table and OpenBLAS's loop; `peers`: time others at all."""

    library: str
    table: str
    loop: str
    threads: int
    cpus: tuple[int, ...]
    peers: bool


def open_contenders(settings: Settings) -> tuple[list[Contender], dict[str, str]]:
    """Ours first, then the peers that are there; and why the others are not."""
    threads = settings.threads
    found: list[Contender] = [Edgekit(Path(settings.library), Path(settings.table), threads)]
    missing: dict[str, str] = {}
    peers: dict[str, Callable[[], Contender]] = {
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


def time_case(contenders: list[Contender], case: Case, dtype: str, settle: bool) -> dict[str, Any]:
    """Times one product with everybody who can make it."""
    a, b = _operands(case.shape, dtype)
    forms: list[tuple[str, Case, Array, Array]] = [("", case, a, b)]
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
    """Nanoseconds of one product, per round and contender; in blocks that are long enough to time,
    forth and back through the contenders. Each makes the product before its block too, and blocks
    are never shorter than _LEAST_BLOCK: of a large product, what others have left in the caches
    would decide else, and some share operands. settle: threads of the one before go to sleep first.
    """
    counts = {name: _block(runner) for name, runner in runners.items()}
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
    """Waits until this thread alone of the process is at work, at most so long; True if it is.

    Libraries keep their threads awake for a while, and a neighbor that spins takes half a core."""
    deadline = time.perf_counter() + seconds
    own = f"/proc/self/task/{threading.get_native_id()}"
    tasks = Path("/proc/self/task")
    while any(_runs(task) for task in tasks.iterdir() if str(task) != own):
        if time.perf_counter() > deadline:
            return False
        time.sleep(0.001)
    return True


def _runs(task: Path) -> bool:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] == "R"
    except OSError:  # it has ended meanwhile
        return False


def _block(runner: Runner) -> int:
    """Products in a row that take long enough to time, after as many to warm up."""
    spent, count = runner(1), 1
    total = spent
    while total < _WARM_UP_NS and count < 1 << 20:
        count = max(count, min(int(_BLOCK_NS * count / max(spent, 1)), count * 8))
        spent = runner(count)
        total += max(spent, 1)
    return max(int(_BLOCK_NS * count / max(spent, 1)), _LEAST_BLOCK)


def _operands(shape: GemmShape, dtype: str) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    sizes = (shape.m, shape.k), (shape.k, shape.n)
    if dtype == "f32":
        floats = [rng.standard_normal(size, dtype=np.float32) for size in sizes]
        return aligned(floats[0]), aligned(floats[1])
    small = [rng.integers(-128, 128, size, dtype=np.int8) for size in sizes]
    return aligned(small[0]), aligned(small[1])


def main(text: str) -> None:
    """Answers until the questions end."""

    def begin() -> tuple[Message, Answer]:
        fields = json.loads(text)
        settings = Settings(**{**fields, "cpus": tuple(fields["cpus"])})
        os.sched_setaffinity(0, settings.cpus)
        contenders, missing = open_contenders(settings)

        def answer(question: Message) -> Message:
            shape = GemmShape(question["m"], question["k"], question["n"])
            case = Case(shape, "file", question["weights"])
            return time_case(contenders, case, question["dtype"], settings.threads > 1)

        return {"versions": {c.name: c.version for c in contenders}, "missing": missing}, answer

    answer_questions(begin)


if __name__ == "__main__":
    main(*sys.argv[1:])
