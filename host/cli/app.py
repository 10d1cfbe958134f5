"""The commands of `edgekit`, and the mapping of errors to messages and exit codes.

Startup time matters: this module and the command modules import only typer; everything else is
imported inside the commands.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from edgekit.host.cli import (
    application,
    bench,
    board,
    boards,
    cache,
    choose,
    compare,
    compile,
    console,
    deploy,
    doctor,
    estimate,
    fleet,
    lab,
    lock,
    profile,
    prune,
    quantize,
    release,
)
from edgekit.host.cli import inspect as inspect_command
from edgekit.host.cli import run as run_command
from edgekit.host.cli.meant import command_of, meant_by, reworded
from edgekit.host.cli.options import examples
from edgekit.host.cli.renamed import renamed_option
from edgekit.host.errors import EdgekitError

_INPUT = 2

_ADVICE = {
    errno.ENOSPC: "free some space or choose a place on another disk",
    errno.EDQUOT: "free some space or choose a place on another disk",
    errno.EACCES: "choose a place you may write to, or fix its permissions",
    errno.EPERM: "choose a place you may write to, or fix its permissions",
    errno.EROFS: "choose a place you may write to",
    errno.ENOENT: "check the spelling, or make the folder first",
    errno.ENOTDIR: "check the spelling: a part of the path is a file, not a folder",
    errno.EISDIR: "expected a file, found a folder: name a file in it",
    errno.EINVAL: "name a regular file, or one that does not exist yet",
    errno.ENAMETOOLONG: "choose a shorter name",
}

HEADINGS = {
    "Start here": ("doctor", "deploy", "run", "status"),
    "Models": ("compile", "inspect", "quantize", "prune"),
    "Boards": ("boards", "board", "console"),
    "Measure": ("bench", "estimate", "compare", "lock", "choose"),
    "Field": ("app", "profile", "rollback", "remove"),
    "Fleet": ("fleet",),
    "Laboratory": ("lab", "cache"),
}


class _Headings(TyperGroup):
    """Lists commands under the headings of `HEADINGS`, in that order."""

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return [name for names in HEADINGS.values() for name in names]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        del ctx
        width = max(map(len, self.commands))
        for heading, names in HEADINGS.items():
            with formatter.section(heading):
                rows = [(name.ljust(width), self.commands[name]) for name in names]
                limit = formatter.width - width - 6
                formatter.write_dl([(n, each.get_short_help_str(limit)) for n, each in rows])


app = typer.Typer(
    name="edgekit",
    cls=_Headings,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich help adds 60 ms to startup
)


@app.callback(
    invoke_without_command=True,
    epilog=examples(
        "edgekit doctor",
        "edgekit deploy models/face_detection_short_range.tflite",
        "edgekit bench model models/face_detection_short_range.tflite --peers",
    ),
)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="Log each step to stderr."),
    ] = False,
) -> None:
    """Make a trained model run on a small Linux board: compile, deploy, measure."""
    del debug, verbose  # `main` strips these, so that they also work after a command
    if version:
        from edgekit.device.version import VERSION

        print(f"edgekit {VERSION}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


for module in (
    board,
    boards,
    doctor,
    inspect_command,
    compile,
    prune,
    quantize,
    deploy,
    run_command,
    bench,
    estimate,
    compare,
    lock,
    choose,
    lab,
    profile,
    fleet,
    release,
    application,
    console,
    cache,
):
    module.register(app)


def explain(error: Exception, arguments: Sequence[str] = ()) -> tuple[str, int]:
    """The message and exit code for an error that reached the top level from a command line."""
    from edgekit.device.runtime.errors import DeviceError
    from edgekit.host.common.optional import is_optional, missing_package
    from edgekit.host.common.text import one_line
    from edgekit.kb.targets.board import ProfileError, UnknownBoardError

    if isinstance(error, (EdgekitError, DeviceError)):
        return one_line(str(error)), error.exit_code
    if isinstance(error, ProfileError):
        return f"{one_line(str(error))}; mend it in kb/targets/boards", _INPUT
    if isinstance(error, UnknownBoardError):
        return f"{one_line(str(error))}; list them: edgekit boards", _INPUT
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        if now := renamed_option(getattr(error, "option_name", ""), context):
            return now, _INPUT
        command = context.command_path if context else command_of(arguments, app)
        message = reworded(error)
        meant = meant_by(error)
        advice = f"did you mean {meant}?" if meant else f"see {command} --help"
        return f"{message}; {advice}", _INPUT
    if isinstance(error, ModuleNotFoundError) and is_optional(error.name):
        return str(missing_package(error.name or "", error)), _INPUT
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        advice = _ADVICE.get(error.errno or 0, "check the path and the disk")
        return one_line(f"{place}{error.strerror or error}; {advice}"), _INPUT
    if isinstance(error, MemoryError):
        return "out of memory; close other programs or use a machine with more", _INPUT
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
    found = one_line(f"{type(error).__name__}: {error}")
    return f"bug: {found} ({where}); add --debug for the traceback and report it", 1
