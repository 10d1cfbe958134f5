"""`edgekit estimate --together`: models at work at the same time on one board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.specs import PlacementRequest
    from edgekit.host.compiler.options import CompileOptions
    from edgekit.host.simulator.model import ModelEstimate
    from edgekit.kb.targets.board import BoardProfile

SCHEMA = "edgekit.estimate.together/1"


@dataclass(frozen=True)
class _Pair:
    """A model's estimates without and with the others, and its part of the memory."""

    path: Path
    alone: ModelEstimate
    together: ModelEstimate
    cache_bytes: int
    gb_s: float

    @property
    def slower(self) -> float:
        return self.together.total_ms / self.alone.total_ms - 1


def show_together(
    paths: Sequence[Path],
    board: BoardProfile,
    options: CompileOptions,
    request: PlacementRequest,
    timeout: float,
    as_json: bool,
) -> None:
    """Prints what models cost each other in shared cache and DRAM, all at work all the time."""
    from edgekit.host.cli.output import emit
    from edgekit.host.simulator.target import on_cluster

    if len(paths) < 2:
        raise InputError(f"--together: expected two models or more, found {len(paths)}")
    board = on_cluster(board, request.cluster)
    pairs = _estimate(paths, board, options, request, timeout)
    if as_json:
        emit({"schema": SCHEMA, "board": board.name, "models": [_document(p) for p in pairs]})
    else:
        _print(pairs, board)


def _estimate(
    paths: Sequence[Path],
    board: BoardProfile,
    options: CompileOptions,
    request: PlacementRequest,
    timeout: float,
) -> list[_Pair]:
    from edgekit.host.cli.estimate_release import estimate_file, load_for
    from edgekit.host.cli.progress import working
    from edgekit.host.simulator.estimate_cache import recall, remember
    from edgekit.host.simulator.model import estimate_model, variant_number
    from edgekit.host.simulator.target import target_of
    from edgekit.host.simulator.together import shared_cores
    from edgekit.kb.targets.board import load_board

    target = target_of(board)
    requests = _requests(paths, board, options, request)
    alone = [
        estimate_file(path, board, options, own, timeout)
        for path, own in zip(paths, requests, strict=True)
    ]
    shares = shared_cores(target.core, alone)
    pairs = []
    for path, own, found, shared in zip(paths, requests, alone, shares, strict=True):
        loaded = load_for(path, load_board(board.name), options, own)
        number = variant_number(loaded.bundle.manifest, loaded.shapes, loaded.signature)
        key = f"{loaded.bundle.manifest.id} {number} {shared.core!r}"
        again = recall(key, board, found.threads)
        if again is None:
            files, manifest = loaded.bundle.files, loaded.bundle.manifest
            with working(f"estimating {path.name} with the others at work"):
                core = replace(target, core=shared.core)
                again = estimate_model(manifest, files, core, found.threads, timeout, number)
            remember(key, board, found.threads, again)
        pairs.append(_Pair(path, found, again, shared.cache_bytes, shared.gb_s))
    return pairs


def _requests(
    paths: Sequence[Path],
    board: BoardProfile,
    options: CompileOptions,
    request: PlacementRequest,
) -> list[PlacementRequest]:
    """What each model is asked for, so that each thread has a core: without a number of threads,
    models that would take more cores than there are get fewer. Raises InputError."""
    from edgekit.device.runtime.record import replace as replaced
    from edgekit.host.cli.estimate_release import load_for, select_placement
    from edgekit.kb.targets.board import load_board
    from edgekit.kb.targets.clusters import clusters_of

    cores, whole = clusters_of(board)[0].cores, load_board(board.name)
    if len(paths) * (request.threads or 1) > cores:
        raise InputError(
            f"--together: expected a core for each thread, found "
            f"{len(paths) * (request.threads or 1)} threads of {len(paths)} models on {cores} "
            f"cores of {board.name}; leave some out"
            f"{', or give fewer: --threads N' if (request.threads or 1) > 1 else ''}"
        )
    if request.threads:
        return [request] * len(paths)
    wanted = [
        select_placement(load_for(path, whole, options, request).bundle, board, request)[1]
        for path in paths
    ]
    fitting = fit_threads(wanted, cores)
    return [
        request if few == many else replaced(request, threads=few)
        for few, many in zip(fitting, wanted, strict=True)
    ]


def fit_threads(wanted: Sequence[int], cores: int) -> list[int]:
    """The threads of models that together take at most `cores`, which are as many as models: those
    that want most get fewer."""
    found = list(wanted)
    while sum(found) > cores:
        found[found.index(max(found))] -= 1
    return found


def _document(pair: _Pair) -> dict[str, object]:
    from edgekit.host.simulator.report import error_document

    return {
        "file": pair.path.name,
        "threads": pair.alone.threads,
        "alone_ms": pair.alone.total_ms,
        "together_ms": pair.together.total_ms,
        "slower_percent": 100 * pair.slower,
        "cache_bytes": pair.cache_bytes,
        "dram_gb_s": pair.gb_s,
        **error_document(pair.alone.proof),
    }


def _print(pairs: Sequence[_Pair], board: BoardProfile) -> None:
    from edgekit.host.cli.output import byte_size, milliseconds, table
    from edgekit.host.simulator.report import error_text

    heads = ("model", "threads", "alone ms", "together ms", "error", "slower by", "cache", "DRAM")
    rows = [
        (
            pair.path.name,
            str(pair.alone.threads),
            milliseconds(pair.alone.total_ms),
            milliseconds(pair.together.total_ms),
            error_text(pair.alone.proof),
            f"{100 * pair.slower:.1f}%",
            byte_size(pair.cache_bytes) if pair.cache_bytes else "own",
            f"{pair.gb_s:.1f} GB/s",
        )
        for pair in pairs
    ]
    table(heads, rows)
    print(f"estimated for {board.name}: all at work all the time, each on cores of its own; their")
    print("parts of the shared cache and of the DRAM's bandwidth follow from the bytes they touch")
