"""The estimate of a real core beside the times of a virtual board."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from edgekit.host.errors import EdgekitError

if TYPE_CHECKING:
    from edgekit.host.api import Device
    from edgekit.host.bundle import Bundle
    from edgekit.host.estimate.model import ModelEstimate
    from edgekit.host.release import Benchmark
    from edgekit.kb.board import BoardProfile

_LOG = logging.getLogger(__name__)
_SECONDS = 60.0  # a deploy does not wait longer for what it can do without


def estimate_bundle(
    bundle: Bundle, board: BoardProfile, threads: int, timeout: float
) -> ModelEstimate:
    """What the first variant of a bundle takes; of a release only the first time is worked for."""
    from edgekit.host.cli.progress import working
    from edgekit.host.estimate.answers import recall, remember
    from edgekit.host.estimate.model import estimate_model
    from edgekit.host.estimate.target import target_of

    manifest = bundle.manifest
    if found := recall(manifest.id, board, threads):
        return found
    with working(f"estimating {manifest.model.name} on {board.name}"):
        found = estimate_model(manifest, bundle.files, target_of(board), threads, timeout)
    remember(manifest.id, board, threads, found)
    return found


def estimate_beside(
    device: Device, timing: Benchmark, bundle: Bundle | None
) -> ModelEstimate | None:
    """What a release that was timed on a virtual board would take on a real one; None where there
    is no model of the core, or where that could not be told soon."""
    from edgekit.host.estimate.answers import recall
    from edgekit.host.estimate.model import is_quick
    from edgekit.host.estimate.target import has_model
    from edgekit.kb.board import load_board

    if not device.emulated:
        return None
    board = load_board(device.profile)
    if not has_model(board) or board.nna is not None:
        return None
    try:
        if found := recall(timing.release, board, timing.threads):
            return found
        if bundle is None or bundle.manifest.id != timing.release or not is_quick(board.arch):
            return None
        return estimate_bundle(bundle, board, timing.threads, _SECONDS)
    except EdgekitError as error:  # what was asked for is done
        _LOG.info("no estimate: %s", error)
        return None


def show_estimate(device: Device, found: ModelEstimate | None) -> None:
    """One line below the emulator's times; or how to get it."""
    from edgekit.host.estimate.report import sentence
    from edgekit.host.estimate.target import has_model
    from edgekit.kb.board import load_board

    if found:
        print(f"board    {sentence(found.total_ms, found.board, found.proof)}")
    elif device.emulated and has_model(load_board(device.profile)):
        print(f"board    estimate its time: edgekit estimate --board {device.profile}")


def estimated_document(found: ModelEstimate | None) -> dict[str, Any] | None:
    """The short form, for the documents of other commands."""
    from edgekit.host.estimate.report import error_document

    if found is None:
        return None
    proof = error_document(found.proof)
    return {"board": found.board, "core": found.core, "estimated_ms": found.total_ms, **proof}
