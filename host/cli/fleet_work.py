"""Implements `doctor`, `run`, `bench model` and `profile pull` with --select."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from edgekit.host.cli.options import model_file
from edgekit.host.common.files import atomic_write
from edgekit.host.common.text import counted
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.cli.fleet_view import Presentation
    from edgekit.host.compiler.inputs import InputOptions
    from edgekit.host.compiler.options import CompileOptions
    from edgekit.host.deploy.bundle import Bundle
    from edgekit.host.deploy.doctor import Finding
    from edgekit.host.deploy.inventory import BoardEntry
    from edgekit.host.deploy.release import Benchmark
    from edgekit.host.fleet import FleetRun, Turn
    from edgekit.host.fleet.inference import InferenceResult, WriteFile
    from edgekit.host.fleet.profiles import Pulled

_T = TypeVar("_T")


def refuse_with_select(**given: Any) -> None:
    """Raises InputError if an option for a single board is combined with --select."""
    for name, value in given.items():
        if value not in (None, False, ""):
            what = "MODEL" if name == "model" else f"--{name.replace('_', '-')}"
            raise InputError(
                f"expected {what} or --select, found both; {what} is for one board at a time"
            )


def run_on(
    select: list[str],
    input_path: Path | None,
    output: str | None,
    options: InputOptions,
    model_name: str | None,
    threads: int | None,
    signature: str,
    parallel: int | None,
    as_json: bool,
    write: WriteFile = atomic_write,
) -> None:
    """Runs the deployed model on many boards with the same input, and compares their outputs.

    `write` puts the outputs of a board into a file.
    """
    from edgekit.host.cli.fleet_view import Extra, Presentation, conclude
    from edgekit.host.cli.output import warn
    from edgekit.host.fleet.inference import infer, odd_ones, read_input

    if input_path is None:
        raise InputError("--input: expected a file of one input, found none")
    read_input(input_path)
    folder = Path(output) if output else None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)

    def work(turn: Turn) -> InferenceResult:
        return infer(turn, input_path, options, folder, model_name, threads, signature, write)

    def row(answer: InferenceResult) -> Sequence[str]:
        return (answer.release[:12], f"{answer.latency_ms:.3f}", answer.digest[:12])

    def document(answer: InferenceResult) -> dict[str, Any]:
        return {
            "release": answer.release,
            "latency_ms": answer.latency_ms,
            "sha256": answer.digest,
        }

    presentation: Presentation[InferenceResult] = Presentation(
        "edgekit.fleet.run/1", ("release", "ms, cold", "outputs"), row, document
    )
    found = _run_on_selected("running", select, work, presentation, parallel)
    odd = odd_ones(found)
    if odd:
        warn(f"{', '.join(odd)}: outputs differ from most boards with that release")
    conclude(found, presentation, as_json, Extra({"differs": list(odd)}))


def doctor_on(select: list[str], parallel: int | None, as_json: bool) -> None:
    """Checks many boards; a board with a failed check counts as failed."""
    from edgekit.host.cli.fleet_view import Presentation, conclude
    from edgekit.host.deploy.doctor import Verdict, examine_device
    from edgekit.kb.targets.board import load_board

    def work(turn: Turn) -> tuple[Finding, ...]:
        turn.tell("checking")
        return tuple(examine_device(turn.device, load_board(turn.board.profile)))

    def of(found: Sequence[Finding], verdict: Verdict) -> list[Finding]:
        return [f for f in found if f.verdict is verdict]

    def complaint(found: Sequence[Finding]) -> str:
        failed = of(found, Verdict.FAIL)
        return "; ".join(f"{f.check}: {f.found}; {f.fix}" for f in failed)

    def row(found: Sequence[Finding]) -> Sequence[str]:
        warned = ", ".join(f.check for f in of(found, Verdict.WARN))
        return (str(len(of(found, Verdict.OK))), warned, str(len(of(found, Verdict.FAIL))))

    def document(found: Sequence[Finding]) -> dict[str, Any]:
        return {
            "findings": [
                {"check": f.check, "verdict": f.verdict, "found": f.found, "fix": f.fix}
                for f in found
            ]
        }

    headers = ("ok", "warnings", "failed")
    presentation = Presentation("edgekit.fleet.doctor/1", headers, row, document, complaint)
    conclude(
        _run_on_selected("checking", select, work, presentation, parallel), presentation, as_json
    )


def bench_on(
    select: list[str],
    models: list[str] | None,
    options: CompileOptions,
    model_name: str | None,
    threads: int | None,
    runs: int,
    parallel: int | None,
    as_json: bool,
) -> None:
    """Times a model on many boards; compiles it once per kind of board."""
    from edgekit.host.cli.fleet_view import Extra, Presentation, conclude

    model, *more = models or (None,)
    if more:
        raise InputError(f"expected one model with --select, found {len(more) + 1}; name one")
    boards = _select_boards(select)
    bundles = _compile_per_profile(model, options, boards)

    def work(turn: Turn) -> Benchmark:
        if not model:
            turn.tell("timing")
            return turn.device.named(model_name).bench(threads=threads, count=runs)
        turn.tell("sending")
        with turn.device.temporary() as device:
            device.deploy(bundles[turn.board.profile])
            turn.tell("timing")
            return device.bench(threads=threads, count=runs)

    presentation: Presentation[Benchmark] = Presentation(
        "edgekit.fleet.bench/1",
        ("release", "median ms", "p10", "p90", "noise"),
        _times_row,
        _times_document,
    )
    found = _run_on_boards("timing", boards, work, presentation, parallel)
    medians = [o.value.median_ms for o in found.outcomes if o.value is not None]
    extra = Extra(lines=[_format_spread(medians)] if len(medians) > 1 else [])
    conclude(found, presentation, as_json, extra)


def pull_from(
    select: list[str],
    sampling: Literal["on", "off", "explore"] | None,
    parallel: int | None,
    as_json: bool,
) -> None:
    """Pulls the waiting profiles of many boards; turns their sampling on or off first."""
    from dataclasses import asdict

    from edgekit.host.cli.fleet_view import Extra, Presentation, conclude
    from edgekit.host.fleet import profiles

    store = profiles.ProfileStore()
    store.boards()  # reports an unusable store before any board is contacted

    def work(turn: Turn) -> Pulled:
        if sampling:
            profiles.switch(turn.device, sampling)
        turn.tell("fetching")
        return profiles.pull(turn.device, store)

    def row(found: Pulled) -> Sequence[str]:
        s = found.stored
        counts = (s.new, s.rows, s.known, len(s.refused), found.dropped)
        return (*map(str, counts), "on" if found.on else "off")

    presentation: Presentation[Pulled] = Presentation(
        "edgekit.fleet.profile.pull/1",
        ("batches", "rows", "known before", "refused", "dropped there", "sampling"),
        row,
        lambda found: asdict(found),
    )
    found = _run_on_selected("fetching", select, work, presentation, parallel)
    store.compact()
    values = [o.value.stored for o in found.outcomes if o.value is not None]
    new, rows = sum(v.new for v in values), sum(v.rows for v in values)
    stored = f"stored   {counted(new, 'batch', 'batches')} with {counted(rows, 'row')}"
    extra = Extra({"new": new, "rows": rows}, [stored])
    conclude(found, presentation, as_json, extra)


def _select_boards(select: list[str]) -> tuple[BoardEntry, ...]:
    from edgekit.host.fleet import select as selected

    return selected(select, Path.cwd())


def _run_on_selected(
    text: str,
    select: list[str],
    work: Callable[[Turn], _T],
    presentation: Presentation[_T],
    parallel: int | None,
) -> FleetRun[_T]:
    return _run_on_boards(text, _select_boards(select), work, presentation, parallel)


def _run_on_boards(
    text: str,
    boards: Sequence[BoardEntry],
    work: Callable[[Turn], _T],
    presentation: Presentation[_T],
    parallel: int | None,
) -> FleetRun[_T]:
    from edgekit.host.cli.fleet_view import watching
    from edgekit.host.fleet import PARALLEL, run_on

    with watching(text, len(boards), presentation) as watch:
        return run_on(boards, work, parallel=parallel or PARALLEL, watch=watch)


def _compile_per_profile(
    model: str | None, options: CompileOptions, boards: Sequence[BoardEntry]
) -> dict[str, Bundle]:
    """Compiles the model once for each profile of these boards."""
    from edgekit.host.cli.compile import load_bundle
    from edgekit.host.cli.progress import working

    if model is None:
        return {}
    file = model_file(model)
    found = {}
    for profile in sorted({entry.profile for entry in boards}):
        with working(f"{file.name} for {profile}"):
            found[profile] = load_bundle(file, profile, options=options)
    return found


def _times_row(timing: Benchmark) -> Sequence[str]:
    from edgekit.host.cli.output import milliseconds
    from edgekit.host.deploy.release import why_noisy

    times = (timing.median_ms, timing.p10_ms, timing.p90_ms)
    return (timing.release[:12], *map(milliseconds, times), why_noisy(timing) or "")


def _times_document(timing: Benchmark) -> dict[str, Any]:
    from edgekit.host.deploy.release import why_noisy

    return {
        "release": timing.release,
        "model": timing.model,
        "threads": timing.threads,
        "latency_ms": timing.median_ms,
        "p10_ms": timing.p10_ms,
        "p90_ms": timing.p90_ms,
        "runs": timing.runs,
        "noise": why_noisy(timing) or None,
    }


def _format_spread(medians: Sequence[float]) -> str:
    import statistics

    middle = statistics.median(medians)
    return (
        f"medians  {middle:.3f} ms over {counted(len(medians), 'board')}, "
        f"{min(medians):.3f} to {max(medians):.3f}"
    )
