"""`edgekit fleet deploy`: staged rollouts to many boards; also their status and reversal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.cli.options import (
    Counter,
    Json,
    Model,
    NameOption,
    Parallel,
    Select,
    examples,
    model_file,
    parse_seconds,
)
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.deploy.bundle import Bundle
    from edgekit.host.deploy.inventory import BoardEntry
    from edgekit.host.fleet.executor import RolloutHost, RolloutPace
    from edgekit.host.fleet.journal import Journal
    from edgekit.host.fleet.profiles import ProfileStore
    from edgekit.host.fleet.rollout import BoardRecord, Policy, RolloutPlan, RolloutProgress

_MOST_DONE = 40  # boards without problems listed in a table
_LONGEST = 100  # characters of a message in a table


def register(group: typer.Typer) -> None:
    """Adds the command to the group."""
    group.command(
        "deploy",
        epilog=examples(
            "edgekit fleet deploy face.tflite --select type=a57 --canary 1 --batch 20%",
            "edgekit fleet deploy face.ekb --select site=lab --pause 2m --wait 8h",
            "edgekit fleet deploy face.tflite --select site=field --releases releases",
        ),
    )(deploy)


def _text_option(name: str, shape: str, what: str) -> Any:
    return typer.Option(name, metavar=shape, help=what)


_Canary = Annotated[
    int,
    typer.Option("--canary", metavar="N", min=0, help="Boards of each kind to deploy to first."),
]
_StopAt = Annotated[
    str, _text_option("--max-failures", "N or P%", "Stop when more boards than this have failed.")
]
_FailAbove = Annotated[
    str, _text_option("--fail-above", "P%", "Fail boards whose latency grew by more than this.")
]
_MinAgreement = Annotated[
    float | None,
    typer.Option(
        "--min-agreement",
        metavar="0.98",
        show_default=False,
        help="Fail boards whose release agrees with its float model (--shadow) less often.",
    ),
]
_Wait = Annotated[
    str, _text_option("--wait", "TIME", "Time to wait for boards that do not answer.")
]
_AllowDowngrade = Annotated[
    bool,
    typer.Option(
        "--allow-downgrade", help="Accept a lower counter than that of the running release."
    ),
]
_Releases = Annotated[
    Path | None,
    typer.Option(
        "--releases",
        metavar="FOLDER",
        show_default=False,
        help="Offer it to boards that fetch from this folder's server.",
    ),
]
_Restart = Annotated[
    bool, typer.Option("--restart", help="Give up an interrupted rollout and start a new one.")
]
_Batch = Annotated[str, _text_option("--batch", "N or P%", "Boards per batch after the canaries.")]


def deploy(
    model: Model = None,
    select: Select = None,
    canary: _Canary = 1,
    batch: _Batch = "20%",
    pause: Annotated[str, _text_option("--pause", "TIME", "Time to watch each batch.")] = "10m",
    stop_at: _StopAt = "5%",
    fail_above: _FailAbove = "10%",
    min_agreement: _MinAgreement = None,
    wait: _Wait = "0s",
    counter: Counter = None,
    allow_downgrade: _AllowDowngrade = False,
    restart: _Restart = False,
    parallel: Parallel = None,
    model_name: NameOption = None,
    releases: _Releases = None,
    as_json: Json = False,
) -> None:
    """Put a model into service on many boards, canaries first."""
    from edgekit.host import fleet
    from edgekit.host.cli.compile import load_bundle
    from edgekit.host.cli.output import note
    from edgekit.host.deploy.release import check_name
    from edgekit.host.fleet.executor import RolloutPace, carry_out
    from edgekit.host.fleet.rollout import Policy, parse_share
    from edgekit.host.fleet.start import open_rollout

    check_name(model_name)
    above = parse_share(fail_above, "--fail-above")
    policy = Policy(canary, parse_share(batch, "--batch"), parse_share(stop_at, "--max-failures"))
    pace = RolloutPace(
        parse_seconds(pause, "--pause", zero=True),
        parse_seconds(wait, "--wait", zero=True),
        above.number / 100,
        parallel or fleet.PARALLEL,
        _checked_agreement(min_agreement),
    )
    if not above.percent:
        raise InputError(f"--fail-above: expected percent as 10%, found '{fail_above}'")
    boards = fleet.select(select or (), Path.cwd())
    path = model_file(model)
    settings = {"counter": counter, "allow_downgrade": allow_downgrade}
    if releases and allow_downgrade:
        raise InputError("expected --releases or --allow-downgrade, found both; raise --counter")
    folder = str(releases.absolute()) if releases else ""
    with closing(
        open_rollout(
            path,
            boards,
            lambda entry: _with_shadow(load_bundle(path, entry.name, counter), min_agreement),
            settings={**settings, "releases": folder} if folder else settings,
            name=model_name or "",
            restart=restart,
            folder=folder,
        )
    ) as journal:
        if journal.progress.batches:
            note(f"rollout {journal.plan.id}: resuming")
        home = _rollout_host(journal, min_agreement is not None)
        try:
            if folder:
                _carry_out_fetched(journal, boards, policy, pace, home)
            else:
                carry_out(journal, boards, policy, pace, home, allow_downgrade)
        except KeyboardInterrupt:
            undo = _rollback_command(journal)
            note(f"edgekit: interrupted; run it again to resume, or undo it: {undo}")
            raise
        finally:
            _print_progress(journal.plan, journal.progress, "edgekit.fleet.deploy/1", as_json)
        _check_all_deployed(journal)


def _checked_agreement(least: float | None) -> float | None:
    if least is not None and not 0 < least < 1:
        raise InputError(f"--min-agreement: expected a number between 0 and 1, found {least:g}")
    return least


def _with_shadow(bundle: Bundle, min_agreement: float | None) -> Bundle:
    """The bundle; InputError if it has no float model to agree with."""
    if min_agreement is not None and bundle.manifest.shadow is None:
        raise InputError(
            f"--min-agreement: expected a release with a float model, found {bundle.manifest.id} "
            "without; compile a bundle with --shadow 1/N and deploy that"
        )
    return bundle


def _rollout_host(journal: Journal, needs_store: bool) -> RolloutHost:
    from edgekit.host.cli.output import note
    from edgekit.host.fleet.executor import RolloutHost, stoppable_sleep

    store = _profile_store()
    if store is None and needs_store:
        raise InputError("--min-agreement: expected the packages that read profiles, found none")
    return RolloutHost(_watch_progress, note, stoppable_sleep(journal), store=store)


def _carry_out_fetched(
    journal: Journal,
    boards: Sequence[BoardEntry],
    policy: Policy,
    pace: RolloutPace,
    home: RolloutHost,
) -> None:
    """Carries out a rollout to boards that fetch."""
    from edgekit.host.fleet.fetch_rollout import FetchCarrier
    from edgekit.host.fleet.updates import OwnerKeys, ReleaseFolder

    folder, owner = ReleaseFolder(Path(journal.plan.folder)), OwnerKeys.of_host()
    folder.create(owner)
    FetchCarrier(journal, boards, policy, pace, home, False).offering(folder, owner).run()


def show_rollout(rollout: str, as_json: bool) -> None:
    """Prints the progress or the result of a rollout, board by board."""
    from edgekit.host.cli.output import note
    from edgekit.host.fleet.journal import find_rollout, is_carried_out

    found = find_rollout(rollout)
    _print_progress(found.plan, found.progress, "edgekit.fleet.status/1", as_json)
    if not found.progress.ended:
        going = is_carried_out(found.folder)
        note("it is in progress" if going else "it was interrupted; run the same command to resume")


def take_rollout_back(rollout: str, parallel: int | None, as_json: bool) -> None:
    """Returns the boards of a rollout to what they ran before."""
    from edgekit.host.errors import PartialError
    from edgekit.host.fleet import PARALLEL
    from edgekit.host.fleet.journal import Journal, find_rollout
    from edgekit.host.fleet.rollback import take_back, touched

    with closing(Journal(find_rollout(rollout).folder)) as journal:
        if journal.plan.folder:
            _take_fetched_back(journal, as_json)
            return
        names = touched(journal)
        with _watch_progress("rolling back", len(names)) as watch:
            run = take_back(journal, _find_entries(names), watch, parallel or PARALLEL)
        said = {one.board: str(one.error) for one in run.failed}
        _print_progress(journal.plan, journal.progress, "edgekit.fleet.rollback/1", as_json, said)
        if run.stopped is not None:
            raise run.stopped
        if left := touched(journal):
            raise PartialError(
                f"expected all {len(names)} boards to roll back, found {len(left)} that did not; "
                f"try again: {_rollback_command(journal)}"
            )


def _take_fetched_back(journal: Journal, as_json: bool) -> None:
    """Lets the boards of a rollout that fetch return to what they ran before."""
    from edgekit.host.cli.output import note
    from edgekit.host.errors import PartialError
    from edgekit.host.fleet.executor import RolloutHost
    from edgekit.host.fleet.fetch_rollout import take_back_fetched
    from edgekit.host.fleet.rollback import touched
    from edgekit.host.fleet.updates import OwnerKeys, ReleaseFolder

    count = len(touched(journal))
    folder, home = ReleaseFolder(Path(journal.plan.folder)), RolloutHost(_watch_progress, note)
    watch = _watch_progress("rolling back", count)
    said = take_back_fetched(journal, folder, OwnerKeys.of_host(), home, watch)
    _print_progress(journal.plan, journal.progress, "edgekit.fleet.rollback/1", as_json, said)
    if left := touched(journal):
        raise PartialError(
            f"expected all {count} boards to report their rollback, found {len(left)} that did "
            f"not; wait for them: {_rollback_command(journal)}"
        )


def _rollback_command(journal: Journal) -> str:
    return f"edgekit rollback --rollout {journal.plan.id}"


def _find_entries(names: Sequence[str]) -> list[BoardEntry]:
    from edgekit.host.deploy.inventory import boards

    there = {entry.name: entry for entry in boards(Path.cwd())}
    if gone := [name for name in names if name not in there]:
        raise InputError(
            f"expected the boards of the rollout in the inventory, found no '{gone[0]}'; run this "
            "in the project where it was started"
        )
    return [there[name] for name in names]


@contextmanager
def _watch_progress(text: str, count: int) -> Iterator[Any]:
    from edgekit.host.cli.fleet_view import watching

    with watching(text, count) as watch:
        yield watch


def _profile_store() -> ProfileStore | None:
    """The profile store, if its libraries are installed."""
    from importlib.util import find_spec

    from edgekit.host.cli.output import note
    from edgekit.host.common.paths import install_command
    from edgekit.host.fleet.profiles import ProfileStore

    if find_spec("pyarrow") and find_spec("duckdb"):
        return ProfileStore()
    note(f"latency is not compared; to compare it: {install_command('profiles')}")
    return None


def _check_all_deployed(journal: Journal) -> None:
    """Raises PartialError unless every board got the release."""
    from edgekit.host.errors import PartialError

    progress = journal.progress
    total, done = len(journal.plan.boards), len(progress.names("done"))
    if done == total:
        return
    if progress.ended == "stopped":
        why = f"stopped: {progress.reason}; undo it: {_rollback_command(journal)}"
    elif absent := progress.names("asleep", "lost"):
        why = f"{len(absent)} do not answer; run the same command to resume with them"
    else:
        why = f"the others failed; see: edgekit status --rollout {journal.plan.id}"
    raise PartialError(f"expected {total} boards with the release, found {done}; {why}")


def _print_progress(
    plan: RolloutPlan,
    progress: RolloutProgress,
    schema: str,
    as_json: bool,
    said: dict[str, str] | None = None,
) -> None:
    """Prints every board, those with problems last; a long table omits boards that are done."""
    from edgekit.host.cli.output import byte_size, emit, table
    from edgekit.host.fleet.rollout import summary

    messages = said or {}
    kinds = {board.name: board.kind for board in plan.boards}
    state = progress.ended or "not over"
    if as_json:
        rows = [
            {"board": name, "kind": kinds[name], **asdict(record)}
            | {"message": messages.get(name, record.message)}
            for name, record in progress.records.items()
        ]
        head = {"rollout": plan.id, "model": plan.model, "as": plan.name}
        verdict = {"state": state, "reason": progress.reason, "releases": dict(plan.releases)}
        emit({"schema": schema, **head, **verdict, "boards": rows})
        return
    lines = [
        _format_row(name, kinds[name], record, messages.get(name, record.message))
        for name, record in sorted(progress.records.items(), key=lambda pair: _severity(pair[1]))
        if len(kinds) <= _MOST_DONE or record.state not in ("done", "waiting", "back")
    ]
    table(["board", "kind", "state", "release", "before", "what"], lines, left=6)
    reason = f": {progress.reason}" if progress.reason else ""
    print(f"rollout  {plan.id} of {plan.model}, {state}{reason}")
    print(f"boards   {summary(progress)}")
    if saved := sum(record.saved_bytes for record in progress.records.values()):
        print(f"saved    {byte_size(saved)} of downloads, by deltas")


def _severity(record: BoardRecord) -> int:
    return ("done", "back", "watched", "waiting", "going", "asleep", "lost", "failed").index(
        record.state
    )


def _format_row(name: str, kind: str, record: BoardRecord, message: str) -> list[str]:
    short = message if len(message) <= _LONGEST else message[: _LONGEST - 3] + "..."
    return [name, kind, record.state, record.release, record.previous, short]
