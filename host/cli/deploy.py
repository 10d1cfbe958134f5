"""`edgekit deploy`: a model or bundle goes into service on a board, and its timings come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.cli.compile import load_bundle
from edgekit.host.cli.options import Board, Json, Model, board_name, examples, model_file

if TYPE_CHECKING:
    from edgekit.host.release import Benchmark, DeployPlan, Release

_BENCH_SECONDS = 1


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command(
        "deploy",
        epilog=examples(
            "edgekit deploy models/face_detection_short_range.tflite",
            "edgekit deploy face.ekb --board local --dry-run",
            "edgekit deploy                # model and board of edgekit.toml",
        ),
    )(deploy)


def deploy(
    model: Model = None,
    board: Board = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be sent; change nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Put a model into service on a board and time it.

    Compiles if needed, sends what the board lacks, verifies, activates, checks the health with a
    golden output (going back by itself if it is wrong), and brings a short benchmark back.
    """
    from edgekit.host.api import connect
    from edgekit.host.cli.progress import deploying

    path = model_file(model)
    name = board_name(board)
    device = connect(name)
    bundle = load_bundle(path, name)
    if dry_run:
        _show_plan(name, device.plan(bundle), as_json)
        return
    with deploying(f"deploying to {name}") as progress:
        release = device.deploy(bundle, progress=progress).release
    timing = device.bench(seconds=_BENCH_SECONDS)
    _show(name, release, timing, as_json)


def _show_plan(board: str, plan: DeployPlan, as_json: bool) -> None:
    from edgekit.host.cli.output import byte_size, emit

    if as_json:
        emit(
            {
                "schema": "edgekit.deploy.plan/1",
                "board": board,
                "release": plan.release,
                "unchanged": plan.unchanged,
                "send": list(plan.send),
                "send_bytes": plan.send_bytes,
                "there_bytes": plan.there_bytes,
            }
        )
    elif plan.unchanged:
        print(f"release  {plan.release} runs on {board} already; nothing to do")
    else:
        print(f"release  {plan.release} would replace what runs on {board}")
        print(f"send     {byte_size(plan.send_bytes)}: {', '.join(plan.send) or 'nothing'}")
        print(f"there    {byte_size(plan.there_bytes)}")


def _show(board: str, release: Release, timing: Benchmark, as_json: bool) -> None:
    from edgekit.host.cli.output import byte_size, emit
    from edgekit.host.cli.report import bench_document, show_latency, show_slowest

    if as_json:
        emit(
            {
                "schema": "edgekit.deploy/1",
                "board": board,
                "model": release.model,
                "release": release.id,
                "changed": release.changed,
                "previous": release.previous,
                "sent_bytes": release.sent_bytes,
                "state_ms": dict(release.state_ms),
                "health": dict(release.health),
                "bench": bench_document(board, timing),
            }
        )
        return
    what = f"{byte_size(release.sent_bytes)} sent" if release.changed else "ran there already"
    print(f"release  {release.id} of {release.model} on {board}, {what}")
    print(f"health   {_health(release.health)}")
    show_latency(timing)
    show_slowest(timing)


def _health(health: Any) -> str:
    if not health:
        return "ok, checked when it was deployed"
    worst = max(health["max_difference"], default=0.0)
    return f"ok, golden output met (largest difference {worst:.3g})"
