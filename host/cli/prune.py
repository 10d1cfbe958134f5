"""`edgekit prune`: zeroes weights of a float model and refits the rest; reports the loss."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    board_name,
    examples,
)
from edgekit.host.cli.run import Channels, Layout, Mean, Scale, numbers
from edgekit.host.common.text import counted

if TYPE_CHECKING:
    from edgekit.host.cli.rewrite_metric import Metric
    from edgekit.host.compiler.ir.types import Graph
    from edgekit.host.compiler.transforms.prune.report import PrunedLayer, PruneReport

_KEPT = 0.5  # of the metric: with less, a model is of no use
_NAME_WIDTH = 40
_Sparsity = Annotated[
    float | None,
    typer.Option(
        "--sparsity",
        metavar="SHARE",
        show_default=False,
        help="Share of the pruned layers' weights to set to 0 (default: 0.8).",
    ),
]
_Pattern = Annotated[
    str,
    typer.Option(
        "--pattern",
        metavar="free|block|n:m",
        help="Single weights, pairs of neighboring outputs, or all but n of each m inputs.",
    ),
]
_AllLayers = Annotated[
    bool,
    typer.Option(
        "--all-layers",
        help="Also prune larger convolutions: a smaller file, but no speedup.",
    ),
]
_Output = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        show_default=False,
        help="File to write (default: ./MODEL.pruned.tflite, or .onnx for an .onnx model).",
    ),
]


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command(
        "prune",
        epilog=examples(
            "edgekit prune model.tflite --samples samples.npz --sparsity 0.7 --board rpi4",
            "edgekit prune model.onnx --samples photos/ --pattern 2:4 -o model.pruned.tflite",
        ),
    )(prune)


def prune(
    model: FloatModel = None,
    samples: Samples = None,
    evaluate: Labels = None,
    sparsity: _Sparsity = None,
    pattern: _Pattern = "free",
    all_layers: _AllLayers = False,
    output: _Output = None,
    mean: Mean = None,
    scale: Scale = None,
    channels: Channels = "rgb",
    layout: Layout = None,
    board: BoardOption = None,
    input_shape: InputShapes = None,
    signature: Signature = "",
    as_json: Json = False,
) -> None:
    """Set weights of a float model to 0, and fit the rest to samples."""
    from edgekit.host.cli.progress import working
    from edgekit.host.cli.rewrite_metric import task_metric
    from edgekit.host.common.files import atomic_write
    from edgekit.host.compiler.inputs import InputOptions
    from edgekit.host.compiler.transforms.prune import pattern_of, pruned_file

    zeros = pattern_of(pattern, sparsity)
    path, file = model_and_output(model, output, "pruned")
    found = given_samples(samples)
    graph = open_model(path, file, input_shape, signature, "prune")
    scaling = numbers("--mean", mean), numbers("--scale", scale)
    options = InputOptions(*scaling, channels, layout)
    task = task_metric(path, graph, found, evaluate, options)
    labels = None if task else evaluate
    with working(f"pruning {path.name}"):
        careful = sparsity is None and not zeros.of
        made = pruned_file(path, graph, found, zeros, labels, all_layers, options, careful)
    atomic_write(file, written(made.graph, path, file))
    metric = task.compare(graph, made.graph) if task else None
    name = board_name(board)
    sparse, times = _sparse_layers(made.graph, name), times_of(graph, made.graph, name)
    show = _emit_json if as_json else _print_report
    show(path, file, made.report, name, sparse, times, metric)


def _sparse_layers(graph: Graph, board: str) -> set[str]:
    """Names of the layers that `compile` gives sparse kernels on a board."""
    from edgekit.host.compiler.driver import prepare_graph
    from edgekit.host.compiler.ir import ops
    from edgekit.host.compiler.options import DEFAULT_OPTIONS
    from edgekit.host.deploy.connections import profile_of
    from edgekit.kb.targets.board import load_board

    made = prepare_graph(graph, load_board(profile_of(board)), DEFAULT_OPTIONS)
    kinds = ops.ChannelsFirstConv2D | ops.PrunedFullyConnected
    return {made.origin.get(n.name, n.name) for n in made.graph.nodes if isinstance(n.op, kinds)}


def _execution_kind(layer: PrunedLayer, sparse: Collection[str]) -> str:
    return "sparse" if layer.name in sparse else "dense"


def _emit_json(
    path: Path,
    file: Path,
    report: PruneReport,
    board: str,
    sparse: Collection[str],
    times: RewriteTimes | None,
    metric: Metric | None,
) -> None:
    """The document edgekit.prune/1."""
    from edgekit.host.cli.output import emit

    layers: list[dict[str, Any]] = [
        {**asdict(layer), "runs": _execution_kind(layer, sparse)} for layer in report.layers
    ]
    emit(
        {
            "schema": "edgekit.prune/1",
            **fields_of(path, file, report, metric),
            "sparsity": report.sparsity,
            "peaks": report.peaks,
            "broken": report.broken or None,
            "broken_at": report.broken_at or None,
            "classes": report.classes and asdict(report.classes),
            "board": board,
            "layers": layers,
            "estimate": times and asdict(times),
        }
    )


def _print_report(
    path: Path,
    file: Path,
    report: PruneReport,
    board: str,
    sparse: Collection[str],
    times: RewriteTimes | None,
    metric: Metric | None,
) -> None:
    from edgekit.host.cli.output import table, warn

    rows = [
        (layer.name[:_NAME_WIDTH], layer.kind, _execution_kind(layer, sparse),
         f"{layer.sparsity:.0%}", f"{layer.difference.cosine:.5f}",
         f"{layer.difference.snr_db:.1f}")
        for layer in report.layers
    ]  # fmt: skip
    table(("layer", "kind", "runs", "zeros", "cosine", "SNR dB"), rows, left=3)
    pruned = report.pruned
    print(f"pruned   {len(pruned)} of {len(report.layers)} layers, {report.sparsity:.1%} zeros")
    if report.broken_at:
        print(f"fewer    zeros than {report.broken_at:.0%}, which would probably break the model")
    reasons = [layer.dense for layer in report.layers if layer.dense]
    for why in dict.fromkeys(reasons):
        print(f"dense    {counted(reasons.count(why), 'layer')}: {why}")
    fast = sum(layer.name in sparse for layer in pruned)
    print(f"runs     {fast} of {len(pruned)} pruned layers sparse on {board}, where that is faster")
    print(f"samples  {report.seen} for fitting, {report.unseen} held out for the figures")
    for name, found in report.outputs.items():
        print(
            f"output   {name}: cosine {found.cosine:.5f}, SNR {found.snr_db:.1f} dB, "
            f"peaks off by {report.peaks[name]:.2f} of its deviation"
        )
    show_effects(path, file, report.classes, ("before", "after"), times, metric)
    print(f"written  {file}")
    if metric is not None and (metric.after or 0) < _KEPT * (metric.before or 0):
        warn(
            f"the model is broken: {metric.name} fell from {metric.before:.4f} to "
            f"{metric.after or 0:.4f}; try fewer zeros, or more and more varied samples"
        )
    elif name := report.broken:
        warn(
            f"the model is probably broken: peaks of {name} are off by {report.peaks[name]:.1f} "
            "standard deviations, expected at most 1; try fewer zeros, or more and more varied "
            "samples"
        )
