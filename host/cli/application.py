"""`edgekit app`: user programs that run a deployed model on a board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.host.cli import complete
from edgekit.host.cli.deploy_kernels import KERNELS_NAME
from edgekit.host.cli.options import (
    BoardOption,
    FileKind,
    Json,
    NameOption,
    TransportOption,
    board_name,
    examples,
    file_kind,
    model_file,
)
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.deploy.board import Board
    from edgekit.host.deploy.bundle import Bundle
    from edgekit.host.deploy.release import ApplicationState

_TEMPLATES = ("camera", "microphone", "search", "serve", "watch", "wyoming")
_WORDS = ("microphone/features.py", "microphone/wake_words.py")
_PARTS = {  # of other templates
    "watch": ("serve/pictures.py", "serve/sounds.py", *_WORDS),
    "wyoming": _WORDS,
}
_OF_KERNELS = "search"  # needs a release of kernels instead of a model


def register(app: typer.Typer) -> None:
    """Adds the command group to the application."""
    group = typer.Typer(
        help="Install and control programs that run a deployed model.",
        epilog=examples(
            "edgekit app new serve", "edgekit app install serve --board a57", "edgekit app status"
        ),
        rich_markup_mode=None,
    )
    group.command(
        "new",
        epilog=examples(
            "edgekit app new serve",
            "edgekit app new serve doors",
            "edgekit app new --kernels finder",
        ),
    )(new)
    group.command(
        "install",
        epilog=examples(
            "edgekit app install serve --board a57", "edgekit app install serve model.tflite"
        ),
    )(install)
    for name, command in (("start", start), ("stop", stop), ("status", status)):
        group.command(
            name, epilog=examples(f"edgekit app {name}", f"edgekit app {name} --board a57 --json")
        )(command)
    group.command(
        "library",
        epilog=examples("edgekit app library build", "edgekit app library build --board rpi4"),
    )(library)
    app.add_typer(group, name="app")


def new(
    template: Annotated[
        str | None,
        typer.Argument(
            metavar="TEMPLATE",
            show_default=False,
            autocompletion=lambda: list(_TEMPLATES),
            help=f"Template to start from: {', '.join(_TEMPLATES)}.",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="FOLDER",
            show_default=False,
            help="Folder to write (default: the template's name).",
        ),
    ] = None,
    kernels: Annotated[
        bool,
        typer.Option(
            "--kernels", help=f"Copy {_OF_KERNELS}, the template for deployed kernels, to FOLDER."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a new application: main.py and app.toml."""
    from importlib.resources import files

    from edgekit.host.cli.output import emit
    from edgekit.host.common.files import atomic_write

    if kernels:
        template, folder = _of_kernels(template, folder)
    if template not in _TEMPLATES:
        raise InputError(
            f"expected a template ({', '.join(_TEMPLATES)}), found {template or 'none'}"
        )
    target = folder or Path(template)
    source = files("edgekit.device") / "templates"
    own = (path for path in (source / template).iterdir() if path.is_file())
    parts = (source / part for part in _PARTS.get(template, ()))
    written = {path.name: path for path in sorted((*own, *parts), key=lambda path: path.name)}
    if there := [name for name in written if (target / name).exists()]:
        raise InputError(
            f"{target / there[0]}: expected no such file, found one; name another folder"
        )
    target.mkdir(parents=True, exist_ok=True)
    for name, path in written.items():
        atomic_write(target / name, path.read_bytes())
    if as_json:
        document = {"template": template, "folder": str(target), "files": [*written]}
        emit({"schema": "edgekit.app.new/1", **document})
        return
    print(f"written  {', '.join(str(target / name) for name in written)}")
    of_kernels = f" --name {KERNELS_NAME}" if template == _OF_KERNELS else ""
    print(f"next     edgekit app install {target}{of_kernels}")


def _of_kernels(first: str | None, folder: Path | None) -> tuple[str, Path | None]:
    """The template and the folder of `app new --kernels`, whose template may be left out."""
    if folder is None and first not in _TEMPLATES:
        return _OF_KERNELS, Path(first) if first else None
    if first != _OF_KERNELS:
        raise InputError(
            f"expected the template {_OF_KERNELS} with --kernels, found {first}; "
            f"use: edgekit app new --kernels FOLDER"
        )
    return first, folder


def install(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", show_default=False, help="Folder of the application."),
    ],
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL or BUNDLE",
            show_default=False,
            autocompletion=complete.models,
            help="Model to install it with (default: the deployed one).",
        ),
    ] = None,
    board: BoardOption = None,
    transport: TransportOption = None,
    model_name: NameOption = None,
    as_json: Json = False,
) -> None:
    """Install an application with its model as one release, and run it."""
    from edgekit.host.cli.progress import deploying, working

    name = board_name(board)
    device = _connect_board(name, transport, model_name)
    bundle = _load_model_bundle(model, name, device, folder) if model else None
    with deploying(f"installing on {device.name}") as progress:
        release = device.install(folder, bundle, progress=progress)
    with working(f"starting on {device.name}"):
        state = device.start_application()
    _print_state(name, state, as_json)
    if not as_json:
        print(f"release  {release.id} of {release.model} on {device.name}")


def start(
    board: BoardOption = None,
    transport: TransportOption = None,
    model_name: NameOption = None,
    as_json: Json = False,
) -> None:
    """Start the installed application."""
    name = board_name(board)
    _print_state(name, _connect_board(name, transport, model_name).start_application(), as_json)


def stop(
    board: BoardOption = None,
    transport: TransportOption = None,
    model_name: NameOption = None,
    as_json: Json = False,
) -> None:
    """Stop the application until it is started again."""
    name = board_name(board)
    _print_state(name, _connect_board(name, transport, model_name).stop_application(), as_json)


def status(
    board: BoardOption = None,
    lines: Annotated[
        int,
        typer.Option(
            "--lines",
            metavar="N",
            min=0,
            max=10000,
            help="Number of lines to show from the end of its output.",
        ),
    ] = 10,
    transport: TransportOption = None,
    model_name: NameOption = None,
    as_json: Json = False,
) -> None:
    """Show the state of the application, and what it printed last."""
    name = board_name(board)
    device = _connect_board(name, transport, model_name)
    state = device.application_status()
    _print_state(name, state, as_json, device.application_log(lines) if lines else ())


def library(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", show_default=False, help="Folder to write to.")
    ],
    board: Annotated[
        str | None,
        typer.Option(
            "--board",
            metavar="BOARD or PROFILE",
            show_default=False,
            autocompletion=complete.boards,
            help="Board or profile to compile for (default: edgekit.toml, else local).",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the library and headers for programs in C."""
    from edgekit.device.runtime.agent.kernels import C_FILES
    from edgekit.host.cli.output import emit
    from edgekit.host.cli.progress import working
    from edgekit.host.compiler.toolchain.application import write_application
    from edgekit.host.deploy.connections import profile_of
    from edgekit.kb.targets.board import load_board

    profile = load_board(profile_of(board_name(board)))
    with working(f"compiling for {profile.name}"):
        write_application(folder, profile)
    files = list(C_FILES)
    if as_json:
        document = {"folder": str(folder), "profile": profile.name, "files": files}
        emit({"schema": "edgekit.app.library/1", **document})
        return
    print(f"written  {', '.join(str(folder / name) for name in files)}")


def _connect_board(name: str, transport: TransportOption, model_name: NameOption) -> Board:
    from edgekit.host.deploy.api import connect

    return connect(name, transport=transport).named(model_name)


def _load_model_bundle(model: str, name: str, device: Board, folder: Path) -> Bundle:
    """The model's bundle, compiled for the task that the application in `folder` needs."""
    from edgekit.host.cli.compile import load_bundle
    from edgekit.host.compiler.options import CompileOptions
    from edgekit.host.deploy.release import read_application

    path, task = model_file(model, name), read_application(folder).task
    compiled = file_kind(path) is FileKind.BUNDLE
    options = CompileOptions() if compiled else CompileOptions(task=task)
    return load_bundle(path, device.profile, options=options)


def _print_state(
    board: str, state: ApplicationState, as_json: bool, printed: Sequence[str] | None = None
) -> None:
    from edgekit.host.cli.output import emit

    if as_json:
        lines = {} if printed is None else {"lines": list(printed)}
        emit({"schema": "edgekit.app/1", "board": board, **asdict(state), **lines})
        return
    process = f", process {state.pid}" if state.pid else ""
    print(f"app      {state.name or 'none'} on {board}: {state.state}{process}")
    if state.said:
        print(f"says     {state.said}")
    if state.last and state.state != "stopped":
        print(f"before   it {state.last}")
    if state.denied:
        print(f"denied   {state.denied}")
    if state.failure:
        print(f"failed   {state.failure}")
    if state.restarts or state.failures:
        print(f"restarts {state.restarts}; {state.failures} failures in a row")
    if state.boot:
        print(f"boot     {state.boot} starts it")
    elif state.boot_line:
        print(f"boot     add to a start script, as its user: {state.boot_line}")
    if printed:
        print("", *printed, sep="\n")
