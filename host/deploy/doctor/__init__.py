"""Checks of the developer's machine and of a board; each finding includes the fix."""

from __future__ import annotations

from collections.abc import Iterator

from edgekit.host.deploy.connections import profile_of
from edgekit.host.deploy.doctor.board import compare, examine_board, examine_device
from edgekit.host.deploy.doctor.machine import examine_machine
from edgekit.host.deploy.doctor.types import Finding, Verdict
from edgekit.kb.targets.board import load_board

__all__ = ["Finding", "Verdict", "compare", "examine", "examine_device"]


def examine(board: str) -> Iterator[Finding]:
    """Yields findings about this machine, then about `board`, as they are made.

    Raises UnknownBoardError.
    """
    profile = load_board(profile_of(board))
    fit = True
    for finding in examine_machine(profile):
        fit = fit and finding.verdict is not Verdict.FAIL
        yield finding
    if fit:
        yield from examine_board(board, profile)
