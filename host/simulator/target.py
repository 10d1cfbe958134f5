"""A board as seen by estimates: its core's model, and the CPU that QEMU emulates for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edgekit.host.errors import InputError
from edgekit.host.simulator.emulator import HALF
from edgekit.kb.targets.board import BoardProfile
from edgekit.kb.targets.clusters import cluster_named, timed_core
from edgekit.kb.targets.core import Core, core_names, load_core
from edgekit.kb.targets.core_parts import Validation


@dataclass(frozen=True)
class SimulatedCore:
    """`cpu` is the value for QEMU's option -cpu."""

    board: BoardProfile
    core: Core
    cpu: str

    def milliseconds(self, cycles: float) -> float:
        """The duration of `cycles` at the board's clock."""
        return cycles / self.core.clock_mhz / 1e3

    def proof(self, kind: str, threads: int) -> Validation | None:
        """The known error for networks of a kind, float or int8; None if not validated."""
        same = [v for v in self.core.validation if v.kind == kind]
        fitting = [v for v in same if (v.threads > 1) == (threads > 1)]
        return fitting[0] if fitting else None


def target_of(board: BoardProfile) -> SimulatedCore:
    """The target for a board's `timed_core`; InputError if there is no model of it."""
    core = timed_core(board)
    if core is None:
        raise InputError(
            f"{board.name}: expected a board whose core has a timing model "
            f"({', '.join(core_names())}), found {board.core or board.arch}; choose such a board, "
            "or measure on it: edgekit bench model"
        )
    return SimulatedCore(board, core, cpu_of(board, core.name))


def on_cluster(board: BoardProfile, name: str) -> BoardProfile:
    """The board with the named cluster treated as the fastest, which is the one estimated; "" for
    no change. InputError if there is no such cluster."""
    try:
        unit = cluster_named(board, name).unit if name else ""
    except ValueError as error:
        raise InputError(str(error)) from None
    return replace(board, timing=tuple(sorted(board.timing, key=lambda c: c.name != unit)))


def has_model(board: BoardProfile) -> bool:
    """Whether there is a timing model of a board's core."""
    return timed_core(board) is not None


def cpu_of(board: BoardProfile, core: str) -> str:
    """QEMU's name of a CPU that executes the instructions of `core`, for use with `spelled`."""
    if board.arch != "riscv64":
        own = load_core(core)
        if not own.emulated and own.inherits:
            return cpu_of(board, own.inherits)
        return own.emulated or f"cortex-{core}"
    vectors = f"v=true,vlen={board.vlen_bits}" if board.vlen_bits else "v=false"
    half = f",{HALF}" if board.computes_half else ""
    return f"rv64,{vectors},zba=true,zbb=true{half}"
