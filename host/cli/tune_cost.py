"""`edgekit tune cost` and `edgekit tune order`: the cost model's constants, and orders that ran."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.host.cli.options import (
    AllowNoise,
    Board,
    InputShapes,
    Json,
    Kind,
    Model,
    Over,
    RandomSeed,
    board_name,
    examples,
    file_kind,
    model_file,
    one_input_shape,
)
from edgekit.host.errors import InputError
from edgekit.host.options import CompileOptions

if TYPE_CHECKING:
    from edgekit.host.api import Device
    from edgekit.host.bundle import Bundle
    from edgekit.host.estimate.model import ModelEstimate
    from edgekit.host.tune.cost import Accuracy, Sample
    from edgekit.host.tune.orders import Timed

_PERCENT = 100.0
Seconds = Annotated[
    int, typer.Option("--seconds", metavar="S", min=1, max=60, help="Of each timing.")
]
Models = Annotated[
    list[Path] | None,
    typer.Option(
        "--model",
        metavar="FILE",
        show_default=False,
        help="Time its operators; may be given several times. Default: all in ./models.",
    ),
]
Rounds = Annotated[int, typer.Option("--rounds", metavar="N", min=1, max=100)]


def register(group: typer.Typer) -> None:
    """Adds the commands to the group `tune`."""
    group.command(
        "cost",
        epilog=examples(
            "edgekit tune cost --board local",
            "edgekit tune cost --board a57 --model models/face_detection_short_range.tflite",
        ),
    )(tune_cost)
    group.command(
        "order",
        epilog=examples("edgekit tune order models/okay_nabu.tflite -o best.ekb"),
    )(tune_order)


def tune_cost(
    board: Board = None,
    model: Models = None,
    rounds: Rounds = 2,
    seconds: Seconds = 1,
    allow_noise: AllowNoise = False,
    via: Over = None,
    as_json: Json = False,
) -> None:
    """Measure operators on a board, and calibrate the cost model that chooses orders and units.

    What was measured is used by every later compile for such boards. On a virtual board the times
    are the emulator's, or counted instructions if it is up with --counting; what a real core would
    take is shown beside them.
    """
    from edgekit.host.api import connect
    from edgekit.host.cli.estimated import estimated_document, sentence_of
    from edgekit.host.cli.output import emit
    from edgekit.host.schedule.calibration import save_calibration
    from edgekit.host.schedule.cost import CostModel
    from edgekit.host.tune.cost import accuracy, accuracy_elsewhere, calibrate
    from edgekit.kb.board import load_board

    device = connect(board_name(board), via=via)
    samples, estimates = _measure(device, model or _models(), rounds, seconds, allow_noise)
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
    _show("profile", before)
    _show("fitted", after)
    if elsewhere:
        _show("unseen", elsewhere)
    print(f"kept in   {path}")


def _measure(
    device: Device, models: list[Path], rounds: int, seconds: int, allow_noise: bool
) -> tuple[list[Sample], list[ModelEstimate]]:
    """Times of operators on a board that is quiet before and after, and what a real core would
    take where it is an emulated one."""
    from edgekit.host.cli.estimated import estimate_of
    from edgekit.host.cli.output import note
    from edgekit.host.cli.progress import stages
    from edgekit.host.release import check_quiet
    from edgekit.host.tune.cost_board import measure

    watched = not (device.emulated or allow_noise)
    if device.emulated:
        note(f"board '{device.name}' is emulated: times are the emulator's, or instructions")
    if watched:
        check_quiet(device.transport, threads=1)
    estimates: list[ModelEstimate] = []

    def estimate(bundle: Bundle) -> None:
        if found := estimate_of(device, bundle, threads=1):
            estimates.append(found)

    with stages(f"measuring {device.name}") as tell:
        samples = measure(device, models, rounds, seconds, tell, estimate)
    if watched:
        check_quiet(device.transport, threads=1)
    return samples, estimates


def _show(label: str, found: Accuracy) -> None:
    print(
        f"{label:9} median |error| {found.median_error * _PERCENT:.1f} %, "
        f"p90 {found.p90_error * _PERCENT:.1f} %, rank correlation {found.rank_correlation:.3f}"
    )


def _models() -> list[Path]:
    """All models in ./models, else the project's."""
    folder = Path("models")
    found = sorted(p for p in folder.glob("*") if p.suffix in (".tflite", ".onnx"))
    return found or [model_file(None)]


def tune_order(
    model: Model = None,
    board: Board = None,
    count: Annotated[
        int, typer.Option("--candidates", metavar="N", min=1, max=100, help="Orders to run.")
    ] = 6,
    rounds: Rounds = 3,
    seconds: Seconds = 1,
    random_seed: RandomSeed = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", metavar="FILE.ekb", show_default=False, help="Write the best one."),
    ] = None,
    input_shape: InputShapes = None,
    via: Over = None,
    allow_noise: AllowNoise = False,
    as_json: Json = False,
) -> None:
    """Run different orders of a model's operators on a board, in turns, and keep the best.

    The importer's order, those of least time and least memory by the cost model, and random ones.
    """
    from edgekit.host.api import connect
    from edgekit.host.cli.output import check_writable
    from edgekit.host.cli.progress import stages
    from edgekit.host.compiler import prepare
    from edgekit.host.release import check_quiet
    from edgekit.host.schedule.cost import CostModel
    from edgekit.host.tune.orders import candidates, time_orders
    from edgekit.kb.board import load_board

    path = model_file(model, board_name(board))
    if file_kind(path) is Kind.BUNDLE:
        raise InputError(f"{path}: expected a model, found a bundle, whose order is fixed")
    if output is not None:
        check_writable(output)
    device = connect(board_name(board), via=via)
    checked = not (allow_noise or device.emulated)
    if checked:
        check_quiet(device.transport, threads=1)
    profile = load_board(device.profile)
    asked = CompileOptions(shapes=one_input_shape(input_shape))
    graph = prepare(path, profile, asked)[1].graph
    costs = CostModel.of(profile)
    found = candidates(graph, profile, costs, count, random_seed or 0)
    with stages(f"running {path.name}") as tell:
        timed = time_orders(device, path, profile, asked, found, rounds, seconds, tell)
    if checked:
        check_quiet(device.transport, threads=1)
    if output is not None:
        timed[0].bundle.write(output)
    _show_orders(timed, device, as_json)


def _show_orders(timed: list[Timed], device: Device, as_json: bool) -> None:
    from edgekit.host.cli.estimated import estimate_of, estimated_document, sentence_of
    from edgekit.host.cli.output import byte_size, emit, table
    from edgekit.host.tune.cost import rank_correlation

    ranks = rank_correlation(
        [t.candidate.simulated_us for t in timed], [t.measured_us for t in timed]
    )
    emulated = device.emulated
    estimates = [estimate_of(device, t.bundle, threads=1) for t in timed]
    if as_json:
        orders = [
            {
                "origin": t.candidate.origin,
                "simulated_us": t.candidate.simulated_us,
                "measured_us": t.measured_us,
                "arena_bytes": t.arena_bytes,
                "order": [n.name for n in t.candidate.graph.nodes],
                **({"estimate": estimated_document(found)} if emulated else {}),
            }
            for t, found in zip(timed, estimates, strict=True)
        ]
        emit(
            {
                "schema": "edgekit.tune.order/1",
                "board": device.name,
                "emulated": emulated,
                "rank_correlation": ranks,
                "orders": orders,
            }
        )
        return
    rows = [
        (
            t.candidate.origin,
            f"{t.candidate.simulated_us:.1f}",
            f"{t.measured_us:.1f}",
            byte_size(t.arena_bytes),
        )
        for t in timed
    ]
    measured = "emulated µs" if emulated else "measured µs"
    table(("order", "simulated µs", measured, "arena"), rows, left=1)
    for t, found in zip(timed, estimates, strict=True):
        if found:
            print(f"board    {t.candidate.origin}: {sentence_of(found)}")
    slowest, fastest = timed[-1].measured_us, timed[0].measured_us
    print(
        f"spread   {(slowest / fastest - 1) * _PERCENT:.1f} % between the slowest and the fastest"
    )
    if len({t.candidate.simulated_us for t in timed}) == 1:
        print("model    gives all of them the same time: one unit does all the work")
    else:
        print(f"model    rank correlation {ranks:.3f} with what was measured")
