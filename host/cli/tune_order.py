"""`edgekit lab tune order`: measures execution orders of a model's operators and keeps the best."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.host.cli.compile_options import InputShapes, one_input_shape
from edgekit.host.cli.options import (
    AllowNoise,
    BoardOption,
    Json,
    Kind,
    Model,
    TransportOption,
    board_name,
    examples,
    file_kind,
    model_file,
)
from edgekit.host.cli.tune_cost import Rounds, Seconds
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.lab.tune.orders import OrderJob, OrderOutcome, Timed

Seed = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, help="Seed of the search for orders.")
]
_PERCENT = 100.0


def register(group: typer.Typer) -> None:
    """Adds the command to the group `tune`."""
    group.command(
        "order",
        epilog=examples(
            "edgekit lab tune order models/okay_nabu.tflite -o best.ekb",
            "edgekit lab tune order models/pose_detection.tflite --board rpi4",
        ),
    )(tune_order)


def tune_order(
    context: typer.Context,
    model: Model = None,
    board: BoardOption = None,
    count: Annotated[
        int, typer.Option("--candidates", metavar="N", min=1, max=100, help="Orders to measure.")
    ] = 6,
    rounds: Rounds = 3,
    seconds: Seconds = 1,
    seed: Seed = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", metavar="FILE.ekb", show_default=False, help="File to write the best bundle to."
        ),
    ] = None,
    input_shape: InputShapes = None,
    transport: TransportOption = None,
    allow_noise: AllowNoise = False,
    as_json: Json = False,
) -> None:
    """Measure orders of a model's operators, and keep the best."""
    from edgekit.host.cli.output import check_writable, emit
    from edgekit.host.cli.progress import stages
    from edgekit.host.cli.tune_estimated import device_to_measure
    from edgekit.host.deploy.connections import profile_of
    from edgekit.host.deploy.release import check_quiet
    from edgekit.host.lab.tune.orders import BoardOrders, OrderJob, OrderSearch
    from edgekit.host.lab.tune.orders import tune_orders as tune
    from edgekit.host.simulator.target import target_of
    from edgekit.kb.targets.board import load_board

    name = board_name(board)
    path = model_file(model, name)
    if file_kind(path) is Kind.BUNDLE:
        raise InputError(f"{path}: expected a model, found a bundle, whose order is fixed")
    if output is not None:
        check_writable(output)
    device = device_to_measure(name, transport)
    profile = load_board(profile_of(name))
    target = target_of(profile) if device is None else None
    checked = device is not None and not (allow_noise or device.emulated)
    threads = (device.threads if device else None) or 1

    def check() -> None:
        if device is not None and checked:
            check_quiet(device, threads)

    check()
    asked = CompileOptions(shapes=one_input_shape(input_shape), random_seed=seed)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with stages(f"running {path.name}") as tell:
        job = OrderJob(name, profile, path, asked, count, threads, now, tell)
        if target is not None:
            search = context.find_object(OrderSearch) or OrderSearch()
            outcome = tune(job, search.orders(target, threads, tell))
        elif device is not None:
            outcome = tune(job, BoardOrders(device, threads, rounds, seconds, tell))
    check()
    if output is not None:
        outcome.timed[0].bundle.write(output)
    if as_json:
        emit(_document(job, outcome, target is not None))
    else:
        _show(outcome, "estimated" if target else "measured")


def _ranks(timed: list[Timed]) -> float:
    from edgekit.host.lab.tune.cost import rank_correlation

    return rank_correlation(
        [t.candidate.simulated_us for t in timed], [t.measured_us for t in timed]
    )


def _document(job: OrderJob, outcome: OrderOutcome, estimated: bool) -> dict[str, object]:
    return {
        "schema": "edgekit.tune.order/1",
        "board": job.board,
        "estimated": estimated,
        "rank_correlation": _ranks(outcome.timed),
        "orders": [
            {
                "origin": t.candidate.origin,
                "simulated_us": t.candidate.simulated_us,
                "measured_us": t.measured_us,
                "arena_bytes": t.arena_bytes,
                "order": [n.name for n in t.candidate.graph.nodes],
            }
            for t in outcome.timed
        ],
        "kept": [{"part": each.part, "ratio": each.ratio} for each in outcome.kept],
        "table": str(outcome.table),
    }


def _show(outcome: OrderOutcome, how: str) -> None:
    from edgekit.host.cli.output import byte_size, table

    timed = outcome.timed
    rows = [
        (
            t.candidate.origin,
            f"{t.candidate.simulated_us:.1f}",
            f"{t.measured_us:.1f}",
            byte_size(t.arena_bytes),
        )
        for t in timed
    ]
    table(("order", "simulated µs", f"{how} µs", "arena"), rows, left=1)
    slowest, fastest = timed[-1].measured_us, timed[0].measured_us
    print(
        f"spread   {(slowest / fastest - 1) * _PERCENT:.1f} % between the slowest and the fastest"
    )
    if len({t.candidate.simulated_us for t in timed}) == 1:
        print("model    predicts the same time for all: one unit does all the work")
    else:
        print(f"model    rank correlation {_ranks(timed):.3f} with the {how} times")
    for each in outcome.kept:
        gain = (1 - each.ratio) * _PERCENT
        print(f"kept     from {each.part} on: {gain:.1f} % faster than the searched order")
    if outcome.kept:
        print(f"kept in  {outcome.table}; compile and deploy use it")
    else:
        print("kept     none: no other order gains 2 % over the searched one")
