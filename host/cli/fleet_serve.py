"""`edgekit fleet serve` and `fleet enroll`: boards fetch releases here and send profiles."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict
from enum import StrEnum
from errno import EACCES, EADDRINUSE
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.cli import complete, profile_write
from edgekit.host.cli.options import (
    Json,
    MaxSize,
    TransportOption,
    byte_count,
    examples,
    parse_seconds,
    refuse_with,
    refuse_without,
)
from edgekit.host.cli.profile_write import Every, Nats, Once, Replicas, SharedFolder

if TYPE_CHECKING:
    from edgekit.host.fleet.profiles import ProfileServer
    from edgekit.host.fleet.updates import ReleaseFolder

_PORT = 8470
_EVERY_ADDRESS = "0.0.0.0"
_EDGEKIT = (sys.executable, "-c", "from edgekit.host.cli.main import run; run()")
_FetchKilobits = Annotated[
    int,
    typer.Option(
        "--fetch-kbit",
        metavar="N",
        min=1,
        max=1_000_000,
        help="Maximum rate of downloads in kbit/s.",
    ),
]
Releases = Annotated[
    Path | None,
    typer.Option(
        "--releases",
        metavar="FOLDER",
        show_default=False,
        help="Folder of releases that boards fetch.",
    ),
]
_SERVER = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]{0,252})(?::([0-9]{1,5}))?")


class _Replaced(StrEnum):
    SERVER = "server"
    CERTIFICATE = "certificate"
    TARGETS = "targets"
    ROOT = "root"


_NewKey = Annotated[
    list[_Replaced] | None,
    typer.Option(
        "--new-key",
        metavar="WHICH",
        show_default=False,
        help="First replace server, certificate, targets or root (repeatable).",
    ),
]
BoardName = Annotated[
    str,
    typer.Argument(
        metavar="BOARD",
        show_default=False,
        help="Name of the board.",
        autocompletion=complete.boards,
    ),
]


def register(group: typer.Typer) -> None:
    """Adds the commands to the group `fleet`."""
    group.command(
        "serve",
        epilog=examples(
            "edgekit fleet serve",
            "edgekit fleet serve --releases releases",
            "edgekit fleet serve --nats nats://10.0.0.1",
            "edgekit fleet serve --nats nats://10.0.0.1 --store s3://fleet/profiles",
        ),
    )(serve)
    group.command(
        "enroll",
        epilog=examples(
            "edgekit fleet enroll local --server localhost",
            "edgekit fleet enroll local --server localhost --releases releases",
            "edgekit fleet enroll bench-1 --revoke",
        ),
    )(enroll)


def serve(
    context: typer.Context,
    address: Annotated[
        str, typer.Option("--address", metavar="IP", help="Address to listen on.")
    ] = _EVERY_ADDRESS,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=1, max=65535, help="Port to listen on.")
    ] = _PORT,
    max_size: MaxSize = None,
    nats: Nats = None,
    store: SharedFolder = None,
    every: Every = "1m",
    once: Once = False,
    replicas: Replicas = 3,
    releases: Releases = None,
    new_key: _NewKey = None,
    otlp: Annotated[
        str | None,
        typer.Option(
            "--otlp",
            metavar="URL",
            envvar="OTEL_EXPORTER_OTLP_ENDPOINT",
            show_envvar=False,
            show_default=False,
            help="OpenTelemetry collector to send metrics to each minute.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Receive profiles and offer releases over HTTPS."""
    from edgekit.host.errors import InputError

    if store is not None:
        refuse_with(context, "--store", "address", "port", "max_size", "releases", "otlp")
        if nats is None:
            raise InputError("expected --nats with --store, found none; add it")
        profile_write.write(nats, store, every, once, replicas, as_json)
        return
    refuse_without(context, "--store", "every", "once")
    if releases is None:
        refuse_without(context, "--releases", "new_key")
    folder = _open_releases(releases, new_key or ()) if releases is not None else None
    _receive(address, port, max_size, nats, replicas, folder, otlp, as_json)


def _open_releases(path: Path, new_keys: Sequence[_Replaced]) -> ReleaseFolder:
    """The folder of releases, with metadata that boards accept now."""
    from edgekit.host.fleet.profiles import ProfileStore, renew_certificate
    from edgekit.host.fleet.updates import ReleaseFolder, replace_key

    folder = ReleaseFolder(path)
    folder.root()  # InputError if it is none
    for which in dict.fromkeys(new_keys):
        new = renew_certificate(ProfileStore()) if which == _Replaced.CERTIFICATE else ""
        replace_key(folder, which.value, new)
    folder.renew()
    return folder


def _receive(
    address: str,
    port: int,
    max_size: str | None,
    nats: str | None,
    replicas: int,
    releases: ReleaseFolder | None,
    otlp: str | None,
    as_json: bool,
) -> None:
    """Receives profiles from enrolled boards over HTTPS, until Ctrl-C."""
    from edgekit.host.cli.output import emit, note
    from edgekit.host.errors import InputError
    from edgekit.host.fleet import profiles
    from edgekit.host.fleet.control import HostRollouts
    from edgekit.host.report.live import live_page

    most_bytes = byte_count(max_size, "--max-size")
    if nats and max_size:
        raise InputError(
            "expected --max-size or --nats, found both; with --nats nothing is kept here"
        )
    store = profiles.ProfileStore()
    bus = profiles.Bus(nats, replicas) if nats else None
    try:
        server = profiles.ProfileServer(
            store,
            (address, port),
            most_bytes=most_bytes,
            bus=bus,
            rollouts=HostRollouts(_EDGEKIT),
            releases=releases,
            front=live_page().encode(),
        )
    except (OSError, UnicodeError) as error:
        is_port = isinstance(error, OSError) and error.errno in (EADDRINUSE, EACCES)
        option = "--port" if is_port else "--address"
        raise InputError(
            f"expected to listen on {address}:{port}, found: {error}; choose another: {option}"
        ) from None
    with closing(bus) if bus else nullcontext(), closing(server), _sender(server, otlp):
        if as_json:
            emit({"schema": "edgekit.profile.serve/1", "address": address, "port": port})
        else:
            pages, into = server.host_pages, bus.name if bus else store.folder
            url = f"https://{address}:{port}/"
            print(f"serving  {url.rstrip('/')} into {into}; Ctrl-C ends it")
            print(f"page     {url}, with the token in {pages.operator_token.path}")
            print(f"metrics  /metrics, with the token in {pages.scrape_token.path}")
        sys.stdout.flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            note("stopped")


def _sender(server: ProfileServer, otlp: str | None) -> AbstractContextManager[object]:
    """Sends the server's metrics to a collector, if there is one."""
    from edgekit.host.fleet.profiles import MetricsExporter

    if otlp is None:
        return nullcontext()
    headers = os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")
    return MetricsExporter(otlp, headers, server.host_pages.families)


def enroll(
    context: typer.Context,
    board: BoardName,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            metavar="HOST[:PORT]",
            show_default=False,
            help="Address of this host, as seen from the board.",
        ),
    ] = None,
    kilobits: Annotated[
        int,
        typer.Option(
            "--max-kbit", metavar="N", min=1, max=1_000_000, help="Maximum upload rate in kbit/s."
        ),
    ] = 64,
    releases: Releases = None,
    poll: Annotated[
        str, typer.Option("--poll", metavar="TIME", help="Time between two checks for releases.")
    ] = "10m",
    fetch_kilobits: _FetchKilobits = 2000,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Stop the board from sending its profiles here.")
    ] = False,
    transport: TransportOption = None,
    as_json: Json = False,
) -> None:
    """Let a board send its profiles to this host, or revoke that."""
    from edgekit.device.runtime.agent.fetch import FetchSettings
    from edgekit.host.cli.output import emit
    from edgekit.host.deploy.connections import connect_to
    from edgekit.host.fleet import profiles
    from edgekit.host.fleet.updates import OwnerKeys, ReleaseFolder, enroll_to_fetch

    if revoke:
        others = "server", "kilobits", "releases", "poll", "fetch_kilobits", "transport"
        refuse_with(context, "--revoke", *others)
        _revoke_token(board, as_json)
        return
    host, port = _address(server)
    if releases is None:
        refuse_without(context, "--releases", "poll", "fetch_kilobits")
    store = profiles.ProfileStore()
    settings = FetchSettings(fetch_kilobits * 1000, int(parse_seconds(poll, "--poll")))
    folder = ReleaseFolder(releases) if releases is not None else None
    if folder is not None:
        folder.create(OwnerKeys.of_host())  # InputError before anything changes on the board
    device = connect_to(board, transport)
    home = profiles.enroll(device, store, host, port, kilobits * 1000)
    started = enroll_to_fetch(device, folder, settings) if folder is not None else None
    line = profiles.sender_line(device)
    if as_json:
        shown = {key: value for key, value in asdict(home).items() if key != "token"}
        fetches = {key: started[key] for key in ("boot", "started", "line")} if started else None
        emit({"schema": "edgekit.profile.enroll/1", **shown, "sender": line, "fetches": fetches})
        return
    print(f"enrolled {board}, which may send to {host}:{port}")
    print("sends    an application's supervisor sends them; without one, run on the board:")
    print(f"         {line or 'the command that this prints once a model is deployed there'}")
    if started is not None:
        _print_fetching(started, poll)


def _address(server: str | None) -> tuple[str, int]:
    from edgekit.host.errors import InputError

    if server is None:
        raise InputError(
            "expected --revoke, or --server HOST with the address of this host as seen from the "
            "board, found neither"
        )
    found = _SERVER.fullmatch(server)
    if found is None or not 0 < int(found[2] or _PORT) < 65536:
        raise InputError(f"--server: expected HOST or HOST:PORT, found {server!r}")
    if found[1] == _EVERY_ADDRESS:
        raise InputError(
            f"--server: expected the address of this host as seen from the board, found "
            f"{_EVERY_ADDRESS}, by which a board reaches itself; ip address shows it"
        )
    return found[1], int(found[2] or _PORT)


def _print_fetching(started: Mapping[str, Any], poll: str) -> None:
    if started["boot"]:
        print(f"fetches  releases every {poll}, started by {started['boot']}")
    else:
        print("fetches  releases with this command, which the board's start script needs:")
        print(f"         {started['line']}")


def _revoke_token(board: str, as_json: bool) -> None:
    from edgekit.host.cli.output import emit
    from edgekit.host.fleet import profiles

    profiles.revoke(profiles.ProfileStore(), board)
    if as_json:
        emit({"schema": "edgekit.profile.revoke/1", "board": board})
        return
    print(f"revoked  the token of {board}")
