"""Rewrites typer's errors in edgekit's style, and suggests the intended command."""

from __future__ import annotations

import difflib
import functools
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from edgekit.host.common.text import one_line

_COMMANDS = {  # of other tools, by the group in which they are typed
    "edgekit": {
        "help": "edgekit --help",
        "version": "edgekit --version",
        **dict.fromkeys(("list", "ls", "devices"), "edgekit boards"),
        "ps": "edgekit status",
        "serve": "edgekit app new serve",
        "logs": "edgekit app status --lines 20",
        **dict.fromkeys(("rm", "delete", "undeploy", "uninstall"), "edgekit remove"),
        **dict.fromkeys(("push", "flash", "install", "upgrade", "update"), "edgekit deploy"),
        **dict.fromkeys(("benchmark", "time"), "edgekit bench model"),
        **dict.fromkeys(("ssh", "shell", "login"), "edgekit console"),
        **dict.fromkeys(("check", "test", "verify", "init", "setup"), "edgekit doctor"),
        **dict.fromkeys(("build", "convert", "export"), "edgekit compile"),
        **dict.fromkeys(("predict", "infer", "detect", "classify"), "edgekit run"),
        **dict.fromkeys(("info", "show"), "edgekit inspect"),
        **dict.fromkeys(("start", "stop"), "edgekit app"),
    },
    "edgekit board": {
        **dict.fromkeys(("list", "ls", "show"), "edgekit boards"),
        **dict.fromkeys(("rm", "delete"), "edgekit board remove"),
        **dict.fromkeys(("start", "boot", "run"), "edgekit board up"),
        **dict.fromkeys(("stop", "halt", "shutdown"), "edgekit board down"),
    },
}
_OPTIONS = {  # of other tools, and what of ours to propose where the command has it
    "-b": "--board",
    "-d": "--board",
    "--device": "--board",
    "--host": "--board",
    "-i": "--input",
    "-n": "--name",
    "-p": "--precision",
    "-t": "--threads",
    "--target": "--board",
}
_TAKE_MODELS = {  # for groups, the command that a file's name probably belongs to
    "edgekit": "edgekit deploy",
    "edgekit bench": "edgekit bench model",
    "edgekit profile": "edgekit bench model",
}
_PRECISIONS = {
    "fp32": "f32",
    "float32": "f32",
    "fp16": "f16",
    "float16": "f16",
    "half": "f16",
    "int8": "--weights int8, or --samples DATA, which quantizes activations, too",
}
# typer's messages, and what they become; the groups of the pattern are the fields.
_MESSAGES = (
    (r"No such command '(.*?)'.*", "expected a command, found '{0}'"),
    (r"Missing command", "expected a command, found none"),
    (r"No such option: (\S+).*", "expected an option of this command, found {0}"),
    (r"Got unexpected extra argument\(s\) \((.*)\)", "expected no more arguments, found {0}"),
    (r"Missing (?:argument|option) '(.*?)'.*", "expected {0}, found none"),
    (r"Option '(.*?)' requires an argument", "expected a value after {0}, found none"),
    (r"Option '(.*?)' does not take a value", "expected {0} without a value, found one"),
    (
        r"Invalid value for '(.*?)': '(.*)' is not one of (.*)",
        "{0}: expected one of {2}, found {1}",
    ),
    (
        r"Invalid value for '(.*?)': '(.*)' is not a valid int.*",
        "{0}: expected an integer, found {1}",
    ),
    (
        r"Invalid value for '(.*?)': '(.*)' is not a valid float.*",
        "{0}: expected a number, found {1}",
    ),
    (
        r"Invalid value for '(.*?)': (.*) is not in the range x>=(.*)",
        "{0}: expected at least {2}, found {1}",
    ),
    (
        r"Invalid value for '(.*?)': (.*) is not in the range (.*)<=x<=(.*)",
        "{0}: expected {2} to {3}, found {1}",
    ),
    (r"Invalid value for '(.*?)': (.*)", "{0}: {1}"),
)


def reworded(error: Any) -> str:
    """A message of typer as edgekit writes it: what was expected, what was found."""
    message = one_line(error.format_message()).rstrip(".")
    for pattern, words in _MESSAGES:
        if found := re.fullmatch(pattern, message):
            return words.format(*found.groups())
    return message


@functools.cache
def command_tree(app: typer.Typer) -> Any:
    """The parser of all commands of `app`, typer's TyperGroup; making it takes 50 ms."""
    return typer.main.get_command(app)


def command_of(arguments: Sequence[str], app: typer.Typer) -> str:
    """The command that a command line begins with; typer's parser does not name it."""
    command, path = command_tree(app), "edgekit"
    for word in arguments:
        inner = getattr(command, "commands", {})
        if word not in inner:
            break
        command, path = inner[word], f"{path} {word}"
    return path


def repeated_option(group: Any, arguments: Sequence[str]) -> str:
    """An error if an option that takes one value has two; the parser would take the last."""
    command, words, given = group, iter(arguments), dict[str, str]()
    for word in words:
        if word == "--":
            break
        inner = getattr(command, "commands", {})
        if word in inner:
            command = inner[word]
            continue
        name, sign, value = word.partition("=")
        for parameter in command.params:
            if (
                name not in parameter.opts
                or parameter.multiple
                or getattr(parameter, "is_flag", False)
            ):
                continue
            value = value if sign else next(words, "")
            first = given.setdefault(parameter.name, value)
            if first != value:
                return (
                    f"{name}: expected one value, found {first} and {value}; "
                    "run the command once for each"
                )
    return ""


def meant_by(error: Any) -> str:
    """The command line or value that was probably meant, for an error of typer; empty if it is
    unknown."""
    context = getattr(error, "ctx", None)
    if context is None:
        return ""
    option = _OPTIONS.get(getattr(error, "option_name", ""))
    if option and any(option in parameter.opts for parameter in context.command.params):
        return option
    if possible := getattr(error, "possibilities", None):
        return " or ".join(possible)
    if found := re.match(r"No such command '(\w+)'", error.message):
        # undeploy looks like deploy
        if known := _COMMANDS.get(context.command_path, {}).get(found[1]):
            return known
        near = re.search(r"Did you mean '([^']+)'", error.format_message())
        return f"{context.command_path} {near[1]}" if near else ""
    command = _TAKE_MODELS.get(context.command_path)
    if command and (found := re.match(r"No such command '(.+\.\w+)'", error.message)):
        return f"{command} {shlex.quote(found[1])}"
    if found := re.match(r"Got unexpected extra argument\(s\) \((\S+)\)", error.message):
        return _meant_by_extra(context, found[1])
    found = re.search(r"'(.*)' is not one of (.*?)\.?$", error.message)
    if not found:
        return ""
    if getattr(getattr(error, "param", None), "name", "") == "precision":
        return _PRECISIONS.get(found[1].lower(), "")
    values = re.findall(r"'(.*?)'", found[2])
    return next(iter(difflib.get_close_matches(found[1].lower(), values, 1)), "")


def _meant_by_extra(context: Any, extra: str) -> str:
    """A board given without --board, an input without --input, an address without --host, a port
    without --device, a list without --csv, a deployed model without --name."""
    line = context.command_path
    if "csv" in context.params and extra.endswith(".csv"):
        return f"{line} --csv {shlex.quote(extra)}"
    if "host" in context.params and (name := context.params.get("name")):
        if extra.startswith("/dev/"):
            return f"{line} {shlex.quote(name)} --transport serial --device {shlex.quote(extra)}"
        address = extra.removeprefix("ssh://")
        return f"{line} {shlex.quote(name)} --host {shlex.quote(address)}"
    given = context.params.get("model")
    if {"model_name", "model"} & {*context.params} == {"model_name"} and not is_board(extra):
        return f"{line} --name {shlex.quote(extra)}"
    options = {name for parameter in context.command.params for name in parameter.opts}
    takes_board = "--board" in options and context.params.get("board") is None
    if given is None:
        return f"{line} --board {shlex.quote(extra)}" if takes_board and is_board(extra) else ""
    if takes_board:
        for board, model in ((given, extra), (extra, given)):
            if is_board(board):
                return f"{line} {shlex.quote(model)} --board {shlex.quote(board)}"
    if "--input" in options and Path(extra).suffix:
        return f"{line} {shlex.quote(given)} --input {shlex.quote(extra)}"
    return ""


def is_board(name: str) -> bool:
    """Whether a board or a profile has that name."""
    from edgekit.host.deploy.connections import profile_of
    from edgekit.host.errors import InputError
    from edgekit.kb.targets.board import UnknownBoardError, load_board

    try:
        load_board(profile_of(name))
    except (InputError, UnknownBoardError):
        return False
    return True
