"""The runtime's commands for boards that fetch their releases."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, List

from edgekit.device.runtime.errors import Document
from edgekit.device.runtime.record import asdict

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.arguments import AddCommand
    from edgekit.device.runtime.agent.store import Store

_SECONDS = 60.0  # of a health check


def add_fetch_commands(command: AddCommand) -> None:
    """Adds `fetch-releases`, which polls, and `fetch-start`, with which an enrollment starts it."""
    if sub := command("fetch-releases", _fetch, "fetch what the server of releases offers"):
        sub.add_argument("--every", action="store_true", help="poll at the enrolled interval")
    if sub := command("fetch-start", _start, "fetch releases from now on, also after a boot"):
        sub.add_argument("--prepare", action="store_true", help="only make the folder")


def _fetch(options: argparse.Namespace) -> Document:
    from edgekit.device.runtime.agent.fetch import fetch, fetch_for_ever, read_settings
    from edgekit.device.runtime.agent.health import check_in_subprocess
    from edgekit.device.runtime.agent.push import Bandwidth, home_of, read_home
    from edgekit.device.runtime.agent.sampler import spool_of
    from edgekit.device.runtime.agent.store import Store

    store = Store(options.root)
    if options.every:
        fetch_for_ever(store, _poll_command(store))
    settings = read_settings(store)
    home = read_home(home_of(spool_of(store)))

    def check(folder: Path) -> Document:
        return check_in_subprocess(folder, _SECONDS)

    ended = fetch(store, home, Bandwidth(settings.bits_per_second), check)
    return {
        "schema": "edgekit.fetch/1",
        "board": home.board,
        "releases": [asdict(e) for e in ended],
    }


def _start(options: argparse.Namespace) -> Document:
    """Keeps a copy of this runtime, which survives releases, and starts it now and at boot."""
    from edgekit.device.runtime.agent.boot import Boot
    from edgekit.device.runtime.agent.fetch import fetch_folder, read_settings
    from edgekit.device.runtime.agent.store import Store, write_synced

    store = Store(options.root)
    folder = fetch_folder(store)
    if options.prepare:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return {"schema": "edgekit.fetch.start/1", "boot": "", "started": False, "line": ""}
    read_settings(store)
    write_synced(folder / "runtime.pyz", Path(sys.argv[0]).read_bytes())
    command = [*_poll_command(store), "--every"]
    boot = Boot(folder.absolute(), command, folder / "agent", "fetch-releases")
    who = boot.arrange()
    started = boot.start()
    return {"schema": "edgekit.fetch.start/1", "boot": who, "started": started, "line": boot.line}


def _poll_command(store: Store) -> List[str]:
    from edgekit.device.runtime.agent.fetch import fetch_folder

    runtime = str(fetch_folder(store).absolute() / "runtime.pyz")
    root = ["--root", str(store.board.absolute())]
    return [sys.executable or "python3", "-I", "-S", runtime, *root, "fetch-releases"]
