"""`edgekit lab tune model --orders`: measures execution orders of a model's operators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.host.lab.tune.model_session import ModelJob
    from edgekit.host.lab.tune.orders import OrderOutcome, TimedOrder

_PERCENT = 100.0


def tune_order(job: ModelJob, count: int, output: Path | None, as_json: bool) -> None:
    """Measures `count` orders, keeps the best, and writes its bundle to `output`."""
    from edgekit.host.cli.output import emit
    from edgekit.host.cli.progress import stages
    from edgekit.host.lab.tune.model_session import order_job, order_measurer
    from edgekit.host.lab.tune.orders import tune_orders

    try:
        with stages(f"running {job.model.name}") as tell:
            outcome = tune_orders(order_job(job, count, tell), order_measurer(job, tell))
        job.check()
    finally:
        if job.device is not None:
            job.device.transport.close()
    if output is not None:
        outcome.timed[0].bundle.write(output)
    if as_json:
        emit(_to_json(job, outcome))
    else:
        _print_orders(outcome, "measured" if job.device else "estimated")


def _rank_correlation(timed: list[TimedOrder]) -> float:
    from edgekit.host.lab.tune.cost import rank_correlation

    return rank_correlation(
        [t.candidate.simulated_us for t in timed], [t.measured_us for t in timed]
    )


def _to_json(job: ModelJob, outcome: OrderOutcome) -> dict[str, object]:
    return {
        "schema": "edgekit.tune.order/1",
        "board": job.board,
        "estimated": job.device is None,
        "rank_correlation": _rank_correlation(outcome.timed),
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


def _print_orders(outcome: OrderOutcome, how: str) -> None:
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
    print(f"spread   {(slowest / fastest - 1) * _PERCENT:.1f}% between the slowest and the fastest")
    if len({t.candidate.simulated_us for t in timed}) == 1:
        print("model    predicts the same time for all: one unit does all the work")
    else:
        print(f"model    rank correlation {_rank_correlation(timed):.3f} with the {how} times")
    for each in outcome.kept:
        gain = (1 - each.ratio) * _PERCENT
        print(f"kept     from {each.part} on: {gain:.1f}% faster than the searched order")
    if outcome.kept:
        print(f"kept in  {outcome.table}; compile and deploy use it")
    else:
        print("kept     none: no other order gains 2% over the searched one")
