"""`edgekit deploy`: deploys a model, a bundle or the kernels to a board and measures it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.device.runtime.agent.specs import LossSpec
from edgekit.host.cli.compile import load_bundle, unsigned_bundle
from edgekit.host.cli.compile_options import takes_compile_options
from edgekit.host.cli.deploy_kernels import KERNELS_NAME, kernels_bundle, show_kernels
from edgekit.host.cli.options import (
    BoardOption,
    ClusterOption,
    Counter,
    FileKind,
    Json,
    Model,
    NameOption,
    Threads,
    TransportOption,
    board_name,
    examples,
    file_kind,
    model_file,
    refuse_with,
)
from edgekit.host.compiler.options import DEFAULT_OPTIONS, CompileOptions
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from edgekit.host.deploy.board import Board
    from edgekit.host.deploy.bundle import Bundle
    from edgekit.host.deploy.release import Benchmark, BoardStatus, DeployProgress, Release
    from edgekit.host.simulator.model import ModelEstimate

_BENCH_SECONDS = 1
_LOG_LINES = 10
_ASK_SECONDS = 10.0  # maximum delay after an interrupt
_BEFORE_SWITCH = ("connect", "probe", "plan", "transfer", "verify", "extract")


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command(
        "deploy",
        epilog=examples(
            "edgekit deploy models/face_detection_short_range.tflite",
            "edgekit deploy face.ekb --board a57 --dry-run",
            "edgekit deploy                # model and board of edgekit.toml",
            "edgekit deploy --kernels --board a57",
            "edgekit deploy --tables --board a57     # after edgekit lab kb build",
        ),
    )(deploy)


@takes_compile_options(deploys=True)
def deploy(
    context: typer.Context,
    model: Model = None,
    board: BoardOption = None,
    kernels: Annotated[
        bool,
        typer.Option("--kernels", help="Deploy the core's matrix products, for your programs."),
    ] = False,
    tables: Annotated[
        bool, typer.Option("--tables", help="Send new tables to the kernels on the board.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and write nothing anywhere.")
    ] = False,
    counter: Counter = None,
    options: CompileOptions = DEFAULT_OPTIONS,
    allow_downgrade: Annotated[
        bool,
        typer.Option(
            "--allow-downgrade", help="Accept a lower counter than that of the running release."
        ),
    ] = False,
    threads: Threads = None,
    cluster: ClusterOption = None,
    no_application: Annotated[
        bool,
        typer.Option(
            "--no-application", help="Deploy without the installed application, and stop it."
        ),
    ] = False,
    transport: TransportOption = None,
    model_name: NameOption = None,
    as_json: Json = False,
) -> None:
    """Put a model into service on a board, check it and time it."""
    from edgekit.host.cli.bench_history import keep_in_history
    from edgekit.host.cli.estimated import estimate_for
    from edgekit.host.cli.output import emit
    from edgekit.host.cli.plan import plan_document, show_plan
    from edgekit.host.deploy.api import connect
    from edgekit.host.deploy.release.tables import bundle_with_tables
    from edgekit.kb.targets.board import load_board

    name = board_name(board)
    if kernels or tables:
        _refuse_models(context, "--tables" if tables else "--kernels", options)
        model_name = model_name or KERNELS_NAME
    path = None if kernels or tables else model_file(model, name)
    device = connect(name, transport=transport).named(model_name)
    if tables:
        bundle = bundle_with_tables(device, load_board(device.profile))
    else:
        bundle = _bundle_of(path, device, counter, options, dry_run)
    if dry_run:
        plan = device.plan(bundle, allow_downgrade=allow_downgrade, application=not no_application)
        if as_json:
            emit(plan_document(device, plan))
        else:
            show_plan(device, plan)
        return
    release = put_into_service(device, bundle, allow_downgrade, not no_application)
    if path is None or bundle.manifest.kernels:
        show_kernels(device, bundle, release, as_json)
        return
    timing = device.bench(threads=threads, cluster=cluster or "", seconds=_BENCH_SECONDS)
    _check_timed(device, release, timing)
    if file_kind(path) is FileKind.MODEL and not device.emulated:
        keep_in_history(path, device, options, timing)
    _print_result(device, release, timing, estimate_for(device, timing, bundle), as_json)


def _check_timed(device: Board, release: Release, timing: Benchmark) -> None:
    """Raises RolledBackError if another release was timed; warns of noise."""
    from edgekit.host.cli.report import warn_of_noise
    from edgekit.host.errors import RolledBackError

    if release.application and timing.release != release.id:
        raise RolledBackError(
            f"board '{device.name}': release {release.id} was rolled back, {timing.release} runs "
            "again: its application may have failed; see: edgekit status"
        )
    warn_of_noise(timing, device.emulated)


def _refuse_models(context: typer.Context, flag: str, options: CompileOptions) -> None:
    """Raises InputError if the command line with `flag`, --kernels or --tables, asks for a model
    or for how one is compiled or run."""
    refuse_with(context, flag, "model", "threads", "cluster")
    if flag == "--tables":
        refuse_with(context, flag, "kernels", "counter", "dry_run")
    if not options.is_default:
        raise InputError(f"expected {flag} or options of a model, found both; leave one out")


def _bundle_of(
    path: Path | None, device: Board, counter: int | None, options: CompileOptions, dry_run: bool
) -> Bundle:
    """The bundle of a model or bundle file, or of the kernels; unsigned for a dry run."""
    if path is None:
        return kernels_bundle(device, counter or 0, dry_run)
    make = unsigned_bundle if dry_run else load_bundle
    return make(path, device.profile, counter, options)


def put_into_service(
    device: Board, bundle: Bundle, allow_downgrade: bool = False, application: bool = True
) -> Release:
    """Deploys with progress; if interrupted, reports what runs on the board now.

    The log of an unhealthy release is shown before its error.
    """
    from edgekit.host.cli.output import note
    from edgekit.host.cli.progress import deploying
    from edgekit.host.errors import RolledBackError

    passed, wanted = ["connect"], [bundle.manifest.id]

    def on_step(step: DeployProgress) -> None:
        passed[-1], wanted[-1] = step.state, step.release
        show(step)

    try:
        with deploying(f"deploying to {device.name}") as show:
            return device.deploy(
                bundle, progress=on_step, allow_downgrade=allow_downgrade, application=application
            ).release
    except KeyboardInterrupt:
        _tell_what_runs(device, wanted[-1], passed[-1])
        raise
    except RolledBackError as error:
        for line in error.log.splitlines()[-_LOG_LINES:]:
            note(f"{device.name} said: {line}")
        raise


def _tell_what_runs(device: Board, wanted: str, state: str) -> None:
    """Queries the board, which reverts an interrupted switch; does not wait long."""
    from edgekit.host.cli.output import note

    found: list[BoardStatus] = []

    def ask() -> None:
        with contextlib.suppress(Exception):  # for any reason that the board does not answer
            found.append(device.status())

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_ASK_SECONDS)
    board = device.name
    note(f"edgekit: interrupted in state '{state}'; {_what_runs(board, found, wanted, state)}")


def _what_runs(board: str, found: Sequence[BoardStatus], wanted: str, state: str) -> str:
    """What runs on the board after a deployment of `wanted` was interrupted in `state`, as text."""
    again = "deploy again to resume"
    if found and not found[0].interrupted:
        runs = found[0].current
        if runs is None:
            return f"nothing ran on {board} before, and nothing does now; {again}"
        if runs.id == wanted:
            return f"the new release {runs.id} is already in service on {board}"
        return f"the old release {runs.id} of {runs.model} keeps running on {board}; {again}"
    if state in _BEFORE_SWITCH:
        return f"the old release keeps running on {board}; {again}"
    return f"{board} completes or undoes the switch by itself; see: edgekit status --board {board}"


def _print_result(
    device: Board,
    release: Release,
    timing: Benchmark,
    estimate: ModelEstimate | None,
    as_json: bool,
) -> None:
    from edgekit.host.cli.estimated import estimated_document, show_estimate
    from edgekit.host.cli.model_times import measured_document
    from edgekit.host.cli.output import byte_size, emit
    from edgekit.host.cli.plan import show_application
    from edgekit.host.cli.report import show_slowest, show_times

    if as_json:
        emit(
            {
                "schema": "edgekit.deploy/1",
                "board": device.name,
                "model": release.model,
                "release": release.id,
                "changed": release.changed,
                "previous": release.previous,
                "sent_bytes": release.sent_bytes,
                "state_ms": dict(release.state_ms),
                "health": dict(release.health),
                "application": release.application,
                "left_application": release.left_application,
                "bench": measured_document(device.name, timing, device.emulated),
                "estimate": estimated_document(estimate),
            }
        )
        return
    what = f"{byte_size(release.sent_bytes)} sent" if release.changed else "already in service"
    print(f"release  {release.id} of {release.model} on {device.name}, {what}")
    print(f"health   {_format_health(release.health)}")
    show_application(release)
    show_times(timing, device.emulated)
    show_estimate(device, estimate)
    show_slowest(timing, device.emulated)


def _format_health(health: Any) -> str:
    from edgekit.host.deploy.release.probed import known

    if not health:
        return "ok, checked when it was deployed"
    worst = max(health["max_difference"], default=0.0)
    text = f"ok, golden output matched (largest difference {worst:.3g})"
    lost = health.get("loss")
    return f"{text}; {LossSpec(**known(LossSpec, lost)).describe()}" if lost else text
