"""`edgekit bench`; `bench model`: latency on a board, beside other engines if wanted."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.cli import bench_gemm, bench_nna, bench_outlier, bench_spmm, bench_spmv, complete
from edgekit.host.cli.bench_history import keep_in_history
from edgekit.host.cli.compile import load_bundle
from edgekit.host.cli.options import (
    ActivationsOption,
    As,
    Board,
    ClusterOption,
    Explain,
    InputShapes,
    Json,
    Kind,
    MemoryLimit,
    OrderOption,
    Over,
    PrecisionOption,
    RandomSeed,
    Threads,
    WeightsOption,
    board_name,
    compile_options,
    examples,
    file_kind,
    model_file,
)
from edgekit.host.errors import EdgekitError, InputError
from edgekit.host.options import CompileOptions

if TYPE_CHECKING:
    from edgekit.host.api import Device
    from edgekit.host.bench.peers import PeerResult
    from edgekit.host.bundle import Bundle
    from edgekit.host.estimate.model import ModelEstimate
    from edgekit.host.release import Benchmark

_PEER_RUNS = 200
_HERE = "local"


@dataclass(frozen=True)
class _Wanted:
    """What the options ask for; `runs` 0 means as many as fit into two seconds."""

    device: Device
    threads: int | None
    cluster: str
    runs: int
    peers: bool
    options: CompileOptions
    explain: Path | None


@dataclass(frozen=True)
class _Result:
    """`more`: the times of further shapes of the model; `estimate`: of the first on a real core,
    where the board is an emulated one."""

    timing: Benchmark
    peers: PeerResult | None
    more: tuple[Benchmark, ...] = ()
    estimate: ModelEstimate | None = None


def register(app: typer.Typer) -> None:
    """Adds the command group to the application."""
    group = typer.Typer(
        help="Measure on a board.",
        epilog=examples(
            "edgekit bench model models/face_detection_short_range.tflite --peers",
            "edgekit bench gemm --peers",
            "edgekit bench nna --shape 64,576,1024 --board nna2",
        ),
        rich_markup_mode=None,
    )
    group.command(
        "model",
        epilog=examples(
            "edgekit bench model models/face_detection_short_range.tflite --peers",
            "edgekit bench model a.tflite b.tflite --threads 2 --json",
            "edgekit bench model                # what is deployed on local",
        ),
    )(bench_model)
    bench_gemm.register(group)
    bench_spmm.register(group)
    bench_spmv.register(group)
    bench_nna.register(group)
    bench_outlier.register(group)
    app.add_typer(group, name="bench")


def bench_model(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL or BUNDLE",
            show_default=False,
            autocompletion=complete.models,
            help="Any number; timed without touching what is deployed. Default: what is deployed.",
        ),
    ] = None,
    board: Board = None,
    threads: Threads = None,
    cluster: ClusterOption = None,
    via: Over = None,
    as_name: As = None,
    runs: Annotated[
        int,
        typer.Option("--runs", metavar="N", min=0, help="Timed runs; 0 for what fits into 2 s."),
    ] = 0,
    peers: Annotated[
        bool, typer.Option("--peers", help="Time other engines too, in turns with ours.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="All models in ./models.")] = False,
    input_shape: InputShapes = None,
    memory_limit: MemoryLimit = None,
    order: OrderOption = None,
    random_seed: RandomSeed = None,
    weights: WeightsOption = None,
    activations: ActivationsOption = None,
    precision: PrecisionOption = None,
    explain: Explain = None,
    as_json: Json = False,
) -> int:
    """Time a model on a board: median, p10 and p90, and what each operator takes."""
    from edgekit.host.api import connect
    from edgekit.host.cli.estimated import estimate_beside
    from edgekit.host.cli.output import emit
    from edgekit.host.cli.report import warn_of_noise

    options = compile_options(
        input_shape, order, random_seed, memory_limit, weights, activations, precision
    )
    if peers and board_name(board) != _HERE:
        return _estimate_beside_peers(models, board_name(board), options, threads, as_json)
    device = connect(board_name(board), via=via).named(as_name)
    wanted = _Wanted(device, threads, cluster or "", runs, peers, options, explain)
    files = _all_models() if every else [model_file(m) for m in models or ()]
    if len(files) > 1 and (explain or not options.is_default):
        raise InputError(
            "expected one model with options of its compilation, found "
            f"{len(files)}; time them one by one"
        )
    if every or len(files) > 1:
        return _bench_many(files, wanted, as_json)
    if files:
        result = _bench_file(files[0], wanted)
    elif peers:
        raise InputError(
            "expected a model to time other engines with, found none; name a .tflite or .onnx"
        )
    else:
        timing = device.bench(threads=threads, cluster=wanted.cluster, count=runs)
        result = _Result(timing, None, estimate=estimate_beside(device, timing, None))
    warn_of_noise(result.timing, device.emulated)
    if as_json:
        emit(_document(device, result))
    else:
        _show(device, result)
    return 0


def _estimate_beside_peers(
    models: list[str] | None,
    board: str,
    options: CompileOptions,
    threads: int | None,
    as_json: bool,
) -> int:
    """Other engines are timed on this machine; for other boards they, and we, are estimated."""
    from edgekit.host.cli.estimate import TIMEOUT, show_file, usual_threads
    from edgekit.host.connections import profile_of
    from edgekit.kb.board import load_board

    if len(models or ()) > 1:
        raise InputError(
            f"expected one model with --peers on {board}, found {len(models or ())}; "
            "estimate them one by one"
        )
    path = model_file(models[0] if models else None)
    profile = load_board(profile_of(board))
    show_file(path, profile, options, threads or usual_threads(board), TIMEOUT, True, as_json)
    return 0


def _bench_file(file: Path, wanted: _Wanted) -> _Result:
    """Times `file` as a release in a folder of its own, so that what is deployed stays."""
    from edgekit.host.cli.estimated import estimate_beside
    from edgekit.host.cli.progress import working

    if wanted.peers and file_kind(file) is Kind.BUNDLE:
        raise InputError(f"{file}: other engines need the .tflite or .onnx file, found a bundle")
    options = _options_for(file, wanted.options)
    bundle = load_bundle(file, wanted.device.profile, options=options, explain=wanted.explain)
    with wanted.device.aside() as device:
        device.deploy(bundle)
        with working(f"timing {file.name}"):
            timing, *more = (
                device.bench(
                    threads=wanted.threads, cluster=wanted.cluster, count=wanted.runs, variant=i
                )
                for i in range(len(bundle.manifest.every_variant()))
            )
    if file_kind(file) is Kind.MODEL and not wanted.device.emulated:
        keep_in_history(file, wanted.device, options, timing)
    if not wanted.peers:
        estimate = estimate_beside(wanted.device, timing, bundle)
        return _Result(timing, None, tuple(more), estimate)
    with working(f"timing {file.name} beside other engines"):
        return _Result(
            timing, _beside_peers(bundle, file, wanted, timing.threads, options), tuple(more)
        )


def _document(device: Device, result: _Result) -> dict[str, Any]:
    """edgekit.bench.model/1 of the first shapes, with those of the others in it."""
    from edgekit.host.cli.estimated import estimated_document
    from edgekit.host.cli.model_times import measured_document

    return measured_document(
        device.name,
        result.timing,
        device.emulated,
        peers=result.peers.to_json() if result.peers else None,
        estimate=estimated_document(result.estimate),
        variants=[measured_document(device.name, each, device.emulated) for each in result.more],
    )


def _options_for(file: Path, asked: CompileOptions) -> CompileOptions:
    """What was asked for, or what --all needs to know of the models it finds."""
    from edgekit.host.zoo.models import zoo_options

    return zoo_options(file) if asked.is_default and file_kind(file) is Kind.MODEL else asked


def _beside_peers(
    bundle: Bundle, model: Path, wanted: _Wanted, threads: int, options: CompileOptions
) -> PeerResult:
    from edgekit.device.agent.manifest import LIBRARY, WEIGHTS
    from edgekit.host.bench.peers import bench_peers
    from edgekit.host.cli.output import note

    with tempfile.TemporaryDirectory() as folder:
        for name in (LIBRARY, WEIGHTS):
            (Path(folder) / name).write_bytes(bundle.files[name])
        return bench_peers(
            Path(folder),
            model,
            threads,
            wanted.runs or _PEER_RUNS,
            shapes=options.shapes,
            tell=note,
        )


def _bench_many(files: Sequence[Path], wanted: _Wanted, as_json: bool) -> int:
    """Times each model; one that fails is told and does not stop the others."""
    from edgekit.host.cli.output import emit, note
    from edgekit.host.cli.report import warn_of_noise

    device = wanted.device
    results: list[_Result] = []
    failed: list[tuple[Path, EdgekitError]] = []
    for file in files:
        try:
            results.append(_bench_file(file, wanted))
            warn_of_noise(results[-1].timing, device.emulated)
        except EdgekitError as error:
            note(f"edgekit: {error}")
            failed.append((file, error))
    ratios = _mean_ratios(results)
    if as_json:
        emit(
            {
                "schema": "edgekit.bench.models/1",
                "board": device.name,
                "emulated": device.emulated,
                "models": [_document(device, r) for r in results],
                "failed": [{"model": str(f), "error": str(e)} for f, e in failed],
                "mean_ratio": ratios,
                "best_peer": _against_best(results),
            }
        )
    else:
        _show_many(results, ratios, device.emulated)
    return failed[0][1].exit_code if failed else 0


def _all_models() -> list[Path]:
    from edgekit.host.zoo.models import open_zoo

    extra = os.environ.get("EDGEKIT_EXTRA_DATA")
    zoo = open_zoo(Path("models"), Path(extra) if extra else None)
    if not (found := [*zoo.models, *zoo.onnx]):
        raise InputError("expected models in ./models, found none; go where they are")
    return found


def _mean_ratios(results: Sequence[_Result]) -> dict[str, float]:
    """The geometric mean of each peer's time over ours, over the models both ran."""
    logs: dict[str, list[float]] = {}
    for result in results:
        for peer in result.peers.peers if result.peers else ():
            if peer.latency:
                logs.setdefault(peer.name, []).append(math.log(peer.ratio))
    return {name: math.exp(sum(values) / len(values)) for name, values in logs.items()}


def _against_best(results: Sequence[_Result]) -> dict[str, Any]:
    """The geometric mean of the best peer's time over ours, over the models that any peer ran, and
    the model where that is lowest."""
    best = {
        r.timing.model: min(p.ratio for p in r.peers.peers if p.latency)
        for r in results
        if r.peers and any(p.latency for p in r.peers.peers)
    }
    if not best:
        return {}
    worst = min(best, key=lambda name: best[name])
    mean = math.exp(sum(math.log(ratio) for ratio in best.values()) / len(best))
    return {"mean_ratio": mean, "lowest_ratio": best[worst], "lowest_model": worst}


def _show(device: Device, result: _Result) -> None:
    from edgekit.device.agent.variants import shapes_text
    from edgekit.host.cli.estimated import show_estimate
    from edgekit.host.cli.output import byte_size
    from edgekit.host.cli.report import show_slowest, show_times

    timing = result.timing
    memory = f"arena {byte_size(timing.arena_bytes)}, weights {byte_size(timing.weights_bytes)}"
    print(f"model    {timing.model} on {device.name}, {memory}")
    if result.more:
        print(f"shapes   {shapes_text(timing.shapes)}")
    show_times(timing, device.emulated)
    show_estimate(device, result.estimate)
    show_slowest(timing, device.emulated)
    if result.peers:
        _show_peers(result.peers)
    for other in result.more:
        print(f"shapes   {shapes_text(other.shapes)}")
        show_times(other, device.emulated)


def _show_peers(result: PeerResult) -> None:
    """Other engines beside ours, timed in turns."""
    from edgekit.host.cli.output import duration, milliseconds, table

    ours, unit = duration(result.ours.median)
    print(f"peers    taking turns with edgekit at {ours} {unit}")
    rows = [
        (
            f"{peer.name} {peer.version}",
            milliseconds(peer.latency.median),
            milliseconds(peer.latency.p10),
            milliseconds(peer.latency.p90),
            f"{peer.ratio:.2f}",
        )
        for peer in result.peers
        if peer.latency
    ]
    if rows:
        table(("engine", "median ms", "p10", "p90", "edgekit is faster by"), rows)
    for peer in result.peers:
        if not peer.latency:
            print(f"no {peer.name}: {peer.missing}")


def _show_many(results: Sequence[_Result], ratios: dict[str, float], emulated: bool) -> None:
    from edgekit.host.cli.output import milliseconds, table

    rows = []
    for result in results:
        timing = result.timing
        row = [timing.model, milliseconds(timing.median_ms), milliseconds(timing.p10_ms)]
        row.append(milliseconds(timing.p90_ms))
        found: dict[str, Any] = {p.name: p for p in result.peers.peers} if result.peers else {}
        for name in ratios:
            timed = name in found and found[name].latency
            row += [milliseconds(timed.median), f"{found[name].ratio:.2f}"] if timed else ["-", "-"]
        rows.append(row)
    headers = ["model", "emulated ms" if emulated else "median ms", "p10", "p90"]
    for name in ratios:
        headers += [f"{name} ms", "ratio"]
    if rows:
        table(headers, rows)
    for name, ratio in ratios.items():
        print(f"geometric mean: {name} takes {ratio:.2f} times as long as edgekit")
    if best := _against_best(results):
        print(
            f"best engine of each model: {best['mean_ratio']:.2f} times as long as edgekit, "
            f"{best['lowest_ratio']:.2f} at the least ({best['lowest_model']})"
        )
