"""`edgekit status`, `rollback`, `remove`: shows, reverts and removes releases on a board."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.host.cli.options import (
    BoardOption,
    Json,
    NameOption,
    Parallel,
    TransportOption,
    board_name,
    examples,
    refuse_with,
    refuse_without,
)
from edgekit.host.common.text import counted
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.specs import PlacementRequest, PlacementSpec
    from edgekit.host.deploy.board import Board
    from edgekit.host.deploy.release import BoardStatus, ReleaseInfo

Rollout = Annotated[
    str | None,
    typer.Option(
        "--rollout",
        metavar="ID",
        show_default=False,
        help="Boards of a rollout of edgekit fleet deploy; newest is the last one.",
    ),
]


def register(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    app.command(
        "status",
        epilog=examples(
            "edgekit status",
            "edgekit status --board local --verify --json",
            "edgekit status --rollout newest",
        ),
    )(status)
    app.command(
        "rollback",
        epilog=examples(
            "edgekit rollback",
            "edgekit rollback --board local --json",
            "edgekit rollback --rollout newest",
        ),
    )(rollback)
    app.command(
        "remove",
        epilog=examples("edgekit remove --name wake", "edgekit remove --board local --default"),
    )(remove)


def status(
    context: typer.Context,
    board: BoardOption = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare every file with its SHA-256 first.")
    ] = False,
    transport: TransportOption = None,
    model_name: NameOption = None,
    rollout: Rollout = None,
    as_json: Json = False,
) -> None:
    """Show what runs on a board, or on the boards of a rollout."""
    from edgekit.host.cli.fleet_deploy import show_rollout
    from edgekit.host.deploy.api import connect

    if rollout is not None:
        refuse_with(context, "--rollout", "board", "verify", "transport", "model_name")
        show_rollout(rollout, as_json)
        return
    device = connect(board_name(board), transport=transport).named(model_name)
    found = device.verify() if verify else device.status()
    known = (found.current, found.previous, found.last_failure, found.deploying)
    if model_name and not any(known):
        raise InputError(
            f"expected a model deployed as '{model_name}', found none; list them: edgekit status"
        )
    _print_status(device, found, "edgekit.verify/1" if verify else "edgekit.status/1", as_json)
    if verify and not as_json:
        everything = (found, *found.named.values())
        count = sum(release is not None for s in everything for release in (s.current, s.previous))
        print(f"verified  {counted(count, 'release')}: every file has the SHA-256 of its manifest")


def rollback(
    context: typer.Context,
    board: BoardOption = None,
    transport: TransportOption = None,
    model_name: NameOption = None,
    rollout: Rollout = None,
    parallel: Parallel = None,
    as_json: Json = False,
) -> None:
    """Return a board or a rollout to the previous release."""
    from edgekit.host.cli.fleet_deploy import take_rollout_back
    from edgekit.host.deploy.api import connect

    if rollout is not None:
        refuse_with(context, "--rollout", "board", "transport", "model_name")
        take_rollout_back(rollout, parallel, as_json)
        return
    refuse_without(context, "--rollout", "parallel")
    device = connect(board_name(board), transport=transport).named(model_name)
    _print_status(device, device.rollback(), "edgekit.rollback/1", as_json)


def remove(
    board: BoardOption = None,
    transport: TransportOption = None,
    model_name: NameOption = None,
    default: Annotated[
        bool, typer.Option("--default", help="Remove the model that was deployed without a name.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Remove a model with its releases from a board."""
    from edgekit.host.cli.output import emit
    from edgekit.host.deploy.api import connect

    if (model_name is not None) == default:
        found = "both" if default else "neither"
        raise InputError(
            "expected --name NAME, or --default for the model that was deployed without a name, "
            f"found {found}; edgekit status lists them"
        )
    name = board_name(board)
    gone = connect(name, transport=transport).named(model_name).remove()
    if as_json:
        emit(
            {
                "schema": "edgekit.remove/1",
                "board": name,
                "name": model_name or "",
                "releases": gone,
            }
        )
        return
    what = ", ".join(gone) or "leftovers of an interrupted command"
    print(f"removed  {model_name or 'the default model'} from {name}: {what}")


def _print_status(device: Board, found: BoardStatus, schema: str, as_json: bool) -> None:
    from edgekit.host.cli.output import emit

    usual = device.placement_request()
    if as_json:
        emit({"schema": schema, "board": device.name, **asdict(usual), **asdict(found)})
        return
    print(f"board     {device.name}")
    _show_releases(found, usual)
    for name, other in found.named.items():
        print(f"as        {name}")
        _show_releases(other, usual)


def _show_releases(found: BoardStatus, usual: PlacementRequest) -> None:
    from edgekit.host.cli.output import show_variants

    print(f"current   {_format_release(found.current)}")
    if found.current:
        show_variants(found.current.shapes, found.current.signatures)
    if found.current and found.current.shapes and not found.current.damage:
        print(f"runs on   {_format_placement(found.current.placement, usual)}")
    if found.current and found.current.loss:
        print(f"loss      {found.current.loss.describe()}")
    print(f"previous  {_format_release(found.previous)}")
    if found.interrupted:
        print("note      a deploy was interrupted; run it again")
    if found.last_failure:
        facts = (f"{key}: {value}" for key, value in found.last_failure.items() if value)
        print(f"failure   {'; '.join(facts)}")


def _format_placement(spec: PlacementSpec | None, usual: PlacementRequest) -> str:
    """Where a model runs: by the board's inventory entry, else by its release."""
    from edgekit.host.cli.compile import placement_text, threads_text

    if not usual.threads and not usual.cluster:
        return placement_text(spec) if spec else threads_text(1)
    said = spec if spec and usual.cluster in ("", spec.cluster, spec.core) else None
    count = usual.threads or (said.threads if said else None)
    cluster = usual.cluster or (said.cluster if said else "")
    parts = [threads_text(count)] if count else []
    parts += [cluster] if cluster not in ("", "all") else []
    return f"{' of '.join(parts) or 'all cores'}, as set for this board"


def _format_release(info: ReleaseInfo | None) -> str:
    from edgekit.host.cli.output import byte_size

    if info is None:
        return "none"
    if info.damage:
        return f"{info.id}  {info.model or 'unknown model'}, damaged: {info.damage}; deploy again"
    return (
        f"{info.id}  {info.model}, compiled for {info.profile} by edgekit {info.kit_version}, "
        f"{byte_size(info.bytes)}"
    )
