"""`edgekit profile write`: what servers handed to NATS becomes files of a shared store."""

from __future__ import annotations

import re
import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.host.cli.options import Json, Source, examples
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.fleet.profiles import ProfileStore, SharedStore

_DURATION = re.compile(r"([0-9]{1,6})(s|m|h)?")
_SECONDS = {"s": 1, "m": 60, "h": 3600, None: 1}

_NATS_HELP = (
    "NATS servers, nats://HOST:PORT, several with commas; better in the environment where a "
    "password is in it."
)
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
        help=f"Hand what comes to writers instead of keeping it here. {_NATS_HELP}",
    ),
]
Replicas = Annotated[
    int,
    typer.Option("--replicas", metavar="N", min=1, max=5, help="NATS servers that keep a batch."),
]


def register(group: typer.Typer) -> None:
    """Adds the command to the group."""
    lines = (
        "edgekit profile write --nats nats://10.0.0.1,nats://10.0.0.2 --to /srv/profiles",
        "edgekit profile write --nats nats://10.0.0.1 --to s3://fleet/profiles",
    )
    group.command("write", epilog=examples(*lines))(write)


def write(
    nats: Nats,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="FOLDER|s3://BUCKET/FOLDER", show_default=False, help="The store."
        ),
    ],
    every: Annotated[
        str, typer.Option("--every", metavar="1m", help="Longest that a batch waits for a file.")
    ] = "1m",
    once: Annotated[
        bool, typer.Option("--once", help="Write what waits, and end; else until Ctrl-C.")
    ] = False,
    replicas: Replicas = 3,
    as_json: Json = False,
) -> None:
    """Write the profiles that `profile serve --nats` took into a shared store; any number may."""
    from edgekit.host.cli.output import emit, note, warn
    from edgekit.host.fleet import profiles

    found = _DURATION.fullmatch(every)
    if found is None:
        raise InputError(f"--every: expected seconds, or such as 30s, 5m or 1h, found {every!r}")
    store = profiles.SharedStore(to)
    bus = profiles.Bus(nats, replicas)
    try:
        writer = profiles.ProfileWriter(bus, store, float(found[1]) * _SECONDS[found[2]])
        note(f"writing  from {bus.name} into {store.folder}")
        try:
            writer.run(threading.Event(), once, warn)
        except KeyboardInterrupt:
            note("stopped")
    finally:
        bus.close()
    done = writer.written
    if as_json:
        emit({"schema": "edgekit.profile.write/1", "store": store.folder, **asdict(done)})
        return
    known = f", {done.known} known before" if done.known else ""
    refused = f", {done.refused} refused" if done.refused else ""
    print(f"wrote    {done.batches} batches with {done.rows} rows in {done.files} files", end="")
    print(f"{known}{refused}")


def store_of(source: Source) -> ProfileStore | SharedStore:
    """The store that is asked: the user's own, or a shared one."""
    from edgekit.host.fleet import profiles

    return profiles.ProfileStore() if source is None else profiles.SharedStore(source)
