"""Compares latency with other engines: interleaved, pinned to the same cores, ratio per round."""

from __future__ import annotations

import contextlib
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from edgekit.host.errors import InputError
from edgekit.host.lab.bench.peer_times import PeerTimes
from edgekit.host.lab.bench.process import Worker

PEERS = ("litert", "tflite-runtime", "onnxruntime", "openvino", "mnn", "ncnn")
_KINDS = {"litert": "litert:xnnpack", "tflite-runtime": "tflite-runtime:xnnpack"}
_ROUNDS = 10
_WARM_UP_S = 0.3
_BLOCK_S = 0.005


@dataclass(frozen=True)
class Latency:
    """Milliseconds per inference over `n` timed inferences."""

    median: float
    p10: float
    p90: float
    n: int


@dataclass(frozen=True)
class PeerTiming:
    """A peer's latency in the same run as ours, or why it is missing.

    ratio: the peer's median over ours, per round, then the median over rounds: above 1 we are
    faster. p10 and p90 are also over the rounds.
    """

    name: str
    version: str = ""
    missing: str = ""
    latency: Latency | None = None
    ratio: float = math.nan
    ratio_p10: float = math.nan
    ratio_p90: float = math.nan


@dataclass(frozen=True)
class PeerResult:
    """Our latency and each peer's, timed A B A B in `rounds` rounds on the cores `cpus`."""

    ours: Latency
    peers: tuple[PeerTiming, ...]
    threads: int
    cpus: tuple[int, ...]
    rounds: int

    def to_json(self) -> dict[str, Any]:
        """The "peers" value in the JSON report of a model's times: one entry per peer, by name."""
        return {peer.name: _times_of(peer, self.ours).to_json() for peer in self.peers}


@dataclass(frozen=True)
class ContenderSpec:
    """A contender and its model; kind and shapes as for process.Worker."""

    name: str
    kind: str
    model: Path
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)


def bench_peers(
    release: Path,
    model: Path,
    threads: int = 1,
    runs: int = 200,
    peers: Sequence[str] = PEERS,
    shapes: Mapping[str, Sequence[int]] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> PeerResult:
    """Times the compiled model in `release` against other engines on this machine.

    release: folder with model.so and weights.bin, compiled for this machine.
    model: the .tflite or .onnx file that the peers run; shapes: of its dynamic inputs.
    threads: of every contender.
    runs: minimum number of timed inferences per contender; more if one takes microseconds.
    tell: reports downloads; peers that are not installed are fetched if available.
    A peer that is unavailable or cannot run the model is reported as missing, with the reason.
    Raises InputError if our own library fails or there are fewer than `threads` cores.
    """
    others = [ContenderSpec(name, _KINDS.get(name, name), model, shapes or {}) for name in peers]
    ours = ContenderSpec("edgekit", "edgekit", release)
    return compare_latency(ours, others, threads, runs, tell)


def compare_latency(
    ours: ContenderSpec,
    others: Sequence[ContenderSpec],
    threads: int,
    runs: int,
    tell: Callable[[str], None] = lambda _: None,
) -> PeerResult:
    """Times `ours` and `others` interleaved on the same cores; see bench_peers."""
    cpus = usable_cores(threads)
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(Worker(ours.kind, ours.model, threads, cpus))
        _warm_up(own)
        workers: dict[str, Worker] = {}
        missing: dict[str, PeerTiming] = {}
        for spec in others:
            try:
                worker = stack.enter_context(
                    Worker(spec.kind, spec.model, threads, cpus, shapes=spec.shapes, tell=tell)
                )
                _warm_up(worker)
                workers[spec.name] = worker
            except InputError as error:
                reason = str(error).removeprefix(f"{spec.kind}: ")
                missing[spec.name] = PeerTiming(spec.name, missing=reason)
        own_times, *times = _time_interleaved([own, *workers.values()], runs)
        timed = {
            name: _compare_times(name, worker.version, theirs, own_times)
            for (name, worker), theirs in zip(workers.items(), times, strict=True)
        }
    found = timed | missing
    rounds = len(own_times)
    return PeerResult(
        _to_latency(own_times), tuple(found[spec.name] for spec in others), threads, cpus, rounds
    )


def usable_cores(threads: int) -> tuple[int, ...]:
    """The last `threads` allowed cores, since the first one often serves interrupts."""
    allowed = sorted(os.sched_getaffinity(0))
    if not 1 <= threads <= len(allowed):
        raise InputError(f"expected 1 to {len(allowed)} threads on this machine, found {threads}")
    return tuple(allowed[-threads:])


def _warm_up(worker: Worker) -> None:
    spent = 0
    while spent < _WARM_UP_S * 1e9:
        spent += sum(worker.time(5))


def _time_interleaved(workers: Sequence[Worker], runs: int) -> list[list[list[int]]]:
    """Times in nanoseconds: per worker, one list per round."""
    rounds = min(_ROUNDS, max(1, runs))
    blocks = []
    for worker in workers:
        estimate = max(statistics.median(worker.time(5)), 1)
        blocks.append(max(math.ceil(runs / rounds), int(_BLOCK_S * 1e9 / estimate)))
    times: list[list[list[int]]] = [[] for _ in workers]
    turn = list(range(len(workers)))
    for _ in range(rounds):
        for index in turn:
            workers[index].time(2)  # warm the caches with its code and weights
            times[index].append(workers[index].time(blocks[index]))
        turn.reverse()  # so that drift affects all alike
    return times


def _compare_times(
    name: str, version: str, theirs: list[list[int]], ours: list[list[int]]
) -> PeerTiming:
    ratios = [
        statistics.median(peer) / max(statistics.median(own), 1)
        for peer, own in zip(theirs, ours, strict=True)
    ]
    low, high = _percentile(ratios, 10), _percentile(ratios, 90)
    return PeerTiming(name, version, "", _to_latency(theirs), statistics.median(ratios), low, high)


def _to_latency(rounds: list[list[int]]) -> Latency:
    times = [ns / 1e6 for block in rounds for ns in block]
    return Latency(
        statistics.median(times), _percentile(times, 10), _percentile(times, 90), len(times)
    )


def _percentile(values: Sequence[float], percent: float) -> float:
    """The percentile by nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def _times_of(peer: PeerTiming, ours: Latency) -> PeerTimes:
    if peer.latency is None:
        return PeerTimes(missing=peer.missing)
    return PeerTimes(
        version=peer.version,
        latency_ms=asdict(peer.latency),
        ours_latency_ms=asdict(ours),
        ratio=peer.ratio,
        ratio_p10=peer.ratio_p10,
        ratio_p90=peer.ratio_p90,
    )
