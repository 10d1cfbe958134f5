"""`edgekit lab bench gemm --dtype outlier`: the outlier split, plain int8, floats, frameworks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.lab.bench.outlier import Cell, OutlierBenchmark

_HERE = "local"


def bench_outlier(
    board: str, shapes: Path | None, threads: int, peers: bool, as_json: bool
) -> None:
    """Times products with outlier channels and 8-bit weights on this machine."""
    from edgekit.host.cli.output import emit
    from edgekit.host.cli.progress import counting
    from edgekit.host.lab.bench.gemm_cases import given_cases
    from edgekit.host.lab.bench.outlier import bench_outlier as bench
    from edgekit.host.lab.bench.outlier import standard_shapes
    from edgekit.host.lab.tune.products import shapes_of_file

    if board != _HERE:
        raise InputError(
            f"expected the board {_HERE} for --dtype outlier, found {board}; leave out --board"
        )
    wanted = standard_shapes()
    if shapes:
        wanted = [case.shape for case in given_cases(shapes_of_file(shapes))]
    with counting("products timed") as tell:
        found = bench(wanted, threads, peers, tell)
    if as_json:
        emit(found.document())
    else:
        _print_report(found)


def _print_report(found: OutlierBenchmark) -> None:
    from edgekit.host.cli.output import table
    from edgekit.host.lab.bench.outlier_contenders import OURS

    names = list(dict.fromkeys(name for cell in found.cells for name in cell.seconds))
    headers = ["m,k,n", "path", "outliers", "error", *(f"{name} ms" for name in names)]
    table(headers, [_format_row(cell, names) for cell in found.cells], left=2)
    for result in found.bars:
        shape = result.worst_shape
        print(
            f"mean     {result.mean:.2f} x as fast as {result.bar.name} (worst {result.worst:.2f}: "
            f"{shape.m},{shape.k},{shape.n}), bar {result.bar.least:.2f}, {result.cells} products"
        )
    for name, version in sorted(found.versions.items()):
        print(f"peer     {name} {version}")
    missing = dict(found.missing)
    for cell in found.cells:
        missing |= {name: why for name, why in cell.missing.items() if name != OURS}
    for name, why in sorted(missing.items()):
        print(f"missing  {name}: {why}")


def _format_row(cell: Cell, names: list[str]) -> list[str]:
    from edgekit.host.lab.bench.outlier_contenders import OURS

    shape = cell.shape
    times = [f"{cell.seconds[n] * 1e3:.3f}" if n in cell.seconds else "-" for n in names]
    start = [f"{shape.m},{shape.k},{shape.n}", cell.path, str(cell.outliers)]
    return [*start, f"{cell.errors[OURS]:.2%}", *times]
