"""Packs pruned weights in pairs of rows for ek_spmm (sparse.h), which needs fewer loads that way.

Works on NumPy arrays; the results are flat arrays, for a process or a model's file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, List, Tuple

from edgekit.device.runtime.arrays.sparse_input import Csr, numpy
from edgekit.device.runtime.kernel_facts import SPMM_PANEL

_SPARE = 64  # values after the last, which may be read; also starts every array on a cache line
_MATCHED = 1024  # rows up to which all are searched for the best partner
_PAIR = (("row", "<u4", 2), ("word", "<u4"), ("value", "<u4"), ("both", "<u2"), ("single", "<u2"))


@dataclass(frozen=True)
class Pairs:
    """ek_spmm_plan: `pair` [panels, pairs] of ek_spmm_pair, `columns` uint32, `values` as stored.

    `used` is the number of values before the zero padding.
    """

    panels: int
    pairs: int
    pair: Any
    columns: Any
    values: Any
    used: int


def pack_pairs(csr: Csr, panel: int) -> Pairs:
    """Packs weights for float sums, with fewer than 65536 columns, in panels of up to `panel`
    columns."""
    np = numpy()
    cols = csr.shape[1]
    panels = max(-(-cols // min(panel, SPMM_PANEL)), 1)
    return _pack_panels(
        np, csr, _match_rows(np, csr), [cols * p // panels for p in range(panels + 1)]
    )


def pack_places(csr: Csr, places: Any) -> Pairs:
    """Packs weights for float sums in panels of len(places) columns. Instead of a column, words
    hold the position of its pixels in the panel: below 65536."""
    np = numpy()
    bounds = [*range(0, csr.shape[1], len(places)), csr.shape[1]]
    pairs = _pack_panels(np, csr, _match_rows(np, csr), bounds)
    at, words = np.asarray(places, np.uint32), pairs.columns
    return replace(pairs, columns=at[words & 0xFFFF] | at[words >> 16] << 16)


def pack_rows(csr: Csr) -> Pairs:
    """Packs int8 weights for integer sums, with fewer than 65536 columns: each row separately, and
    no word has two weights whose products with int8 values could overflow 16 bits together."""
    np = numpy()
    lowest = csr.data == -128  # becomes two halves
    times = np.where(lowest, 2, 1)
    data = np.repeat(np.where(lowest, -64, csr.data).astype(np.int8), times)
    indptr = np.concatenate([[0], np.cumsum(times)])[csr.indptr]
    halved = Csr(csr.shape, indptr, np.repeat(csr.indices, times), data)
    alone = [(row, row) for row in range(csr.shape[0])]
    return _pack_panels(np, halved, alone, [0, csr.shape[1]])


def _pack_panels(np: Any, csr: Csr, partners: List[Tuple[int, int]], bounds: List[int]) -> Pairs:
    """Packs the partners in each panel of columns; bounds: the panels' starts, and the end."""
    panels = len(bounds) - 1
    pair = np.zeros((panels, len(partners)), np.dtype(list(_PAIR)))
    words: List[Any] = []
    values: List[Any] = []
    word = value = 0
    for p in range(panels):
        for i, rows_of in enumerate(partners):
            both, single = _split_shared_columns(np, csr, rows_of, bounds[p], bounds[p + 1])
            for columns, weights in (both, single):
                words.append(columns[0] | columns[1] << 16)
                values.append(weights.ravel())
            sizes = (len(words[-2]), len(words[-1]))
            pair[p, i] = (rows_of, word, value, *sizes)
            word += sum(sizes)
            value += 4 * sizes[0] + 2 * sizes[1]
    values.append(np.zeros(_SPARE, csr.data.dtype))
    joined = np.concatenate([np.zeros(0, np.uint32), *words]).astype(np.uint32)
    return Pairs(panels, len(partners), pair, joined, np.concatenate(values), value)


def _match_rows(np: Any, csr: Csr) -> List[Tuple[int, int]]:
    """Pairs rows of similar length that share columns. A leftover row is paired with itself."""
    lengths = np.diff(csr.indptr)
    order = [int(r) for r in np.argsort(-lengths, kind="stable")]
    if len(order) > _MATCHED:
        alone = order[len(order) // 2 * 2 :]
        return list(zip(order[::2], order[1::2])) + [(r, r) for r in alone]
    pattern = np.zeros(csr.shape, np.float32)
    pattern[np.repeat(np.arange(csr.shape[0]), lengths), csr.indices] = 1
    gain = pattern @ pattern.T - np.abs(lengths[:, None] - lengths[None, :])
    free = np.ones(len(order), bool)
    partners = []
    for row in order:
        if not free[row]:
            continue
        free[row] = False
        if not free.any():
            partners.append((row, row))
            break
        other = int(np.argmax(np.where(free, gain[row], -np.inf)))
        free[other] = False
        partners.append((row, other))
    return partners


def _split_shared_columns(
    np: Any, csr: Csr, rows: Tuple[int, int], low: int, high: int
) -> Tuple[Any, Any]:
    """Returns (columns [2, words], values [words, 4 or 2]) of the columns that both rows have, and
    of those that one has, from low up to high; columns count from low."""
    (ca, va), (cb, vb) = (_slice_row(np, csr, row, low, high) for row in rows)
    if rows[0] == rows[1]:
        half = (len(ca) + 1) // 2
        (ca, va), (cb, vb) = (ca[:half], va[:half]), (ca[half:], va[half:])
        shared = ca[:0]
    else:
        shared = np.intersect1d(ca, cb, assume_unique=True)
        shared = shared[: len(shared) // 2 * 2]
    in_a, in_b = np.isin(ca, shared), np.isin(cb, shared)
    together = np.stack([va[in_a], vb[in_b]], axis=1).reshape(-1, 4)
    count = max(len(ca), len(cb)) - len(shared)
    columns = np.zeros((2, count), np.uint32)
    values = np.zeros((count, 2), csr.data.dtype)
    for side, (c, v) in enumerate(((ca[~in_a], va[~in_a]), (cb[~in_b], vb[~in_b]))):
        columns[side, : len(c)] = c
        values[: len(v), side] = v
    return (shared.reshape(-1, 2).T.astype(np.uint32), together), (columns, values)


def _slice_row(np: Any, csr: Csr, row: int, low: int, high: int) -> Tuple[Any, Any]:
    """Returns a row's columns from low up to high, counted from low, and their values."""
    begin, end = int(csr.indptr[row]), int(csr.indptr[row + 1])
    first, last = np.searchsorted(csr.indices[begin:end], (low, high))
    return csr.indices[begin + first : begin + last] - low, csr.data[begin + first : begin + last]
