"""How far the board's outputs may be from the golden ones, from how far the reference moves.

One bound per output is enough where all its elements move alike. Where they do not (boxes beside
scores), the elements have shares of it: a code c allows 2^-c of the bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgekit.device.runtime.agent.specs import NOT_COMPARED
from edgekit.host.compiler.ir.types import Array

_SAFETY = 2.0  # times the largest movement, which has eight times a kernel's noise behind it
_FEW = 2.0  # times that where there are fewer elements than a group: three runs tell less of them
_FLOOR = {np.dtype(np.float32): 2.0**-17, np.dtype(np.float16): 2.0**-9}
_SMALLEST = 1e-25  # kernels may flush what is below
_GROUP = 16  # elements whose movements tell enough of each other's
_PIECE = 1 << 20  # elements
_WORTH = 6  # codes from which shares are worth a byte per element


@dataclass(frozen=True, eq=False)
class Margin:
    """`tolerance` holds for all elements, or 2^-codes of it for each: u8, of the output's shape."""

    tolerance: float
    codes: Array | None = None


def moved(golden: Array, other: Array) -> Array:
    """How far each element is from `golden`: infinite where only one of both is finite."""
    exact = golden.dtype not in _FLOOR
    distance = np.empty(golden.shape, np.float64 if exact else np.float32)
    flat = distance.reshape(-1)
    for part in _pieces(golden):
        want, found = (v.reshape(-1)[part].astype(np.float64) for v in (golden, other))
        with np.errstate(all="ignore"):
            off = np.abs(found - want)
        same = (found == want) | (np.isnan(found) & np.isnan(want))
        flat[part] = np.where(same, 0.0, np.where(np.isnan(off), np.inf, off))
    return distance


def flips(golden: Array, movement: Array) -> int:
    """How many elements change by more than a little: integers, and what is or is not finite."""
    return int(np.count_nonzero(np.isinf(movement) if golden.dtype in _FLOOR else movement))


def margin_of(golden: Array, movement: Array, is_index: bool) -> Margin:
    """What `golden` allows, of which the elements move by at most `movement`.

    Integers that stayed are exact. Those that did not count as floats do, or are not compared if
    they are indices (`is_index`) or truths, of which the next one is as wrong as any.
    """
    if golden.dtype not in _FLOOR and (is_index or golden.dtype == np.bool_):
        changing = movement > 0
        codes = np.where(changing, NOT_COMPARED, 0).astype(np.uint8)
        return Margin(0.0, codes if changing.any() else None)
    broken = np.isinf(movement)
    safety = _SAFETY * (_FEW if golden.size < _GROUP else 1.0)
    allowed = np.where(broken, 0, movement) * movement.dtype.type(safety)
    if golden.dtype in _FLOOR:
        finite = np.where(np.isfinite(golden), golden, 0).astype(np.float32)
        allowed += np.float32(_FLOOR[golden.dtype]) * np.abs(finite)
    # Kernels take the minimum and maximum of NaN as their instructions do.
    return _shares(golden, allowed, broken | np.isnan(golden))


def _shares(golden: Array, allowed: Array, broken: NDArray[np.bool_]) -> Margin:
    """Each element is allowed what the tightest of its groups moves at most.

    Zeros are allowed what any element is: most are clamped, and few of those may move.
    """
    bound = np.full_like(allowed, allowed.max(initial=0.0))
    if golden.dtype in _FLOOR:
        for group in _groups(golden, allowed):
            np.minimum(bound, group, out=bound, where=golden != 0)
        np.maximum(bound, _SMALLEST, out=bound)
    tolerance = float(bound.max(initial=0.0))
    codes = np.zeros(golden.shape, np.uint8)
    for part in _pieces(golden) if tolerance else ():
        with np.errstate(divide="ignore"):
            shares = np.floor(np.log2(tolerance / bound.reshape(-1)[part]))
        codes.reshape(-1)[part] = np.clip(shares, 0, NOT_COMPARED - 1)
    codes[broken] = NOT_COMPARED
    return Margin(tolerance, codes if codes.max(initial=0) >= _WORTH else None)


def _groups(golden: Array, allowed: Array) -> Iterator[Array]:
    """The largest allowance of groups of elements that may move alike, at each element: with the
    same index along an axis, or of about the same magnitude."""
    for axis, size in enumerate(allowed.shape):
        if size > 1 and allowed.size // size >= _GROUP:
            others = tuple(i for i in range(allowed.ndim) if i != axis)
            yield np.broadcast_to(allowed.max(axis=others, keepdims=True), allowed.shape)
    yield _of_magnitudes(golden, allowed)


def _of_magnitudes(golden: Array, allowed: Array) -> Array:
    """Groups of one binary exponent; small ones together with those below."""
    exponent = np.frexp(golden.reshape(-1))[1].astype(np.int16)
    order = np.argsort(exponent, kind="stable")  # of 16 bits: takes time in proportion
    ranked, values = allowed.reshape(-1)[order], exponent[order]
    ends = np.flatnonzero(np.diff(values)) + 1
    starts = [0]
    for end in ends.tolist():
        if end - starts[-1] >= _GROUP:
            starts.append(end)
    if golden.size - starts[-1] < _GROUP and len(starts) > 1:
        starts.pop()
    if not golden.size:
        return allowed
    most = np.maximum.reduceat(ranked, starts)
    found = np.empty_like(ranked)
    found[order] = np.repeat(most, np.diff([*starts, golden.size]))
    return found.reshape(allowed.shape)


def _pieces(golden: Array) -> Iterator[slice]:
    """Slices of the flattened array, so that what is computed in f64 takes little memory."""
    for first in range(0, golden.size, _PIECE):
        yield slice(first, first + _PIECE)
