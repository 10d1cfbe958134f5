"""Estimates one model or bundle for the commands that do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.host.cli.options import FileKind, file_kind
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.specs import PlacementRequest
    from edgekit.host.compiler.options import CompileOptions, Shapes
    from edgekit.host.deploy.bundle import Bundle
    from edgekit.host.simulator.model import ModelEstimate
    from edgekit.kb.targets.board import BoardProfile


@dataclass(frozen=True)
class LoadedRelease:
    """A release, and which of its variants is meant."""

    bundle: Bundle
    shapes: Shapes
    signature: str


def load_for(
    path: Path, board: BoardProfile, options: CompileOptions, request: PlacementRequest
) -> LoadedRelease:
    """A bundle, or a model compiled for the board; InputError if it is for another one."""
    from edgekit.host.cli.compile import load_bundle

    shapes: Shapes = {}
    signature = options.signature
    if file_kind(path) is FileKind.MODEL:
        options = replace(options, threads=request.threads)  # affects the choice of methods
    else:
        if options.more_shapes:
            raise InputError(
                "--input-shape: expected one shape of an input of a bundle, found several; "
                "estimate them one by one"
            )
        shapes, options = options.shapes, replace(options, shapes={}, signatures=())
    bundle = load_bundle(path, board.name, options=options)
    if bundle.manifest.board.profile != board.name:
        raise InputError(
            f"{path}: expected a bundle for {board.name}, found one for "
            f"{bundle.manifest.board.profile}; name that board, or compile the model again"
        )
    return LoadedRelease(bundle, shapes, signature)


def estimate_file(
    path: Path,
    board: BoardProfile,
    options: CompileOptions,
    request: PlacementRequest,
    timeout: float,
) -> ModelEstimate:
    """Estimates a model or bundle; caches the results for models and releases."""
    from edgekit.host.cli.estimated import estimate_bundle
    from edgekit.host.compiler.build_key import build_key
    from edgekit.host.simulator.estimate_cache import recall, remember
    from edgekit.host.simulator.target import target_of

    is_model = file_kind(path) is FileKind.MODEL
    key = build_key(path, board, replace(options, threads=request.threads)) if is_model else ""
    usual = request.threads or 0  # 0: as the release specifies
    if is_model and (found := recall(key, board, usual)):
        return found
    target_of(board)  # fail now if the core has no model, as compiling takes a while
    loaded = load_for(path, board, options, request)
    where, threads = select_placement(loaded.bundle, board, request)
    found = estimate_bundle(loaded.bundle, where, threads, timeout, loaded.shapes, loaded.signature)
    if is_model:
        remember(key, board, usual, found)
    return found


def select_placement(
    bundle: Bundle, board: BoardProfile, request: PlacementRequest
) -> tuple[BoardProfile, int]:
    """The cluster and number of threads on which a release would run, chosen as the board does."""
    from edgekit.device.runtime.agent.specs import BESIDE
    from edgekit.host.simulator.target import on_cluster
    from edgekit.kb.targets.clusters import cluster_named

    placed = tuple(s for s in bundle.manifest.placements if BESIDE not in s.cluster)
    if request.cluster and placed:
        name = cluster_named(board, request.cluster).name
        placed = tuple(spec for spec in placed if spec.cluster == name)
    if not placed:
        return board, request.threads or 1
    where = board if request.cluster else on_cluster(board, placed[0].cluster)
    return where, request.threads or placed[0].threads
