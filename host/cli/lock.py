"""`edgekit lock`: keeps the cost of models in a file, and says what made it worse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.cli import complete
from edgekit.host.cli.compile_options import takes_compile_options
from edgekit.host.cli.many import boards_of
from edgekit.host.cli.options import (
    BoardOption,
    FileKind,
    Json,
    examples,
    file_kind,
    model_file,
    parse_percent,
    refuse_with,
    refuse_without,
    writes,
)
from edgekit.host.compiler.options import DEFAULT_OPTIONS, CompileOptions
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.lab.bench.locked import LockedDifference, LockedModel

_FILE = "edgekit.lock"
_Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODELS",
        show_default=False,
        autocompletion=complete.models,
        help="Models to lock (default: those of the file, else edgekit.toml's).",
    ),
]
_Output = Annotated[
    Path,
    typer.Option(
        "-o", "--output", parser=writes(_FILE), metavar="FILE", help="Lock file to write or check."
    ),
]
_Check = Annotated[
    bool,
    typer.Option("--check", help="Print what changed in Markdown; exit code 9 if it is worse."),
]
_FailAbove = Annotated[
    str,
    typer.Option(
        "--fail-above", metavar="2%", help="With --check, let cycles and bytes grow by this much."
    ),
]


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command(
        "lock",
        epilog=examples(
            "edgekit lock models/face_detection_short_range.tflite --board rpi4,rpi5",
            "edgekit lock                          # all of the file again",
            "edgekit lock --check",
            "edgekit lock --check --fail-above 2% >> $GITHUB_STEP_SUMMARY",
        ),
    )(lock)


@takes_compile_options()
def lock(
    context: typer.Context,
    models: _Models = None,
    board: BoardOption = None,
    output: _Output = Path(_FILE),
    check: _Check = False,
    fail_above: _FailAbove = "0%",
    options: CompileOptions = DEFAULT_OPTIONS,
    as_json: Json = False,
) -> None:
    """Keep a model's estimated cost in a file, to check it in CI."""
    if check:
        refuse_with(context, "--check", "models", "board")
        if not options.is_default:
            raise InputError("expected --check or compile options, found both; leave one out")
        _check(output, parse_percent(fail_above, "--fail-above"), as_json)
        return
    refuse_without(context, "--check", "fail_above")
    if options.more_shapes or len(options.signatures) > 1:
        raise InputError(
            "expected one shape of each input and one signature, found several; "
            "lock them in files of their own: -o FILE"
        )
    _write(output, models, board, options, as_json)


def _write(
    output: Path,
    models: list[str] | None,
    board: str | None,
    options: CompileOptions,
    as_json: bool,
) -> None:
    """Locks the models, or all of the file again; entries of other models and boards stay."""
    from edgekit.device.version import VERSION
    from edgekit.host.cli.output import check_writable, emit, table
    from edgekit.host.common.files import atomic_write
    from edgekit.host.deploy.connections import profile_of
    from edgekit.host.lab.bench.locked import SCHEMA, Lock, lock_bytes, read_lock

    check_writable(output)
    kept = read_lock(output).models if output.exists() else ()
    if not models and kept:
        if board is not None or not options.is_default:
            raise InputError(
                f"{output}: expected models with --board or compile options, found none; name them"
            )
        made = [_again(each, output.parent) for each in kept]
        kept = ()
    else:
        files = [model_file(name) for name in models or (None,)]
        boards = [profile_of(name) for name in boards_of(board)]
        made = [_measure(file, name, options, output.parent) for file in files for name in boards]
    new = {_identity(each) for each in made}
    every = (*(each for each in kept if _identity(each) not in new), *made)
    ordered = tuple(sorted(every, key=lambda each: (each.model, each.board)))
    content = Lock(SCHEMA, VERSION, ordered)
    atomic_write(output, lock_bytes(content))
    if as_json:
        emit({"schema": "edgekit.lock.write/1", "file": str(output), "models": len(ordered)})
        return
    rows = [(m.model, m.board, str(m.threads), str(m.cycles), str(m.arena_bytes)) for m in made]
    table(("model", "board", "threads", "cycles", "arena bytes"), rows, left=2, names=True)
    print(f"wrote    {output}: commit it, and check it in CI: edgekit lock --check")


def _check(file: Path, allowed: float, as_json: bool) -> None:
    """Measures all of the file again. Raises SlowerError if anything is worse than allowed."""
    from dataclasses import asdict

    from edgekit.device.version import VERSION
    from edgekit.host.cli.output import emit, note
    from edgekit.host.compiler.frontends.common.names import shown_name
    from edgekit.host.errors import SlowerError
    from edgekit.host.lab.bench.locked import difference, markdown, read_lock

    locked = read_lock(file)
    for each in locked.models:
        if not (file.parent / each.model).exists():
            raise InputError(
                f"{file}: expected the model {shown_name(each.model)}, found no such file; put it "
                "back, or delete its entry"
            )
    found = [difference(each, _again(each, file.parent), allowed) for each in locked.models]
    worse = [each for each in found if each.is_worse]
    if as_json:
        documents = [{**asdict(each), "is_worse": each.is_worse} for each in found]
        emit({"schema": "edgekit.lock.check/1", "allowed": allowed, "models": documents})
    else:
        print(markdown(found, allowed, locked.edgekit, VERSION), end="")
    if worse:
        raise SlowerError(_worse_text(file, worse))
    if any(each.totals for each in found):
        note(f"{file}: nothing is worse; keep the new figures: edgekit lock -o {file}")


def _worse_text(file: Path, worse: list[LockedDifference]) -> str:
    from edgekit.host.lab.bench.locked import number_text

    change = next(change for change in worse[0].totals if change.is_worse)
    more = f" and {len(worse) - 1} more models" if len(worse) > 1 else ""
    return (
        f"{file}: expected {change.what} of {worse[0].model} on {worse[0].board} to be "
        f"{number_text(change.before)} as locked, found {number_text(change.after)}{more}; "
        f"if that is meant, lock it again: edgekit lock -o {file}"
    )


def _identity(entry: LockedModel) -> tuple[str, str, str]:
    return entry.model, entry.board, repr(sorted(entry.options.items()))


def _again(entry: LockedModel, folder: Path) -> LockedModel:
    from edgekit.host.lab.bench.locked import options_of

    options = options_of(entry.options, folder)
    return _measure(model_file(str(folder / entry.model)), entry.board, options, folder)


def _measure(file: Path, board: str, options: CompileOptions, folder: Path) -> LockedModel:
    """Compiles and estimates a model; the same cycles on every machine."""
    from edgekit.device.runtime.agent.specs import PlacementRequest
    from edgekit.host.cli.compile import compile_bundle
    from edgekit.host.cli.estimate import TIMEOUT
    from edgekit.host.cli.estimate_release import select_placement
    from edgekit.host.cli.estimated import estimate_bundle
    from edgekit.host.compiler.frontends import model_hash
    from edgekit.host.deploy.explanations import recall
    from edgekit.host.lab.bench.locked import (
        LockedModel,
        LockedOperator,
        options_document,
        relative,
    )
    from edgekit.host.simulator.target import target_of
    from edgekit.kb.targets.board import load_board

    if file_kind(file) is FileKind.BUNDLE:
        raise InputError(f"{file}: expected a model, found a bundle; name the model it was made of")
    profile = load_board(board)
    target_of(profile)  # fail now if the core has no model of time
    bundle = compile_bundle(file, board, options=options, profile=profile)
    where, threads = select_placement(bundle, profile, PlacementRequest())
    found = estimate_bundle(bundle, where, threads, TIMEOUT)
    explained: Any = recall(found.release) or {}
    sizes = {each["name"]: each["bytes"] for each in explained.get("operators", ())}
    loss = bundle.manifest.loss
    return LockedModel(
        relative(file, folder),
        model_hash(file),
        board,
        options_document(options, folder),
        threads,
        found.cost.cycles,
        found.arena_bytes,
        found.state_bytes,
        found.weights_bytes,
        None if loss is None else round(loss.cosine, 6),
        tuple(
            LockedOperator(
                o.spec.name,
                o.spec.op,
                o.spec.kernel,
                o.cost.cycles,
                o.cost.instructions,
                sizes.get(o.spec.name, 0),
            )
            for o in found.operators
        ),
    )
