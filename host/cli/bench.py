"""`edgekit bench`; `bench model`: latency on a board, optionally compared with other engines."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.host.cli import complete
from edgekit.host.cli.bench_history import keep_in_history
from edgekit.host.cli.bench_hotspots import check_hotspots, verdict_of
from edgekit.host.cli.bench_results import (
    BenchResult,
    against_best,
    document,
    mean_ratios,
    report_of,
    show,
    show_many,
)
from edgekit.host.cli.compile import load_bundle
from edgekit.host.cli.compile_options import takes_compile_options
from edgekit.host.cli.options import (
    BoardOption,
    ClusterOption,
    Explain,
    FileKind,
    Json,
    NameOption,
    Parallel,
    Select,
    Threads,
    TransportOption,
    board_name,
    examples,
    file_kind,
    model_file,
)
from edgekit.host.cli.pages import Html, Trace, check_pages, write_pages
from edgekit.host.compiler.options import DEFAULT_OPTIONS, CompileOptions
from edgekit.host.errors import EdgekitError, InputError

if TYPE_CHECKING:
    from edgekit.host.deploy.board import Board
    from edgekit.host.deploy.bundle import Bundle
    from edgekit.host.lab.bench.peers import PeerResult

_PEER_RUNS = 200
_HERE = "local"


_Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL or BUNDLE",
        show_default=False,
        autocompletion=complete.models,
        help="Models or bundles to time (default: the deployed model).",
    ),
]
_Runs = Annotated[
    int,
    typer.Option("--runs", metavar="N", min=0, help="Timed runs; 0 runs for two seconds."),
]
_Peers = Annotated[
    bool, typer.Option("--peers", help="Time other engines too, alternating with edgekit.")
]
_Hotspots = Annotated[
    bool,
    typer.Option(
        "--hotspots", help="Show where the time goes on all threads, why, and what to try."
    ),
]


@dataclass(frozen=True)
class _Wanted:
    """Parsed options; `runs` 0 means as many as fit into two seconds."""

    device: Board
    threads: int | None
    cluster: str
    runs: int
    peers: bool
    hotspots: bool
    options: CompileOptions
    explain: Path | None


def register(app: typer.Typer) -> None:
    """Adds the command group to the application."""
    group = typer.Typer(
        help="Measure models on boards.",
        epilog=examples("edgekit bench model models/face_detection_short_range.tflite --peers"),
        rich_markup_mode=None,
    )
    group.command(
        "model",
        epilog=examples(
            "edgekit bench model models/face_detection_short_range.tflite --peers",
            "edgekit bench model a.tflite b.tflite --threads 2 --json",
            "edgekit bench model face.tflite --board pi --hotspots",
            "edgekit bench model                # what is deployed on local",
            "edgekit bench model --select type=a57 --parallel 8",
        ),
    )(bench_model)
    app.add_typer(group, name="bench")


@takes_compile_options()
def bench_model(
    models: _Models = None,
    board: BoardOption = None,
    threads: Threads = None,
    cluster: ClusterOption = None,
    transport: TransportOption = None,
    model_name: NameOption = None,
    runs: _Runs = 0,
    peers: _Peers = False,
    hotspots: _Hotspots = False,
    every: Annotated[bool, typer.Option("--all", help="Time all models in ./models.")] = False,
    options: CompileOptions = DEFAULT_OPTIONS,
    explain: Explain = None,
    html: Html = None,
    trace: Trace = None,
    select: Select = None,
    parallel: Parallel = None,
    as_json: Json = False,
) -> int:
    """Time models on boards, and each of their operators."""
    from edgekit.host.cli.output import emit
    from edgekit.host.deploy.api import connect

    if select:
        from edgekit.host.cli.fleet_work import bench_on, refuse_with_select

        refuse_with_select(board=board, cluster=cluster, transport=transport, all=every)
        refuse_with_select(peers=peers, hotspots=hotspots, explain=explain, html=html, trace=trace)
        bench_on(select, models, options, model_name, threads, runs, parallel, as_json)
        return 0
    check_pages(html, trace)
    if peers and board_name(board) != _HERE:
        if html or trace or hotspots:
            raise InputError(
                "expected measured times for --html, --trace and --hotspots, found --peers on "
                f"{board_name(board)}, where times are estimated; leave one of them out"
            )
        return _estimate_with_peers(models, board_name(board), options, threads, cluster, as_json)
    device = connect(board_name(board), transport=transport).named(model_name)
    wanted = _Wanted(device, threads, cluster or "", runs, peers, hotspots, options, explain)
    files = _all_models() if every else [model_file(m) for m in models or ()]
    if hotspots:
        check_hotspots(len(files), every)
    if len(files) > 1 and (explain or not options.is_default):
        raise InputError(
            f"expected one model with compile options, found {len(files)}; time them one by one"
        )
    if every or len(files) > 1:
        results, failed = _bench_many(files, wanted)
        write_pages(html, trace, lambda: report_of(device, results))
        _tell_many(device, results, failed, as_json)
        return failed[0][1].exit_code if failed else 0
    result = _bench_one(files[0] if files else None, wanted)
    write_pages(html, trace, lambda: report_of(device, [result]))
    if as_json:
        emit(document(device, result))
    else:
        show(device, result)
    return 0


def _estimate_with_peers(
    models: list[str] | None,
    board: str,
    options: CompileOptions,
    threads: int | None,
    cluster: str | None,
    as_json: bool,
) -> int:
    """Compares with other engines on boards other than this machine, where both are estimated."""
    from edgekit.host.cli.estimate import TIMEOUT, request_for, show_file
    from edgekit.host.deploy.connections import profile_of
    from edgekit.kb.targets.board import load_board

    if len(models or ()) > 1:
        raise InputError(
            f"expected one model with --peers on {board}, found {len(models or ())}; "
            "estimate them one by one"
        )
    path = model_file(models[0] if models else None)
    profile = load_board(profile_of(board))
    request = request_for(board, threads, cluster)
    show_file(path, profile, options, request, TIMEOUT, True, as_json)
    return 0


def _bench_one(file: Path | None, wanted: _Wanted) -> BenchResult:
    """Times `file`, or the deployed model."""
    from edgekit.host.cli.estimated import estimate_for
    from edgekit.host.cli.report import warn_of_noise

    device = wanted.device
    if file:
        result = _bench_file(file, wanted)
    elif wanted.peers:
        raise InputError(
            "expected a model to time other engines with, found none; name a .tflite or .onnx"
        )
    else:
        timing = device.bench(
            threads=wanted.threads,
            cluster=wanted.cluster,
            count=wanted.runs,
            hotspots=wanted.hotspots,
        )
        result = BenchResult(timing, None, estimate=estimate_for(device, timing, None))
    warn_of_noise(result.timing, device.emulated)
    return replace(result, verdict=verdict_of(device, result.timing, file, result.estimate))


def _bench_file(file: Path, wanted: _Wanted) -> BenchResult:
    """Times `file` as a release in a temporary folder; the deployed model is not affected."""
    from edgekit.host.cli.estimated import estimate_for
    from edgekit.host.cli.progress import working

    if wanted.peers and file_kind(file) is FileKind.BUNDLE:
        raise InputError(f"{file}: other engines need the .tflite or .onnx file, found a bundle")
    options = _options_for(file, wanted.options)
    bundle = load_bundle(file, wanted.device.profile, options=options, explain=wanted.explain)
    with wanted.device.temporary() as device:
        device.deploy(bundle)
        with working(f"timing {file.name}"):
            timing, *more = (
                device.bench(
                    threads=wanted.threads,
                    cluster=wanted.cluster,
                    count=wanted.runs,
                    variant=i,
                    hotspots=wanted.hotspots and i == 0,
                )
                for i in range(len(bundle.manifest.every_variant()))
            )
    if file_kind(file) is FileKind.MODEL and not wanted.device.emulated:
        keep_in_history(file, wanted.device, options, timing)
    if not wanted.peers:
        estimate = estimate_for(wanted.device, timing, bundle)
        return BenchResult(timing, None, tuple(more), estimate)
    with working(f"timing {file.name} against other engines"):
        peers = _with_peers(bundle, file, wanted, timing.threads, options)
        return BenchResult(timing, peers, tuple(more))


def _options_for(file: Path, asked: CompileOptions) -> CompileOptions:
    """The given options, or with --all those that a known model requires."""
    from edgekit.host.lab.zoo.models import zoo_options

    return zoo_options(file) if asked.is_default and file_kind(file) is FileKind.MODEL else asked


def _with_peers(
    bundle: Bundle, model: Path, wanted: _Wanted, threads: int, options: CompileOptions
) -> PeerResult:
    from edgekit.device.runtime.agent.manifest import LIBRARY, WEIGHTS
    from edgekit.host.cli.output import note
    from edgekit.host.lab.bench.peers import bench_peers

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


_Failed = list[tuple[Path, EdgekitError]]


def _bench_many(files: Sequence[Path], wanted: _Wanted) -> tuple[list[BenchResult], _Failed]:
    """Times each model; a failure is reported and does not stop the others."""
    from edgekit.host.cli.output import note
    from edgekit.host.cli.report import warn_of_noise

    results: list[BenchResult] = []
    failed: _Failed = []
    for file in files:
        try:
            results.append(_bench_file(file, wanted))
            warn_of_noise(results[-1].timing, wanted.device.emulated)
        except EdgekitError as error:
            note(f"edgekit: {error}")
            failed.append((file, error))
    return results, failed


def _tell_many(
    device: Board, results: Sequence[BenchResult], failed: _Failed, as_json: bool
) -> None:
    from edgekit.host.cli.output import emit

    ratios = mean_ratios(results)
    if not as_json:
        show_many(results, ratios, device.emulated)
        return
    emit(
        {
            "schema": "edgekit.bench.models/1",
            "board": device.name,
            "emulated": device.emulated,
            "models": [document(device, r) for r in results],
            "failed": [{"model": str(f), "error": str(e)} for f, e in failed],
            "mean_ratio": ratios,
            "best_peer": against_best(results),
        }
    )


def _all_models() -> list[Path]:
    from edgekit.host.lab.zoo.models import extended_zoo

    zoo = extended_zoo(Path("models"))
    if not (found := [*zoo.models, *zoo.onnx]):
        raise InputError(
            "expected models in ./models, found none; run this in the folder above models/"
        )
    return found
