"""`edgekit lab tune gemm`: searches for fast methods on a board and records them in the history."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from edgekit.host.cli import tune_cost, tune_model, tune_spmv
from edgekit.host.cli.many import Workers, boards_of, flags, sent
from edgekit.host.cli.options import (
    AllowNoise,
    BoardOption,
    Budget,
    Json,
    TransportOption,
    check_regular,
    examples,
    parse_budget,
)
from edgekit.host.common.text import counted
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.cli.tune_estimated import MethodEstimate
    from edgekit.host.deploy.board import Board
    from edgekit.host.lab.jobs.task import Sent
    from edgekit.host.lab.tune.session import TuningJob
    from edgekit.host.lab.tune.tuner import BestMethod, Measurer, TuningOutcome, TuningProgress
    from edgekit.kb.targets.board import BoardProfile

ModelFile = Annotated[
    Path | None,
    typer.Option(
        "--model", metavar="FILE", show_default=False, help="Model whose matrix products to tune."
    ),
]
ShapesFile = Annotated[
    Path | None,
    typer.Option(
        "--shapes", metavar="FILE", show_default=False, help="File with m,k,n on each line to tune."
    ),
]
Remeasure = Annotated[
    bool,
    typer.Option(
        "--remeasure",
        help="Measure the table's rows again, to drop those that no longer gain.",
    ),
]
OfA = Annotated[
    Literal["f32", "f16", "s8", "u8"] | None,
    typer.Option(
        "--dtype",
        show_default=False,
        help="Type of A (default: the model's, else f32).",
    ),
]
Packed = Annotated[
    Literal["none", "a", "b"] | None,
    typer.Option(
        "--packed",
        show_default=False,
        help="Operand packed in advance (default: b for a model, else none).",
    ),
]
SimplerProfile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        show_default=False,
        help="Tune the kernels of a simpler profile that the board can run.",
    ),
]

_LINE_SECONDS = 5.0  # between two plain lines of progress
_SHOWN = 10  # best gains in the summary


def register(app: typer.Typer) -> None:
    """Adds the command group to the application."""
    group = typer.Typer(
        help="Find the fastest methods for a board by measuring on it.",
        epilog=examples("edgekit lab tune gemm --board local --budget 10m"),
        rich_markup_mode=None,
    )
    group.command(
        "gemm",
        epilog=examples(
            "edgekit lab tune gemm --board local --budget 10m",
            "edgekit lab tune gemm --board a57 --model models/face_detection_short_range.tflite",
            "edgekit lab tune gemm --shapes shapes.txt --dtype s8 --threads 2",
            "edgekit lab tune gemm --board rpi5 --threads 4      # no board: by estimate",
            "edgekit lab tune gemm --remeasure      # after the kernels or the machine changed",
        ),
    )(tune_gemm)
    tune_model.register(group)
    tune_spmv.register(group)
    tune_cost.register(group)
    app.add_typer(group, name="tune")


def tune_gemm(
    board: BoardOption = None,
    model: ModelFile = None,
    shapes: ShapesFile = None,
    remeasure: Remeasure = False,
    budget: Budget = "10m",
    threads: Annotated[
        int, typer.Option("--threads", metavar="N", min=1, help="Threads to run on.")
    ] = 1,
    dtype: OfA = None,
    packed: Packed = None,
    profile: SimplerProfile = None,
    allow_noise: AllowNoise = False,
    transport: TransportOption = None,
    dask: Workers = None,
    as_json: Json = False,
) -> None:
    """Measure or estimate methods for matrix products, and keep them."""
    from edgekit.host.cli.tune_estimated import estimate_methods
    from edgekit.host.cli.tune_products import ProductKind, methods_to_remeasure, select_products
    from edgekit.host.deploy.connections import profile_of
    from edgekit.host.lab.tune.session import TuningJob
    from edgekit.kb.targets.board import load_board, load_profile

    seconds = parse_budget(budget)
    boards = boards_of(board)
    if dask or len(boards) > 1:
        from edgekit.host.cli.tune_many import tune_many

        words, files = _collect_files(model, shapes)
        words += flags(
            remeasure=remeasure,
            threads=threads,
            dtype=dtype,
            packed=packed,
            profile=profile,
            allow_noise=allow_noise,
            transport=transport,
        )
        tune_many(("lab", "tune", "gemm", *words), boards, files, seconds, dask, as_json)
        return
    name = boards[0]
    device = _connect(name, transport)
    target = load_profile(profile) if profile else load_board(profile_of(name))
    if device and dtype == "f16":
        raise InputError(
            f"expected f32, s8 or u8 on {name}, found f16, whose methods are estimated: name the "
            "profile of its core"
        )
    unit = "cycles" if device is None else "instructions" if device.emulated else "seconds"
    kind = ProductKind(dtype, threads, packed, unit)
    given = methods_to_remeasure(model, shapes, target, kind) if remeasure else {}
    products = tuple(given) or select_products(model, shapes, kind)
    if unit == "instructions":
        _say_emulated(name, threads)
    job = TuningJob(name, target, products, seconds, _utc_timestamp, given)
    if device is None:
        outcome = _tune_estimated(job, threads)
    else:
        outcome = tune_on(device, job, threads, allow_noise)
    show_tuned(name, target, unit, outcome, estimate_methods, as_json)


def _connect(name: str, transport: Literal["ssh", "serial"] | None) -> Board | None:
    """The board to measure or to count on; None if it is just the profile of one, whose products
    are estimated."""
    from edgekit.host.cli.tune_estimated import is_to_measure
    from edgekit.host.deploy.connections import check_counting, connect_to
    from edgekit.host.virtual.machines import virtual_board_names

    if not is_to_measure(name) and name not in virtual_board_names():
        return None
    device = connect_to(name, transport)
    check_counting(device)
    return device


def show_tuned(
    board: str,
    profile: BoardProfile,
    unit: str,
    outcome: TuningOutcome,
    estimate: Callable[[BoardProfile, Sequence[BestMethod]], list[MethodEstimate]],
    as_json: bool,
) -> None:
    """Prints the outcome for a board; if instructions were counted, also what `estimate` gives for
    the best methods on a real core."""
    from edgekit.host.cli.output import emit
    from edgekit.host.cli.tune_estimated import show_methods

    best = sorted(outcome.best, key=lambda each: each.ratio)[:_SHOWN]
    estimates = estimate(profile, best) if unit == "instructions" else []
    if as_json:
        document = _to_json(board, profile, unit, outcome)
        emit({**document, "estimates": [each.to_json() for each in estimates]})
    else:
        _print_summary(board, outcome)
        show_methods(profile, estimates)


def _collect_files(
    model: Path | None, shapes: Path | None
) -> tuple[list[str | Sent], dict[str, bytes]]:
    """The options that name files, and the file contents."""
    words: list[str | Sent] = []
    files: dict[str, bytes] = {}
    for option, path in (("--model", model), ("--shapes", shapes)):
        if path is not None:
            check_regular(path)
            word, more = sent(path, model=option == "--model")
            words += [option, word]
            files.update(more)
    return words, files


def _say_emulated(name: str, threads: int) -> None:
    """Raises InputError for more than one thread: instruction counting needs exactly one."""
    from edgekit.host.cli.output import note

    if threads > 1:
        raise InputError(
            f"board '{name}' is emulated: expected 1 thread for counting instructions, found "
            f"{threads}; leave out --threads"
        )
    note(f"board '{name}' is emulated: tuning by counted instructions, not by time")


def tune_on(device: Board, job: TuningJob, threads: int, allow_noise: bool) -> TuningOutcome:
    """Tunes a board with progress; unless `allow_noise` or emulated, it must be quiet before and
    while it is measured on `threads` threads."""
    from edgekit.host.deploy.release import check_quiet
    from edgekit.host.lab.tune.measure import BoardMeasurer

    def check() -> None:
        if not (device.emulated or allow_noise):
            check_quiet(device, threads)

    check()  # before minutes of compiling
    try:
        return _run_tuning(
            replace(job, check=check), lambda: BoardMeasurer(device, job.profile, device.emulated)
        )
    finally:
        device.transport.close()


def _tune_estimated(job: TuningJob, threads: int) -> TuningOutcome:
    """Tunes in simulated time. Raises InputError if there is no model of the core."""
    from edgekit.host.compiler.placement import check_placement
    from edgekit.host.lab.tune.composed import ComposedMeasurer
    from edgekit.host.simulator.products import ProductTimer
    from edgekit.host.simulator.target import target_of

    target = target_of(job.profile)
    check_placement(job.profile, threads, "")
    return _run_tuning(job, lambda: ComposedMeasurer(ProductTimer(target), job.profile.isa.vl))


def _run_tuning(job: TuningJob, make_measurer: Callable[[], Measurer]) -> TuningOutcome:
    from edgekit.host.cli.output import note
    from edgekit.host.lab.tune.session import tune

    try:
        with _progress_printer(job.board) as show:
            return tune(job, make_measurer, show)
    except KeyboardInterrupt:
        note("stopped; measurements are kept, and the same command resumes")
        raise


def _utc_timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def _progress_printer(board: str) -> Iterator[Callable[[TuningProgress], None]]:
    """Shows progress with the gain so far: live on a terminal, otherwise an occasional line."""
    from edgekit.host.cli.progress import stages

    shown_at = 0.0
    with stages(f"tuning {board}") as tell:

        def show(progress: TuningProgress) -> None:
            nonlocal shown_at
            now = time.monotonic()
            if now - shown_at < _LINE_SECONDS and progress.done < progress.total:
                return
            shown_at = now
            shape = progress.product.shape
            tell(
                f"round {progress.step + 1}, product {progress.done} of {progress.total} "
                f"({shape.m},{shape.k},{shape.n}), {counted(progress.measured, 'measurement')}, "
                f"best so far {progress.gain:.3f} x the default, "
                f"{max(progress.seconds_left, 0.0):.0f} s left"
            )

        yield show


def _print_summary(board: str, outcome: TuningOutcome) -> None:
    from edgekit.host.cli.kb_shared import method_text
    from edgekit.host.cli.output import table
    from edgekit.host.lab.tune.tuner import gain_of, worth_rows

    best = sorted(outcome.best, key=lambda each: each.ratio)
    rows = [
        (
            f"{b.product.shape.m},{b.product.shape.k},{b.product.shape.n}",
            b.product.dtype,
            f"{1.0 / b.ratio:.2f}",
            method_text(b.method),
        )
        for b in best[:_SHOWN]
    ]
    if rows:
        table(("m,k,n", "dtype", "gain", "method"), rows, left=2)
    print(f"measured  {outcome.measured} now, {outcome.known} before")
    products = counted(len(best), "product")
    print(f"gain      {gain_of(outcome):.3f} x the default over {products} (mean)")
    print(f"rows      {worth_rows(outcome)} of them gain 2% or more; others keep the default")
    for p in outcome.refused:
        print(f"left out  {p.shape.m},{p.shape.k},{p.shape.n}: too large for the board's memory")
    if not outcome.finished:
        print("budget used; the same command resumes")
    print(f"next      edgekit lab kb build --board {board}")


def _to_json(
    board: str, profile: BoardProfile, unit: str, outcome: TuningOutcome
) -> dict[str, Any]:
    from edgekit.host.lab.tune.tuner import gain_of, worth_rows

    return {
        "schema": "edgekit.tune.gemm/1",
        "board": board,
        "platform": profile.platform,
        "unit": unit,
        "measured": outcome.measured,
        "known": outcome.known,
        "finished": outcome.finished,
        "refused": [asdict(product.shape) for product in outcome.refused],
        "gain": gain_of(outcome),
        "worth_rows": worth_rows(outcome),
        "best": [
            {
                "shape": asdict(b.product.shape),
                "dtype": b.product.dtype,
                "threads": b.product.threads,
                "packed": b.product.packed,
                "method": asdict(b.method),
                "ratio": b.ratio,
            }
            for b in outcome.best
        ],
    }
