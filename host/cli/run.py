"""`edgekit run`: one inference on the board, from .npz to .npz."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.cli.compile import load_bundle
from edgekit.host.cli.deploy import put_into_service
from edgekit.host.cli.options import (
    ActivationsOption,
    As,
    Board,
    InputShapes,
    Json,
    MemoryLimit,
    OrderOption,
    Over,
    RandomSeed,
    Threads,
    WeightsOption,
    board_name,
    compile_options,
    examples,
    model_file,
)
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgekit.host.api import Device
    from edgekit.host.release import Timings


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command(
        "run",
        epilog=examples(
            "edgekit run model.tflite --input x.npz --output y.npz",
            "edgekit run --input x.npz --output y.npz      # what is deployed on local",
        ),
    )(run)


def run(
    input_file: Annotated[
        Path,
        typer.Option(
            "--input",
            metavar="X.npz",
            help="Arrays named as the model's inputs; an .npy does for one input.",
        ),
    ],
    output_file: Annotated[
        Path, typer.Option("--output", metavar="Y.npz", help="Where the model's outputs go.")
    ],
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL or BUNDLE",
            show_default=False,
            help="Deployed first, if it does not run yet. Default: what is deployed.",
        ),
    ] = None,
    board: Board = None,
    input_shape: InputShapes = None,
    memory_limit: MemoryLimit = None,
    order: OrderOption = None,
    random_seed: RandomSeed = None,
    weights: WeightsOption = None,
    activations: ActivationsOption = None,
    threads: Threads = None,
    via: Over = None,
    as_name: As = None,
    as_json: Json = False,
) -> None:
    """Run a model once on a board."""
    from edgekit.host.api import connect
    from edgekit.host.cli.output import check_writable

    path = model_file(model) if model else None
    device = connect(board_name(board), via=via).named(as_name)
    inputs = read_arrays(input_file)
    check_writable(output_file)
    if path:
        options = compile_options(
            input_shape, order, random_seed, memory_limit, weights, activations
        )
        bundle = load_bundle(path, device.profile, options=options)
        put_into_service(device, bundle)
    outputs, timings = device.run(_named(inputs, device, input_file), threads=threads)
    _write_arrays(output_file, outputs)
    _show(device, timings, outputs, output_file, as_json)


def _show(
    device: Device, timings: Timings, outputs: dict[str, NDArray[Any]], file: Path, as_json: bool
) -> None:
    from edgekit.host.cli.output import emit
    from edgekit.host.cli.report import time_key, time_label

    if as_json:
        emit(
            {
                "schema": "edgekit.run/1",
                "board": device.name,
                "release": timings.release,
                "threads": timings.threads,
                "emulated": device.emulated,
                time_key(device.emulated): timings.latency_ms,
                "output": str(file),
                "outputs": [
                    {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
                    for name, array in outputs.items()
                ],
            }
        )
        return
    print(f"release  {timings.release} on {device.name}")
    label = time_label(device.emulated)
    print(f"{label} {timings.latency_ms:.3f} ms (one run, cold)")
    for name, array in outputs.items():
        print(f"output   {name}: {array.dtype} {list(array.shape)}")
    print(f"written  {file}")


def _named(
    inputs: dict[str, NDArray[Any]] | NDArray[Any], device: Device, file: Path
) -> dict[str, NDArray[Any]]:
    """The arrays by name: one without a name is that of a model with one input."""
    if isinstance(inputs, dict):
        return inputs
    current = device.status().current
    names = list(current.shapes[0]) if current and current.shapes else []
    if len(names) > 1:
        raise InputError(
            f"{file}: expected an .npz file with arrays {', '.join(names)}, found an .npy, which "
            "does for a model with one input; write one with: numpy.savez(path, name=array)"
        )
    return dict.fromkeys(names, inputs)


def read_arrays(file: Path) -> dict[str, NDArray[Any]] | NDArray[Any]:
    """Arrays of an .npz file by name, or that of an .npy. Raises InputError for anything else."""
    import zipfile

    import numpy as np

    if not file.is_file():
        found = "a folder" if file.is_dir() else "nothing there"
        raise InputError(f"{file}: expected an .npz file with the model's inputs, found {found}")
    try:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, zipfile.BadZipFile, EOFError, AttributeError, MemoryError):
        raise InputError(
            f"{file}: expected an .npz or .npy file of plain arrays, found something else; "
            "write one with: numpy.savez(path, name=array)"
        ) from None


def _write_arrays(file: Path, arrays: dict[str, NDArray[Any]]) -> None:
    from edgekit.device.npz import Array, npz_bytes
    from edgekit.host.files import write_whole

    write_whole(file, npz_bytes({name: Array.of(array) for name, array in arrays.items()}))
