"""`edgekit lab tune model`: searches for fast methods and orders of a model's operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.cli.compile_options import InputShapes, PrecisionOption, one_input_shape, words_of
from edgekit.host.cli.many import Workers, boards_of, flags, sent
from edgekit.host.cli.options import (
    AllowNoise,
    BoardOption,
    Budget,
    FileKind,
    Json,
    Model,
    Signature,
    Threads,
    TransportOption,
    examples,
    file_kind,
    file_named,
    model_file,
    parse_budget,
    refuse_with,
    refuse_without,
)
from edgekit.host.cli.tune_order import tune_order
from edgekit.host.common.text import counted
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.lab.tune.model_session import ModelJob, ModelTuned
    from edgekit.host.lab.tune.operators import ModelOutcome, ModelProgress, Won
    from edgekit.host.lab.tune.orders import OrderOutcome

_SHOWN = 10  # best gains in the summary
Orders = Annotated[
    int | None,
    typer.Option(
        "--orders",
        metavar="N",
        min=1,
        max=100,
        show_default=False,
        help="Measure N orders of the operators instead of methods.",
    ),
]
BestBundle = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE.ekb",
        show_default=False,
        help="File to write the bundle with the best order to, with --orders.",
    ),
]


def register(group: typer.Typer) -> None:
    """Adds the command to the group `tune`."""
    group.command(
        "model",
        epilog=examples(
            "edgekit lab tune model models/okay_nabu.tflite --board local",
            "edgekit lab tune model models/okay_nabu.tflite --board rpi4 --budget 5m",
            "edgekit lab tune model face.tflite --board rpi4,rpi5 --dask tcp://HOST:8786",
            "edgekit lab tune model models/okay_nabu.tflite --orders 6 -o best.ekb",
        ),
    )(tune_model)


def tune_model(
    context: typer.Context,
    model: Model = None,
    board: BoardOption = None,
    budget: Budget = "10m",
    threads: Threads = None,
    input_shape: InputShapes = None,
    signature: Signature = "",
    precision: PrecisionOption = "f32",
    allow_noise: AllowNoise = False,
    transport: TransportOption = None,
    dask: Workers = None,
    orders: Orders = None,
    output: BestBundle = None,
    as_json: Json = False,
) -> None:
    """Measure methods or orders of a model, and keep the best."""
    from edgekit.host.cli.output import check_writable, emit, note
    from edgekit.host.cli.tune_estimated import device_to_measure
    from edgekit.host.compiler.placement import check_placement
    from edgekit.host.deploy.connections import profile_of
    from edgekit.host.deploy.release import check_quiet
    from edgekit.host.lab.tune.model_session import ModelJob, ModelSearch
    from edgekit.host.simulator.target import target_of
    from edgekit.kb.targets.board import load_board

    seconds = parse_budget(budget)
    boards = boards_of(board)
    name = boards[0]
    _check_orders(context, orders, boards)
    path = _uncompiled(model_file(model, name))
    signatures, shapes = (signature,) if signature else (), one_input_shape(input_shape, path)
    options = CompileOptions(shapes=shapes, signatures=signatures, precision=precision)
    if dask or len(boards) > 1:
        from edgekit.host.cli.tune_many import tune_many

        word, files = sent(path)
        asked = words_of(options)
        asked += flags(threads=threads, allow_noise=allow_noise, transport=transport)
        tune_many(("lab", "tune", "model", word, *asked), boards, files, seconds, dask, as_json)
        return
    best = file_named(output, f"{path.stem}-{name}.ekb") if output else None
    if best is not None:
        check_writable(best)
    device = device_to_measure(name, transport)
    count = threads or (device.threads if device else None) or 1

    def check() -> None:
        if device is not None and not allow_noise:
            check_quiet(device, count)

    check()  # before minutes of compiling
    profile = load_board(profile_of(name))
    if device is None:
        target_of(profile)  # fail now if its core has no model
        check_placement(profile, count, "")
    search = context.find_object(ModelSearch) or ModelSearch()
    job = ModelJob(
        name, profile, path, options, count, seconds, device, _utc_timestamp, note, check, search
    )
    if orders is not None:
        tune_order(job, orders, best, as_json)
        return
    tuned = _run_tuning(job)
    if as_json:
        emit(_to_json(job, tuned))
    else:
        _print_summary(job, tuned)


def _check_orders(context: typer.Context, orders: int | None, boards: Sequence[str]) -> None:
    """Refuses options that do not go together with, or without, --orders."""
    if orders is None:
        refuse_without(context, "--orders", "output")
        return
    refuse_with(context, "--orders", "budget", "dask")
    if len(boards) > 1:
        found = ",".join(boards)
        raise InputError(f"expected one --board with --orders, found {found}; name one")


def _uncompiled(path: Path) -> Path:
    if file_kind(path) is FileKind.BUNDLE:
        raise InputError(f"{path}: expected a model, found a bundle, which is compiled")
    return path


def _utc_timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _run_tuning(job: ModelJob) -> ModelTuned:
    from edgekit.host.cli.output import note
    from edgekit.host.lab.tune.model_session import tune_model as tune

    try:
        with _progress_printer(job) as (show, tell):
            return tune(job, show, tell)
    except KeyboardInterrupt:
        note("stopped; measurements are kept, and the same command resumes")
        raise
    finally:
        if job.device is not None:
            job.device.transport.close()


@contextmanager
def _progress_printer(
    job: ModelJob,
) -> Iterator[tuple[Callable[[ModelProgress], None], Callable[[str], None]]]:
    """Shows progress with the gain so far, also for orders: live on a terminal, otherwise one line
    per round."""
    from edgekit.host.cli.progress import stages

    how = "measuring" if job.device else "estimating"
    with stages(f"tuning {job.model.name} for {job.board}") as tell:
        tell(f"{how} the current methods")

        def show(progress: ModelProgress) -> None:
            gain = "" if progress.gain is None else f", {progress.gain:.3f} x so far"
            tell(
                f"round {progress.round}, {progress.left} of {progress.keys} kinds of operators "
                f"left, {counted(progress.measured, 'measurement')}{gain}, "
                f"{max(progress.seconds_left, 0.0):.0f} s left"
            )

        yield show, tell


def _print_summary(job: ModelJob, tuned: ModelTuned) -> None:
    from edgekit.host.cli.kb_shared import operator_text
    from edgekit.host.cli.output import milliseconds, table
    from edgekit.host.lab.tune.operators import gain_of

    outcome, rows = tuned.outcome, []
    for w in _best_operators(outcome):
        methods = operator_text(w.operator.default), operator_text(w.method)
        rows.append((w.operator.name, w.operator.form.name, *methods, f"{1.0 / w.ratio:.2f}"))
    if rows:
        table(("operator", "form", "without a row", "method", "gain"), rows, left=4)
    kind = "measured" if job.device else "estimated"
    before, after = (milliseconds(ms) for ms in (outcome.before_ms, outcome.after_ms))
    print(f"measured  {outcome.measured} now, {outcome.known} before")
    print(f"gain      {gain_of(outcome):.3f} x the methods without rows")
    print(f"model     {kind} {before} ms before, {after} ms now, on {job.board}")
    if tuned.orders is not None:
        _show_orders(tuned.orders)
    if not outcome.finished:
        print("budget used; the same command resumes")
    if outcome.measured or outcome.known:
        print(f"kept in   {tuned.table}; compile and deploy use it")
    else:
        print("nothing   to gain: no operator takes long enough to stand out from noise")


def _show_orders(orders: OrderOutcome) -> None:
    print(f"orders    {len(orders.timed)} tried")
    for each in orders.kept:
        gain = (1 - each.ratio) * 100
        print(f"order     from {each.part} on: {gain:.1f}% faster than the searched order")


def _best_operators(outcome: ModelOutcome) -> list[Won]:
    return sorted(outcome.won, key=lambda w: (w.ratio, w.operator.name))[:_SHOWN]


def _to_json(job: ModelJob, tuned: ModelTuned) -> dict[str, Any]:
    from edgekit.host.lab.tune.operators import gain_of

    outcome, orders = tuned.outcome, tuned.orders
    kept = orders.kept if orders else []
    return {
        "schema": "edgekit.tune.model/1",
        "board": job.board,
        "profile": job.profile.name,
        "platform": job.profile.platform,
        "model": job.model.stem,
        "threads": job.threads,
        "estimated": job.device is None,
        "measured": outcome.measured,
        "known": outcome.known,
        "finished": outcome.finished,
        "gain": gain_of(outcome),
        "default_ms": outcome.default_ms,
        "before_ms": outcome.before_ms,
        "after_ms": outcome.after_ms,
        "table": str(tuned.table),
        "orders_tried": len(orders.timed) if orders else 0,
        "orders_kept": [{"part": each.part, "ratio": each.ratio} for each in kept],
        "operators": [
            {
                "name": w.operator.name,
                "form": w.operator.form.name,
                "shape": asdict(w.operator.form.shape),
                "default": asdict(w.operator.default),
                "method": asdict(w.method),
                "ratio": w.ratio,
            }
            for w in outcome.won
        ],
    }
