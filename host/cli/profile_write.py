"""`edgekit profile server write`: moves batches from NATS to files of a shared store."""

from __future__ import annotations

import re
import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.host.cli.options import Json, examples
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.fleet.profiles import ProfileStore, SharedStore

_DURATION = re.compile(r"([0-9]{1,6})(s|m|h)?")
_SECONDS = {"s": 1, "m": 60, "h": 3600, None: 1}

_NATS_HELP = "NATS servers, as nats://HOST:PORT, with commas between."
Nats = Annotated[
    str,
    typer.Option(
        "--nats", metavar="URL", envvar="EDGEKIT_NATS", show_default=False, help=_NATS_HELP
    ),
]
OptionalNats = Annotated[
    str | None,
    typer.Option(
        "--nats",
        metavar="URL",
        envvar="EDGEKIT_NATS",
        show_default=False,
        help="NATS servers to pass profiles to, instead of keeping them here.",
    ),
]
Replicas = Annotated[
    int,
    typer.Option(
        "--replicas", metavar="N", min=1, max=5, help="NATS servers that keep each batch."
    ),
]


def register(group: typer.Typer) -> None:
    """Adds the command to the group."""
    lines = (
        "edgekit profile server write --nats nats://10.0.0.1,nats://10.0.0.2 --store /srv/profiles",
        "edgekit profile server write --nats nats://10.0.0.1 --store s3://fleet/profiles",
    )
    group.command("write", epilog=examples(*lines))(write)


def write(
    nats: Nats,
    store: Annotated[
        str,
        typer.Option(
            "--store",
            metavar="FOLDER|s3://BUCKET/FOLDER",
            show_default=False,
            help="Shared store to write.",
        ),
    ],
    every: Annotated[
        str,
        typer.Option(
            "--every", metavar="1m", help="Longest time that a batch waits to be written."
        ),
    ] = "1m",
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Write the queued batches and exit, instead of running until Ctrl-C."
        ),
    ] = False,
    replicas: Replicas = 3,
    as_json: Json = False,
) -> None:
    """Write profiles from NATS into a shared store."""
    from edgekit.host.cli.output import emit, note, warn
    from edgekit.host.fleet import profiles

    found = _DURATION.fullmatch(every)
    if found is None:
        raise InputError(f"--every: expected seconds or a time like 30s, 5m or 1h, found {every!r}")
    target = profiles.SharedStore(store)
    bus = profiles.Bus(nats, replicas)
    try:
        writer = profiles.ProfileWriter(bus, target, float(found[1]) * _SECONDS[found[2]])
        note(f"writing  from {bus.name} into {target.folder}")
        try:
            writer.run(threading.Event(), once, warn)
        except KeyboardInterrupt:
            note("stopped")
    finally:
        bus.close()
    done = writer.written
    if as_json:
        emit({"schema": "edgekit.profile.write/1", "store": target.folder, **asdict(done)})
        return
    known = f", {done.known} known before" if done.known else ""
    refused = f", {done.refused} refused" if done.refused else ""
    print(f"wrote    {done.batches} batches with {done.rows} rows in {done.files} files", end="")
    print(f"{known}{refused}")


def store_of(store: str | None) -> ProfileStore | SharedStore:
    """The store to query: the user's own, or a shared one."""
    from edgekit.host.fleet import profiles

    return profiles.ProfileStore() if store is None else profiles.SharedStore(store)
