"""`edgekit bench model`: latency on a board, beside other engines if wanted."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.cli.compile import load_bundle
from edgekit.host.cli.options import (
    Board,
    Json,
    Kind,
    Threads,
    board_name,
    examples,
    file_kind,
    model_file,
)
from edgekit.host.errors import EdgekitError, InputError

if TYPE_CHECKING:
    from edgekit.host.bench.peers import PeerResult
    from edgekit.host.release import Benchmark

_PEER_RUNS = 200


@dataclass(frozen=True)
class _Wanted:
    """What the options ask for; `runs` 0 means as many as fit into two seconds."""

    board: str
    threads: int
    runs: int
    peers: bool


@dataclass(frozen=True)
class _Result:
    timing: Benchmark
    peers: PeerResult | None


def register(app: typer.Typer) -> None:
    """Adds the command group to the application."""
    group = typer.Typer(
        help="Measure on a board.",
        epilog=examples("edgekit bench model models/face_detection_short_range.tflite --peers"),
        rich_markup_mode=None,
    )
    # A callback keeps `model` a word of its own while it is the group's only command.
    group.callback()(lambda: None)
    group.command(
        "model",
        epilog=examples(
            "edgekit bench model models/face_detection_short_range.tflite --peers",
            "edgekit bench model a.tflite b.tflite --threads 2 --json",
            "edgekit bench model                # what is deployed on local",
        ),
    )(bench_model)
    app.add_typer(group, name="bench")


def bench_model(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL or BUNDLE",
            show_default=False,
            help="Any number; timed without touching what is deployed. Default: what is deployed.",
        ),
    ] = None,
    board: Board = None,
    threads: Threads = 1,
    runs: Annotated[
        int,
        typer.Option("--runs", metavar="N", min=0, help="Timed runs; 0 for what fits into 2 s."),
    ] = 0,
    peers: Annotated[
        bool, typer.Option("--peers", help="Time other engines too, in turns with ours.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="All .tflite models in ./models.")] = False,
    as_json: Json = False,
) -> int:
    """Time a model on a board: median, p10 and p90, and what each operator takes."""
    from edgekit.host.api import connect
    from edgekit.host.cli.output import emit
    from edgekit.host.cli.report import bench_document

    wanted = _Wanted(board_name(board), threads, runs, peers)
    device = connect(wanted.board)
    if every:
        return _bench_many(_all_models(), wanted, as_json)
    files = [model_file(m) for m in models or ()]
    if len(files) > 1:
        return _bench_many(files, wanted, as_json)
    if files:
        result = _bench_file(files[0], wanted)
    elif peers:
        raise InputError("expected a model to time other engines with, found none; name a .tflite")
    else:
        result = _Result(device.bench(threads=threads, count=runs), None)
    if as_json:
        emit(bench_document(wanted.board, result.timing, result.peers))
    else:
        _show(wanted.board, result)
    return 0


def _bench_file(file: Path, wanted: _Wanted) -> _Result:
    """Times `file` as a release in a folder of its own, so that what is deployed stays."""
    from edgekit.host.api import Device
    from edgekit.host.bench.peers import bench_peers
    from edgekit.host.cli.progress import working
    from edgekit.host.paths import data_folder
    from edgekit.host.transport import LocalTransport

    if wanted.peers and file_kind(file) is Kind.BUNDLE:
        raise InputError(f"{file}: other engines need the .tflite model, found a bundle")
    bundle = load_bundle(file, wanted.board)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data_folder()) as folder:
        device = Device(LocalTransport(Path(folder)))
        device.deploy(bundle)
        with working(f"timing {file.name}"):
            timing = device.bench(threads=wanted.threads, count=wanted.runs)
        if not wanted.peers:
            return _Result(timing, None)
        with working(f"timing {file.name} beside other engines"):
            release = Path(folder) / "current"
            runs = wanted.runs or _PEER_RUNS
            return _Result(timing, bench_peers(release, file, wanted.threads, runs))


def _bench_many(files: Sequence[Path], wanted: _Wanted, as_json: bool) -> int:
    """Times each model; one that fails is told and does not stop the others."""
    from edgekit.host.cli.output import emit, note
    from edgekit.host.cli.report import bench_document

    results: list[_Result] = []
    failed: list[tuple[Path, EdgekitError]] = []
    for file in files:
        try:
            results.append(_bench_file(file, wanted))
        except EdgekitError as error:
            note(f"edgekit: {error}")
            failed.append((file, error))
    ratios = _mean_ratios(results)
    if as_json:
        emit(
            {
                "schema": "edgekit.bench.models/1",
                "board": wanted.board,
                "models": [bench_document(wanted.board, r.timing, r.peers) for r in results],
                "failed": [{"model": str(f), "error": str(e)} for f, e in failed],
                "mean_ratio": ratios,
            }
        )
    else:
        _show_many(results, ratios)
    return failed[0][1].exit_code if failed else 0


def _all_models() -> list[Path]:
    from edgekit.host.bench.zoo import open_zoo

    extra = os.environ.get("EDGEKIT_EXTRA_DATA")
    found = open_zoo(Path("models"), Path(extra) if extra else None).models
    if not found:
        raise InputError("expected .tflite models in ./models, found none; go where they are")
    return list(found)


def _mean_ratios(results: Sequence[_Result]) -> dict[str, float]:
    """Per peer the geometric mean of its time over ours, over the models both ran."""
    logs: dict[str, list[float]] = {}
    for result in results:
        for peer in result.peers.peers if result.peers else ():
            if peer.latency:
                logs.setdefault(peer.name, []).append(math.log(peer.ratio))
    return {name: math.exp(sum(values) / len(values)) for name, values in logs.items()}


def _show(board: str, result: _Result) -> None:
    from edgekit.host.cli.output import byte_size
    from edgekit.host.cli.report import show_latency, show_peers, show_slowest

    timing = result.timing
    memory = f"arena {byte_size(timing.arena_bytes)}, weights {byte_size(timing.weights_bytes)}"
    print(f"model    {timing.model} on {board}, {memory}")
    show_latency(timing)
    show_slowest(timing)
    if result.peers:
        show_peers(result.peers)


def _show_many(results: Sequence[_Result], ratios: dict[str, float]) -> None:
    from edgekit.host.cli.output import table

    rows = []
    for result in results:
        timing = result.timing
        row = [timing.model, f"{timing.median_ms:.3f}", f"{timing.p10_ms:.3f}"]
        row.append(f"{timing.p90_ms:.3f}")
        found: dict[str, Any] = {p.name: p for p in result.peers.peers} if result.peers else {}
        for name in ratios:
            timed = name in found and found[name].latency
            row += [f"{timed.median:.3f}", f"{found[name].ratio:.2f}"] if timed else ["-", "-"]
        rows.append(row)
    headers = ["model", "median ms", "p10", "p90"]
    for name in ratios:
        headers += [f"{name} ms", "ratio"]
    if rows:
        table(headers, rows)
    for name, ratio in ratios.items():
        print(f"geometric mean: {name} takes {ratio:.2f} times as long as edgekit")
