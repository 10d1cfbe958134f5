"""What several commands take: the board, the model, --json; and how examples stand in --help."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

import typer

from edgekit.host.cli import complete
from edgekit.host.compiler.options import (
    Activations,
    CompileOptions,
    Order,
    Precision,
    Shapes,
    WeightBits,
    variants_of,
)
from edgekit.host.errors import InputError

Board = Annotated[
    str | None,
    typer.Option(
        "--board",
        metavar="BOARD",
        show_default=False,
        autocompletion=complete.boards,
        help="Board to use; 'edgekit board status' lists them. Default: edgekit.toml, else local.",
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout; all else goes to stderr.")
]
Counter = Annotated[
    int | None,
    typer.Option(
        "--counter",
        metavar="N",
        min=0,
        show_default=False,
        help="Number of the release; a board refuses one lower than it runs. Default: 0.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        show_default=False,
        help="Threads of the model. Default: what the inventory says, else what is fastest by "
        "price; 1 on x86.",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        show_default=False,
        help="Cores to keep the model's threads on: big, little, all, or a kind such as a76. "
        "Default: the cluster that is fastest by price.",
    ),
]
ReleaseThreads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        show_default=False,
        help="Threads that the release runs on. Default: what is fastest by price; 1 on x86.",
    ),
]
ReleaseCluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        show_default=False,
        help="Cluster that it runs on: big, little or a kind of core such as a76. Default: the "
        "fastest by price.",
    ),
]
DataType = Annotated[
    Literal["f32", "s8", "u8"],
    typer.Option("--dtype", help="Of A; B is f32 for f32, else s8."),
]
InputShapes = Annotated[
    list[str] | None,
    typer.Option(
        "--input-shape",
        metavar="NAME=1,3,224,224",
        show_default=False,
        help="Shape of an input that the model leaves open, or another one for an input of "
        "a .tflite or Caffe model; once per input, or several times for several shapes in one "
        "release.",
    ),
]
OrderOption = Annotated[
    Order | None,
    typer.Option(
        "--order",
        show_default=False,
        help="Search the order of operators for time or for peak memory, or keep the model's. "
        "Default: search.",
    ),
]
RandomSeed = Annotated[
    int | None,
    typer.Option(
        "--random-seed", metavar="N", min=0, show_default=False, help="Of that search. Default: 0."
    ),
]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        "--memory-limit",
        metavar="512KiB",
        show_default=False,
        help="Bytes that an operator, and the arena, may take. Default: what the board has.",
    ),
]
WeightsOption = Annotated[
    WeightBits | None,
    typer.Option(
        "--weights",
        show_default=False,
        help="Keep constant matrices of floats in 8 or 4 bits; with --activations.",
    ),
]
ActivationsOption = Annotated[
    Activations | None,
    typer.Option(
        "--activations",
        show_default=False,
        help="Quantize what meets such weights as it comes, outlier channels apart.",
    ),
]
PrecisionOption = Annotated[
    Precision | None,
    typer.Option(
        "--precision",
        show_default=False,
        help="What floats are computed in: f16 on cores that can, where there are kernels; auto: "
        "f16 if golden outputs stay within 2 % of f32's. Default: f32.",
    ),
]
Budget = Annotated[
    str, typer.Option("--budget", metavar="TIME", help="When to stop: 90s, 10m, 2h.")
]
AllowNoise = Annotated[
    bool,
    typer.Option("--allow-noise", help="Keep results though the board was busy or held back."),
]
Explain = Annotated[
    Path | None,
    typer.Option(
        "--explain",
        metavar="FILE.json",
        show_default=False,
        help="Write the kernel of each operator, their order, passes and memory.",
    ),
]
Keep = Annotated[
    str | None,
    typer.Option(
        "--keep",
        metavar="2GiB",
        show_default=False,
        help="Most bytes of profiles; the oldest go.",
    ),
]
Source = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="FOLDER|s3://BUCKET/FOLDER",
        show_default=False,
        help="A store of profile write. Default: the profiles of this host.",
    ),
]
Packed = Annotated[
    Literal["none", "a", "b"],
    typer.Option("--packed", help="The operand that is packed beforehand, as weights are."),
]
Over = Annotated[
    Literal["ssh", "serial"] | None,
    typer.Option("--via", show_default=False, help="How, if the board can be reached both ways."),
]
As = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="NAME",
        show_default=False,
        help="Which of several models on the board. Default: the one deployed without a name.",
    ),
]
Model = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL or BUNDLE",
        show_default=False,
        autocompletion=complete.models,
        help="A .tflite, .onnx or .prototxt model or an .ekb bundle. "
        "Default: model in edgekit.toml.",
    ),
]


_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "B": 1}
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_MODELS = ".tflite, .onnx or .prototxt model"


class Kind(Enum):
    """What a file given on the command line is."""

    MODEL = "model"
    BUNDLE = "bundle"


def compile_options(
    input_shape: list[str] | None,
    order: Order | None,
    random_seed: int | None,
    memory_limit: str | None,
    weights: WeightBits | None,
    activations: Activations | None,
    precision: Precision | None = None,
) -> CompileOptions:
    """What the options that compile, deploy and run share ask for."""
    shapes, *more = input_shapes(input_shape)
    return CompileOptions(
        shapes=shapes,
        more_shapes=tuple(more),
        order=order or "search",
        random_seed=random_seed or 0,
        memory_limit=byte_count(memory_limit),
        weights=weights,
        activations=activations,
        precision=precision or "f32",
    )


def input_shapes(given: list[str] | None) -> tuple[Shapes, ...]:
    """The values of --input-shape by input, for one variant after the other."""
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for text in given or ():
        name, _, sizes = text.rpartition("=")
        parts = sizes.split(",")
        if not name or not all(p.strip().isdecimal() and int(p) > 0 for p in parts):
            raise InputError(
                f"--input-shape: expected NAME=1,3,224,224 with sizes of at least 1, found {text}"
            )
        shapes.setdefault(name, []).append(tuple(int(p) for p in parts))
    return variants_of(shapes)


def one_input_shape(given: list[str] | None) -> Shapes:
    """The values of --input-shape where a command takes one per input."""
    first, *more = input_shapes(given)
    if more:
        raise InputError(
            f"--input-shape: expected each input once, found {len(more) + 1} shapes of one; "
            "give one at a time"
        )
    return first


def byte_count(given: str | None, option: str = "--memory-limit") -> int | None:
    """The bytes that an option asks for: a number with B, KiB, MiB or GiB."""
    if given is None:
        return None
    text = given.strip()
    unit = next((u for u in _UNITS if text.endswith(u)), "")
    number = text.removesuffix(unit).strip()
    if not number.isdecimal() or int(number) < 1:
        raise InputError(
            f"{option}: expected a number of at least 1 with B, KiB, MiB or GiB (512KiB), "
            f"found {given}"
        )
    return int(number) * _UNITS.get(unit, 1)


def parse_seconds(text: str, option: str, zero: bool = False) -> float:
    """Seconds of 90s, 10m or 2h, more than none unless `zero`; raises InputError."""
    found = re.fullmatch(r"(\d{1,6})([smh])", text.strip())
    if not found or (int(found[1]) == 0 and not zero):
        least = "" if zero else " above 0"
        raise InputError(f"{option}: expected a time{least} like 90s, 10m or 2h, found '{text}'")
    return float(int(found[1]) * _SECONDS[found[2]])


def parse_budget(text: str) -> float:
    """Seconds to spend; raises InputError."""
    return parse_seconds(text, "--budget")


def examples(*lines: str) -> str:
    """Text for the end of --help; the \\b keeps the lines apart."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def labels_of(given: list[str] | None) -> dict[str, str]:
    """The values of --label by key."""
    found = {}
    for text in given or ():
        key, sign, value = text.partition("=")
        if not (key and sign and value):
            raise InputError(f"--label: expected KEY=VALUE, found '{text}'")
        found[key] = value
    return found


def board_name(given: str | None) -> str:
    """The board to use."""
    from edgekit.host.deploy.inventory import read_project

    return given or read_project(Path.cwd()).board


def model_file(given: str | None, board: str | None = None) -> Path:
    """The model or bundle to use, checked to be a readable file; a board may have its own."""
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
        raise InputError(f"{path}: no such file; expected a {_MODELS} or an .ekb bundle")
    check_regular(path, f"a {_MODELS} or an .ekb bundle")
    return path


def check_regular(path: Path, what: str = "a file") -> None:
    """Refuses what is there and no regular file: reading it may never end."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: expected {what}, found {_special(path)}; name a regular file")


def _special(path: Path) -> str:
    """What a path is that is neither a regular file nor a link to one."""
    if path.is_dir():
        return "a folder"
    if path.is_fifo():
        return "a pipe"
    return "a socket" if path.is_socket() else "a device"


def file_kind(path: Path) -> Kind:
    """A bundle is a zip file, whatever its name; all else is taken for a model."""
    with path.open("rb") as file:
        return Kind.BUNDLE if file.read(4) == b"PK\x03\x04" else Kind.MODEL
