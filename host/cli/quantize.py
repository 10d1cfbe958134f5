"""`edgekit quantize`: a float model becomes one of 8-bit codes; what that costs."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.cli import complete
from edgekit.host.cli.options import (
    Board,
    InputShapes,
    Json,
    Kind,
    board_name,
    examples,
    file_kind,
    model_file,
    one_input_shape,
)
from edgekit.host.cli.run import Channels, Layout, Mean, Scale, numbers
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.graph.types import Graph
    from edgekit.host.quantize import Quantized
    from edgekit.host.quantize.report import Report
    from edgekit.kb.board import BoardProfile

_SUFFIXES = (".tflite", ".onnx")
_TIMEOUT = 3600.0  # seconds, of an estimate
_NAME_WIDTH = 40


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command(
        "quantize",
        epilog=examples(
            "edgekit quantize model.tflite --data samples.npz -o model.int8.tflite",
            "edgekit quantize classifier.tflite --data photos/ --evaluate labels.txt",
            "edgekit quantize face.tflite --data photos/ --mean 127.5 --scale 127.5 --board rpi4",
            "edgekit compile model.tflite --quantize samples.npz     # in one step",
        ),
    )(quantize)


def quantize(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            show_default=False,
            autocompletion=complete.models,
            help="A .tflite, .onnx or .prototxt model of floats. Default: model in edgekit.toml.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="FILE.npz or FOLDER",
            show_default=False,
            help="Samples: arrays with a leading axis, named as the model's inputs, or a folder "
            "of pictures, sounds or arrays.",
        ),
    ] = None,
    evaluate: Annotated[
        Path | None,
        typer.Option(
            "--evaluate",
            metavar="LABELS",
            show_default=False,
            help="The class of each sample: a number on each line, or an .npy of them.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            metavar="FILE",
            show_default=False,
            help="A .tflite or .onnx file. Default: ./MODEL.int8.onnx of an .onnx model, else "
            "./MODEL.int8.tflite.",
        ),
    ] = None,
    target: Annotated[
        float,
        typer.Option(
            "--target",
            metavar="COSINE",
            help="Of every output with the float model's: layers that stand in the way stay float.",
        ),
    ] = 0.995,
    mean: Mean = None,
    scale: Scale = None,
    channels: Channels = "rgb",
    layout: Layout = None,
    board: Board = None,
    input_shape: InputShapes = None,
    as_json: Json = False,
) -> None:
    """Quantize a float model to 8 bits, calibrated on samples.

    Every fourth sample is held out: the report is of these. The result takes and gives floats.
    """
    from edgekit.host.cli.output import check_writable
    from edgekit.host.cli.progress import working
    from edgekit.host.files import write_whole
    from edgekit.host.importers import import_model
    from edgekit.host.inputs import InputOptions
    from edgekit.host.quantize import quantized_file

    path, file = _files(model, output)
    if data is None:
        raise InputError("--data: expected an .npz file or a folder of samples, found none")
    if not 0 < target < 1:
        raise InputError(f"--target: expected a cosine between 0 and 1, found {target:g}")
    check_writable(file)
    graph = import_model(path, one_input_shape(input_shape))
    scaling = numbers("--mean", mean), numbers("--scale", scale)
    options = InputOptions(*scaling, channels, layout)
    with working(f"quantizing {path.name}"):
        made = quantized_file(path, graph, data, evaluate, target, options)
    write_whole(file, _written(made.graph, path, file))
    times = _times(graph, made.graph, board_name(board))
    if as_json:
        _emit(path, file, made, times)
    else:
        _show(path, file, made.report, times)


def _files(model: str | None, output: Path | None) -> tuple[Path, Path]:
    """The model, and where the result goes."""
    path = model_file(model)
    if file_kind(path) is Kind.BUNDLE:
        raise InputError(f"{path}: expected a model of floats, found a bundle; give its model")
    suffix = ".onnx" if path.suffix == ".onnx" else ".tflite"
    file = output or Path(f"{path.stem}.int8{suffix}")
    if file.suffix not in _SUFFIXES:
        raise InputError(f"{file}: expected a name with {' or '.join(_SUFFIXES)}, found another")
    if file.exists() and file.samefile(path):
        raise InputError(f"{file}: expected a file to write, found the model; name another")
    return path, file


def _written(graph: Graph, source: Path, file: Path) -> bytes:
    """The quantized model in the format that `file` names; .tflite files keep the model's notes."""
    from edgekit.host.exporters import write_onnx, write_tflite
    from edgekit.host.inputs import read_attached

    if file.suffix == ".onnx":
        return write_onnx(graph)
    attached = read_attached(source)
    return write_tflite(graph, attached.metadata, attached.files)


def _times(before: Graph, after: Graph, board: str) -> dict[str, Any] | None:
    """Estimated milliseconds on one thread of a board whose core has a model, else None."""
    from edgekit.host.cli.estimated import estimate_bundle
    from edgekit.host.connections import profile_of
    from edgekit.host.estimate.target import has_model
    from edgekit.kb.board import load_board

    profile = load_board(profile_of(board))
    if not has_model(profile) or profile.nna is not None:
        return None
    found = [
        estimate_bundle(_bundle(graph, profile), profile, 1, _TIMEOUT).total_ms
        for graph in (before, after)
    ]
    return {"board": profile.name, "float_ms": found[0], "int8_ms": found[1]}


def _bundle(graph: Graph, board: BoardProfile) -> Any:
    from edgekit.host.bundle import build_bundle
    from edgekit.host.compiler import build_graph, prepare_graph
    from edgekit.host.graph.identity import identity
    from edgekit.host.options import DEFAULT_OPTIONS

    options = replace(DEFAULT_OPTIONS, threads=1)
    imported, made = prepare_graph(graph, board, options)
    return build_bundle(build_graph(imported, made, identity(graph), board, None, options), board)


def _emit(path: Path, file: Path, made: Quantized, times: dict[str, Any] | None) -> None:
    """The document edgekit.quantize/1."""
    from edgekit.host.cli.output import emit

    report = made.report
    emit(
        {
            "schema": "edgekit.quantize/1",
            "model": path.name,
            "output": str(file),
            "target": report.target,
            "recipe": report.recipe,
            "samples": {"calibration": report.seen, "held_out": report.unseen},
            "bytes": {"before": path.stat().st_size, "after": file.stat().st_size},
            "outputs": {name: asdict(found) for name, found in report.outputs.items()},
            "classes": report.classes and asdict(report.classes),
            "layers": [asdict(layer) for layer in report.layers],
            "estimate": times,
        }
    )


def _show(path: Path, file: Path, report: Report, times: dict[str, Any] | None) -> None:
    from edgekit.host.cli.output import byte_size, milliseconds, table, warn

    rows = [
        (layer.name[:_NAME_WIDTH], layer.kind, "int8" if layer.coded else "float",
         f"{layer.difference.cosine:.5f}", f"{layer.difference.snr_db:.1f}")
        for layer in report.layers
    ]  # fmt: skip
    table(("operator", "kind", "computes in", "cosine", "SNR dB"), rows, left=3)
    print(f"recipe   {report.recipe}")
    print(f"samples  {report.seen} to calibrate, {report.unseen} held out: figures are of these")
    for name, found in report.outputs.items():
        print(f"output   {name}: cosine {found.cosine:.5f}, SNR {found.snr_db:.1f} dB")
    if (of := report.classes) is not None:
        text = f"classes  {of.same:.1%} as the float model's"
        if of.float_right is not None:
            text += f"; right: {of.float_right:.1%} in floats, {of.coded_right:.1%} in int8"
        print(text)
    before, after = path.stat().st_size, file.stat().st_size
    print(f"size     {byte_size(before)} before, {byte_size(after)} after")
    if times is not None:
        was, now = (milliseconds(times[key]) for key in ("float_ms", "int8_ms"))
        print(f"time     estimated {was} ms before, {now} ms after on {times['board']}, 1 thread")
    if report.floats:
        print(f"floats   {len(report.floats)} of {len(report.layers)} operators")
    print(f"written  {file}")
    if report.cosine < report.target:
        warn(
            f"an output's cosine is {report.cosine:.5f}, expected at least {report.target:g}; give "
            "more samples, and such as the model will see"
        )
