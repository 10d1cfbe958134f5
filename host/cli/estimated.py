"""The estimate of a real core beside the times of a virtual board."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.host.errors import EdgekitError

if TYPE_CHECKING:
    from edgekit.host.deploy.board import Board
    from edgekit.host.deploy.bundle import Bundle
    from edgekit.host.deploy.release import Benchmark
    from edgekit.host.simulator.model import ModelEstimate
    from edgekit.kb.targets.board import BoardProfile

_LOG = logging.getLogger(__name__)
_SECONDS = 60.0  # a deploy does not wait longer for what it can do without


def estimate_bundle(
    bundle: Bundle,
    board: BoardProfile,
    threads: int,
    timeout: float,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> ModelEstimate:
    """What the variant of a bundle for some input shapes takes, else its first; of a release only
    the first time is worked for."""
    from edgekit.host.cli.output import note
    from edgekit.host.cli.progress import working
    from edgekit.host.simulator.answers import recall, remember
    from edgekit.host.simulator.emulator import find_emulator
    from edgekit.host.simulator.model import estimate_model, is_built, variant_number
    from edgekit.host.simulator.target import target_of

    manifest = bundle.manifest
    number = variant_number(manifest, shapes or {})
    key = f"{manifest.id} {number}" if number else manifest.id
    if found := recall(key, board, threads):
        return found
    target = target_of(board)
    find_emulator(board.arch, note)  # is it there? What comes now takes a while
    if not is_built(board.arch):
        note("the first estimate for an architecture compiles a C library, for some minutes")
    with working(f"estimating {manifest.model.name} on {board.name}"):
        found = estimate_model(manifest, bundle.files, target, threads, timeout, number)
    remember(key, board, threads, found)
    return found


def estimate_beside(
    device: Board, timing: Benchmark, bundle: Bundle | None
) -> ModelEstimate | None:
    """What a release that was timed on a virtual board would take on a real one; of one that is
    not at hand, what is remembered."""
    from edgekit.host.simulator.answers import recall

    if bundle is None and (board := _board_of(device)):
        return recall(timing.release, board, timing.threads)
    return estimate_of(device, bundle, timing.threads) if bundle else None


def estimate_of(device: Board, bundle: Bundle, threads: int) -> ModelEstimate | None:
    """What a bundle for a virtual board would take on a real one; None where there is no model of
    the core, or where that could not be told soon."""
    from edgekit.host.simulator.answers import recall
    from edgekit.host.simulator.model import is_quick

    board = _board_of(device)
    if board is None:
        return None
    try:
        found = recall(bundle.manifest.id, board, threads)
        if found is None and is_quick(board.arch):
            found = estimate_bundle(bundle, board, threads, _SECONDS)
    except EdgekitError as error:  # what was asked for is done
        _LOG.info("no estimate: %s", error)
        return None
    return found


def _board_of(device: Board) -> BoardProfile | None:
    """The profile of a virtual board whose core has a model."""
    from edgekit.host.simulator.target import has_model
    from edgekit.kb.targets.board import load_board

    board = load_board(device.profile) if device.emulated else None
    return board if board and has_model(board) and board.nna is None else None


def show_estimate(device: Board, found: ModelEstimate | None) -> None:
    """One line below the emulator's times; or how to get it."""
    if found:
        print(f"board    {sentence_of(found)}")
    elif _board_of(device):
        print(f"board    estimate its time: edgekit estimate --board {device.profile}")


def sentence_of(found: ModelEstimate) -> str:
    """`estimated 12.3 ms ± 10 % on rpi4`."""
    from edgekit.host.simulator.report import sentence

    return sentence(found.total_ms, found.board, found.proof)


def estimated_document(found: ModelEstimate | None) -> dict[str, Any] | None:
    """The short form, for the documents of other commands."""
    from edgekit.host.simulator.report import error_document

    if found is None:
        return None
    proof = error_document(found.proof)
    return {"board": found.board, "core": found.core, "estimated_ms": found.total_ms, **proof}
