"""`edgekit lab tune cost`: fits the cost model to operators or layouts measured on a board."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from edgekit.host.cli.options import (
    AllowNoise,
    BoardOption,
    Json,
    TransportOption,
    board_name,
    examples,
    model_file,
    refuse_with,
    refuse_without,
)
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.compiler.costs.layout_table import LayoutTable
    from edgekit.host.deploy.board import Board
    from edgekit.host.deploy.bundle import Bundle
    from edgekit.host.lab.tune.cost import Accuracy, OperatorSample
    from edgekit.host.simulator.model import ModelEstimate

_PERCENT = 100.0
Models = Annotated[
    list[Path] | None,
    typer.Option(
        "--model",
        metavar="FILE",
        show_default=False,
        help="Model to time; repeat it for more (default: all in ./models).",
    ),
]


@dataclass(frozen=True)
class CostWork:
    """What to measure: each model for `seconds` in each of the `rounds`."""

    models: tuple[Path, ...]
    rounds: int
    seconds: int
    allow_noise: bool


def register(group: typer.Typer) -> None:
    """Adds the command to the group `tune`."""
    group.command(
        "cost",
        epilog=examples(
            "edgekit lab tune cost --board local",
            "edgekit lab tune cost --board a57 --model models/face_detection_short_range.tflite",
            "edgekit lab tune cost --board rpi4 --layouts",
        ),
    )(tune_cost)


def tune_cost(
    context: typer.Context,
    board: BoardOption = None,
    model: Models = None,
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="N", min=1, max=100, help="Rounds to measure.")
    ] = 2,
    seconds: Annotated[
        int,
        typer.Option(
            "--seconds", metavar="S", min=1, max=60, help="Duration of each timing in seconds."
        ),
    ] = 1,
    layouts: Annotated[
        bool,
        typer.Option(
            "--layouts", help="Measure layers in both image layouts instead, for compile to choose."
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            show_default=False,
            help="Table to write, with --layouts (default: your own).",
        ),
    ] = None,
    allow_noise: AllowNoise = False,
    transport: TransportOption = None,
    as_json: Json = False,
) -> None:
    """Calibrate the cost model by operators measured on a board."""
    from edgekit.host.cli.estimated import estimate_of
    from edgekit.host.deploy.api import connect

    name = board_name(board)
    if layouts:
        refuse_with(context, "--layouts", "model", "rounds", "seconds")
        _tune_layouts(name, output, allow_noise, transport, as_json)
        return
    refuse_without(context, "--layouts", "output")
    device = connect(name, transport=transport)
    work = CostWork(tuple(model or _find_models()), rounds, seconds, allow_noise)
    calibrate_on(device, work, estimate_of, as_json)


def calibrate_on(
    device: Board,
    work: CostWork,
    estimate: Callable[[Board, Bundle, int], ModelEstimate | None],
    as_json: bool,
) -> None:
    """Calibrates the cost model on a board, and prints how accurate it is. `estimate` gives a
    bundle's time on some threads of the real core of an emulated board, None if it is unknown."""
    from edgekit.host.cli.estimated import estimated_document, sentence_of
    from edgekit.host.cli.output import emit
    from edgekit.host.compiler.costs.calibration import save_calibration
    from edgekit.host.compiler.costs.model import CostModel
    from edgekit.host.lab.tune.cost import accuracy, accuracy_elsewhere, calibrate
    from edgekit.kb.targets.board import load_board

    samples, estimates = _measure_operators(device, work, estimate)
    profile = load_board(device.profile)
    if not samples:
        raise InputError("expected operators with times, found none; name another --model")
    found = calibrate(samples, profile, device.emulated)
    before, after = (
        accuracy(samples, CostModel(profile)),
        accuracy(samples, CostModel(profile, found)),
    )
    elsewhere = accuracy_elsewhere(samples, profile, device.emulated)
    path = save_calibration(profile, found)
    if as_json:
        emit(
            {
                "schema": "edgekit.tune.cost/1",
                "board": device.name,
                "platform": profile.platform,
                "emulated": device.emulated,
                "models": len({s.model for s in samples}),
                "families": len(found.families),
                "before": asdict(before),
                "after": asdict(after),
                "left_out": asdict(elsewhere) if elsewhere else None,
                "file": str(path),
                "estimates": {each.model: estimated_document(each) for each in estimates},
            }
        )
        return
    for each in estimates:
        print(f"board     {each.model}: {sentence_of(each)}")
    print(f"measured  {len(samples)} operators of {len({s.model for s in samples})} models")
    _print_accuracy("profile", before)
    _print_accuracy("fitted", after)
    if elsewhere:
        _print_accuracy("unseen", elsewhere)
    print(f"kept in   {path}")


def _measure_operators(
    device: Board,
    work: CostWork,
    estimate: Callable[[Board, Bundle, int], ModelEstimate | None],
) -> tuple[list[OperatorSample], list[ModelEstimate]]:
    """Operator times on a board that is idle before and after, and on an emulated board also the
    estimates for a real core."""
    from edgekit.host.cli.output import note
    from edgekit.host.cli.progress import stages
    from edgekit.host.deploy.release import check_quiet
    from edgekit.host.lab.tune.cost import measure

    watched = not (device.emulated or work.allow_noise)
    if device.emulated:
        note(f"board '{device.name}' is emulated: costs are emulator times or instruction counts")
    if watched:
        check_quiet(device, threads=1)
    estimates: list[ModelEstimate] = []

    def take(bundle: Bundle) -> None:
        if found := estimate(device, bundle, 1):
            estimates.append(found)

    with stages(f"measuring {device.name}") as tell:
        samples = measure(device, work.models, work.rounds, work.seconds, tell, take)
    if watched:
        check_quiet(device, threads=1)
    return samples, estimates


def _print_accuracy(label: str, found: Accuracy) -> None:
    print(
        f"{label:9} median |error| {found.median_error * _PERCENT:.1f}%, "
        f"p90 {found.p90_error * _PERCENT:.1f}%, rank correlation {found.rank_correlation:.3f}"
    )


def _find_models() -> list[Path]:
    """All models in ./models, or else the project's."""
    folder = Path("models")
    found = sorted(p for p in folder.glob("*") if p.suffix in (".tflite", ".onnx"))
    return found or [model_file(None)]


def _tune_layouts(
    name: str,
    output: Path | None,
    allow_noise: bool,
    transport: Literal["ssh", "serial"] | None,
    as_json: bool,
) -> None:
    """Measures layers in both image layouts, for compile to choose, or estimates them."""
    from edgekit.host.cli.tune_estimated import device_to_measure
    from edgekit.host.compiler.tables.layouts import user_layout_table
    from edgekit.host.deploy.api import connect
    from edgekit.host.deploy.connections import profile_of
    from edgekit.host.deploy.release import check_quiet
    from edgekit.host.lab.tune.layouts import estimate_layouts, tune_layouts
    from edgekit.host.simulator.target import has_model
    from edgekit.kb.targets.board import load_board

    device = device_to_measure(name, transport)
    profile = load_board(profile_of(name) if device is None else device.profile)
    path = output or user_layout_table(profile)
    if device is None and not has_model(profile):
        device = connect(name, transport=transport)
    if device is None:
        found = estimate_layouts(profile, path)
    else:
        if not (allow_noise or device.emulated):
            check_quiet(device, threads=1)
        found = tune_layouts(device, path, allow_noise=allow_noise)
    show_layouts(found, path, as_json)


def show_layouts(found: LayoutTable, path: Path, as_json: bool) -> None:
    """Prints the costs of a table that was written to `path`."""
    from edgekit.host.cli.output import emit, table
    from edgekit.host.lab.tune.layouts import left_out_error

    cases = [[c.kernel, *c.work.sizes, c.cost] for c in found.cases]
    if as_json:
        emit(
            {
                "schema": "edgekit.tune.layouts/1",
                "table": str(path),
                "unit": found.unit,
                "error": left_out_error(found),
                "cases": cases,
            }
        )
        return
    rows = [[str(name), *(f"{v:,.0f}" for v in values)] for name, *values in cases]
    table(["kernel", "products", "values", "pieces", "inputs", found.unit], rows)
    print(f"median error of a cost estimated from the others: {left_out_error(found):.1%}")
    print(f"kept in {path}")
