"""Tolerances for a board's outputs, derived from how far the reference moves under noise.

One bound per output is enough if all its elements move alike. If they do not (boxes next to
scores), each element has a share of the bound: a code c allows 2^-c of it. Elements are grouped,
because a few noisy runs say more about many elements than about one. Where a group moves in rare
jumps, as behind steps, these runs say little about the next one, so bounds must also fit each run
when derived from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from edgekit.device.runtime.agent.specs import NOT_COMPARED
from edgekit.host.compiler.ir.types import Array

_SAFETY = 2.0  # times the largest movement, which results from eight times a kernel's noise
_FEW = 2.0  # additional factor for fewer elements than a group: three runs are a small sample
_FLOOR = {np.dtype(np.float32): 2.0**-17, np.dtype(np.float16): 2.0**-9}
_HELD = 0.7  # share of a bound that a run may use which it was not derived from
_MOST = 2.0  # limit of the factor by which an output's bound grows to hold for such runs
_SMALLEST = 1e-25  # kernels may flush smaller values
_GROUP = 16  # minimum number of elements whose movements are representative
_PIECE = 1 << 20  # elements
_WORTH = 6  # smallest maximum code for which per-element shares are worth a byte each


@dataclass(frozen=True, eq=False)
class Margin:
    """The `tolerance` applies to all elements, or 2^-code of it to each (u8, output's shape)."""

    tolerance: float
    codes: Array | None = None


def moved(golden: Array, other: Array) -> Array:
    """Distance of each element from `golden`; infinite where exactly one of both is finite."""
    exact = golden.dtype not in _FLOOR
    distance = np.empty(golden.shape, np.float64 if exact else np.float32)
    flat = distance.reshape(-1)
    for part in _chunk_slices(golden):
        want, found = (v.reshape(-1)[part].astype(np.float64) for v in (golden, other))
        with np.errstate(all="ignore"):
            off = np.abs(found - want)
        same = (found == want) | (np.isnan(found) & np.isnan(want))
        flat[part] = np.where(same, 0.0, np.where(np.isnan(off), np.inf, off))
    return distance


def flips(golden: Array, movement: Array) -> int:
    """Number of elements that change qualitatively: integers, or finite to non-finite."""
    return int(np.count_nonzero(np.isinf(movement) if golden.dtype in _FLOOR else movement))


def margin_of(golden: Array, runs: Sequence[Array], is_index: bool) -> Margin:
    """Derive the tolerance of an output from the movements of its elements in noisy runs.

    Unchanged integers must match exactly. Changed ones are treated like floats, or are excluded if
    they are indices (`is_index`) or booleans, where the neighboring value is as wrong as any.
    """
    movement = np.max(runs, axis=0)
    if golden.dtype not in _FLOOR and (is_index or golden.dtype == np.bool_):
        changing = movement > 0
        codes = np.where(changing, NOT_COMPARED, 0).astype(np.uint8)
        return Margin(0.0, codes if changing.any() else None)
    broken = np.isinf(movement)
    # Kernels handle NaN in minimum and maximum as their instructions do.
    finite = [np.where(broken, 0, run) for run in runs]
    return _group_margin(golden, finite, broken | np.isnan(golden))


def _allow(golden: Array, runs: Sequence[Array]) -> Array:
    """What each element may move by, judged by its own movements in `runs`."""
    safety = _SAFETY * (_FEW if golden.size < _GROUP else 1.0)
    allowed = np.max(runs, axis=0) * runs[0].dtype.type(safety)
    if golden.dtype in _FLOOR:
        finite = np.where(np.isfinite(golden), golden, 0).astype(np.float32)
        allowed += np.float32(_FLOOR[golden.dtype]) * np.abs(finite)
    return np.asarray(allowed)


Limits = Callable[[Array], Array]  # from what elements may move by to what their groups may


def _group_margin(golden: Array, runs: Sequence[Array], broken: NDArray[np.bool_]) -> Margin:
    """Allow each element the largest movement within the tightest of its groups.

    Zeros get the overall bound: most are clamped, and few of those may move.
    """
    allowed = _allow(golden, runs)
    factor = min(_tail_factor(golden, runs, _of_all), _MOST)
    bound = np.asarray(_of_all(allowed) * factor)  # rank 0 would become a scalar
    if golden.dtype in _FLOOR:
        for limits in _groupings(golden):
            group = limits(allowed) * _tail_factor(golden, runs, limits)
            np.minimum(bound, group, out=bound, where=golden != 0)
        np.maximum(bound, _SMALLEST, out=bound)
    tolerance = float(bound.max(initial=0.0))
    codes = np.zeros(golden.shape, np.uint8)
    for part in _chunk_slices(golden) if tolerance else ():
        with np.errstate(divide="ignore"):
            shares = np.floor(np.log2(tolerance / bound.reshape(-1)[part]))
        codes.reshape(-1)[part] = np.clip(shares, 0, NOT_COMPARED - 1)
    codes[broken] = NOT_COMPARED
    return Margin(tolerance, codes if codes.max(initial=0) >= _WORTH else None)


def _tail_factor(golden: Array, runs: Sequence[Array], limits: Limits) -> np.float32:
    """The factor by which `limits` must grow for each run to keep the limits of the others."""
    least = _SMALLEST if golden.dtype in _FLOOR else 1.0
    worst = 0.0
    for index, run in enumerate(runs if len(runs) > 1 else ()):
        others = [*runs[:index], *runs[index + 1 :]]
        expected = np.maximum(limits(_allow(golden, others)), least)
        used = np.where(golden != 0, run, 0) / expected
        worst = max(worst, float(used.max(initial=0.0)))
    return np.float32(min(max(worst / _HELD, 1.0), 1 / _SMALLEST))


def _of_all(allowed: Array) -> Array:
    return np.full_like(allowed, allowed.max(initial=0.0))


def _groupings(golden: Array) -> Iterator[Limits]:
    """Yield functions from what elements may move by to the most in a group of elements that may
    move alike: those with the same index along an axis, or of similar magnitude."""
    for axis, size in enumerate(golden.shape):
        if size > 1 and golden.size // size >= _GROUP:
            others = tuple(i for i in range(golden.ndim) if i != axis)
            yield partial(_of_axes, others)
    yield partial(_of_magnitudes, golden)


def _of_axes(axes: tuple[int, ...], allowed: Array) -> Array:
    return np.broadcast_to(allowed.max(axis=axes, keepdims=True), allowed.shape)


def _of_magnitudes(golden: Array, allowed: Array) -> Array:
    """Group by binary exponent; groups that are too small are merged with larger exponents."""
    exponent = np.frexp(golden.reshape(-1))[1].astype(np.int16)
    order = np.argsort(exponent, kind="stable")  # linear time for 16-bit keys
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


def _chunk_slices(golden: Array) -> Iterator[slice]:
    """Slices of the flattened array, to limit the memory for f64 intermediates."""
    for first in range(0, golden.size, _PIECE):
        yield slice(first, first + _PIECE)
