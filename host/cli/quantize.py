"""`edgekit quantize`: quantizes a float model to 8 bits; reports the loss."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.host.cli.compile_options import InputShapes
from edgekit.host.cli.model_rewrite import (
    FloatModel,
    Labels,
    RewriteTimes,
    Samples,
    fields_of,
    given_samples,
    model_and_output,
    open_model,
    show_effects,
    times_of,
    written,
)
from edgekit.host.cli.options import (
    BoardOption,
    Json,
    Signature,
    Store,
    board_name,
    examples,
)
from edgekit.host.cli.run import Channels, Layout, Mean, Scale, numbers
from edgekit.host.common.text import counted
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.cli.rewrite_metric import Metric
    from edgekit.host.compiler.transforms.quantize import FieldRanges, Quantized
    from edgekit.host.compiler.transforms.quantize.report import QuantizeReport

_NAME_WIDTH = 40
_Output = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        show_default=False,
        help="File to write (default: ./MODEL.int8.tflite, or .onnx for an .onnx model).",
    ),
]
_MinCosine = Annotated[
    float,
    typer.Option(
        "--min-cosine",
        metavar="COSINE",
        help="Minimum similarity of each output; layers that prevent it stay float.",
    ),
]
_FromField = Annotated[
    bool,
    typer.Option(
        "--from-field",
        help="Take ranges of tensors from boards (deploy --field-ranges), not from samples.",
    ),
]


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command(
        "quantize",
        epilog=examples(
            "edgekit quantize model.tflite --samples samples.npz -o model.int8.tflite",
            "edgekit quantize classifier.tflite --samples photos/ --evaluate labels.txt",
            "edgekit quantize face.tflite --samples photos/ --mean 127.5 --scale 127.5",
            "edgekit quantize model.tflite --samples samples.npz --from-field",
            "edgekit compile model.tflite --samples samples.npz     # in one step",
        ),
    )(quantize)


def quantize(
    model: FloatModel = None,
    samples: Samples = None,
    from_field: _FromField = False,
    store: Store = None,
    evaluate: Labels = None,
    output: _Output = None,
    min_cosine: _MinCosine = 0.995,
    mean: Mean = None,
    scale: Scale = None,
    channels: Channels = "rgb",
    layout: Layout = None,
    board: BoardOption = None,
    input_shape: InputShapes = None,
    signature: Signature = "",
    as_json: Json = False,
) -> None:
    """Quantize a float model to 8 bits, calibrated on samples."""
    from edgekit.host.cli.progress import working
    from edgekit.host.cli.rewrite_metric import task_metric
    from edgekit.host.common.files import atomic_write
    from edgekit.host.compiler.inputs import InputOptions
    from edgekit.host.compiler.transforms.quantize import quantized_file
    from edgekit.host.deploy.connections import profile_of
    from edgekit.kb.targets.board import load_board

    path, file = model_and_output(model, output, "int8")
    found = given_samples(samples)
    if not 0 < min_cosine < 1:
        raise InputError(f"--min-cosine: expected a number between 0 and 1, found {min_cosine:g}")
    graph = open_model(path, file, input_shape, signature, "quantize")
    scaling = numbers("--mean", mean), numbers("--scale", scale)
    options = InputOptions(*scaling, channels, layout)
    ranges = _field_ranges(path, from_field, store)
    name = board_name(board)
    profile = load_board(profile_of(name))
    task = task_metric(path, graph, found, evaluate, options)
    labels = None if task else evaluate
    with working(f"quantizing {path.name}"):
        made = quantized_file(path, graph, found, profile, labels, min_cosine, options, ranges)
    atomic_write(file, written(made.graph, path, file, made.report.loss))
    metric = task.compare(graph, made.graph) if task else None
    times = times_of(graph, made.graph, name)
    if as_json:
        _emit_json(path, file, made, times, ranges, metric)
    else:
        _print_report(path, file, made.report, times, ranges, metric)


def _field_ranges(path: Path, wanted: bool, store: str | None) -> FieldRanges | None:
    if not wanted:
        if store is not None:
            raise InputError("--store: expected --from-field with it, found none")
        return None
    from edgekit.host.cli.profile_write import store_of
    from edgekit.host.compiler.frontends import model_hash
    from edgekit.host.fleet.profiles import field_ranges

    return field_ranges(store_of(store), model_hash(path), path.name)


def _emit_json(
    path: Path,
    file: Path,
    made: Quantized,
    times: RewriteTimes | None,
    ranges: FieldRanges | None,
    metric: Metric | None,
) -> None:
    """The document edgekit.quantize/1."""
    from edgekit.host.cli.output import emit

    report, of = made.report, made.report.classes
    classes = of and {
        "same": of.same,
        "float_right": of.right_before,
        "quantized_right": of.right_after,
    }
    emit(
        {
            "schema": "edgekit.quantize/1",
            **fields_of(path, file, report, metric),
            "target": report.target,
            "recipe": report.recipe,
            "field": ranges
            and {
                "tensors": len(ranges.tensors),
                "boards": ranges.boards,
                "inferences": ranges.inferences,
            },
            "classes": classes,
            "layers": [asdict(layer) for layer in report.layers],
            "estimate": times
            and {"board": times.board, "float_ms": times.before_ms, "int8_ms": times.after_ms},
        }
    )


def _print_report(
    path: Path,
    file: Path,
    report: QuantizeReport,
    times: RewriteTimes | None,
    ranges: FieldRanges | None,
    metric: Metric | None,
) -> None:
    from edgekit.host.cli.output import table, warn

    rows = [
        (layer.name[:_NAME_WIDTH], layer.kind, "int8" if layer.quantized else "float",
         f"{layer.difference.cosine:.5f}", f"{layer.difference.snr_db:.1f}")
        for layer in report.layers
    ]  # fmt: skip
    table(("operator", "kind", "computes in", "cosine", "SNR dB"), rows, left=3)
    print(f"recipe   {report.recipe}")
    if ranges is not None:
        print(
            f"field    ranges of {counted(len(ranges.tensors), 'tensor')} from "
            f"{counted(ranges.inferences, 'inference')} on {counted(ranges.boards, 'board')}"
        )
    print(f"samples  {report.seen} to calibrate, {report.unseen} held out for the figures")
    for name, found in report.outputs.items():
        print(f"output   {name}: cosine {found.cosine:.5f}, SNR {found.snr_db:.1f} dB")
    show_effects(path, file, report.classes, ("in floats", "in int8"), times, metric)
    if report.floats:
        print(f"floats   {len(report.floats)} of {len(report.layers)} operators")
    print(f"written  {file}")
    if report.narrow:
        warn(
            f"input {', '.join(report.narrow)}: boards saw more than twice the values of the "
            "samples, which choose the layers in floats and measure the loss; give samples like "
            "those of the field"
        )
    if report.cosine < report.target:
        warn(
            f"the target was not reached: an output's cosine is {report.cosine:.5f}, expected at "
            f"least {report.target:.10g}; more float operators would cost too much time: give "
            "more samples like those the model will see, or keep the float model"
        )
