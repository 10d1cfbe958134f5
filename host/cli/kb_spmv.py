"""`edgekit lab kb lookup --spmv`: how a sparse matrix is stored for a board, and why."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.kb.targets.board import BoardProfile

_VALUES = {"f32": "float32", "s8": "int8"}


def lookup_spmv(matrix: str, board: BoardProfile, dtype: str, as_json: bool) -> None:
    """Prints the settings chosen for the matrix in a file. Raises InputError."""
    from edgekit.device.runtime.arrays.sparse_input import library
    from edgekit.host.cli.output import emit
    from edgekit.host.cli.tune_spmv import settings_text
    from edgekit.host.errors import InputError
    from edgekit.host.lab.bench.spmv_matrices import open_matrix
    from edgekit.host.lab.tune.spmv import settings_for

    if dtype not in _VALUES:
        raise InputError(f"expected --dtype f32 or s8 for a sparse matrix, found {dtype}")
    given = open_matrix(matrix, _VALUES[dtype])
    answer, found = settings_for(board, given), library().features(given.rows())
    if as_json:
        emit(
            {
                "schema": "edgekit.kb.lookup.spmv/1",
                "board": board.name,
                "matrix": matrix,
                "features": {**asdict(found), "spread": found.spread, "band": found.band},
                "key": asdict(answer.key),
                "rule": answer.rule,
                "why": answer.why,
                "settings": asdict(answer.settings),
            }
        )
        return
    sizes = f"{found.rows} x {found.cols}, {found.nonzeros} non-zeros"
    lengths = f"{found.mean:.3g} +- {found.deviation:.3g} per row, at most {found.longest}"
    print(f"matrix   {sizes}, {lengths} ({found.spread}, {found.band})")
    print(f"settings {settings_text(answer.settings)}")
    print(f"rule     {answer.rule}: {answer.why}")
