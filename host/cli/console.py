"""`edgekit console`: a board's serial console, interactive or captured to a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.host.cli.options import BoardOption, Json, board_name, examples, writes
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.deploy.transport.serial_line import SerialTarget


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command(
        "console",
        epilog=examples(
            "edgekit console --board a57",
            "edgekit console --device /dev/ttyUSB0 --baud 115200",
            "edgekit console --board a57 --log boot.log --until login: --seconds 60",
        ),
    )(console)


def console(
    board: BoardOption = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="PORT",
            show_default=False,
            help="Serial port, socket://HOST:PORT or pty, instead of a board.",
        ),
    ] = None,
    baud: Annotated[
        int, typer.Option("--baud", min=50, help="Speed of the port, with --device.")
    ] = 115200,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log",
            parser=writes("console.log"),
            metavar="FILE",
            show_default=False,
            help="Write each line with its time to FILE, and send nothing.",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=0, show_default=False, help="Stop --log after this time."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="TEXT", show_default=False, help="Stop --log when TEXT appears."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Open the serial console of a board; Ctrl-] leaves it."""
    if log is None and (seconds is not None or until is not None or as_json):
        raise InputError("expected --log FILE with --seconds, --until and --json, found none")
    target = _resolve_target(board, device, baud)
    if log is None:
        _interact(target)
    else:
        _capture_to_file(target, log, seconds, until, as_json)


def _resolve_target(board: str | None, device: str | None, baud: int) -> SerialTarget:
    if device is not None:
        from edgekit.host.deploy.transport.serial_line import SerialTarget

        return SerialTarget(board or device, device, baud)
    from edgekit.host.deploy.connections import console_of

    return console_of(board_name(board))


def _interact(target: SerialTarget) -> None:
    from edgekit.host.cli.output import note
    from edgekit.host.deploy.transport.console import Console

    if not sys.stdin.isatty():
        raise InputError("expected a terminal to type in, found none; capture instead: --log FILE")
    opened = Console(target)
    try:
        note(f"{target.url}; Enter shows a prompt, Ctrl-] leaves")
        opened.interact(sys.stdin.fileno(), sys.stdout.fileno())
    finally:
        opened.close()
    note("\nclosed; programs on the board keep running")


def _capture_to_file(
    target: SerialTarget, log: Path, seconds: float | None, until: str | None, as_json: bool
) -> None:
    from edgekit.host.cli.output import check_writable, emit, note
    from edgekit.host.deploy.transport.console import Console

    check_writable(log)
    opened = Console(target)
    try:
        note(f"{target.board}: writing {target.url} into {log}; Ctrl-C ends")
        with log.open("a", encoding="utf-8") as file:
            found = opened.capture(file, seconds=seconds, until=until)
    finally:
        opened.close()
    if as_json:
        emit(
            {
                "schema": "edgekit.console/1",
                "board": target.board,
                "file": str(log),
                "end": found.end,
                "seconds": round(found.seconds, 3),
                "lines": found.lines,
                "bytes": found.bytes,
            }
        )
    else:
        print(f"{found.lines} lines in {found.seconds:.1f} s into {log}; end: {found.end}")
