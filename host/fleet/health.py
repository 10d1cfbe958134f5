"""Health of a board after a release: its running release, application and field times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edgekit.device.runtime.agent.probe import Probe
from edgekit.host.deploy.doctor import Verdict, compare
from edgekit.host.deploy.doctor.propose import propose
from edgekit.host.errors import (
    DisagreesError,
    IncompatibleError,
    InputError,
    RolledBackError,
    SlowerError,
)
from edgekit.host.fleet.profiles import ProfileStore, agreements, pull
from edgekit.host.fleet.profiles import compare as compare_releases
from edgekit.host.fleet.runner import Turn
from edgekit.kb.targets.board import BoardProfile, load_board

_DECISIVE = ("machine", "cpu features")
_FEWEST = 20  # inferences that tell how often a release agrees


def check_kind(board: str, profile: BoardProfile, found: Probe) -> None:
    """Raises IncompatibleError if a board does not match its profile in the inventory: its CPU
    cannot run code compiled for that profile, or its name identifies a different core."""
    fix = f"fix its profile: edgekit board add {board} --profile PROFILE"
    for finding in compare(found, profile, found.clock):
        if finding.check in _DECISIVE and finding.verdict is Verdict.FAIL:
            raise IncompatibleError(
                f"board '{board}': expected a match with its profile {profile.name}, found "
                f"{finding.found}; {fix}"
            )
    if profile.core and found.core_names and profile.core not in found.core_names:
        other = propose(found)
        if other and load_board(other.profile).core in found.core_names:
            raise IncompatibleError(
                f"board '{board}': expected a core {profile.core}, as its profile {profile.name} "
                f"says, found {', '.join(found.core_names)} ({other.profile}); {fix}"
            )


def check_board(turn: Turn, release: str, name: str) -> None:
    """Raises RolledBackError if the board rolled back from `release` by itself or its application
    fails."""
    board = turn.device.named(name or None)
    turn.tell("status")
    found = board.status()
    runs = found.current.id if found.current else "nothing"
    if runs != release:
        failure = found.last_failure or {}
        why = failure.get("reason", "") if failure.get("release") == release else ""
        error = RolledBackError(
            f"board '{turn.board.name}': expected release {release} to stay in service, "
            f"found {runs}{': ' + why if why else ''}; see: "
            f"edgekit status --board {turn.board.name}"
        )
        error.log = failure.get("log", "")
        raise error
    turn.tell("application")
    try:
        application = board.application_status()
    except InputError:
        return  # no application is installed
    if application.failures:
        raise RolledBackError(
            f"board '{turn.board.name}': expected application '{application.name}' to run with "
            f"release {release}, found it failed {application.failures} times in a row: "
            f"{application.last or application.said or application.state}; see: "
            f"edgekit app log --board {turn.board.name}"
        )


def fetch_profiles(turn: Turn, store: ProfileStore) -> None:
    """Pulls field profiles from the board; there may be none for this version of the runtime."""
    turn.tell("profile")
    pull(turn.device, store)


def check_times(store: ProfileStore, pairs: Iterable[tuple[str, str]], limit: float) -> list[str]:
    """Compares field times of pairs of releases (before, after). Raises SlowerError if one is
    significantly slower by more than `limit`; returns a line for each pair with enough data."""
    lines = []
    for before, after in pairs:
        try:
            found = compare_releases(store, before, after)
        except InputError:
            continue  # too few batches of either release
        whole = found.whole
        change = f"{100 * (whole.ratio - 1):+.1f}%"
        if whole.sure > 1 + limit:
            raise SlowerError(
                f"release {after}: expected at most {100 * limit:g}% more than the "
                f"{whole.before_us / 1e3:.3f} ms of {before}, found {whole.after_us / 1e3:.3f} ms "
                f"({change}) in the profiles of {found.boards} boards; "
                "see: edgekit profile compare"
            )
        lines.append(
            f"latency of {after} compared with {before}: {change} on {found.boards} boards"
        )
    return lines


def check_agreement(store: ProfileStore, release: str, boards: Sequence[str], least: float) -> str:
    """Raises DisagreesError if a release on these boards surely agrees with its float model less
    often than `least`; returns a line."""
    found = agreements(store, release, boards)
    if not found or found[0].inferences < _FEWEST:
        count = found[0].inferences if found else 0
        return f"agreement of {release} with its float model: {count} inferences, too few to judge"
    one = found[0]
    said = f"{one.share:.4f} of {one.inferences} inferences on {one.boards} boards"
    if one.at_most < least:
        raise DisagreesError(
            f"release {release}: expected {least:g} of its inferences to agree with the float "
            f"model, found {said}; see: edgekit profile report"
        )
    return f"agreement of {release} with its float model: {said}"
