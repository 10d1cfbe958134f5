"""The profile of a board whose owner names none: by its device tree, else by its core."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.device.agent.probe import Probe
from edgekit.kb.board import LOCAL, BoardProfile, UnknownBoardError, board_names, load_board


@dataclass(frozen=True)
class Proposal:
    """A profile's name, and what of the board it was chosen by."""

    profile: str
    reason: str


def propose(found: Probe) -> Proposal | None:
    """The profile that is most like a board and whose kernels run there; None if there is none."""
    fitting = [p for p in map(load_board, board_names()[1:]) if _runs(p, found)]
    for chip in found.compatible:
        for profile in fitting:
            if chip in profile.compatible:
                return Proposal(profile.name, found.board or chip)
    cores = [p for p in fitting if p.core_profile == p.name and not p.compatible]
    for core in found.core_names:
        for profile in cores:
            if core == profile.core:
                return Proposal(profile.name, core)
    if (here := _this_machine()) and _runs(here, found):
        return Proposal(LOCAL, f"{found.machine}, with all that this machine's kernels need")
    if not cores:
        return None
    closest = max(cores, key=lambda p: (len(p.features), p.vlen_bits))
    described = ", ".join(found.core_names) or "no core that it names"
    return Proposal(closest.name, f"{found.machine}, {described}; the closest there is")


def _runs(profile: BoardProfile, found: Probe) -> bool:
    return (
        profile.arch == found.machine
        and set(profile.features) <= set(found.features)
        and profile.vlen_bits <= (found.vlen_bits or 0)
    )


def _this_machine() -> BoardProfile | None:
    try:
        return load_board(LOCAL)
    except UnknownBoardError:
        return None
