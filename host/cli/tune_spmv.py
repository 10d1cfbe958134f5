"""`edgekit lab tune sparse`: searches for the best storage of sparse matrices on a board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.host.cli.bench_sparse import Matrices, ValueType
from edgekit.host.cli.options import (
    AllowNoise,
    BoardOption,
    Json,
    TransportOption,
    board_name,
    examples,
)

if TYPE_CHECKING:
    from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
    from edgekit.device.runtime.arrays.sparse_table import Key, SpmvRow
    from edgekit.host.cli.tune_estimated import SettingsEstimate
    from edgekit.host.deploy.board import Board
    from edgekit.host.lab.tune.spmv import TunedMatrix
    from edgekit.host.simulator.target import SimulatedCore
    from edgekit.kb.targets.board import BoardProfile


@dataclass(frozen=True)
class SpmvWork:
    """What to measure: matrices of `dtype` on `threads` threads, `seconds` for each dimension."""

    matrices: tuple[str, ...]
    dtype: ValueType
    threads: int
    seconds: float
    allow_noise: bool


def register(group: typer.Typer) -> None:
    """Adds the command to the group `tune`."""
    group.command(
        "sparse",
        epilog=examples(
            "edgekit lab tune sparse --matrix bcsstk13.mtx",
            "edgekit lab tune sparse --board a57 --matrix banded:10000:5",
            "edgekit lab tune sparse --board rpi5 --threads 4    # no board: by estimate",
        ),
    )(tune_spmv)


def tune_spmv(
    matrix: Matrices = None,
    board: BoardOption = None,
    threads: Annotated[
        int, typer.Option("--threads", metavar="N", min=1, help="Threads to run on.")
    ] = 1,
    dtype: ValueType = "float32",
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", metavar="S", min=0.1, max=600.0, help="Seconds per searched dimension."
        ),
    ] = 1.0,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            show_default=False,
            help="Table to add to (default: your own).",
        ),
    ] = None,
    allow_noise: AllowNoise = False,
    transport: TransportOption = None,
    as_json: Json = False,
) -> None:
    """Measure or estimate sparse block settings, and keep the best."""
    from edgekit.host.cli.bench_board import board_or_core
    from edgekit.host.compiler.tables.spmv import user_spmv_table
    from edgekit.host.lab.bench.spmv_matrices import STANDARD, TUNED
    from edgekit.host.simulator.target import SimulatedCore
    from edgekit.kb.targets.board import load_board

    where = board_or_core(board_name(board), transport)
    estimated = isinstance(where, SimulatedCore)
    profile = where.board if isinstance(where, SimulatedCore) else load_board(where.profile)
    path = output or user_spmv_table(profile)
    matrices = tuple(matrix or (TUNED if estimated else STANDARD))
    work = SpmvWork(matrices, dtype, threads, seconds, allow_noise)
    if isinstance(where, SimulatedCore):
        show_tuned(profile, path, tune_by_estimate(where, work, path), [], as_json)
        return
    found, estimates = tune_on(where, work, path)
    show_tuned(profile, path, found, estimates, as_json)


def tune_by_estimate(target: SimulatedCore, work: SpmvWork, path: Path) -> list[TunedMatrix]:
    """Adds settings in simulated time to the table at `path`, one row for all matrices with the
    same key, which must not lose on all cores of the fastest cluster either."""
    from edgekit.host.cli.output import note
    from edgekit.host.compiler.placement import check_placement
    from edgekit.host.compiler.tables.spmv import add_spmv_rows
    from edgekit.host.lab.bench.spmv_matrices import open_matrix
    from edgekit.host.lab.tune.estimating import FormEstimator
    from edgekit.host.lab.tune.spmv import SharedMatrix, shared_row, tune_matrix
    from edgekit.kb.targets.clusters import clusters_of

    check_placement(target.board, work.threads, "")
    counts = tuple({work.threads: None, clusters_of(target.board)[0].cores: None})
    alike: dict[Key, list[SharedMatrix]] = {}
    for name in work.matrices:
        given, measurer = open_matrix(name, work.dtype), FormEstimator(target)
        tuned = tune_matrix(measurer, target.board, name, given, work.threads, show=note)
        known = alike.setdefault(tuned.row.key, [])
        known.append(SharedMatrix(measurer, given, tuned))
        row = shared_row(known, counts)
        add_spmv_rows(target.board, [row], path)  # now: Ctrl-C loses at most one
    return [each.tuned for known in alike.values() for each in known]


def tune_on(
    device: Board, work: SpmvWork, path: Path
) -> tuple[list[TunedMatrix], list[SettingsEstimate]]:
    """Adds the best settings of each matrix to the table at `path` if the board was quiet before
    and after they were measured; also estimates them for the core of an emulated board."""
    from edgekit.host.cli.output import note
    from edgekit.host.cli.tune_estimated import estimate_settings
    from edgekit.host.compiler.tables.spmv import add_spmv_rows
    from edgekit.host.deploy.release import check_quiet
    from edgekit.host.lab.bench.spmv_matrices import open_matrix
    from edgekit.host.lab.tune.spmv import tune_matrix
    from edgekit.host.lab.tune.spmv_board import SpmvMeasurer
    from edgekit.kb.targets.board import load_board

    profile, threads = load_board(device.profile), work.threads
    found, estimates = [], []
    try:
        checked = not (work.allow_noise or device.emulated)
        if checked:
            check_quiet(device, threads)
        measurer = SpmvMeasurer(device, profile, device.emulated)
        for name in work.matrices:
            given = open_matrix(name, work.dtype)
            tuned = tune_matrix(measurer, profile, name, given, threads, work.seconds, note)
            if checked:
                check_quiet(device, threads)
            add_spmv_rows(profile, [tuned.row], path)  # now: Ctrl-C loses at most one
            found.append(tuned)
            if device.emulated:
                estimates += estimate_settings(profile, tuned, given, threads)
    finally:
        device.transport.close()
    return found, estimates


def show_tuned(
    profile: BoardProfile,
    path: Path,
    found: Sequence[TunedMatrix],
    estimates: Sequence[SettingsEstimate],
    as_json: bool,
) -> None:
    """Prints the rows that were added to the table at `path`, and their estimates for a core."""
    from edgekit.host.cli.output import emit, table
    from edgekit.host.cli.tune_estimated import show_settings

    if as_json:
        made = [{**asdict(each.row), "tried": each.tried} for each in found]
        documents = [each.to_json() for each in estimates]
        document = {"schema": "edgekit.tune.spmv/1", "table": str(path), "rows": made}
        emit({**document, "estimates": documents})
        return
    rows = [[t.row.matrix, _row_text(t.row), str(t.tried), f"{t.row.ratio:.2f}"] for t in found]
    table(["matrix", "settings", "tried", "time / rule's"], rows, left=2)
    print(f"kept in {path}")
    show_settings(profile, estimates)


def _row_text(row: SpmvRow) -> str:
    return settings_text(row.settings) if row.settings else "the rule's: nothing beat them"


def settings_text(how: BlockSettings) -> str:
    """Block settings as one line of text."""
    order = f"sorted in windows of {how.window}" if how.window > 1 else "rows in order"
    wide = f"wide from {how.wide_from}" if how.wide_from else "wide by padding"
    index = (
        f"indices of {how.index_bytes} bytes or more" if how.index_bytes > 1 else "least indices"
    )
    diagonals = ", diagonals" if how.diagonal else ""
    parts = f", parts of {how.columns} columns" if how.columns else ""
    return f"width {how.width}, {order}, {wide}, {index}{diagonals}{parts}"
