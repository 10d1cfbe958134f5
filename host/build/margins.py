"""How far the board's outputs may be from the golden ones, from how far the reference moves.

One bound per output is enough where all its elements move alike. Where they do not (boxes beside
scores), the elements have shares of it: a code c allows 2^-c of the bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgekit.device.specs import NOT_COMPARED
from edgekit.host.graph.types import Array

F64 = NDArray[np.float64]

_SAFETY = 2.0  # times the largest movement, which has eight times a kernel's noise behind it
_FLOOR = {np.dtype(np.float32): 2.0**-17, np.dtype(np.float16): 2.0**-9}
_SMALLEST = 1e-30  # kernels may flush what is below
_GROUP = 16  # elements whose movements tell enough of each other's
_WORTH = 6  # codes from which shares are worth a byte per element


@dataclass(frozen=True, eq=False)
class Margin:
    """`tolerance` holds for all elements, or 2^-codes of it for each: u8, of the output's shape."""

    tolerance: float
    codes: Array | None = None


def margin_of(golden: Array, others: Sequence[Array], is_index: bool) -> Margin:
    """What `golden` allows; `others` are the same output with other roundings.

    Integers that stayed are exact. Those that did not count as floats do, or are not compared if
    they are indices (`is_index`) or truths, of which the next one is as wrong as any.
    """
    moved = _moved(golden, others)
    if golden.dtype not in _FLOOR and (is_index or golden.dtype == np.bool_):
        return _exact_but(moved > 0)
    allowed = _SAFETY * np.where(np.isfinite(moved), moved, 0.0)
    if golden.dtype in _FLOOR:
        finite = np.where(np.isfinite(golden), golden, 0).astype(np.float64)
        allowed += _FLOOR[golden.dtype] * np.abs(finite)
    return _shares(golden, allowed, np.isinf(moved))


def unstable(golden: Array, others: Sequence[Array]) -> int:
    """How many elements change by more than a little: flips of integers, of NaN and infinity."""
    moved = _moved(golden, others)
    return int(np.count_nonzero(np.isinf(moved) if golden.dtype in _FLOOR else moved))


def _moved(golden: Array, others: Sequence[Array]) -> F64:
    """The largest distance from `golden` per element; infinite where only one is finite."""
    want, most = golden.astype(np.float64), np.zeros(golden.shape)
    for other in others:
        found = other.astype(np.float64)
        with np.errstate(all="ignore"):
            distance = np.abs(found - want)
        same = (found == want) | (np.isnan(found) & np.isnan(want))
        distance = np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))
        most = np.maximum(most, distance)
    return most


def _exact_but(changing: NDArray[np.bool_]) -> Margin:
    if not changing.any():
        return Margin(0.0)
    return Margin(0.0, np.where(changing, NOT_COMPARED, 0).astype(np.uint8))


def _shares(golden: Array, allowed: F64, broken: NDArray[np.bool_]) -> Margin:
    """Each element is allowed what the tightest of its groups moves at most.

    Zeros are allowed what any element is: most are clamped, and few of those may move.
    """
    bound = np.full(golden.shape, allowed.max(initial=0.0))
    if golden.dtype in _FLOOR:
        for group in _groups(golden, allowed):
            np.minimum(bound, group, out=bound, where=golden != 0)
        bound = np.maximum(bound, _SMALLEST)
    tolerance = float(bound.max(initial=0.0))
    with np.errstate(divide="ignore"):
        codes = np.floor(np.log2(tolerance / bound)) if tolerance else np.zeros(bound.shape)
    codes = np.clip(codes, 0, NOT_COMPARED - 1)
    codes = np.where(broken, NOT_COMPARED, codes).astype(np.uint8)
    return Margin(tolerance, codes if codes.max(initial=0) >= _WORTH else None)


def _groups(golden: Array, allowed: F64) -> Iterator[F64]:
    """The largest allowance of groups of elements that may move alike, at each element: with the
    same index along an axis, or of about the same magnitude."""
    for axis, size in enumerate(allowed.shape):
        if size > 1 and allowed.size // size >= _GROUP:
            others = tuple(i for i in range(allowed.ndim) if i != axis)
            yield np.broadcast_to(allowed.max(axis=others, keepdims=True), allowed.shape)
    if allowed.size > _GROUP:
        order = np.argsort(np.abs(golden), axis=None, kind="stable")
        padded = np.pad(allowed.reshape(-1)[order], _GROUP // 2, mode="edge")
        windows = np.lib.stride_tricks.sliding_window_view(padded, _GROUP + 1)
        ranked = np.empty(allowed.size)
        ranked[order] = windows.max(axis=1)
        yield ranked.reshape(allowed.shape)
