"""Fleet overview from profiles: installed releases, spread between boards, and stragglers.

Each board counts for the release it last sent profiles of. Boards are compared only with boards of
the same model, type, threads and release, so that differences are caused by the board.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from edgekit.host.fleet.profiles import Views
from edgekit.host.report.document import Fleet, FleetGroup, FleetRelease, Straggler, Times

_MOST_STRAGGLERS = 60  # per group
_MOST_MISSING = 200
_ENOUGH = 5  # minimum number of boards to detect outliers
_NEAR = 0.1  # fraction of the median; boards slower by less than this are not outliers
_SPREADS = 3.0  # threshold in robust standard deviations
_ROBUST = 1.4826  # median absolute deviation to standard deviation, if normal
_SILENT_SECONDS = 24 * 3600.0  # after the last report of any board
_SHARE = 0.5  # fraction of boards with the newest release from which others count as lagging

_HEARD = "SELECT DISTINCT board FROM batches"
_SUBJECT = "model, profile, threads, variant"
_NOW = f"""
    WITH latest AS (
        SELECT {_SUBJECT}, board, arg_max(release, received) AS release FROM batches GROUP BY ALL
    )
    SELECT {_SUBJECT}, release, board, median(inference_median_ns) / 1e3, max(received),
        min(received), avg(throttled::INT), median(temperature_c)
    FROM batches JOIN latest USING ({_SUBJECT}, board, release) GROUP BY ALL ORDER BY ALL
"""


def fleet_of(views: Views, inventory: Sequence[str]) -> Fleet:
    """The fleet overview; `inventory` has the names of all boards."""
    heard = {row[0] for row in views.rows(_HEARD)}
    missing = sorted(set(inventory) - heard)
    groups = _group_boards(views)
    odd = {one.board for group in groups for one in group.stragglers}
    shown = tuple(replace(g, stragglers=g.stragglers[:_MOST_STRAGGLERS]) for g in groups)
    return Fleet(shown, len(heard), len(odd), len(missing), tuple(missing[:_MOST_MISSING]))


def _group_boards(views: Views) -> tuple[FleetGroup, ...]:
    """Groups boards by model and type, largest group first."""
    found: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for row in views.rows(_NOW):
        found[row[:4]].append(row[4:])
    groups = [_build_group(key, rows) for key, rows in found.items()]
    return tuple(sorted(groups, key=lambda group: -group.boards))


def _build_group(key: tuple[Any, ...], rows: Sequence[Any]) -> FleetGroup:
    """Rows are release, board, µs, last and first arrival, throttled, temperature."""
    by_release: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        by_release[row[0]].append(row)
    releases = sorted(
        (_release_summary(release, some) for release, some in by_release.items()),
        key=lambda one: (one.first, one.release),
    )
    newest = releases[-1]
    lagging = newest.boards >= _SHARE * len(rows)
    last = max(row[3] for row in rows)
    stragglers = []
    for release, some in by_release.items():
        middle = statistics.median(row[2] for row in some)
        limit = _slow_from([row[2] for row in some], middle)
        for _, board, us, heard, _, throttled, temperature in some:
            why = []
            if us > limit:
                why.append("slow")
            if lagging and release != newest.release:
                why.append("older release")
            if last - heard > _SILENT_SECONDS:
                why.append("silent")
            if why:
                ratio = us / middle if middle > 0 else 1.0
                stragglers.append(
                    Straggler(board, release, us, ratio, heard, throttled, temperature, tuple(why))
                )
    stragglers.sort(key=lambda one: (-len(one.why), -one.ratio, one.board))
    model, board_type, threads, variant = key
    return FleetGroup(
        model,
        board_type,
        threads,
        variant,
        len(rows),
        last,
        tuple(releases),
        len(stragglers),
        tuple(stragglers),
    )


def _release_summary(release: str, rows: Sequence[Any]) -> FleetRelease:
    medians = sorted(row[2] for row in rows)
    spread = Times(statistics.median(medians), _quantile(medians, 0.1), _quantile(medians, 0.9))
    return FleetRelease(release, len(rows), spread, medians[-1], min(row[4] for row in rows))


def _slow_from(medians: Sequence[float], middle: float) -> float:
    """Time in microseconds above which a board is an outlier."""
    if len(medians) < _ENOUGH:
        return float("inf")
    spread = _ROBUST * statistics.median(abs(value - middle) for value in medians)
    return middle + max(_NEAR * middle, _SPREADS * spread)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Quantile with linear interpolation."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
