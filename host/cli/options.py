"""Options shared by several commands, and parsers for their values."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal

import typer

from edgekit.host.cli import complete
from edgekit.host.cli.output import note
from edgekit.host.errors import InputError


def file_named(target: str | Path, name: str) -> Path:
    """The file to write: `target`, or `name` in it if it is a folder or ends in a slash."""
    text = os.fspath(target)
    return Path(text, name) if text.endswith(os.sep) or Path(text).is_dir() else Path(text)


def writes(name: str) -> Callable[[str], Path]:
    """The parser of an option that names a file to write, or the folder for a file `name`."""
    return lambda text: file_named(text, name)


BoardOption = Annotated[
    str | None,
    typer.Option(
        "--board",
        metavar="BOARD",
        show_default=False,
        autocompletion=complete.boards,
        help="Board to use (default: edgekit.toml, else local).",
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout and the rest on stderr.")
]
Counter = Annotated[
    int | None,
    typer.Option(
        "--counter",
        metavar="N",
        min=0,
        show_default=False,
        help="Release number; boards refuse a lower one than they run (default: 0).",
    ),
]
Signature = Annotated[
    str,
    typer.Option(
        "--signature",
        metavar="NAME",
        show_default=False,
        help="Signature to use, of a .tflite model that has several.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        max=256,
        show_default=False,
        help="Threads to run on (default: the inventory's, else chosen by cost).",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        show_default=False,
        help="Cores to run on: big, little, all or a core's name (default: by cost).",
    ),
]
DataType = Annotated[
    Literal["f32", "f16", "s8", "u8"],
    typer.Option("--dtype", help="Type of A; B is s8 for u8, and like A for the others."),
]
Budget = Annotated[str, typer.Option("--budget", metavar="TIME", help="Stop after 90s, 10m or 2h.")]
AllowNoise = Annotated[
    bool,
    typer.Option("--allow-noise", help="Keep results even if the board was busy or throttled."),
]
Explain = Annotated[
    Path | None,
    typer.Option(
        "--explain",
        parser=writes("why.json"),
        metavar="FILE.json",
        show_default=False,
        help="Write the kernel of each operator, their order, the passes and the memory.",
    ),
]
MaxSize = Annotated[
    str | None,
    typer.Option(
        "--max-size",
        metavar="2GiB",
        show_default=False,
        help="Remove the oldest profiles above this size.",
    ),
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="FOLDER|s3://BUCKET/FOLDER",
        show_default=False,
        help="Shared store to read (default: the profiles on this host).",
    ),
]
Packed = Annotated[
    Literal["none", "a", "b"],
    typer.Option("--packed", help="Operand packed in advance, as weights are."),
]
TransportOption = Annotated[
    Literal["ssh", "serial"] | None,
    typer.Option(
        "--transport",
        show_default=False,
        help="Connection to use when the board has both SSH and serial.",
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        show_default=False,
        help="Name of one of several models on a board (default: the unnamed one).",
    ),
]
Select = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        metavar="SELECTION",
        show_default=False,
        autocompletion=complete.selections,
        help="Boards of the inventory by label, as type=a57,site!=lab or name=pi-*.",
    ),
]
Parallel = Annotated[
    int | None,
    typer.Option(
        "--parallel",
        metavar="N",
        min=1,
        max=512,
        show_default=False,
        help="Number of boards at a time (default: 32).",
    ),
]
Model = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL or BUNDLE",
        show_default=False,
        autocompletion=complete.models,
        help="Model (.tflite, .onnx, .gguf, .prototxt) or .ekb (default: edgekit.toml's).",
    ),
]
ModelOnly = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        show_default=False,
        autocompletion=complete.models,
        help="Model (.tflite, .onnx, .gguf, .prototxt) (default: edgekit.toml's).",
    ),
]


_UNITS = {"": 1, "B": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("KMG", 1)
    for suffix, base in (("", 1024), ("IB", 1024), ("B", 1000))
}
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_PERCENT = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,3})?) ?%?")
_MODELS = ".tflite, .onnx, .gguf or .prototxt model"
_SUFFIXES = (".tflite", ".onnx", ".gguf", ".prototxt", ".pt2", ".ekb")


class FileKind(Enum):
    """Type of a file given on the command line."""

    MODEL = "model"
    BUNDLE = "bundle"


def byte_count(given: str | None, option: str = "--memory-limit") -> int | None:
    """Parses a byte count: a number, or a fraction of a unit, as GNU tools write it, in any case:
    MiB and M are 2^20 bytes, MB is 10^6."""
    if given is None:
        return None
    found = re.fullmatch(r"(\d{1,18}(?:\.\d{1,18})?) *([A-Z]*)", given.strip().upper(), re.ASCII)
    unit = _UNITS.get(found[2]) if found else None
    count = Fraction(found[1]) * unit if found and unit else Fraction(0)
    if count < 1 or (unit == 1 and count.denominator > 1):
        raise InputError(
            f"{option}: expected a number of at least 1 with B, KiB, MiB or GiB (1.5MiB), "
            f"found {given:.60}"
        )
    return int(count)


def parse_seconds(text: str, option: str, zero: bool = False) -> float:
    """Parses 90s, 10m or 2h into seconds, above 0 unless `zero`; raises InputError."""
    found = re.fullmatch(r"(\d{1,6})([smh])", text.strip())
    if not found or (int(found[1]) == 0 and not zero):
        least = "" if zero else " above 0"
        raise InputError(f"{option}: expected a time{least} like 90s, 10m or 2h, found '{text}'")
    return float(int(found[1]) * _SECONDS[found[2]])


def parse_budget(text: str) -> float:
    """Parses --budget into seconds; raises InputError."""
    return parse_seconds(text, "--budget")


def examples(*lines: str) -> str:
    """Text for the end of --help; \\b preserves the line breaks."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def refuse_with(context: typer.Context, other: str, *names: str) -> None:
    """Raises InputError if one of the named parameters was given together with `other`."""
    if found := _find_given_option(context, names):
        raise InputError(f"expected {found} or {other}, found both; leave one of them out")


def refuse_without(context: typer.Context, other: str, *names: str) -> None:
    """Raises InputError if one of the named parameters was given, which needs `other`."""
    if found := _find_given_option(context, names):
        raise InputError(f"expected {other} with {found}, found none; add it")


def _find_given_option(context: typer.Context, names: Sequence[str]) -> str | None:
    """The first of the named parameters that the command line has, as the user writes it."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            option = parameter.opts[-1]
            return option if option.startswith("-") else str(parameter.metavar)
    return None


def labels_of(given: list[str] | None) -> dict[str, str]:
    """Parses the values of --label into a mapping."""
    found = {}
    for text in given or ():
        key, sign, value = text.partition("=")
        if not (key and sign and value):
            raise InputError(f"--label: expected KEY=VALUE, found '{text}'")
        found[key] = value
    return found


def parse_percent(text: str, option: str) -> float:
    """Converts a percentage to a fraction. Raises InputError that names the option."""
    found = _PERCENT.fullmatch(text.strip())
    if not found:
        raise InputError(f"{option}: expected a percentage such as 5%, found {text!r}")
    return float(found[1]) / 100


def board_name(given: str | None) -> str:
    """The given board, or else the project's. An empty name, as of a shell variable that is not
    set, must not mean another board than the one that was wanted."""
    from edgekit.host.deploy.inventory import read_project

    if given == "":
        raise InputError("--board: expected a name, found an empty one; leave the option out")
    return given or read_project(Path.cwd()).board


def model_file(given: str | None, board: str | None = None) -> Path:
    """The given model or bundle, or else the board's or the project's; checks that it is
    readable."""
    from edgekit.host.deploy.inventory import find_board, read_project

    project = read_project(Path.cwd())
    entry = find_board(board or project.board, Path.cwd())
    name = given or (entry and entry.model) or project.model
    if name is None:
        raise InputError(
            "expected a model or a bundle, found none; "
            'name one, or write model = "my.tflite" into edgekit.toml'
        )
    path = Path(name)
    if not path.exists():
        from edgekit.host.cli.meant import is_board
        from edgekit.host.common.paths import near_file

        found = not path.suffix and is_board(str(name))  # model.h5 is not an Allwinner H5
        board_meant = f"; a board is named by --board {name}" if found else ""
        more = board_meant or near_file(path, _SUFFIXES)
        raise InputError(f"{path}: no such file; expected a {_MODELS} or an .ekb bundle{more}")
    if path.is_dir() or (path.is_file() and file_kind(path) is FileKind.BUNDLE):
        from edgekit.host.compiler.frontends.foreign import foreign_format

        if path.is_file() and (part := _finder(path)):
            return part
        if (other := foreign_format(path)) is not None:
            raise InputError(f"{path}: expected a {_MODELS}, found {other}")
    check_regular(path, f"a {_MODELS} or an .ekb bundle")
    return path


def _finder(path: Path) -> Path | None:
    """The detector of a bundle of MediaPipe, which is told; None for any other file."""
    from edgekit.host.common.paths import cache_folder
    from edgekit.host.compiler.inputs.parts import finder_of

    if (found := finder_of(path, cache_folder())) is None:
        return None
    part, others = found
    rest = f"; not {', '.join(others)}, which take what it finds" if others else ""
    unpack = f"; python3 -m zipfile -e {path.name} FOLDER unpacks them" if others else ""
    note(f"{path.name}: takes {part.name} of this bundle of MediaPipe{rest}{unpack}")
    return part


def check_regular(path: Path, what: str = "a file") -> None:
    """Rejects special files: reading from one may never end."""
    if path.exists() and not path.is_file():
        raise InputError(
            f"{path}: expected {what}, found {_describe_file_type(path)}; name a regular file"
        )


def _describe_file_type(path: Path) -> str:
    """Description of a path that is neither a regular file nor a link to one."""
    if path.is_dir():
        return "a folder"
    if path.is_fifo():
        return "a pipe"
    return "a socket" if path.is_socket() else "a device"


def file_kind(path: Path) -> FileKind:
    """Detects bundles as zip files, regardless of name; everything else is a model."""
    with path.open("rb") as file:
        return FileKind.BUNDLE if file.read(4) == b"PK\x03\x04" else FileKind.MODEL
