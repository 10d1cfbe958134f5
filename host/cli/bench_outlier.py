"""`edgekit lab bench gemm --dtype outlier`: the outlier split, plain int8, floats, frameworks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.host.common.text import counted

if TYPE_CHECKING:
    from edgekit.host.deploy.board import Board
    from edgekit.host.deploy.connections import Via
    from edgekit.host.lab.bench.outlier import Cell, OutlierBenchmark
    from edgekit.host.lab.bench.outlier_board import OutlierMeasurer
    from edgekit.host.simulator.target import SimulatedCore
    from edgekit.kb.features import GemmShape

_HERE = "local"
_ESTIMATED_ROWS = 32  # most rows of the standard products in an estimate, which takes seconds each
_KINDS = ("float", "int8")


def bench_outlier(
    board: str,
    transport: Via | None,
    shapes: Path | None,
    threads: int,
    peers: bool,
    as_json: bool,
) -> None:
    """Times products with outlier channels and 8-bit weights on a board, or estimates them."""
    from edgekit.host.cli.bench_board import (
        board_or_core,
        closing_board,
        estimate_document,
        refuse_peers,
        show_estimate,
    )
    from edgekit.host.cli.output import emit
    from edgekit.host.cli.progress import counting
    from edgekit.host.lab.bench.gemm_cases import given_cases
    from edgekit.host.lab.bench.outlier import bench_outlier as bench
    from edgekit.host.lab.bench.outlier_board import bench_measured
    from edgekit.host.lab.tune.products import shapes_of_file
    from edgekit.host.simulator.target import SimulatedCore

    if peers:
        refuse_peers(board)
    given = [case.shape for case in given_cases(shapes_of_file(shapes))] if shapes else None
    where = board_or_core(board, transport)
    is_estimate = isinstance(where, SimulatedCore)
    wanted = given or _standard(is_estimate)
    with closing_board(where), counting("products timed") as tell:
        if board == _HERE:
            found = bench(wanted, threads, peers, tell)
        else:
            found = bench_measured(_measurer_of(where), wanted, threads, tell)
    if as_json:
        estimate = estimate_document(where, _KINDS, threads)
        emit({**found.document(), "board": board, "estimate": estimate})
        return
    _print_report(found)
    show_estimate(where, _KINDS, threads)


def _standard(is_estimate: bool) -> list[GemmShape]:
    from edgekit.host.lab.bench.outlier import standard_shapes

    every = standard_shapes()
    return [s for s in every if s.m <= _ESTIMATED_ROWS] if is_estimate else every


def _measurer_of(where: Board | SimulatedCore) -> OutlierMeasurer:
    from edgekit.host.lab.bench.outlier_board import BoardOutlier, EstimatedOutlier
    from edgekit.host.simulator.target import SimulatedCore
    from edgekit.kb.targets.board import load_board

    if isinstance(where, SimulatedCore):
        return EstimatedOutlier(where)
    return BoardOutlier(where, load_board(where.profile), where.emulated)


def _print_report(found: OutlierBenchmark) -> None:
    from edgekit.host.cli.output import table
    from edgekit.host.lab.bench.outlier_contenders import BYTES_ALONE, FLOATS, INT8, OURS

    timed = found.unit == "seconds"
    ours = {OURS: "split", INT8[0]: "int8", FLOATS[0]: "f32", BYTES_ALONE: "bytes"}
    names = [n for n in ours if any(n in cell.costs for cell in found.cells)]
    unit = " ms" if timed else ""
    headers = ["m,k,n", "path", "outliers", "error", *(f"{ours[name]}{unit}" for name in names)]
    table(headers, [_format_row(cell, names, timed) for cell in found.cells], left=2)
    if not timed:
        print("counted  instructions of a product")
    for result in found.bars:
        shape = result.worst_shape
        print(
            f"mean     {result.mean:.2f} x as fast as {result.bar.name} (worst {result.worst:.2f}: "
            f"{shape.m},{shape.k},{shape.n}), bar {result.bar.least:.2f}, "
            f"{counted(result.cells, 'product')}"
        )
    for name, version in sorted(found.versions.items()):
        print(f"peer     {name} {version}")
    missing = dict(found.missing)
    for cell in found.cells:
        missing |= {name: why for name, why in cell.missing.items() if name != OURS}
    for name, why in sorted(missing.items()):
        print(f"missing  {name}: {why}")


def _format_row(cell: Cell, names: Sequence[str], timed: bool) -> list[str]:
    from edgekit.host.lab.bench.outlier_contenders import OURS

    shape = cell.shape
    costs = [
        "-" if n not in cell.costs else f"{cell.costs[n] * 1e3:.3f}" if timed
        else f"{cell.costs[n]:.0f}"
        for n in names
    ]  # fmt: skip
    start = [f"{shape.m},{shape.k},{shape.n}", cell.path, str(cell.outliers)]
    return [*start, f"{cell.errors[OURS]:.2%}", *costs]
