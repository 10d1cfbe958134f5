"""`edgekit fleet serve --store`: moves batches from NATS to files of a shared store."""

from __future__ import annotations

import re
import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.host.common.text import counted
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.fleet.profiles import ProfileStore, SharedStore

_DURATION = re.compile(r"([0-9]{1,6})(s|m|h)?")
_SECONDS = {"s": 1, "m": 60, "h": 3600, None: 1}

Nats = Annotated[
    str | None,
    typer.Option(
        "--nats",
        metavar="URL",
        envvar="EDGEKIT_NATS",
        show_default=False,
        help="NATS servers to send profiles to or, with --store, to read from.",
    ),
]
Replicas = Annotated[
    int,
    typer.Option(
        "--replicas", metavar="N", min=1, max=5, help="Number of NATS servers that keep each batch."
    ),
]


SharedFolder = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="FOLDER|s3://BUCKET/FOLDER",
        show_default=False,
        help="Write profiles from NATS to this shared store, instead of listening.",
    ),
]
Every = Annotated[
    str,
    typer.Option("--every", metavar="1m", help="Longest time that a batch waits for --store."),
]
Once = Annotated[
    bool,
    typer.Option("--once", help="With --store: write the queued batches and exit."),
]


def write(nats: str, store: str, every: str, once: bool, replicas: int, as_json: bool) -> None:
    """Writes profiles from NATS into a shared store, once or until Ctrl-C."""
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
    batches, rows = counted(done.batches, "batch", "batches"), counted(done.rows, "row")
    print(f"wrote    {batches} with {rows} in {counted(done.files, 'file')}{known}{refused}")


def store_of(store: str | None) -> ProfileStore | SharedStore:
    """The store to query: the user's own, or a shared one."""
    from edgekit.host.fleet import profiles

    return profiles.ProfileStore() if store is None else profiles.SharedStore(store)
