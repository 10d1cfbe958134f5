"""Where a benchmark of products runs: on a board, or by estimate for a board that is not
connected."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.deploy.board import Board
    from edgekit.host.deploy.connections import Via
    from edgekit.host.simulator.target import SimulatedCore


def board_or_core(name: str, transport: Via | None) -> Board | SimulatedCore:
    """This machine, a board of the inventory, or a running virtual board; else the core of the
    profile of this name. InputError if the profile's core has no model of time."""
    from edgekit.host.cli.tune_estimated import is_to_measure
    from edgekit.host.deploy.connections import check_counting, connect_to, profile_of
    from edgekit.host.simulator.emulator import find_emulator
    from edgekit.host.simulator.target import target_of
    from edgekit.host.virtual import find_running
    from edgekit.kb.targets.board import load_board

    if is_to_measure(name) or find_running(name):
        device = connect_to(name, transport)
        check_counting(device)
        return device
    target = target_of(load_board(profile_of(name)))
    find_emulator(target.board.arch)  # fail before kernels are compiled
    return target


@contextlib.contextmanager
def closing_board(where: Board | SimulatedCore) -> Iterator[None]:
    """Closes the connection to a board at the end."""
    from edgekit.host.simulator.target import SimulatedCore

    try:
        yield
    finally:
        if not isinstance(where, SimulatedCore):
            where.transport.close()


def refuse_estimate(where: Board | SimulatedCore, option: str) -> None:
    """InputError for an option that needs a board that can be reached."""
    from edgekit.host.simulator.target import SimulatedCore

    if isinstance(where, SimulatedCore):
        name = where.board.name
        raise InputError(
            f"expected a board that can be reached for {option}, found only the profile '{name}'; "
            f"add yours: edgekit board add {name} --host USER@ADDRESS"
        )


def refuse_peers(board: str) -> None:
    """InputError for --peers on another board than this machine."""
    from edgekit.host.deploy.connections import LOCAL

    if board != LOCAL:
        raise InputError(
            f"expected the board {LOCAL} for --peers, found {board}; "
            "other libraries are timed on this machine only"
        )


def estimate_document(
    where: Board | SimulatedCore, kinds: Sequence[str], threads: int
) -> dict[str, Any] | None:
    """The core, and the known errors of its estimates by kind, float or int8; None for a board that
    was measured."""
    from edgekit.host.simulator.report import error_document
    from edgekit.host.simulator.target import SimulatedCore

    if not isinstance(where, SimulatedCore):
        return None
    errors = {kind: error_document(where.proof(kind, threads)) for kind in kinds}
    return {"core": where.core.name, "clock_mhz": where.core.clock_mhz, "errors": errors}


def show_estimate(where: Board | SimulatedCore, kinds: Sequence[str], threads: int) -> None:
    """Prints that times are estimates, with their errors, unless a board was measured."""
    from edgekit.host.simulator.report import error_text
    from edgekit.host.simulator.target import SimulatedCore

    if isinstance(where, SimulatedCore):
        errors = ", ".join(f"{kind} {error_text(where.proof(kind, threads))}" for kind in kinds)
        print(f"estimated for {where.board.name} ({where.core.name}): {errors}")
