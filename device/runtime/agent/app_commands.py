"""The runtime's application commands."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from edgekit.device.runtime.agent.arguments import open_store, positive, release_id
from edgekit.device.runtime.bytecode import keep_bytecode
from edgekit.device.runtime.errors import Document
from edgekit.device.runtime.record import asdict

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.arguments import AddCommand, Run

# After these another release may be in service, also after an error: a damaged one is left.
_SWITCH = (
    "activate", "apply", "bench", "fetch-releases", "release", "report-failure", "rollback", "run",
    "serve-session", "status", "verify",
)  # fmt: skip
_SECONDS = 20
_LINES = 40


def run_and_resume(options: argparse.Namespace) -> Optional[Document]:
    """Runs a command, then the supervisor of an application that came into service without one,
    also by an earlier command that was killed."""
    run: Run = options.run
    try:
        return run(options)
    finally:
        if options.command in _SWITCH:
            _resume(options.root)


def _resume(root: Path) -> None:
    from edgekit.device.runtime.agent.store import Store

    try:
        siblings = Store(root).siblings() if root.is_dir() else []
        stores = [each for each in siblings if (each.root / "app").is_dir()]
        if not stores:
            return  # loading the rest takes a small board longer than the command
        from edgekit.device.runtime.agent.service import resume

        for each in stores:
            resume(each)
    except OSError as error:  # the command itself is complete
        with contextlib.suppress(OSError):
            sys.stderr.write(
                f"note application: expected to start it, found {error.strerror}; start it: "
                "edgekit app start\n"
            )


def add_app_commands(command: AddCommand) -> None:
    """Adds the commands for applications."""

    def start(options: argparse.Namespace) -> Document:
        from edgekit.device.runtime.agent.service import start

        return start(open_store(options), options.seconds)

    def stop(options: argparse.Namespace) -> Document:
        from edgekit.device.runtime.agent.service import stop

        return stop(open_store(options))

    def status(options: argparse.Namespace) -> Document:
        from edgekit.device.runtime.agent.service import status

        return status(open_store(options))

    def log(options: argparse.Namespace) -> Document:
        from edgekit.device.runtime.agent.service import log

        return log(open_store(options), options.lines)

    def supervise(options: argparse.Namespace) -> Document:
        from edgekit.device.runtime.agent.service import boot_entry
        from edgekit.device.runtime.agent.supervisor import Supervisor

        supervisor = Supervisor(open_store(options), boot_entry(open_store(options)))
        keep_bytecode()  # it runs until it is killed
        supervisor.run()
        return {"schema": "edgekit.runtime.app.supervise/1"}

    def report_failure(options: argparse.Namespace) -> Document:
        from edgekit.device.runtime.agent.status import leave

        back = leave(open_store(options), options.release, "application", options.reason)
        return {"schema": "edgekit.failure/1", "release": options.release, "runs_again": back}

    def placement(options: argparse.Namespace) -> Document:
        from edgekit.device.runtime.agent.placement import place

        manifest = open_store(options).manifest(options.release)
        return {"schema": "edgekit.runtime.placement/1", **asdict(place(manifest.placements))}

    def repeat(options: argparse.Namespace) -> Document:
        from edgekit.device.runtime.agent.repeats import start

        start(open_store(options), options.release, sys.stdin.fileno(), sys.stdout.fileno())
        return {"schema": "edgekit.runtime.repeat/1"}

    if sub := command("repeat", repeat, "repeat a C program's inferences in float"):
        sub.add_argument("--release", type=release_id, required=True)
    if sub := command("placement", placement, "threads and cores that a release runs on"):
        sub.add_argument("--release", type=release_id, required=True)
    if sub := command(
        "report-failure", report_failure, "roll back a release that failed in service"
    ):
        sub.add_argument(
            "--release", type=release_id, required=True, help="id of the failed release"
        )
        sub.add_argument("--reason", default="", help="one line")
    if sub := command("app-start", start, "start the release's application and wait until it runs"):
        sub.add_argument("--seconds", type=positive, default=_SECONDS, help="time to wait for it")
    command("app-stop", stop, "stop the application until it is started again")
    command("app-status", status, "status of the application")
    if sub := command("app-log", log, "the last lines that the application printed"):
        sub.add_argument("--lines", type=positive, default=_LINES)
    command("app-supervise", supervise, "run the application while it is in service")
