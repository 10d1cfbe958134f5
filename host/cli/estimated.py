"""Estimates for a real core, shown with the times of a virtual board."""

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
_SECONDS = 60.0  # a deployment does not wait longer for an optional estimate


def estimate_bundle(
    bundle: Bundle,
    board: BoardProfile,
    threads: int,
    timeout: float,
    shapes: Mapping[str, Sequence[int]] | None = None,
    signature: str = "",
) -> ModelEstimate:
    """Estimates the variant of a bundle for the given signature and input shapes, else its first.
    Results are cached by release."""
    from edgekit.host.cli.output import note
    from edgekit.host.cli.progress import working
    from edgekit.host.simulator.emulator import find_emulator
    from edgekit.host.simulator.estimate_cache import recall, remember
    from edgekit.host.simulator.model import estimate_model, is_built, variant_number
    from edgekit.host.simulator.target import target_of

    manifest = bundle.manifest
    number = variant_number(manifest, shapes or {}, signature)
    key = f"{manifest.id} {number}" if number else manifest.id
    if found := recall(key, board, threads):
        return found
    target = target_of(board)
    find_emulator(board.arch, note)  # fail now if it is missing, as the next steps take a while
    if not is_built(board.arch):
        note("the first estimate for an architecture compiles a program for it")
    with working(f"estimating {manifest.model.name} on {board.name}"):
        found = estimate_model(manifest, bundle.files, target, threads, timeout, number)
    remember(key, board, threads, found)
    return found


def estimate_for(device: Board, timing: Benchmark, bundle: Bundle | None) -> ModelEstimate | None:
    """Estimates a release timed on a virtual board for the real one; without its bundle, only a
    cached estimate is returned."""
    if bundle:
        return estimate_of(device, bundle, timing.threads)
    if board := _board_of(device):
        from edgekit.host.simulator.estimate_cache import recall

        return recall(timing.release, board, timing.threads)
    return None


def estimate_of(device: Board, bundle: Bundle, threads: int) -> ModelEstimate | None:
    """Estimates a bundle for the real board of a virtual one; None if the core has no model or the
    estimate is not available quickly."""
    board = _board_of(device)
    if board is None:
        return None
    from edgekit.host.simulator.estimate_cache import recall
    from edgekit.host.simulator.model import is_quick

    try:
        found = recall(bundle.manifest.id, board, threads)
        if found is None and is_quick(board.arch):
            found = estimate_bundle(bundle, board, threads, _SECONDS)
    except EdgekitError as error:  # the main task is already done
        _LOG.info("no estimate: %s", error)
        return None
    return found


def _board_of(device: Board) -> BoardProfile | None:
    """The profile of a virtual board whose core has a model; None otherwise."""
    if not device.emulated:
        return None
    from edgekit.host.simulator.target import has_model
    from edgekit.kb.targets.board import load_board

    board = load_board(device.profile)
    return board if has_model(board) and board.nna is None else None


def show_estimate(device: Board, found: ModelEstimate | None) -> None:
    """Prints one line below the emulator's times: the estimate, or how to get it."""
    if found:
        print(f"board    {sentence_of(found)}")
    elif _board_of(device):
        print(f"board    estimate its time: edgekit estimate --board {device.profile}")


def sentence_of(found: ModelEstimate) -> str:
    """Text such as `estimated 12.3 ms ± 10% on rpi4`."""
    from edgekit.host.simulator.report import sentence

    return sentence(found.total_ms, found.board, found.proof)


def estimated_document(found: ModelEstimate | None) -> dict[str, Any] | None:
    """The short form of an estimate, for documents of other commands."""
    from edgekit.host.simulator.report import error_document

    if found is None:
        return None
    proof = error_document(found.proof)
    return {"board": found.board, "core": found.core, "estimated_ms": found.total_ms, **proof}
