"""`edgekit profile serve|enroll|revoke|upload`: profiles that boards send, or that a card holds."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.host.cli import complete
from edgekit.host.cli.options import Json, Keep, Over, byte_count, examples
from edgekit.host.cli.profile_write import OptionalNats, Replicas

if TYPE_CHECKING:
    from edgekit.host.fleet.profiles import Stored

_PORT = 8470
_SERVER = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]{0,252})(?::([0-9]{1,5}))?")

BoardName = Annotated[
    str, typer.Argument(metavar="BOARD", show_default=False, autocompletion=complete.boards)
]


def register(group: typer.Typer) -> None:
    """Adds the commands to the group."""
    group.command(
        "serve",
        epilog=examples("edgekit profile serve", "edgekit profile serve --nats nats://10.0.0.1"),
    )(serve)
    group.command("enroll", epilog=examples("edgekit profile enroll local --server localhost"))(
        enroll
    )
    group.command("revoke", epilog=examples("edgekit profile revoke bench-1"))(revoke)
    group.command("upload", epilog=examples("edgekit profile upload spool --board bench-1"))(upload)


def serve(
    address: Annotated[
        str, typer.Option("--address", metavar="IP", help="To listen on; all of this host's.")
    ] = "0.0.0.0",
    port: Annotated[int, typer.Option("--port", metavar="N", min=1, max=65535)] = _PORT,
    keep: Keep = None,
    nats: OptionalNats = None,
    replicas: Replicas = 3,
    as_json: Json = False,
) -> None:
    """Take the profiles that enrolled boards send, over HTTPS, until Ctrl-C."""
    from edgekit.host.cli.output import emit, note
    from edgekit.host.errors import InputError
    from edgekit.host.fleet import profiles

    most_bytes = byte_count(keep, "--keep")
    if nats and keep:
        raise InputError("expected --keep or --nats, found both; with --nats nothing is kept here")
    store = profiles.ProfileStore()
    bus = profiles.Bus(nats, replicas) if nats else None
    try:
        server = profiles.ProfileServer(store, (address, port), most_bytes=most_bytes, bus=bus)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"expected to listen on {address}:{port}, found: {error}; choose another: --port"
        ) from None
    if as_json:
        emit({"schema": "edgekit.profile.serve/1", "address": address, "port": port})
    else:
        into = bus.name if bus else store.folder
        print(f"serving  https://{address}:{port} into {into}; Ctrl-C ends it")
    sys.stdout.flush()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        note("stopped")
    finally:
        server.server_close()
        if bus:
            bus.close()


def enroll(
    board: BoardName,
    server: Annotated[
        str,
        typer.Option(
            "--server",
            metavar="HOST[:PORT]",
            show_default=False,
            help="This host, as the board reaches it.",
        ),
    ],
    kilobits: Annotated[
        int, typer.Option("--kbit", metavar="N", min=1, max=1_000_000, help="A second, at most.")
    ] = 64,
    via: Over = None,
    as_json: Json = False,
) -> None:
    """Let a board send its profiles here: gives it a token and the server's certificate."""
    from edgekit.host.cli.output import emit
    from edgekit.host.deploy.connections import connect_to
    from edgekit.host.errors import InputError
    from edgekit.host.fleet import profiles

    found = _SERVER.fullmatch(server)
    if found is None or not 0 < int(found[2] or _PORT) < 65536:
        raise InputError(f"--server: expected HOST or HOST:PORT, found {server!r}")
    transport = connect_to(board, via).transport
    store = profiles.ProfileStore()
    port = int(found[2] or _PORT)
    home = profiles.enroll(transport, store, found[1], port, kilobits * 1000)
    if as_json:
        shown = {key: value for key, value in asdict(home).items() if key != "token"}
        emit({"schema": "edgekit.profile.enroll/1", **shown})
        return
    print(f"enrolled {board}, which may send to {found[1]}:{port}")
    print("sends    the supervisor of an application there does; without one, run on it:")
    print("         python3 ~/.edgekit/current/runtime.pyz push-profiles --every 600")


def revoke(board: BoardName, as_json: Json = False) -> None:
    """Take its token from a board, which can send nothing from then on."""
    from edgekit.host.cli.output import emit
    from edgekit.host.fleet import profiles

    profiles.revoke(profiles.ProfileStore(), board)
    if as_json:
        emit({"schema": "edgekit.profile.revoke/1", "board": board})
        return
    print(f"revoked  the token of {board}")


def upload(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", show_default=False, help="With *.batch."),
    ],
    board: Annotated[
        str,
        typer.Option("--board", metavar="NAME", show_default=False, help="Whose spool that was."),
    ],
    as_json: Json = False,
) -> None:
    """Store the files of a board's spool, from a card or a copy; they stay where they are."""
    from edgekit.host.cli.output import emit, warn
    from edgekit.host.errors import TransferError
    from edgekit.host.fleet import profiles

    store = profiles.ProfileStore()
    stored, damaged = profiles.upload(store, board, folder)
    store.compact()
    for why in (*stored.refused, *damaged):
        warn(why)
    if as_json:
        emit({"schema": "edgekit.profile.upload/1", "board": board, **asdict(stored)})
    else:
        print(f"stored   {counts(stored)} from {folder}")
    if damaged:
        raise TransferError(
            f"{folder}: expected whole batches, found {len(damaged)} damaged files; copy them again"
        )


def counts(stored: Stored) -> str:
    """What became of batches, in words."""
    known = f", {stored.known} known before" if stored.known else ""
    refused = f", {len(stored.refused)} refused" if stored.refused else ""
    return f"{stored.new} batches with {stored.rows} rows{known}{refused}"
