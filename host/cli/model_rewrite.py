"""Helpers for commands that shrink a model: files, sample options, times."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from edgekit.host.cli import complete
from edgekit.host.cli.compile_options import one_input_shape
from edgekit.host.cli.options import FileKind, file_kind, file_named, model_file
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.specs import LossSpec
    from edgekit.host.cli.rewrite_metric import Metric
    from edgekit.host.compiler.ir.types import Graph
    from edgekit.host.compiler.transforms.prune.report import PruneReport
    from edgekit.host.compiler.transforms.quantize.measure import Classes
    from edgekit.host.compiler.transforms.quantize.report import QuantizeReport
    from edgekit.host.deploy.bundle import Bundle
    from edgekit.kb.targets.board import BoardProfile

FloatModel = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        show_default=False,
        autocompletion=complete.models,
        help="Float model (.tflite, .onnx, .prototxt) (default: edgekit.toml's).",
    ),
]
Samples = Annotated[
    Path | None,
    typer.Option(
        "--samples",
        metavar="FILE.npz or FOLDER",
        show_default=False,
        help="Sample inputs: arrays by input name, or a folder of pictures or sounds.",
    ),
]
Labels = Annotated[
    Path | None,
    typer.Option(
        "--evaluate",
        metavar="LABELS",
        show_default=False,
        help="Labels as for run --evaluate, or a class number per line, or an .npy file.",
    ),
]
_SUFFIXES = (".tflite", ".onnx")
_TIMEOUT = 3600.0  # seconds, per estimate


@dataclass(frozen=True)
class RewriteTimes:
    """Estimated milliseconds of the original and the modified graph, on one thread of a board;
    `half_ms`: of the original in half precision, by the cost model, if the board computes in it."""

    board: str
    before_ms: float
    after_ms: float
    half_ms: float | None = None


def model_and_output(model: str | None, output: str | None, what: str) -> tuple[Path, Path]:
    """The float model, and the output file, by default ./MODEL.`what`.tflite or .onnx."""
    path = model_file(model)
    if file_kind(path) is FileKind.BUNDLE:
        raise InputError(f"{path}: expected a float model, found a bundle; name its model")
    suffix = ".onnx" if path.suffix == ".onnx" else ".tflite"
    file = file_named(output or "", f"{path.stem}.{what}{suffix}")
    if file.suffix not in _SUFFIXES:
        raise InputError(
            f"{file}: expected a name ending in {' or '.join(_SUFFIXES)}, found "
            f"{file.suffix or 'none'}"
        )
    if file.exists() and file.samefile(path):
        raise InputError(f"{file}: expected a file to write, found the model; name another")
    return path, file


def open_model(
    path: Path,
    file: Path,
    shapes: list[str] | None,
    signature: str,
    command: Literal["quantize", "prune"],
) -> Graph:
    """The graph of a float model. Fails before the work begins if `file` cannot be written or its
    format lacks an operator."""
    from edgekit.host.cli.output import check_writable
    from edgekit.host.compiler.frontends import import_model
    from edgekit.host.compiler.transforms.quantize.prepare import float_form

    check_writable(file)
    graph = import_model(path, one_input_shape(shapes, path), signature)
    written(float_form(graph, command), path, file)
    return graph


def given_samples(samples: Path | None) -> Path:
    if samples is None:
        raise InputError("--samples: expected an .npz file or a folder of samples, found none")
    return samples


def written(graph: Graph, source: Path, file: Path, loss: LossSpec | None = None) -> bytes:
    """Serializes the graph in the format of `file`, with the recorded loss; .tflite files keep the
    model's metadata."""
    from edgekit.host.compiler.exporters import write_onnx, write_tflite
    from edgekit.host.compiler.inputs import loss_entry, read_attached

    entry = loss_entry(loss) if loss else {}
    if file.suffix == ".onnx":
        return write_onnx(graph, entry)
    attached = read_attached(source)
    return write_tflite(graph, {**attached.metadata, **entry}, attached.files)


def times_of(before: Graph, after: Graph, board: str) -> RewriteTimes | None:
    """Estimates both graphs on a board; None if its core has no model."""
    from edgekit.host.cli.estimated import estimate_bundle
    from edgekit.host.deploy.connections import profile_of
    from edgekit.host.simulator.target import has_model
    from edgekit.kb.targets.board import load_board

    profile = load_board(profile_of(board))
    if not has_model(profile) or profile.nna is not None:
        return None
    was, now = (
        estimate_bundle(_compile_to_bundle(graph, profile), profile, 1, _TIMEOUT).total_ms
        for graph in (before, after)
    )
    share = half_share(before, profile)
    return RewriteTimes(profile.name, was, now, None if share is None else was * share)


def half_share(graph: Graph, board: BoardProfile) -> float | None:
    """The cost of a float graph in half precision, relative to f32, on one thread of a board; None
    if the board does not compute in it."""
    from edgekit.host.compiler.costs.model import CostModel
    from edgekit.host.compiler.transforms.passes.half import to_half
    from edgekit.host.compiler.transforms.passes.pipeline import run_passes

    if not board.computes_half:
        return None
    exact, _ = run_passes(graph)
    model = CostModel.of(board)
    half, full = (
        sum(model.cost(made, node) for node in made.nodes)
        for made in (to_half(exact, threads=1), exact)
    )
    return half / full if full else None


def fields_of(
    path: Path, file: Path, report: PruneReport | QuantizeReport, metric: Metric | None
) -> dict[str, object]:
    """The fields that the JSON documents of both commands have."""
    return {
        "model": path.name,
        "output": str(file),
        "samples": {"calibration": report.seen, "held_out": report.unseen},
        "bytes": {"before": path.stat().st_size, "after": file.stat().st_size},
        "outputs": {name: asdict(found) for name, found in report.outputs.items()},
        "metric": _metric_fields(report.classes, metric),
    }


def _metric_fields(classes: Classes | None, metric: Metric | None) -> dict[str, object] | None:
    """The metric of the task, which is top-1 if class numbers are given."""
    if metric is not None:
        return {"name": metric.name, "before": metric.before, "after": metric.after}
    if classes is None or classes.right_before is None:
        return None
    return {"name": "top-1", "before": classes.right_before, "after": classes.right_after}


def show_effects(
    path: Path,
    file: Path,
    classes: Classes | None,
    models: tuple[str, str],
    times: RewriteTimes | None,
    metric: Metric | None,
) -> None:
    """Prints the effects on classes, the task, size and time; `models` are words for the two
    models."""
    from edgekit.host.cli.output import byte_size

    if classes is not None:
        print(_classes_line(classes, *models))
    if metric is not None:
        print(_metric_line(metric, *models))
    before, after = path.stat().st_size, file.stat().st_size
    print(f"size     {byte_size(before)} before, {byte_size(after)} after")
    _show_times(times)


def _classes_line(classes: Classes, before: str, after: str) -> str:
    text = f"classes  {classes.same:.1%} as the float model's"
    if classes.right_before is not None:
        text += f"; right: {classes.right_before:.1%} {before}, {classes.right_after:.1%} {after}"
    return text


def _metric_line(metric: Metric, before: str, after: str) -> str:
    if metric.before is None or metric.after is None:
        return f"{metric.name:8} none: nothing to find in {metric.files} files held out"
    return (
        f"{metric.name:8} {metric.before:.4f} {before}, {metric.after:.4f} {after}, of "
        f"{metric.files} files held out"
    )


def _show_times(times: RewriteTimes | None) -> None:
    """Prints the times, if there are any, and warns if there is no speedup."""
    from edgekit.host.cli.output import milliseconds, warn

    if times is None:
        return
    was, now = milliseconds(times.before_ms), milliseconds(times.after_ms)
    print(f"time     estimated {was} ms before, {now} ms after on {times.board}, 1 thread")
    if times.after_ms >= times.before_ms:
        warn(f"expected a faster model on {times.board}, found no gain; keep the original")
    elif times.half_ms is not None and times.after_ms >= times.half_ms:
        warn(
            f"expected a model faster than half precision on {times.board}, found about "
            f"{milliseconds(times.half_ms)} ms for the original with --precision auto"
        )


def _compile_to_bundle(graph: Graph, board: BoardProfile) -> Bundle:
    from edgekit.host.compiler.driver import build_graph, prepare_graph
    from edgekit.host.compiler.ir.identity import identity
    from edgekit.host.compiler.options import DEFAULT_OPTIONS
    from edgekit.host.deploy.bundle import build_bundle

    options = replace(DEFAULT_OPTIONS, threads=1)
    made = prepare_graph(graph, board, options)
    return build_bundle(build_graph(made, identity(graph), board, None, options), board)
