"""`edgekit compare`: where a model on a board loses accuracy, operator by operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.cli.compile_options import takes_compile_options
from edgekit.host.cli.options import (
    BoardOption,
    FileKind,
    Json,
    ModelOnly,
    board_name,
    examples,
    file_kind,
    model_file,
    writes,
)
from edgekit.host.compiler.options import DEFAULT_OPTIONS, CompileOptions
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.compiler.ir.types import Array
    from edgekit.host.lab.compare.comparison import Comparison
    from edgekit.host.lab.compare.layers import LayerError, TensorError
    from edgekit.kb.targets.board import BoardProfile

_SHOWN = 12  # operators that bring loss in
_LESS_IMPORTANT = (7, 1, 5)  # columns: time, kind, saturated
_Reference = Annotated[
    Path | None,
    typer.Option(
        "--reference",
        metavar="FLOAT",
        show_default=False,
        help="The float, or another release's, model (default: the model's own in float).",
    ),
]
_Input = Annotated[
    Path | None,
    typer.Option(
        "--input",
        metavar="FILE",
        show_default=False,
        help="Arrays, a picture or a sound to compute (default: the health check's input).",
    ),
]
_Html = Annotated[
    Path | None,
    typer.Option(
        "--html",
        parser=writes("compare.html"),
        metavar="FILE.html",
        show_default=False,
        help="Write a page with the graph, colored by error or by time.",
    ),
]
_NodeData = Annotated[
    Path | None,
    typer.Option(
        "--node-data",
        parser=writes("node_data.json"),
        metavar="FILE.json",
        show_default=False,
        help="Write node data for Model Explorer: errors, and times as FILE.time.json.",
    ),
]


@dataclass(frozen=True)
class _Times:
    """Of a release's operators on a board, by name; `how`: estimated or measured."""

    model: str
    board: str
    release: str
    how: str
    microseconds: dict[str, float]


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command(
        "compare",
        epilog=examples(
            "edgekit compare int8.tflite --board rpi4 --reference float.onnx",
            "edgekit compare float.onnx --board rpi4 --samples pictures/ --html compare.html",
            "edgekit compare float.onnx --board rpi5 --precision f16 --input photo.jpg",
        ),
    )(compare)


@takes_compile_options()
def compare(
    model: ModelOnly = None,
    board: BoardOption = None,
    reference: _Reference = None,
    input_file: _Input = None,
    options: CompileOptions = DEFAULT_OPTIONS,
    html: _Html = None,
    node_data: _NodeData = None,
    as_json: Json = False,
) -> None:
    """Compare a model on a board with the float model, by operator."""
    from edgekit.host.cli.estimate import TIMEOUT
    from edgekit.host.cli.output import check_writable, emit
    from edgekit.host.cli.progress import working
    from edgekit.host.deploy.connections import profile_of
    from edgekit.host.lab.compare.comparison import Request, compare_model
    from edgekit.host.simulator.target import target_of
    from edgekit.kb.targets.board import LOCAL, load_board

    for file in (html, node_data):
        if file is not None:
            check_writable(file)
    path = model_file(model)
    profile = load_board(profile_of(board_name(board)))
    # Fail now if the core has no model of time, and is not that of this machine.
    target = None if profile.name == LOCAL else target_of(profile)
    _check_models(path, reference, options)
    inputs = {} if input_file is None else _read_input(path, input_file, options)
    bundle, cost = _timed(path, profile, options)
    request = Request(path, profile, options, reference, inputs, TIMEOUT)
    with working(f"comparing {path.name} on {profile.name}"):
        found = compare_model(request, bundle, target)
    _write_files(found, cost, html, node_data)
    if as_json:
        emit(_document(found, cost))
    else:
        _show(found, cost, rounds=options.weights is not None or options.precision != "f32")


def _check_models(path: Path, reference: Path | None, options: CompileOptions) -> None:
    if file_kind(path) is FileKind.BUNDLE:
        raise InputError(f"{path}: expected a model, found a bundle; name the model it was made of")
    if reference is not None:
        model_file(str(reference))
    if options.more_shapes or len(options.signatures) > 1:
        raise InputError(
            "expected one shape of each input and one signature, found several; "
            "compare them one by one"
        )


def _read_input(path: Path, file: Path, options: CompileOptions) -> Mapping[str, Array]:
    """The first input in a file, in the form that the model takes."""
    from edgekit.host.compiler.frontends import import_model
    from edgekit.host.compiler.transforms.passes.tie import tie_states
    from edgekit.host.compiler.transforms.quantize.samples import read_input

    graph = import_model(path, options.shapes, options.signature, max_rows=options.max_rows)
    return read_input(file, tie_states(graph, options.states, graph.output_names))


def _timed(path: Path, profile: BoardProfile, options: CompileOptions) -> tuple[Any, _Times]:
    """The bundle, and the times of its operators."""
    from edgekit.device.runtime.agent.specs import PlacementRequest
    from edgekit.host.cli.compile import compile_bundle
    from edgekit.host.cli.estimate import TIMEOUT
    from edgekit.host.cli.estimate_release import select_placement
    from edgekit.host.cli.estimated import estimate_bundle
    from edgekit.host.lab.compare.here import times_here
    from edgekit.kb.targets.board import LOCAL

    bundle = compile_bundle(path, profile.name, options=options, profile=profile)
    manifest = bundle.manifest
    if profile.name == LOCAL:
        measured = times_here(manifest, bundle.files)
        return bundle, _Times(manifest.model.name, LOCAL, manifest.id, "measured", measured)
    where, threads = select_placement(bundle, profile, PlacementRequest())
    cost = estimate_bundle(bundle, where, threads, TIMEOUT)
    estimated = {o.spec.name: 1e3 * cost.milliseconds(o.cost.cycles) for o in cost.operators}
    return bundle, _Times(cost.model, cost.board, cost.release, "estimated", estimated)


def _write_files(
    found: Comparison, cost: _Times, html: Path | None, node_data: Path | None
) -> None:
    from edgekit.host.cli.compare_page import compared_page, node_data_json
    from edgekit.host.common.files import atomic_write

    times = cost.microseconds
    if html is not None:
        atomic_write(html, compared_page(found, times, cost.model, cost.board).encode())
    if node_data is not None:
        atomic_write(node_data, node_data_json(found, None))
        atomic_write(node_data.with_suffix(".time.json"), node_data_json(found, times))


def _document(found: Comparison, cost: _Times) -> dict[str, Any]:
    key, times = f"{cost.how}_us", cost.microseconds
    layers = [{**asdict(each), key: times.get(each.name)} for each in found.layers]
    return {
        "schema": "edgekit.compare/1",
        "model": cost.model,
        "board": cost.board,
        "release": cost.release,
        "reference": found.against,
        "operators": layers,
        "outputs": {name: asdict(each) for name, each in found.outputs.items()},
        "brought": [asdict(each) for each in found.brought],
        "tried": found.tried,
        "rounding": found.rounding,
        "equalized": list(found.equalized),
    }


def _show(found: Comparison, cost: _Times, rounds: bool) -> None:
    """`rounds`: the compiler stores weights or computes in fewer bits."""
    from edgekit.host.cli.output import table, three_digits
    from edgekit.host.cli.report import end_of

    times = cost.microseconds
    print(f"model    {cost.model} on {cost.board}")
    print(f"against  {found.against}")
    for name, error in found.outputs.items():
        print(f"output   {name}: {_sentence(error)}")
    heads = ("operator", "kind", "SQNR dB", "cosine", "largest error", "saturated", "kernel", "µs")
    rows = [
        (
            end_of(each.name),
            each.kind,
            *_cells(each.board),
            _kernel_text(each),
            three_digits(times[each.name]) if each.name in times else "-",
        )
        for each in found.layers
    ]
    table(heads, rows, left=2, drop=_LESS_IMPORTANT, names=True)
    if found.scaling:
        print(f"note     {found.scaling}")
    if not found.rounding and rounds:
        print("loss     not split by operator, as only 8-bit models are; see where SQNR falls")
        return
    if not found.rounding:
        print("loss     no operator rounds to fewer bits")
        return
    print(f"loss     of {found.rounding} operators that round, {found.tried} were tried in float:")
    rows = [(end_of(b.name), b.kind, f"{b.db:+.2f}") for b in found.brought[:_SHOWN]]
    table(("without rounding in", "kind", "outputs gain dB"), rows, left=2)


def _cells(error: TensorError | None) -> tuple[str, ...]:
    if error is None:
        return ("-",) * 4
    saturated = f"{100 * error.saturated:.1f}%"
    return f"{error.sqnr_db:.1f}", f"{error.cosine:.5f}", f"{error.largest:.3g}", saturated


def _kernel_text(layer: LayerError) -> str:
    """How far the board's kernel is from the operator's definition."""
    return "exact" if layer.steps == 0 else f"{layer.steps:.1g} off"


def _sentence(error: TensorError) -> str:
    return (
        f"SQNR {error.sqnr_db:.1f} dB, cosine {error.cosine:.5f}, largest error {error.largest:.3g}"
    )
