"""Stores a sparse matrix once more with other settings, to find out whether products get faster."""

from __future__ import annotations

import functools
import logging
from dataclasses import replace
from typing import List, Sequence, Tuple

from edgekit.device.runtime.arrays.calls import settings_text, spmv_text
from edgekit.device.runtime.arrays.gemm_library import Block
from edgekit.device.runtime.arrays.sampling import Trial, nanoseconds
from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
from edgekit.device.runtime.arrays.sparse_library import (
    SUM_BYTES,
    VALUE_BYTES,
    BlockMatrix,
    CsrRows,
    SparseLibrary,
)
from edgekit.device.runtime.arrays.sparse_table import MatrixFeatures
from edgekit.device.runtime.arrays.trials import are_equal, next_turn
from edgekit.device.runtime.errors import InputError

_LOG = logging.getLogger("edgekit")
_MOST_BYTES = 16 << 20  # of the matrix: a trial needs memory for two more
_PAIRS = 3  # products with each settings: storing the matrix again takes longer than they do
_CODES = {"f64": "d", "s8": "i"}  # of sums that are not f32


def compare_settings(
    library: SparseLibrary,
    stored: BlockMatrix,
    features: MatrixFeatures,
    how: BlockSettings,
    x: int,
    threads: int,
) -> Tuple[Trial, ...]:
    """Times the product with `how` and with the next settings worth trying; empty if the matrix is
    empty or large, memory is short, or results differ."""
    if not features.nonzeros or stored.bytes > _MOST_BYTES:
        return ()
    others = _other_settings(library.default_settings(features), how)
    turn = next_turn((spmv_text(features), threads))
    other = others[turn % len(others)]
    found: List[Trial] = []
    results: List[int] = []
    kept: List[Block] = []
    try:
        forms = [(how, stored), (other, _stored_again(library, stored, features, other))]
        if turn // len(others) % 2:
            forms.reverse()
        for settings, form in forms:
            kept.append(Block(features.rows * SUM_BYTES[features.stored]))
            results.append(kept[-1].address)
            run = functools.partial(library.spmv, form, x, results[-1], threads)
            run()  # neither form is in the caches by chance
            found += [(settings_text(settings), nanoseconds(run)) for _ in range(_PAIRS)]
    except InputError:
        return ()
    code = _CODES.get(features.stored, "f")
    if not are_equal(results[0], results[1], features.rows, code, features.longest):
        _LOG.warning("spmv: expected equal results of %s, found others", [s for s, _ in found])
        return ()
    return tuple(found)


def _other_settings(rule: BlockSettings, how: BlockSettings) -> Sequence[BlockSettings]:
    """The patent's rule first, then one change of it each."""
    changes = (
        rule,
        replace(rule, windows=not rule.windows),
        replace(rule, window=0),
        replace(rule, wide_from=1),
        replace(rule, width=64),
    )
    return [each for each in dict.fromkeys(changes) if each != how]


def _stored_again(
    library: SparseLibrary, stored: BlockMatrix, features: MatrixFeatures, how: BlockSettings
) -> BlockMatrix:
    f = features
    start, index = Block(8 * (f.rows + 1)), Block(4 * f.nonzeros)
    values = Block(VALUE_BYTES[f.stored] * f.nonzeros)
    arrays = start.address, index.address, values.address
    library.to_rows(stored, *arrays)
    return library.build(CsrRows(f.stored, f.rows, f.cols, *arrays), how)
