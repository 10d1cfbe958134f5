"""`edgekit board`: starts and stops virtual boards, adds and removes real ones."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.cli import board_add, complete
from edgekit.host.cli.options import Json, examples

if TYPE_CHECKING:
    from edgekit.host.virtual import BoardState, RunningBoard


def register(app: typer.Typer) -> None:
    """Adds the command group to the application."""
    group = typer.Typer(
        help="Start virtual boards, and add or remove real ones.",
        epilog=examples("edgekit board up a57", "edgekit board add mypi --host pi@192.0.2.7"),
        rich_markup_mode=None,
    )
    group.command("up", epilog=examples("edgekit board up a57", "edgekit board up rv64v --json"))(
        up
    )
    group.command(
        "down",
        epilog=examples("edgekit board down a57", "edgekit board down --json      # all"),
    )(down)
    board_add.register(group)
    app.add_typer(group, name="board")


def up(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME or PROFILE",
            show_default=False,
            autocompletion=complete.virtual_boards,
            help="Virtual board (a57, a53, a72, a7, rv64, rv64v) or profile of such a core.",
        ),
    ],
    mirror: Annotated[
        str | None,
        typer.Option(
            "--mirror",
            metavar="URL",
            show_default=False,
            help="Debian mirror to build it from (default: the one apt uses here).",
        ),
    ] = None,
    counting: Annotated[
        bool,
        typer.Option("--count-instructions", help="Count instructions, on one core."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Boot a virtual board, for which no hardware is needed."""
    from edgekit.host import virtual as boards
    from edgekit.host.cli.output import emit, note
    from edgekit.host.cli.progress import stages
    from edgekit.host.deploy.inventory import find_board

    name = _virtual_name(name)
    if find_board(name, Path.cwd()):
        note(f"edgekit: --board {name} refers to the board of that name in the inventory")
    options = boards.BoardOptions(mirror=mirror, counting=counting)
    with stages(f"board {name}") as progress:
        board = boards.up(name, options=options, progress=progress)
    if as_json:
        emit({"schema": "edgekit.board.up/1", "board": running_document(board)})
        return
    cores = f"{board.cores} core{'s' * (board.cores != 1)}"
    print(f"up       {name}, emulated: {board.profile}, {cores}, {board.memory_mib} MiB")
    print(f"ssh      ssh -p {board.ssh_port} -i {board.identity} {board.user}@{board.ssh_host}")
    print(f"console  edgekit console --board {name}")
    print(f"next     edgekit deploy --board {name}")


def down(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            show_default=False,
            autocompletion=complete.virtual_boards,
            help="Board to shut down (default: all).",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Shut virtual boards down, and lose what was deployed there."""
    from edgekit.host import virtual as boards
    from edgekit.host.cli.output import emit
    from edgekit.host.cli.progress import working

    running = [board.name for board in boards.status() if board.running]
    ended = []
    for each in [_virtual_name(name)] if name else running:
        with working(f"board {each}: shutting down") if each in running else nullcontext():
            ended += [each] if boards.down(each) else []
    if as_json:
        emit({"schema": "edgekit.board.down/1", "boards": ended})
    elif ended:
        print(f"down     {', '.join(ended)}")
    else:
        print(f"down     {name or 'no board'} was not up" if name else "down     no board was up")


def _virtual_name(name: str) -> str:
    """The virtual board with that name, or with that profile or its core's; unknown names are
    returned unchanged and fail later."""
    from edgekit.host import virtual as boards
    from edgekit.kb.targets.board import load_board, profile_names

    known = boards.status()
    if any(state.name == name for state in known) or name not in profile_names():
        return name
    core = load_board(name).core_profile
    return next((state.name for state in known if state.profile in (name, core)), name)


def state_of(state: BoardState) -> str:
    """State of a virtual board."""
    if state.running:
        return "up"
    return "built" if state.built else "not built"


def login(board: RunningBoard) -> str:
    """Address for SSH logins."""
    return f"{board.user}@{board.ssh_host}:{board.ssh_port}"


def running_document(board: RunningBoard) -> dict[str, Any]:
    """JSON document of a running virtual board."""
    return {
        "name": board.name,
        "kind": "virtual",
        "profile": board.profile,
        "up": True,
        "emulated": board.emulated,
        "host": board.ssh_host,
        "port": board.ssh_port,
        "user": board.user,
        "identity": str(board.identity),
        "host_key": board.host_key,
        "console": board.console,
        "cores": board.cores,
        "memory_mib": board.memory_mib,
        "counting": board.counting,
        "pid": board.pid,
    }
