"""Estimates of other engines on a board's core, for `estimate` and `bench model`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.host.cli.options import Kind, file_kind
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.compiler.options import CompileOptions
    from edgekit.host.lab.bench.board_peers import PeerEstimate
    from edgekit.host.simulator.model import ModelEstimate
    from edgekit.kb.targets.board import BoardProfile


def peers_beside(
    model: Path, board: BoardProfile, threads: int, options: CompileOptions, seconds: float
) -> tuple[PeerEstimate, ...]:
    """Estimates each engine that has wheels for the board: in f32 if `options` request it, else in
    its fastest precision whose outputs are close to the reference's."""
    from edgekit.host.cli.output import note
    from edgekit.host.cli.progress import working
    from edgekit.host.lab.bench.board_peers import PeerJob, estimate_peers
    from edgekit.host.simulator.target import target_of

    if file_kind(model) is Kind.BUNDLE:
        raise InputError(f"{model}: other engines need the .tflite or .onnx file, found a bundle")
    f32 = options.precision == "f32"
    job = PeerJob(model, target_of(board), threads, options.shapes, f32, seconds)
    with working(f"estimating {model.name} and other engines"):
        return estimate_peers(job, note)


def show_peers(ours: ModelEstimate, peers: Sequence[PeerEstimate]) -> None:
    """Prints a table with ratios, ours first."""
    from edgekit.host.cli.output import milliseconds, table
    from edgekit.host.simulator.report import bound_text, error_text

    error = error_text(ours.proof)
    rows = [("edgekit", milliseconds(ours.total_ms), error, "1.00", bound_text(ours.cost))]
    for peer in peers:
        if peer.cost is not None:
            ratio = f"{peer.milliseconds / ours.total_ms:.2f}"
            half = " f16" if peer.precision == "f16" else ""
            name = f"{peer.name} {peer.version}{half}"
            time = milliseconds(peer.milliseconds)
            rows.append((name, time, error, ratio, bound_text(peer.cost)))
    print(f"peers    on {ours.board}'s core")
    table(("engine", "estimated ms", "error", "edgekit is faster by", "bound by"), rows)
    for peer in peers:
        if peer.cost is None:
            print(f"no {peer.name}: {peer.missing}")
