"""Counts instructions of the deployed release, the only cost metric of an emulated board."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.host.deploy.release.runtime import BoardCalls

_SECONDS = 900.0  # emulators run some ten million instructions a second


@dataclass(frozen=True)
class InstructionCount:
    """Instructions of one inference on one thread, on the golden input.

    `user_only`: kernel instructions are excluded. `samples` are the individual measurements.
    """

    release: str
    model: str
    per_inference: int
    user_only: bool
    samples: tuple[int, ...]


def count_instructions(board: BoardCalls, *, repeats: int = 5) -> InstructionCount:
    """Counts on the board; a virtual board must have been started with
    `BoardOptions(counting=True)`.

    Raises IncompatibleError if the board has no instruction counter.
    """
    found = board.call_release("count", "--repeats", str(repeats), deadline=_SECONDS)
    return InstructionCount(
        release=found["release"],
        model=found["model"],
        per_inference=found["per_inference"],
        user_only=found["user_only"],
        samples=tuple(found["samples"]),
    )
