"""Compares the field times of two releases, with confidence intervals.

The change is the ratio of medians over batches, computed on each board that ran both releases, and
combined over boards by the geometric mean, so that slow and fast boards count equally. Its
confidence interval is a bootstrap over boards, and over the batches of each board. Batches of
throttled boards are excluded: they do not reflect the release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edgekit.host.errors import InputError
from edgekit.host.fleet.profiles.query import Source, asking

if TYPE_CHECKING:
    import pyarrow

_DRAWS = 4000
_SEED = 20
_LEVEL = 0.95
_LEAST_BATCHES = 5
_LEAST_SHARE = 0.01  # fraction of the total time; smaller operators cannot make a release slower
_WHOLE = ""

_SUBJECTS = """
    SELECT release, profile, variant, threads, max(model), count(*) AS batches FROM batches
    WHERE starts_with(release, ?) GROUP BY ALL ORDER BY batches DESC
"""
_TIMES = """
    SELECT release, board, '' AS name, '' AS op, list(inference_median_ns) FROM batches
    WHERE release IN (?, ?) AND variant = ? AND threads = ? AND throttled IS NOT TRUE
    GROUP BY ALL
    UNION ALL
    SELECT release, board, name, max(op), list(median_ns) FROM operators
    WHERE release IN (?, ?) AND variant = ? AND threads = ? AND throttled IS NOT TRUE
    GROUP BY release, board, name
"""
_NEWEST = "SELECT release FROM batches GROUP BY release ORDER BY max(received) DESC LIMIT 5"

_Vector = NDArray[np.float64]
_Sides = tuple[_Vector, _Vector]


@dataclass(frozen=True)
class TimeChange:
    """`ratio` is the time after divided by the time before; `low` and `high` are its 95%
    confidence interval. `sure` is a lower bound corrected for the number of comparisons, so that
    all such bounds hold together with the same confidence."""

    name: str
    op: str
    before_us: float
    after_us: float
    ratio: float
    low: float
    high: float
    sure: float


@dataclass(frozen=True)
class ReleaseComparison:
    """`paired`: only boards that ran both releases count. If there are none, all boards of one
    release are compared with all of the other. `left_out` are operators that only one release
    has."""

    before: str
    after: str
    model: str
    board_type: str
    boards: int
    paired: bool
    batches: tuple[int, int]
    whole: TimeChange
    operators: tuple[TimeChange, ...]
    left_out: tuple[str, ...]

    def slower(self, limit: float) -> list[TimeChange]:
        """Changes that are significantly slower by more than `limit`: the complete inference, and
        operators that take at least 1% of the time."""
        least = _LEAST_SHARE * self.whole.after_us
        heavy = [o for o in self.operators if o.after_us >= least]
        return [c for c in (self.whole, *heavy) if c.sure > 1 + limit]


def compare(store: Source, before: str, after: str) -> ReleaseComparison:
    """Compares two releases, each given by a prefix of its id. InputError if one is not found, if
    they are for different types of boards, or if there are too few batches."""
    with asking(store) as views:
        found = [views.rows(_SUBJECTS, [name]) for name in (before, after)]
        newest = [row[0] for row in views.rows(_NEWEST)]
        first, second = (
            _resolve_release(store, name, rows, newest)
            for name, rows in zip((before, after), found, strict=True)
        )
        board_type, variant, threads, model = _common_subject(first, second, *found)
        key = [first, second, variant, threads]
        times, kinds = _by_name(views.table(_TIMES, key + key), first)
    boards, paired = _pair_boards(times[_WHOLE])
    counts = tuple(sum(len(side[i]) for side in boards.values()) for i in (0, 1))
    if min(counts) < _LEAST_BATCHES:
        raise InputError(
            f"expected at least {_LEAST_BATCHES} batches of each release that were not throttled, "
            f"found {counts[0]} of {first} and {counts[1]} of {second}; "
            "fetch more: edgekit profile pull"
        )
    both = {name: _pair_boards(t, paired)[0] for name, t in times.items()}
    common = [name for name, sides in both.items() if sides and name != _WHOLE]
    changes = {
        n: _estimate_change(n, kinds[n], both[n], len(common) + 1) for n in (_WHOLE, *common)
    }
    return ReleaseComparison(
        first,
        second,
        model,
        board_type,
        len(boards) if paired else sum(len(side) for side in times[_WHOLE]),
        paired,
        (counts[0], counts[1]),
        changes[_WHOLE],
        tuple(sorted((changes[n] for n in common), key=lambda c: c.before_us - c.after_us)),
        tuple(sorted(name for name, sides in both.items() if not sides)),
    )


def _resolve_release(
    store: Source, name: str, rows: Sequence[Sequence[Any]], newest: Sequence[str]
) -> str:
    ids = sorted({row[0] for row in rows})
    if not newest:
        raise InputError(
            f"{store.folder}: expected profiles to compare, found none; "
            "fetch some: edgekit profile pull --board BOARD"
        )
    if len(ids) != 1 or not name:
        many = f"{len(ids)} that match" if ids else "none"
        raise InputError(
            f"expected the start of one release's id, found {many} for {name[:40]!r}; the newest "
            f"are {', '.join(newest)}"
        )
    return str(ids[0])


def _common_subject(
    first: str, second: str, before: Sequence[Sequence[Any]], after: Sequence[Sequence[Any]]
) -> tuple[str, int, int, str]:
    """The board type, variant, threads and model for which both releases have batches."""
    if first == second:
        raise InputError(f"expected two releases, found {first} twice")
    known = {tuple(row[1:4]) for row in before}
    for row in after:
        if tuple(row[1:4]) in known:
            return row[1], row[2], row[3], row[4]
    raise InputError(
        f"expected two releases for one type of board, with the same threads and shapes, found "
        f"{first} for {before[0][1]} and {second} for {after[0][1]}"
    )


_Times = tuple[dict[str, _Vector], dict[str, _Vector]]


def _by_name(found: pyarrow.Table, first: str) -> tuple[dict[str, _Times], Mapping[str, str]]:
    """Sorted times by board, before and after, for each operator and for the complete inference.

    The lists of times stay Arrow arrays: as Python's numbers, millions would need a GiB.
    """
    times: dict[str, _Times] = {_WHOLE: ({}, {})}
    kinds = {}
    *keys, lists = found.columns
    for (release, board, name, op), values in zip(
        zip(*(key.to_pylist() for key in keys), strict=True), lists, strict=True
    ):
        sides = times.setdefault(name, ({}, {}))
        vector = np.maximum(np.sort(values.values.to_numpy().astype(np.float64)), 1.0)
        sides[0 if release == first else 1][board] = vector
        kinds[name] = op
    return times, kinds


def _pair_boards(times: _Times, paired: bool | None = None) -> tuple[dict[str, _Sides], bool]:
    """Times of the boards that ran both releases; if there are none, all boards pooled as one."""
    before, after = times
    common = sorted(before.keys() & after.keys())
    if paired is None:
        paired = bool(common)
    if paired:
        return {board: (before[board], after[board]) for board in common}, True
    if not before or not after:
        return {}, False
    return {"": (_pool(before), _pool(after))}, False


def _pool(side: Mapping[str, _Vector]) -> _Vector:
    return np.sort(np.concatenate([*side.values()]))


def _estimate_change(name: str, op: str, boards: Mapping[str, _Sides], compared: int) -> TimeChange:
    random = np.random.default_rng(_SEED)
    count = len(boards)
    weights = random.multinomial(count, [1 / count] * count, size=_DRAWS) / count
    logs = np.zeros(_DRAWS)
    for number, sides in enumerate(boards.values()):
        drawn = (np.log(_drawn_medians(side, random)) for side in sides)
        logs += weights[:, number] * -np.subtract(*drawn)
    medians = np.log([[np.median(side) for side in sides] for sides in boards.values()])
    before, after = (float(us) for us in np.exp(medians.mean(axis=0)) / 1e3)
    tail = (1 - _LEVEL) / 2
    low, high, sure = map(float, np.exp(np.quantile(logs, [tail, 1 - tail, tail / compared])))
    return TimeChange(name, op, before, after, after / before, low, high, sure)


def _drawn_medians(ordered: _Vector, random: np.random.Generator) -> _Vector:
    """Medians of bootstrap samples of `ordered`, each of the same size as it.

    The k-th order statistic of n uniform numbers has a beta distribution, so samples need not be
    drawn.
    """
    n = len(ordered)
    k = (n + 1) // 2
    place = random.beta(k, n + 1 - k, _DRAWS)
    middle = ordered[_rank_index(place, n)]
    if n % 2:
        return middle
    above = 1 - (1 - place) * random.random(_DRAWS) ** (1 / (n - k))
    return (middle + ordered[_rank_index(above, n)]) / 2


def _rank_index(place: _Vector, n: int) -> NDArray[np.intp]:
    return np.minimum((place * n).astype(np.intp), n - 1)
