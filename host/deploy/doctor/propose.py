"""Proposes a profile for a board without one: by its device tree, else by its core type."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.device.runtime.agent.probe import Probe
from edgekit.kb.targets.board import LOCAL, BoardProfile, UnknownBoardError, board_names, load_board


@dataclass(frozen=True)
class Proposal:
    """A profile's name, and the board property that selected it."""

    profile: str
    reason: str


def propose(found: Probe) -> Proposal | None:
    """Returns the closest profile whose kernels run on the board, or None."""
    fitting = [p for p in map(load_board, board_names()[1:]) if _can_run(p, found)]
    for chip in found.compatible:
        for profile in fitting:
            if chip in profile.compatible:
                return Proposal(profile.name, found.board or chip)
    cores = sorted(filter(_is_of_a_core, fitting), key=lambda p: -p.vlen_bits)
    for core in found.core_names:
        for profile in cores:
            if core == profile.core:
                return Proposal(profile.name, core)
    if (here := _this_machine()) and _can_run(here, found):
        return Proposal(LOCAL, f"{found.machine}, with all CPU features that edgekit needs")
    if not cores:
        return None
    closest = max(cores, key=lambda p: (len(p.features), p.vlen_bits))
    described = ", ".join(found.core_names) or "unknown core"
    return Proposal(closest.name, f"{found.machine}, {described}; the closest profile")


def _is_of_a_core(profile: BoardProfile) -> bool:
    """Whether this is a generic core profile, without facts of a board: the most general of its
    core, or its longer-vector form."""
    general = (
        profile.core_profile == profile.name
        or profile.vlen_bits > load_board(profile.core_profile).vlen_bits
    )
    return general and not profile.compatible and not profile.source


def _can_run(profile: BoardProfile, found: Probe) -> bool:
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
