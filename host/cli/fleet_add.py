"""`edgekit fleet add`: adds many boards to the inventory, from CSV or an ssh config."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.cli import complete
from edgekit.host.cli.board_add import Everywhere, Identity, inventory_file
from edgekit.host.cli.options import Json, Parallel, examples, labels_of
from edgekit.host.common.text import counted
from edgekit.host.errors import AuthenticationError, InputError

if TYPE_CHECKING:
    from edgekit.host.deploy.inventory import BoardEntry
    from edgekit.host.fleet import FleetRun
    from edgekit.host.fleet.join import Joined
    from edgekit.host.fleet.sources import BoardCandidate

_MOST_ASKED = 2000  # maximum number of keys to ask a person about


_Csv = Annotated[
    Path | None,
    typer.Option(
        "--csv",
        metavar="FILE",
        show_default=False,
        help="CSV file with a board per line; columns that edgekit does not know are labels.",
    ),
]
_Ssh = Annotated[
    list[str] | None,
    typer.Option(
        "--ssh",
        metavar="PATTERN",
        show_default=False,
        help="Hosts of ~/.ssh/config by name, as pi-*; repeat it for more.",
    ),
]
_Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="PROFILE",
        show_default=False,
        autocompletion=complete.profiles,
        help="Profile where the file has none (default: detected on each).",
    ),
]
_Label = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="KEY=VALUE",
        show_default=False,
        help="Label for all these boards; repeat it for more.",
    ),
]
_KnownHosts = Annotated[
    Path | None,
    typer.Option(
        "--known-hosts",
        metavar="FILE",
        show_default=False,
        help="File in known_hosts format with their host keys, to pin them.",
    ),
]
_Yes = Annotated[
    bool,
    typer.Option("--yes", help="Pin the host keys that the other boards show, without asking."),
]


def register(group: typer.Typer) -> None:
    """Adds the command to the group `fleet`."""
    group.command(
        "add",
        epilog=examples(
            "edgekit fleet add --csv boards.csv --label site=lab",
            "edgekit fleet add --ssh 'pi-*' --known-hosts ~/.ssh/known_hosts",
        ),
    )(add)


def add(
    csv: _Csv = None,
    ssh: _Ssh = None,
    profile: _Profile = None,
    label: _Label = None,
    identity: Identity = None,
    known_hosts: _KnownHosts = None,
    yes: _Yes = False,
    everywhere: Everywhere = False,
    parallel: Parallel = None,
    as_json: Json = False,
) -> None:
    """Add many boards to the inventory, and pin their host keys."""
    from edgekit.host.cli.fleet_view import Presentation, conclude, watching
    from edgekit.host.deploy.connections import LOCAL
    from edgekit.host.deploy.inventory import add_boards, check_board, check_place
    from edgekit.host.fleet import PARALLEL, run_on
    from edgekit.host.fleet.join import join
    from edgekit.kb.targets.board import load_board

    if profile is not None:
        load_board(profile)
    file = inventory_file(everywhere)
    candidates = [
        _fill_from_options(each, profile, identity, labels_of(label))
        for each in _read_candidates(csv, ssh)
    ]
    for each in candidates:
        if each.entry.name == LOCAL:
            raise InputError(f"{each.where}: expected a name, found '{LOCAL}', this machine's")
        check_board(each.entry, file)
        check_place(each.entry, file)
    there, new = _partition_candidates(candidates)
    presentation: Presentation[Joined] = Presentation(
        "edgekit.fleet.add/1",
        ("profile", "at"),
        lambda joined: (joined.entry.profile, joined.entry.host or ""),
        _to_json,
        retry="fix the causes and add these boards again",
    )
    parallel = parallel or PARALLEL
    trusted, refused = _verify_host_keys(new, known_hosts, yes, parallel)
    by_name = {each.entry.name: each.entry for each in trusted}
    with watching("adding", len(trusted), presentation) as watch:
        found = run_on(
            list(by_name.values()),
            lambda turn: join(turn.board, turn.device, turn.tell),
            parallel=parallel,
            watch=watch,
        )
    joined = [outcome.value.entry for outcome in found.outcomes if outcome.value is not None]
    if joined or there:
        add_boards([*joined, *there], file)
    _print_outcomes(found, presentation, refused, there, file, as_json, conclude)


def _print_outcomes(
    found: FleetRun[Joined],
    presentation: Any,
    refused: Sequence[Any],
    there: Sequence[BoardEntry],
    file: Path,
    as_json: bool,
    conclude: Any,
) -> None:
    """Prints the result of every board, including those whose keys were rejected."""
    from edgekit.host.cli.fleet_view import Extra

    added = sum(outcome.ok for outcome in found.outcomes)
    lines = [f"added    {counted(added, 'board')} to {file}"]
    if there:
        lines.append(f"known    {len(there)} were known already; their labels are up to date")
    extra = Extra(
        {"file": str(file), "known": [entry.name for entry in there]},
        lines,
    )
    conclude(replace(found, outcomes=(*found.outcomes, *refused)), presentation, as_json, extra)


def _read_candidates(csv: Path | None, ssh: Sequence[str] | None) -> list[BoardCandidate]:
    from edgekit.host.deploy.transport.ssh_config import user_config
    from edgekit.host.fleet.sources import check_each_once, from_csv, from_ssh_config

    if csv is None and not ssh:
        raise InputError(
            "expected boards, found none; give --csv FILE, or --ssh PATTERN of ~/.ssh/config"
        )
    found = from_csv(csv) if csv is not None else []
    if ssh:
        found += from_ssh_config(ssh, user_config())
    check_each_once(found, user_config())
    return found


def _fill_from_options(
    each: BoardCandidate, profile: str | None, identity: Path | None, labels: dict[str, str]
) -> BoardCandidate:
    """Fills in values from the options where the file gives none for the board."""
    entry = each.entry
    return replace(
        each,
        entry=replace(
            entry,
            profile=entry.profile or profile or "",
            identity=entry.identity or identity,
            labels={**labels, **entry.labels},
        ),
    )


def _partition_candidates(
    candidates: Sequence[BoardCandidate],
) -> tuple[list[BoardEntry], list[BoardCandidate]]:
    """Splits candidates into known boards, unchanged and pinned, with merged labels, and boards to
    join: new ones, and changed ones with their other known values kept."""
    from edgekit.host.deploy.inventory import boards
    from edgekit.host.fleet import place

    known = {entry.name: entry for entry in boards(Path.cwd())}
    there, new = [], []
    for each in candidates:
        entry, old = each.entry, known.get(each.entry.name)
        if old is None:
            new.append(each)
            continue
        merged = replace(
            old,
            profile=entry.profile or old.profile,
            transport="ssh",
            host=entry.host,
            port=entry.port,
            user=entry.user,
            identity=entry.identity or old.identity,
            labels={**old.labels, **entry.labels},
        )
        again = replace(merged, labels=old.labels) != old or place(merged) != place(old)
        if again or not _same_key(each, old):
            new.append(replace(each, entry=replace(merged, host_key=entry.host_key)))
        else:
            there.append(merged)
    return there, new


def _same_key(candidate: BoardCandidate, known: BoardEntry) -> bool:
    """Whether the pinned key satisfies the request."""
    from edgekit.host.deploy.transport.ssh_keys import fingerprint

    if known.host_key is None:
        return False
    wanted = candidate.entry.host_key
    if wanted is not None and wanted.split()[:2] != known.host_key.split()[:2]:
        return False
    return candidate.fingerprint in (None, fingerprint(known.host_key))


def _verify_host_keys(
    new: Sequence[BoardCandidate], known_hosts: Path | None, yes: bool, parallel: int
) -> tuple[list[BoardCandidate], list[Any]]:
    """Boards with a pinned key, and the failed outcomes of boards whose key cannot be trusted.
    AuthenticationError if there is nobody to ask."""
    from edgekit.host.cli.fleet_view import watching
    from edgekit.host.fleet.trust import show_keys, vouch

    vouched = vouch(new, known_hosts)
    if not vouched.unknown:
        return list(vouched.known), []
    with watching("asking for host keys", len(vouched.unknown)) as watch:
        shown = show_keys(vouched.unknown, parallel, watch)
    if shown.stopped is not None:
        raise shown.stopped
    values = [outcome.value for outcome in shown.outcomes if outcome.value is not None]
    unasked = [each for each in values if each.fingerprint is None]
    if unasked:
        _confirm_host_keys(unasked, yes)
    # Boards that failed here never reach the join step, so report these outcomes with its results.
    return [*vouched.known, *values], [o for o in shown.outcomes if not o.ok]


def _confirm_host_keys(shown: Sequence[BoardCandidate], yes: bool) -> None:
    from edgekit.host.cli.output import note
    from edgekit.host.deploy.transport.ssh_keys import parse_host_key

    width = max(len(each.entry.name) for each in shown)
    for each in shown[:_MOST_ASKED]:
        assert each.entry.host_key is not None
        key = parse_host_key(each.entry.host_key, each.where)
        note(f"host key of {each.entry.name:{width}}  {key}")
    if yes:
        return
    if not sys.stdin.isatty():
        raise AuthenticationError(
            f"expected confirmation of {len(shown)} host keys, found no terminal to ask on; if "
            "they belong to the boards: --yes, --known-hosts FILE, or a column fingerprint"
        )
    print(
        "compare on the boards: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub", file=sys.stderr
    )
    print(f"Do all {len(shown)} belong to the boards? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise AuthenticationError(
            "expected the host keys to be confirmed, found that they were not; nothing was added"
        )


def _to_json(joined: Joined) -> dict[str, Any]:
    from edgekit.host.cli.board_add import entry_document

    return {
        "entry": entry_document(joined.entry),
        "notes": list(joined.notes),
        "warnings": list(joined.warnings),
    }
