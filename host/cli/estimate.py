"""`edgekit estimate`: estimates the time of a model or program on a board that need not exist."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.host.cli import complete
from edgekit.host.cli.compile_options import takes_compile_options, words_of
from edgekit.host.cli.estimate_program import FETCH, estimate_program, say_unmodelled
from edgekit.host.cli.estimate_release import estimate_file
from edgekit.host.cli.many import Workers, boards_of, check_cores, flags
from edgekit.host.cli.options import (
    BoardOption,
    ClusterOption,
    FileKind,
    Json,
    Threads,
    examples,
    file_kind,
    model_file,
    writes,
)
from edgekit.host.compiler.options import DEFAULT_OPTIONS, CompileOptions
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.specs import PlacementRequest
    from edgekit.host.compiler.options import CompileOptions
    from edgekit.host.lab.bench.board_peers import PeerEstimate
    from edgekit.host.lab.bench.roofline import HotOperator
    from edgekit.host.simulator.model import ModelEstimate
    from edgekit.kb.targets.board import BoardProfile

TIMEOUT = 3600.0  # seconds
_ELF = b"\x7fELF"


_What = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODELS or BUNDLES or -- PROGRAM ARGS",
        show_default=False,
        autocompletion=complete.models,
        help="Models, bundles, or a Linux program (default: edgekit.toml's model).",
    ),
]
_Sysroot = Annotated[
    str | None,
    typer.Option(
        "--sysroot",
        metavar="DIR",
        show_default=False,
        help=f"Libraries of a program that is not static; '{FETCH}' gets Debian's once.",
    ),
]
_Entire = Annotated[
    bool, typer.Option("--entire-program", help="Time the program from start to end.")
]
_Peers = Annotated[
    bool,
    typer.Option(
        "--peers", help="Estimate other engines too, from their wheels for the board's core."
    ),
]
_Together = Annotated[
    bool,
    typer.Option(
        "--together", help="Estimate how the models slow each other down when run together."
    ),
]
_Page = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        parser=writes("estimate.html"),
        metavar="FILE.html",
        show_default=False,
        help="Also write a page that charts each board and engine, with errors.",
    ),
]
_Timeout = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=1, help="Give up after this time."),
]


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command(
        "estimate",
        epilog=examples(
            "edgekit estimate models/face_detection_short_range.tflite --board rpi4",
            "edgekit estimate face.ekb --board rpi4 --threads 4 --json",
            "edgekit estimate model.tflite --board rpi4,rpi5,rk3588 --peers -o engines.html",
            "edgekit estimate *.tflite --board rpi4,rpi5 --dask tcp://HOST:8786",
            "edgekit estimate wake.tflite face.tflite --board rpi4 --together --threads 1",
            "edgekit estimate --board rpi4 -- ./my_program 100",
            "edgekit estimate --board rpi4 --sysroot fetch --entire-program -- ./dynamic_program",
        ),
    )(estimate)


@takes_compile_options()
def estimate(
    what: _What = None,
    board: BoardOption = None,
    threads: Threads = None,
    cluster: ClusterOption = None,
    dask: Workers = None,
    options: CompileOptions = DEFAULT_OPTIONS,
    sysroot: _Sysroot = None,
    entire: _Entire = False,
    peers: _Peers = False,
    together: _Together = False,
    output: _Page = None,
    timeout: _Timeout = TIMEOUT,
    as_json: Json = False,
) -> None:
    """Estimate the time of models or a program on a board's core."""
    from edgekit.host.deploy.connections import profile_of
    from edgekit.kb.targets.board import load_board

    check_cores(cluster)
    boards = boards_of(board)
    if together:
        if dask or output or peers or sysroot or entire or len(boards) > 1:
            raise InputError(
                "expected one board and only --threads or --cluster with --together, found another "
                "option; leave it out"
            )
        from edgekit.host.cli.estimate_together import show_together

        models = [model_file(name) for name in what or ()]
        request = request_for(boards[0], threads, cluster)
        profile = load_board(profile_of(boards[0]))
        show_together(models, profile, options, request, timeout, as_json)
        return
    if output is not None:
        _check_page(output)
    if what and _is_program(Path(what[0])):
        if output is not None:
            raise InputError("--output: expected a model, found a program; leave it out")
        _estimate_program(what, boards, dask, sysroot, entire, timeout, as_json)
        return
    if sysroot or entire:
        raise InputError(
            "expected a program with --sysroot or --entire-program, found a model; leave them out"
        )
    if dask or output or len(boards) > 1 or len(what or ()) > 1:
        from edgekit.host.cli.estimate_many import estimate_many

        asked = [*words_of(options), *flags(peers=peers, timeout=timeout)]
        requests = {name: request_for(name, threads, cluster) for name in boards}
        models = [model_file(name) for name in what or (None,)]
        estimate_many(models, requests, asked, options.samples, dask, output, as_json)
        return
    name = boards[0]
    profile = load_board(profile_of(name))
    path = model_file(what[0] if what else None)
    request = request_for(name, threads, cluster)
    show_file(path, profile, options, request, timeout, peers, as_json)


def _estimate_program(
    what: list[str],
    boards: tuple[str, ...],
    dask: str | None,
    sysroot: str | None,
    entire: bool,
    timeout: float,
    as_json: bool,
) -> None:
    from edgekit.host.deploy.connections import profile_of
    from edgekit.host.simulator.target import target_of
    from edgekit.kb.targets.board import load_board

    if dask or len(boards) > 1:
        raise InputError("expected models for several boards or a cluster, found a program")
    core = target_of(load_board(profile_of(boards[0])))
    estimate_program(what, core, sysroot, entire, timeout, as_json)


def _check_page(file: Path) -> None:
    """Checks that a page can be written, before any work; raises InputError."""
    from edgekit.host.cli.output import check_writable

    if file.suffix != ".html":
        raise InputError(f"--output: expected a file .html, found {file}")
    check_writable(file)


def request_for(board: str, threads: int | None, cluster: str | None) -> PlacementRequest:
    """Placement from the options, or else from the board's inventory entry."""
    from edgekit.device.runtime.agent.specs import PlacementRequest
    from edgekit.host.deploy.inventory import find_board

    entry = find_board(board, Path.cwd())
    usual = PlacementRequest(entry.threads, entry.cluster or "") if entry else PlacementRequest()
    return PlacementRequest(threads, cluster or "").over(usual)


def show_file(
    path: Path,
    board: BoardProfile,
    options: CompileOptions,
    request: PlacementRequest,
    timeout: float,
    peers: bool,
    as_json: bool,
) -> None:
    """Prints the estimate for a model or bundle, optionally with those for other engines."""
    from edgekit.host.cli.estimate_operators import operator_facts, show_operators
    from edgekit.host.cli.model_times import model_document
    from edgekit.host.cli.output import emit
    from edgekit.host.simulator.target import on_cluster

    if (request.threads or 1) > board.cores:
        raise InputError(
            f"--threads: expected at most {board.cores}, as many as {board.name} has cores, "
            f"found {request.threads}"
        )
    board = on_cluster(board, request.cluster)
    found = estimate_file(path, board, options, request, timeout)
    others = _estimate_peers(path, board, found.threads, options, timeout) if peers else ()
    judged = _judge(path, board, found)
    if as_json:
        peer_times = {o.name: o.times(found.total_ms).to_json() for o in others}
        emit(model_document(found, peer_times, operator_facts(judged)))
        return
    _show_model(found)
    show_operators(found, judged)
    if peers:
        _show_peers(found, others)


def _judge(path: Path, board: BoardProfile, found: ModelEstimate) -> Sequence[HotOperator]:
    """What bounds each operator, if the compiler's report on the release is known here."""
    from edgekit.host.deploy.explanations import recall
    from edgekit.host.lab.bench.advice import BenchTarget
    from edgekit.host.lab.bench.roofline import judge_operators

    return judge_operators(
        found, BenchTarget(str(path), board.name, board, recall(found.release), "estimate")
    )


def _is_program(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == _ELF


def _show_model(found: ModelEstimate) -> None:
    from edgekit.device.runtime.agent.variants import variant_text
    from edgekit.host.cli.output import memory_text
    from edgekit.host.simulator.report import bound_text, proof_text, sentence

    memory = memory_text(found.arena_bytes, found.weights_bytes, found.state_bytes)
    threads = f"{found.threads} thread{'s' * (found.threads != 1)}"
    print(f"model    {found.model}, {memory}")
    if found.variants > 1:
        sets = "signatures and shapes" if found.signature else "sets of shapes"
        print(f"inputs   {variant_text(found)}, one of {found.variants} {sets}")
    print(f"time     {sentence(found.total_ms, found.board, found.proof)}, {threads}")
    print(f"core     {found.core} at {found.clock_mhz:g} MHz")
    print(f"error    {proof_text(found.proof)}")
    print(f"cycles   {found.cost.cycles}, {found.cost.instructions} instructions")
    print(f"bound by {bound_text(found.cost)}")
    say_unmodelled(found.unmodelled)


def _estimate_peers(
    model: Path, board: BoardProfile, threads: int, options: CompileOptions, seconds: float
) -> tuple[PeerEstimate, ...]:
    """Estimates each engine that has wheels for the board: in f32 if `options` request it, else in
    its fastest precision whose outputs are close to the reference's."""
    from edgekit.host.cli.output import note
    from edgekit.host.cli.progress import working
    from edgekit.host.lab.bench.board_peers import PeerJob, estimate_peers
    from edgekit.host.simulator.target import target_of

    if file_kind(model) is FileKind.BUNDLE:
        raise InputError(f"{model}: other engines need the .tflite or .onnx file, found a bundle")
    precisions = ("f32",) if options.precision == "f32" else ("f16", "f32")
    job = PeerJob(model, target_of(board), threads, options.shapes, precisions, seconds)
    with working(f"estimating {model.name} and other engines"):
        return estimate_peers(job, note)


def _show_peers(ours: ModelEstimate, peers: Sequence[PeerEstimate]) -> None:
    """Prints a table with ratios, ours first."""
    from edgekit.host.cli.output import milliseconds, table
    from edgekit.host.simulator.report import bound_text, error_text

    error = error_text(ours.proof)
    rows = [("edgekit", milliseconds(ours.total_ms), error, "1.00", bound_text(ours.cost))]
    for peer in peers:
        if peer.cost is not None:
            ratio = f"{peer.milliseconds / ours.total_ms:.2f}"
            half = " f16" if peer.precision == "f16" else ""
            name = f"{peer.name} {peer.version}{half}"
            time = milliseconds(peer.milliseconds)
            rows.append((name, time, error, ratio, bound_text(peer.cost)))
    print(f"peers    on {ours.board}'s core")
    table(("engine", "estimated ms", "error", "edgekit is faster by", "bound by"), rows)
    for peer in peers:
        if peer.cost is None:
            print(f"no {peer.name}: {peer.missing}")
