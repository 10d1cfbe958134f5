"""Decides whether a board can run a model.

The host checks before sending a release, the board before loading its library.
"""

from __future__ import annotations

from typing import FrozenSet, Optional

from edgekit.device.runtime.agent.manifest import BoardNeeds
from edgekit.device.runtime.agent.specs import BoardMemory
from edgekit.device.runtime.errors import IncompatibleError, TooLittleMemoryError
from edgekit.device.runtime.record import Record

_STACK_BYTES = 640 << 10  # kernels use up to 512 KiB, the interpreter the rest


class BoardFacts(Record):
    """A board's resources; None where it does not report them."""

    machine: str
    features: FrozenSet[str]
    vlen_bits: Optional[int]
    available_bytes: Optional[int]
    stack_bytes: Optional[int]  # the most that a process may have


def check_fit(needs: BoardNeeds, memory: BoardMemory, board: BoardFacts) -> None:
    """IncompatibleError names the first missing requirement."""
    if needs.machine != board.machine:
        raise IncompatibleError(
            f"expected a model built for {board.machine}, found one for {needs.machine} "
            f"(profile {needs.profile}); compile it for this board's profile"
        )
    if missing := sorted(set(needs.features) - board.features):
        raise IncompatibleError(
            f"expected a CPU with {', '.join(needs.features)}, found one without "
            f"{', '.join(missing)}; compile for a profile that does not need it"
        )
    if board.vlen_bits is not None and board.vlen_bits < needs.vlen_bits:
        raise IncompatibleError(
            f"expected vector registers of at least {needs.vlen_bits} bits (profile "
            f"{needs.profile}), found {board.vlen_bits}; compile the model for a profile of "
            f"{board.vlen_bits} bits or fewer (on the host: edgekit boards)"
        )
    if board.available_bytes is not None and memory.total > board.available_bytes:
        raise TooLittleMemoryError(
            f"expected {memory.total} bytes of free memory (arena, state, weights), found "
            f"{board.available_bytes}; free some or use a smaller model"
        )
    if board.stack_bytes is not None and board.stack_bytes < _STACK_BYTES:
        raise IncompatibleError(
            f"expected a stack of at least {_STACK_BYTES >> 10} KiB, found a limit of "
            f"{board.stack_bytes >> 10} KiB; raise it: ulimit -s, or LimitSTACK of a systemd unit"
        )
