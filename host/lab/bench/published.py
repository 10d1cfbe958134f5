"""Published times of engines, and what our timing models estimate for the same engines.

Rows whose source does not say how many threads ran are estimated with one and with four, and never
count as evidence.
"""

from __future__ import annotations

import csv
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from edgekit.host.common.files import atomic_write
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.build_key import hash_parts
from edgekit.host.compiler.frontends import model_hash
from edgekit.host.errors import InputError
from edgekit.host.lab.bench.board_peers import PeerEstimate, PeerJob, driver_content, estimate_peer
from edgekit.host.lab.bench.board_rows import plugin_digest
from edgekit.host.simulator.core_text import core_text
from edgekit.host.simulator.target import SimulatedCore, target_of
from edgekit.host.simulator.validate_report import NetworkResult, errors, kendall
from edgekit.kb.decoding import decode_json
from edgekit.kb.targets.board import load_board

Tell = Callable[[str], None]
Peer = Callable[[str, PeerJob, Tell], PeerEstimate]

# The engine of ours that has the same kernels.
RUN_BY = {
    "XNNPACK": "litert",
    "ExecuTorch": "litert",
    "LiteRT": "litert",
    "ONNX Runtime": "onnxruntime",
    "MNN": "mnn",
    "ncnn": "ncnn",
}
_PRECISIONS = ("f32", "f16", "int8")
_UNKNOWN_THREADS = (1, 4)
_SECONDS = 7200.0


@dataclass(frozen=True)
class PublishedTime:
    """A row of docs/results/published_engines.csv. `profile` is the board profile with its core,
    empty if nothing here can run the row; `clock_mhz` is the board's when it was measured, and
    `threads` how many ran, 0 if the source does not say so."""

    engine: str
    network: str
    precision: str
    profile: str
    clock_mhz: int
    threads: int
    milliseconds: float

    @property
    def threads_known(self) -> bool:
        return self.threads > 0

    @property
    def tried(self) -> tuple[int, ...]:
        """The numbers of threads to estimate."""
        return (self.threads,) if self.threads_known else _UNKNOWN_THREADS

    @property
    def target(self) -> SimulatedCore:
        """The profile's core at the published board's clock."""
        found = target_of(load_board(self.profile))
        return replace(found, core=replace(found.core, clock_mhz=self.clock_mhz))


@dataclass(frozen=True)
class EngineResult:
    """An estimate of a published row with a number of threads; `nearest`: no other number that was
    tried is nearer to the published time."""

    published: PublishedTime
    threads: int
    found: PeerEstimate
    nearest: bool = True

    @property
    def ratio(self) -> float:
        """The estimated over the published time."""
        return self.found.milliseconds / self.published.milliseconds

    def record(self) -> dict[str, str]:
        """The row of docs/results/validation_engines.csv, without provenance."""
        row = self.published
        return {
            "engine": row.engine,
            "network": row.network,
            "precision": row.precision,
            "board": row.profile,
            "clock_mhz": str(row.clock_mhz),
            "threads": str(self.threads),
            "threads_known": "yes" if row.threads_known else "no",
            "nearest": "yes" if self.nearest else "no",
            "version": self.found.version,
            "estimated_ms": f"{self.found.milliseconds:.4g}",
            "published_ms": f"{row.milliseconds:g}",
            "ratio": f"{self.ratio:.2f}",
        }


def read_published(path: Path) -> list[PublishedTime]:
    """The rows of a file; InputError if it is malformed."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [
                _parsed(row, f"{path.name}, row {number}")
                for number, row in enumerate(csv.DictReader(file), 1)
            ]
    except (OSError, KeyError, ValueError) as error:
        raise InputError(
            f"{path}: expected published times, found {type(error).__name__}: {error}; correct "
            "the file"
        ) from None


def _parsed(row: dict[str, str], where: str) -> PublishedTime:
    found = PublishedTime(
        row["engine"],
        row["network"],
        row["precision"],
        row["profile"],
        int(row["clock_mhz"]),
        int(row["threads"] or 0),
        float(row["milliseconds"]),
    )
    if found.precision not in _PRECISIONS:
        raise ValueError(f"{where}: precision {found.precision!r}")
    if not (math.isfinite(found.milliseconds) and found.milliseconds > 0 and found.threads >= 0):
        raise ValueError(f"{where}: {found.milliseconds} ms with {found.threads} threads")
    return found


def compare(
    row: PublishedTime,
    model: Path,
    tell: Tell,
    peer: Peer = estimate_peer,
    plugin: Callable[[], str] = plugin_digest,
) -> list[EngineResult]:
    """Estimates a row with each number of threads to try; times are cached, failures are not."""
    results = []
    for threads in row.tried:
        path = _cached_path(row, model, threads, plugin())
        found = _cached(path)
        if found is None:
            precisions = ("f16",) if row.precision == "f16" else ("f32",)
            job = PeerJob(model, row.target, threads, {}, precisions, _SECONDS)
            found = peer(RUN_BY[row.engine], job, tell)
            if found.milliseconds:
                path.parent.mkdir(parents=True, exist_ok=True)
                atomic_write(path, msgspec.json.encode(found))
        results.append(EngineResult(row, threads, found))
    distances = [abs(math.log(r.ratio)) if r.found.milliseconds else math.inf for r in results]
    return [
        replace(result, nearest=distance == min(distances))
        for result, distance in zip(results, distances, strict=True)
    ]


def _cached(path: Path) -> PeerEstimate | None:
    try:
        return decode_json(path.read_bytes(), PeerEstimate)
    except (OSError, msgspec.MsgspecError):
        return None


def _cached_path(row: PublishedTime, model: Path, threads: int, plugin: str) -> Path:
    driver = hashlib.sha256(driver_content()).hexdigest()
    target = row.target
    about = (row.engine, row.precision, str(row.clock_mhz), str(threads), target.cpu)
    key = hash_parts(*about, core_text(target.core), model_hash(model), driver, plugin)
    return cache_folder() / "validation" / f"engine-{key}.json"


def summary(results: Sequence[EngineResult]) -> list[dict[str, str]]:
    """Errors by engine, precision, board and threads, of rows whose source names the threads: the
    rows of docs/results/validation_engines_summary.csv."""

    def group(result: EngineResult) -> tuple[str, str, str, int]:
        row = result.published
        return row.engine, row.precision, row.profile, result.threads

    counted = [r for r in results if r.published.threads_known and r.found.milliseconds]
    return [
        _summary_row(key, list(same))
        for key, same in itertools.groupby(sorted(counted, key=group), key=group)
    ]


def _summary_row(key: tuple[str, str, str, int], results: Sequence[EngineResult]) -> dict[str, str]:
    engine, precision, board, threads = key
    median, worst = errors(list(_network_results(results)))
    pairs = [(r.found.milliseconds, r.published.milliseconds) for r in results]
    return {
        "engine": engine,
        "precision": precision,
        "board": board,
        "threads": str(threads),
        "networks": str(len(results)),
        "median_percent": f"{median:.0f}",
        "worst_percent": f"{worst:.0f}",
        "kendall_tau": f"{kendall(pairs)[0]:.2f}" if len(pairs) > 2 else "",
    }


def _network_results(results: Sequence[EngineResult]) -> Iterator[NetworkResult]:
    for each in results:
        row = each.published
        yield NetworkResult(row.network, each.found.milliseconds, row.milliseconds)
