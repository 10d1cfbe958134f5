"""Adds a board to the inventory: logs in, checks its profile and installs our key."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from edgekit.device.runtime.agent.placement import place
from edgekit.device.runtime.agent.probe import Probe
from edgekit.device.runtime.agent.specs import PlacementRequest
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.host.deploy.board import Board
from edgekit.host.deploy.doctor import Verdict, compare
from edgekit.host.deploy.doctor.propose import propose
from edgekit.host.deploy.inventory import BoardEntry
from edgekit.host.deploy.release import enroll_host, enroll_unsigned, probe
from edgekit.host.errors import IncompatibleError, InputError
from edgekit.kb.targets.board import load_board


@dataclass(frozen=True)
class Joined:
    """A board with its profile; `notes` describe findings, `warnings` possible problems."""

    entry: BoardEntry
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def join(
    entry: BoardEntry,
    board: Board,
    tell: Callable[[str], None] = lambda _: None,
    only_us: bool = False,
) -> Joined:
    """Logs in, proposes a profile if none was given, rejects a board that does not match its
    profile, and installs our key on it, with `only_us` in place of all others. The host key in
    `entry` must be pinned."""
    tell("logging in")
    found = probe(board)
    _check_cluster(entry, found)
    notes: list[str] = []
    if not entry.profile:
        profile, why = _propose_profile(entry.name, found)
        entry = replace(entry, profile=profile)
        notes.append(f"profile of {entry.name}: {profile} ({why}); to choose another: --profile")
    warnings = []
    for finding in compare(found, load_board(entry.profile), time.time(), entry.name):
        if finding.verdict is Verdict.FAIL:
            raise IncompatibleError(
                f"board '{entry.name}': {finding.check}: {finding.found}; {finding.fix}"
            )
        if finding.verdict is Verdict.WARN:
            warnings.append(f"{finding.check}: {finding.found}; {finding.fix}")
    tell("enrolling the signing key")
    if entry.unsigned:
        enroll_unsigned(board)
    else:
        enroll_host(board, only_us)
    return Joined(entry, tuple(notes), tuple(warnings))


def _check_cluster(entry: BoardEntry, found: Probe) -> None:
    """Raises InputError if models cannot run on the cluster or threads in the entry."""
    try:
        place((), PlacementRequest(entry.threads, entry.cluster or ""), found.clusters)
    except DeviceInputError as error:
        raise InputError(f"board '{entry.name}': {error}") from None


def _propose_profile(board: str, found: Probe) -> tuple[str, str]:
    """The proposed profile and the reason for it."""
    proposal = propose(found)
    if proposal is None:
        raise IncompatibleError(
            f"board '{board}': expected a board that matches a profile, found {found.machine} "
            f"with {', '.join(found.core_names) or 'an unknown core'}; list them: edgekit boards"
        )
    return proposal.profile, proposal.reason
