"""What was probably meant by arguments that a command does not take."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

_COMMANDS = {"help": "edgekit --help", "version": "edgekit --version", "list": "edgekit boards"}
_PRECISIONS = {
    "fp32": "f32",
    "float32": "f32",
    "fp16": "f16",
    "float16": "f16",
    "half": "f16",
    "int8": "--weights int8, or --samples DATA, which quantizes activations, too",
}


def meant_by(error: Any) -> str:
    """The command line or value that was probably meant, for an error of typer; empty if it is
    unknown."""
    context = getattr(error, "ctx", None)
    if context is None:
        return ""
    if found := re.match(r"No such command '(\w+)'", error.message):
        return _COMMANDS.get(found[1], "") if context.command_path == "edgekit" else ""
    if found := re.match(r"Got unexpected extra argument\(s\) \((\S+)\)", error.message):
        return _meant_by_extra(context, found[1])
    found = re.search(r"'(\w+)' is not one of ", error.message)
    if found and getattr(getattr(error, "param", None), "name", "") == "precision":
        return _PRECISIONS.get(found[1].lower(), "")
    return ""


def _meant_by_extra(context: Any, extra: str) -> str:
    """A board given without --board, or an input without --input."""
    given, line = context.params.get("model"), context.command_path
    if given is None:
        return ""
    options = {name for parameter in context.command.params for name in parameter.opts}
    if "--board" in options and context.params.get("board") is None:
        for board, model in ((given, extra), (extra, given)):
            if _is_board(board):
                return f"{line} {shlex.quote(model)} --board {shlex.quote(board)}"
    if "--input" in options and Path(extra).suffix:
        return f"{line} {shlex.quote(given)} --input {shlex.quote(extra)}"
    return ""


def _is_board(name: str) -> bool:
    from edgekit.host.deploy.connections import profile_of
    from edgekit.host.errors import InputError
    from edgekit.kb.targets.board import UnknownBoardError, load_board

    try:
        load_board(profile_of(name))
    except (InputError, UnknownBoardError):
        return False
    return True
