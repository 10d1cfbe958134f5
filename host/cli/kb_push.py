"""`edgekit lab kb push`: sends a board's tables to its kernels."""

from __future__ import annotations

import typer

from edgekit.host.cli.deploy_kernels import KERNELS_NAME
from edgekit.host.cli.options import (
    BoardOption,
    Json,
    NameOption,
    TransportOption,
    board_name,
    examples,
)


def register(group: typer.Typer) -> None:
    """Adds the command to the group `kb`."""
    group.command("push", epilog=examples("edgekit lab kb push --board a57"))(push)


def push(
    board: BoardOption = None,
    transport: TransportOption = None,
    release_name: NameOption = None,
    as_json: Json = False,
) -> None:
    """Send the board's tables, and nothing else, to its kernels."""
    from edgekit.host.cli.deploy import put_into_service
    from edgekit.host.cli.deploy_kernels import show_kernels
    from edgekit.host.deploy.api import connect
    from edgekit.host.deploy.release.tables import bundle_with_tables
    from edgekit.kb.targets.board import load_board

    device = connect(board_name(board), transport=transport).named(release_name or KERNELS_NAME)
    bundle = bundle_with_tables(device, load_board(device.profile))
    show_kernels(device, bundle, put_into_service(device, bundle), as_json)
