"""Compiles random networks and compares their outputs with ONNX Runtime's or LiteRT's.

    python -m tests.long.random_graphs --count 5000 [--first 0] [--format onnx ...]
        [--board local ...] [--type f32 ...] [--merge 25] [--sanitize]

Cycles through boards, formats and number types. `--merge` networks of the same kind are one model
with as many inputs, because starting compilers takes most of the time of a network alone; each is
judged by its own outputs. A model that is refused or crashes is halved until its networks are known
that are or do. Boards other than the local one run under qemu-user.

A network is wrong if its library differs from the peer by more than rounding can explain (a
quantized .tflite network: at all, from LiteRT's reference kernels), rolled back if its golden
outputs fail the health check, and refused if the compiler rejects what the peer runs. A .tflite
network overflows if all outputs that differ depend on an overflow of f32, where LiteRT clamps; its
other outputs are right. Prints each of these with its seed; exit code 1 if any network was wrong,
rolled back or crashed.

With --sanitize, libraries for x86 are built with AddressSanitizer and UndefinedBehaviorSanitizer,
those for other cores with traps on undefined behavior, and all of their memory ends at a page that
may not be touched. A network whose library breaks a rule is crashed.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np

from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.driver import prepare, units_of
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.golden.vectors import golden_of
from edgekit.host.compiler.ir.types import Array, Graph
from edgekit.host.compiler.lowering.groups import choices_of
from edgekit.host.compiler.options import DEFAULT_OPTIONS
from edgekit.host.compiler.toolchain.zig import Toolchain
from edgekit.host.compiler.transforms.passes.dead import dead
from edgekit.host.errors import EdgekitError, InputError
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import BoardProfile, load_board
from tests.cross.conftest import CPUS, VirtualBoard, compile_driver
from tests.long.zoo_one import apart, nudged
from tests.support import random_litert, random_networks
from tests.support import sanitized as sanitizers
from tests.support.golden_runs import worst_of_golden
from tests.support.overflows import overflows
from tests.support.peers import Peer, litert_peers, onnx_peers

_CPUS = {**CPUS, "a55": CPUS["a76"]}  # QEMU 7.2 has no Cortex-A55
_BOARDS = ("local", "a57", "a76", "a7", "a53", "a55", "rv64gc", "rv64gcv", "bpi-f3")
# With sanitizers: x86 by instruction set; rvv128 has kernels of f16 that build for any processor.
_SANITIZED = ("scalar", "sse2", "avx2", "avx512vnni", "rvv128", "a7", "a76", "rv64gcv")
_TRAPS = ("-fsanitize=undefined", "-fsanitize-trap=undefined")
_TYPES = {"onnx": random_networks.TYPES, "tflite": random_litert.TYPES}
_BATCH = 100  # networks per process: a crash of a peer costs a batch, not the run
_SECONDS = 3600  # per batch
_TERMINATED = 128 + signal.SIGTERM  # exit code of a worker
_NUDGES = 3
# For networks that seem wrong: near a step, as of dynamic quantization, few nudges take the step.
_MORE_NUDGES, _WIDER = 24, 16
_MARGIN = 16  # an output may differ by this multiple of the peer's change under nudges
# By number type: relative size of a nudge, and the floor of the tolerance relative to the output's
# largest magnitude (a different order of summation; some quantization steps), which is 1 at least
# in quantized networks: their steps do not get smaller with the output.
_ROUNDING = {"f32": (2.0**-22, 2e-4), "f16": (2.0**-11, 2e-2), "s16": (2.0**-14, 1e-3)}
_CODES = (2.0**-6, 0.12)
_LITERT = (2.0**-22, 2e-4)
_EXACT = ("u8", "s8", "s16")  # quantized .tflite networks: as LiteRT's reference kernels


@dataclass(frozen=True)
class Case:
    """Networks that are one model: `form` is its file format, `kind` its number type."""

    seeds: tuple[int, ...]
    board: str
    form: str
    kind: str
    sanitize: bool

    def content(self) -> bytes:
        if self.form == "tflite":
            return random_litert.random_litert(self.seeds, self.kind)
        return random_networks.random_networks(self.seeds, self.kind).SerializeToString()

    def peers(self, content: bytes) -> list[Peer]:
        return litert_peers(content) if self.form == "tflite" else onnx_peers(content)

    def profile(self) -> BoardProfile:
        if not self.on_x86:
            return load_board(self.board)
        if self.board == "rvv128":
            return replace(sanitizers.BOARDS["sse2"], simd="rvv128")
        return sanitizers.BOARDS[sanitizers.usable(self.board)]

    @property
    def on_x86(self) -> bool:
        return self.sanitize and self.board not in _CPUS

    @property
    def threads(self) -> int:
        return 1 + self.seeds[0] % 2

    def rounding(self) -> tuple[float, float]:
        """The relative size of a nudge, and the floor of the tolerance."""
        if self.form == "onnx":
            return _ROUNDING.get(self.kind, _CODES)
        return (0.0, 0.0) if self.kind in _EXACT else _LITERT


Verdict = tuple[str, str]  # and its reason
Worker = subprocess.Popen[str]


def judge(case: Case, drivers: Path) -> list[Verdict]:
    """The verdict on each network."""
    try:
        return _judge_model(case, drivers)
    except (EdgekitError, PeerError, AssertionError, ValueError, KeyError) as error:
        if len(case.seeds) > 1:
            half = len(case.seeds) // 2
            parts = (replace(case, seeds=part) for part in (case.seeds[:half], case.seeds[half:]))
            return [verdict for part in parts for verdict in judge(part, drivers)]
        if isinstance(error, PeerError):
            return [("no peer", str(error))]
        if isinstance(error, InputError):
            return [("refused", str(error))]
        return [("crashed", f"{type(error).__name__}: {error}")]


class PeerError(Exception):
    """The peer does not run the model."""


def _judge_model(case: Case, drivers: Path) -> list[Verdict]:
    content = case.content()
    try:
        peers = case.peers(content)
    except Exception as error:  # of many types
        raise PeerError(str(error)[:200]) from error
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        graph = _build(case, content, folder)
        return _compared(case, graph, folder, _runner(case, drivers), peers)


def _build(case: Case, content: bytes, folder: Path) -> Graph:
    """Writes model.so and weights.bin; returns the graph that defines their results."""
    model, board = folder / f"m.{case.form}", case.profile()
    model.write_bytes(content)
    made = prepare(model, board)
    choices = choices_of(made.groups)
    plan = plan_of(made.graph, board, DEFAULT_OPTIONS, threads=case.threads, choices=choices)[1]
    if case.on_x86:
        simd = sanitizers.usable("sse2" if case.board == "rvv128" else case.board)
        sanitizers.build_library(units_of(plan, board), simd, folder)
    else:
        traps = _TRAPS if case.sanitize else ()
        toolchain = Toolchain(board, cache_folder() / "objects", traps)
        (folder / "model.so").write_bytes(toolchain.build(units_of(plan, board)))
    (folder / "weights.bin").write_bytes(plan.lowered.weights)
    return made.imported


def _network(graph: Graph, seed: int) -> Graph:
    """The network of a seed alone."""
    inputs, outputs = (
        tuple(name for name in names if name.endswith(f"_{seed}"))
        for names in (graph.inputs, graph.outputs)
    )
    alone = dead(replace(graph, outputs=outputs))
    others = {*graph.inputs} - {*inputs}
    tensors = {name: tensor for name, tensor in alone.tensors.items() if name not in others}
    return replace(alone, inputs=inputs, tensors=tensors)


def _compared(
    case: Case, graph: Graph, folder: Path, runner: VirtualBoard, peers: Sequence[Peer]
) -> list[Verdict]:
    networks = [_network(graph, seed) for seed in case.seeds]
    goldens = [golden_of(network, cache_folder() / "golden") for network in networks]
    rng = np.random.default_rng(case.seeds)
    given = dict(zip(graph.inputs, (golden.inputs[0] for golden in goldens), strict=True))
    drawn = {name: _random_input(values, rng) for name, values in given.items()}
    found = _run(folder, runner, [given, drawn], case.threads)
    wanted = [peer(drawn) for peer in peers]
    nudge, floor = case.rounding()

    @cache
    def moved(count: int, wider: int) -> list[list[Array]]:
        return [peers[0](nudged(drawn, rng, nudge * wider)) for _ in range(count if floor else 0)]

    def with_peers(own: Sequence[int]) -> Verdict:
        for extent in ((_NUDGES, 1), (_MORE_NUDGES, _WIDER)):
            answers = (found[1], wanted[0], *moved(*extent), wanted[1])
            y, want, *others = ([outputs[i] for i in own] for outputs in answers)
            verdict = _with_peers(case, y, want, others)
            if verdict[0] == "right":
                break
        return verdict

    verdicts, first = [], 0
    for network, golden in zip(networks, goldens, strict=True):
        own = range(first, first + len(golden.outputs))
        first = own.stop
        worst = worst_of_golden(found[0][own.start : own.stop], golden)
        if not worst <= 1:
            verdicts.append(("rolled back", f"{worst:.3g} of the tolerance"))
            continue
        verdict = with_peers(own)
        clamps = verdict[0] == "wrong" and case.form == "tflite"
        if causes := overflows(network, drawn) if clamps else {}:
            verdict = with_peers([i for i in own if graph.outputs[i] not in causes])
            if verdict[0] == "right":
                verdict = ("overflows", ", ".join(sorted({*causes.values()})))
        verdicts.append(verdict)
    return verdicts


def _with_peers(
    case: Case, found: Sequence[Array], wanted: Sequence[Array], others: Sequence[Sequence[Array]]
) -> Verdict:
    """`others`: what else a peer may answer."""
    (nudge, floor), most = case.rounding(), 0.0
    for number, (y, want) in enumerate(zip(found, wanted, strict=True)):
        spread = max(apart(other[number], want) for other in others) if floor else 0.0
        largest = float(np.abs(np.nan_to_num(want.astype(np.float64))).max(initial=0))
        least = 1.0 if (nudge, floor) == _CODES else 1e-3
        allowed = _MARGIN * spread + floor * max(largest, least)
        off = apart(y, want)
        most = max(most, off / allowed if allowed else np.inf * off if off else 0.0)
        if not np.array_equal(np.isnan(y), np.isnan(want)):
            return "wrong", f"output {number}: NaN in other places"
    return ("right" if most <= 1 else "wrong"), f"{most:.3g} of what it may differ"


def _random_input(like: Array, rng: np.random.Generator) -> Array:
    if like.dtype.kind == "f":
        return rng.normal(0, 1, like.shape).astype(like.dtype)
    ends = np.iinfo(like.dtype)
    return rng.integers(ends.min, ends.max, like.shape, like.dtype, endpoint=True)


def _run(
    folder: Path, runner: VirtualBoard, runs: Sequence[Mapping[str, Array]], threads: int
) -> list[list[Array]]:
    """The outputs of each run."""
    stacked = tuple(np.stack([inputs[name] for inputs in runs]) for name in runs[0])
    rows = runner.run(folder, Cases(stacked, steps=1), folder, threads)
    return [[row[i] for row in rows] for i in range(len(runs))]


class Here(VirtualBoard):
    """This machine; sanitizers check the driver as well."""

    def execute(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=0"}
        command = [str(self.driver), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=300, check=False, env=environment
        )


def _runner(case: Case, drivers: Path) -> VirtualBoard:
    """What runs the library."""
    profile = case.profile()
    driver = drivers / ("sanitized" if case.on_x86 else profile.arch)
    if not driver.exists():
        sanitizers.build_driver(driver) if case.on_x86 else compile_driver(profile, driver)
    if case.on_x86 or case.board == "local":
        return Here("", "", driver)
    return VirtualBoard(profile.arch, _CPUS[case.board], driver)


def _batch(cases: Sequence[Case]) -> int:
    """Judges networks in this process, one line per network."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            what = f"{case.board} {case.form} {case.kind}"
            print(f"{case.seeds[0]} {what}", end="", flush=True)
            for number, (verdict, detail) in enumerate(judge(case, Path(folder))):
                begin = f"{case.seeds[number]} {what}" if number else ""
                print(f"{begin} | {verdict} | {detail[:2000]}".replace("\n", " "))
    return 0


def _in_process(first: int, count: int, choice: Sequence[str], workers: set[Worker]) -> list[str]:
    """The lines of a batch; the network whose model ended its process is crashed, the rest
    follows. `workers` are those that run."""
    lines: list[str] = []
    while len(lines) < count:
        numbers = (f"--first={first + len(lines)}", f"--count={count - len(lines)}")
        with subprocess.Popen(
            [sys.executable, "-m", "tests.long.random_graphs", "--batch", *numbers, *choice],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as worker:  # fmt: skip
            workers.add(worker)
            try:
                out, error = worker.communicate(timeout=_SECONDS)
            finally:
                worker.kill()
                workers.discard(worker)
        made = out.splitlines()
        if worker.returncode == _TERMINATED or not made:
            raise SystemExit(f"random_graphs: the worker failed: {error[-2000:]}")
        if "|" not in made[-1]:
            made[-1] += f" | crashed | code {worker.returncode}: {error[-200:]}"
        lines += made
    return lines


def _batches(seeds: range, choice: Sequence[str]) -> Iterator[list[str]]:
    """The lines of each batch, two at a time."""
    workers: set[Worker] = set()
    with ThreadPoolExecutor(2) as pool:
        try:
            yield from pool.map(
                lambda s: _in_process(s, min(_BATCH, seeds.stop - s), choice, workers),
                seeds[::_BATCH],
            )
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in [*workers]:
                worker.terminate()


def _end_on_sigterm() -> None:
    """Make SIGTERM an exit like any other, so that temporary folders are removed."""

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)


def _counts(verdicts: Counter[str]) -> str:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    each = (used.ru_utime + used.ru_stime) / verdicts.total()
    counts = ", ".join(f"{n} {v}" for v, n in verdicts.most_common())
    return f"{verdicts.total()} networks: {counts}; {each:.2f} CPU s each"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--format", action="append", choices=_TYPES)
    parser.add_argument("--board", action="append", choices=sorted({*_BOARDS, *_SANITIZED}))
    parser.add_argument("--type", action="append", choices=sorted({*sum(_TYPES.values(), ())}))
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--merge", type=int, default=25, help="networks of a model")
    parser.add_argument("--batch", action="store_true", help="judge in this process")
    options = parser.parse_args()
    _end_on_sigterm()
    boards = options.board or (_SANITIZED if options.sanitize else _BOARDS)
    kinds = [
        (form, kind)
        for form in options.format or _TYPES
        for kind in _TYPES[form]
        if kind in (options.type or _TYPES[form])
    ]
    seeds = range(options.first, options.first + options.count)
    if options.batch:
        cases = []
        for number, group in groupby(seeds, lambda seed: seed // options.merge):
            board, kind = boards[number % len(boards)], kinds[number // len(boards) % len(kinds)]
            cases.append(Case(tuple(group), board, *kind, options.sanitize))
        return _batch(cases)
    choice = [f"--merge={options.merge}", *(["--sanitize"] if options.sanitize else [])]
    for name in ("format", "board", "type"):
        choice += [f"--{name}={value}" for value in getattr(options, name) or ()]
    verdicts: Counter[str] = Counter()
    for lines in _batches(seeds, choice):
        for line in lines:
            verdict = line.split(" | ")[1] if " | " in line else line
            verdicts[verdict] += 1
            if verdict not in ("right", "no peer"):
                print(line, flush=True)
        print(f"so far {_counts(verdicts)}", file=sys.stderr, flush=True)
    print(_counts(verdicts))
    return 1 if verdicts.keys() & {"wrong", "rolled back", "crashed"} else 0


if __name__ == "__main__":
    raise SystemExit(main())
