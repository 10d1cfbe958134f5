"""`edgekit run`: one inference on the board, from .npz to .npz."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.cli.options import Board, Json, Model, examples
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command(
        "run",
        epilog=examples(
            "edgekit run model.tflite --input x.npz --output y.npz",
            "edgekit run --board local --input x.npz --output y.npz   # what is deployed there",
        ),
    )(run)


def run(
    input_file: Annotated[
        Path, typer.Option("--input", metavar="X.npz", help="Arrays named as the model's inputs.")
    ],
    output_file: Annotated[
        Path, typer.Option("--output", metavar="Y.npz", help="Where the model's outputs go.")
    ],
    model: Model = None,
    board: Board = None,
    as_json: Json = False,
) -> None:
    """Run a model once on a board; without a model, run what is deployed there."""


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Arrays of an .npz file by name. Raises InputError for anything else."""
    import zipfile

    import numpy as np

    if path.is_dir() or not path.exists():
        raise InputError(
            f"{path}: expected an .npz file, found {'a folder' if path.is_dir() else 'nothing'}"
        )
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, zipfile.BadZipFile, EOFError, AttributeError) as error:
        raise InputError(
            f"{path}: expected an .npz file of plain arrays, found: {error}; "
            "write one with numpy.savez(path, name=array)"
        ) from None
