"""The clusters of a board as defined by its profile, under the board's own names."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from edgekit.device.runtime.agent.specs import ALIKE, ALL
from edgekit.kb.targets.board import CPU, BoardProfile
from edgekit.kb.targets.core import ELEMENTS, WIDTHS, Core, core_names, load_core, operation_table
from edgekit.kb.targets.timing import TimedCluster


@dataclass(frozen=True)
class BoardCluster:
    """Cores of one kind.

    `core`: the kind without its vendor ("a76"), "" if any will do; `unit`: a core's name in the
    cost model; `timing`: its clock and memory, if known.
    """

    name: str
    core: str
    cores: int
    unit: str
    timing: TimedCluster | None


def clusters_of(board: BoardProfile) -> tuple[BoardCluster, ...]:
    """The clusters, fastest first; a board without clusters has a single one with all cores."""
    several = [cluster for cluster in board.timing if cluster.cores]
    if len(several) < 2:
        timing = board.timing[0] if board.timing else None
        return (BoardCluster(ALL, "", board.cores, CPU, timing),)
    names = ["big" if cluster.name == CPU else cluster.name for cluster in several]
    if len({cluster.core for cluster in several}) == 1:
        names = [f"{ALIKE}{number}" for number in range(len(several))]
    return tuple(
        BoardCluster(name, c.core, c.cores, c.name, c)
        for name, c in zip(names, several, strict=True)
    )


def timed_core(board: BoardProfile) -> Core | None:
    """The timing model of the board's fastest core; None if there is no model.

    Clock and memory are the board's, or, if its profile does not give them, those that the core
    usually has.
    """
    if board.timing:
        return board.timing[0].timed()
    name = board.core.rpartition("-")[2]
    return load_core(name) if name in core_names() else None


def core_of_unit(board: BoardProfile, unit: str) -> Core | None:
    """The timing model of a unit's core.

    None if there is none, for a unit that is not a core, or whose speed is given by the profile
    itself.
    """
    given = next((u for u in board.compute if u.name == unit), None)
    if given is not None and given.kind != "core":
        return None
    cluster = next((c for c in board.timing if c.name == unit), None)
    if cluster is not None:
        return cluster.timed()
    return timed_core(board) if unit == CPU else None


def cluster_named(board: BoardProfile, name: str) -> BoardCluster:
    """The cluster of that name or kind of core; ValueError, in one line, if there is none."""
    known = clusters_of(board)
    wanted = name.lower()
    only = board.core.rpartition("-")[2] or "core"  # a single cluster may be named after any kind
    for cluster in known:
        if wanted == cluster.name or wanted.rpartition("-")[2] == (cluster.core or only):
            return cluster
    there = ", ".join(f"{c.name} ({c.cores} x {c.core or only})" for c in known)
    raise ValueError(f"--cluster: expected a cluster of {board.name}, {there}, found '{name}'")


def makes_whole_products(board: BoardProfile) -> bool:
    """True if a 128-bit multiply-add is known to be one micro-operation of the core."""
    core = timed_core(board)
    return core is not None and _product_parts(core.name) == 1


@functools.cache
def _product_parts(core: str) -> int | None:
    return operation_table(load_core(core))["v_fma", WIDTHS.index(128), ELEMENTS.index(32)].uops
