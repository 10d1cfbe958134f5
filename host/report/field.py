"""Reports of profiles collected from boards in the field."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from edgekit.device.runtime.agent.kernels import KERNELS_OF
from edgekit.device.version import VERSION
from edgekit.host.deploy.explanations import recall, variant_of
from edgekit.host.errors import InputError
from edgekit.host.fleet.profiles import Source, Views, agreements, asking, stray_tensors
from edgekit.host.report.document import (
    BoardTimes,
    ModelReleases,
    ReleaseTimes,
    Report,
    ReportedOperator,
    Times,
)
from edgekit.host.report.explained import explain_operators, known_estimate
from edgekit.host.report.fleet import fleet_of

_MOST_SUBJECTS = 40
_MOST_RELEASES = 20  # per subject
_MOST_BOARDS = 400  # per release
_MOST_CELLS = 20_000  # operator times on individual boards, per release
_MOST_NAMES = 6
_BOARD_MATRICES = 3  # number of newest releases of a subject with times per board

_SUBJECT = "model, profile, threads, variant"
_RELEASES = f"""
    SELECT {_SUBJECT}, release, max(kit), min(received), max(received), count(*), sum(inferences),
        avg(throttled::INT), count(DISTINCT board),
        quantile_cont(inference_median_ns, [0.5, 0.1, 0.9])
    FROM batches WHERE NOT starts_with(model, '{KERNELS_OF}') GROUP BY ALL
    ORDER BY min(received), release
"""
_OPERATORS = f"""
    SELECT {_SUBJECT}, release, position, max(name), max(op), max(kernel), sum(samples),
        quantile_cont(median_ns, [0.5, 0.1, 0.9])
    FROM operators GROUP BY {_SUBJECT}, release, position ORDER BY position
"""
_BOARDS = f"""
    SELECT {_SUBJECT}, release, board, count(*), sum(inferences), avg(throttled::INT),
        median(temperature_c), quantile_cont(inference_median_ns, [0.5, 0.1, 0.9]) AS whole
    FROM batches GROUP BY ALL ORDER BY whole[1] DESC, board
"""
_CELLS = """
    SELECT board, position, median(median_ns) FROM operators
    WHERE model = ? AND profile = ? AND threads = ? AND variant = ? AND release = ?
        AND list_contains(?, board)
    GROUP BY board, position
"""

_Key = tuple[str, str, int, int]


def field_report(
    store: Source,
    now: datetime,
    inventory: Sequence[str] | None = None,
    most_releases: int = _MOST_RELEASES,
    most_cells: int = _MOST_CELLS,
) -> Report:
    """Reports all models on all types of boards, busiest first; without subjects if there are only
    products of programs (`call_times`). InputError if there are no profiles at all. With
    the board names of an `inventory`, a fleet overview is included. `most_releases` limits the
    releases of a subject, `most_cells` the operator times on individual boards of a release."""
    notes = _field_notes(store)
    with asking(store) as views:
        releases = views.rows(_RELEASES)
        if not releases and not notes and not views.rows("FROM batches LIMIT 1"):
            raise InputError(
                f"{store.folder}: expected profiles to report, found none; "
                "fetch some: edgekit profile pull --board BOARD"
            )
        operators = _group_rows(views.rows(_OPERATORS))
        boards = _group_rows(views.rows(_BOARDS))
        by_subject: dict[_Key, list[Any]] = defaultdict(list)
        for row in releases:
            by_subject[row[:4]].append(row[4:])
        busiest = sorted(by_subject, key=lambda k: -sum(row[5] for row in by_subject[k]))
        left_out = _left_out("models on types of boards", len(busiest) - _MOST_SUBJECTS)
        subjects = []
        for key in busiest[:_MOST_SUBJECTS]:
            rows = by_subject[key]
            left_out += _left_out(f"older releases of {key[0]}", len(rows) - most_releases)
            made = []
            for age, row in enumerate(reversed(rows[-most_releases:])):
                here = _board_times(boards[(*key, row[0])])
                if age < _BOARD_MATRICES:
                    count = len(operators[(*key, row[0])])
                    here = _with_cells(views, key, row[0], here, count, most_cells)
                times = _release_times(key, row, operators[(*key, row[0])], here)
                made.append(replace(times, note=notes.get(row[0])))
            newest = variant_of(recall(made[0].release), key[3]) or {}
            name = newest.get("signature", "")
            subjects.append(ModelReleases(*key, tuple(reversed(made)), name))
        fleet = None if inventory is None else fleet_of(views, inventory)
    day = now.strftime("%Y-%m-%d %H:%M")
    return Report("field", day, VERSION, tuple(subjects), left_out=left_out, fleet=fleet)


def _field_notes(store: Source) -> dict[str, str]:
    """By release: how often it agrees with its float model, and where its ranges are too small."""
    strays = defaultdict(list)
    for each in stray_tensors(store):
        strays[each.release].append(each.name)
    notes = {}
    for one in agreements(store):
        how = "the same class" if one.measure == "class" else "a difference of at most 10%"
        beyond = strays[one.release]
        more = len(beyond) - _MOST_NAMES
        names = ", ".join(beyond[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        outside = f" Values leave the release's ranges in {names}."
        notes[one.release] = (
            f"{one.agreed} of {one.inferences} repeated inferences agree with the float model: "
            f"{how}.{outside if beyond else ''}"
        )
    return notes


def _group_rows(rows: Iterable[Sequence[Any]]) -> Mapping[tuple[Any, ...], list[Sequence[Any]]]:
    """Groups rows by their subject and release, and strips those columns."""
    found: dict[tuple[Any, ...], list[Sequence[Any]]] = defaultdict(list)
    for row in rows:
        found[tuple(row[:5])].append(row[5:])
    return found


def _release_times(
    key: _Key, row: Sequence[Any], rows: Sequence[Sequence[Any]], boards: tuple[BoardTimes, ...]
) -> ReleaseTimes:
    release, kit, first, last, batches, inferences, throttled, board_count, whole = row
    _, board_type, threads, variant = key
    operators = [
        ReportedOperator(name, op, kernel, _to_microseconds(spread), samples)
        for _, name, op, kernel, samples, spread in rows
    ]
    document = variant_of(recall(release), variant)
    estimate = known_estimate(release, board_type, threads, variant)
    explained = explain_operators(operators, document, estimate)
    return ReleaseTimes(
        release,
        kit,
        explained.operators,
        explained.edges,
        _to_microseconds(whole),
        explained.estimate_us,
        explained.estimated_by,
        explained.known,
        first,
        last,
        batches,
        int(inferences),
        throttled,
        board_count,
        boards,
        nna=explained.nna,
    )


def _board_times(rows: Sequence[Sequence[Any]]) -> tuple[BoardTimes, ...]:
    """Times per board, slowest first."""
    return tuple(
        BoardTimes(board, batches, int(inferences), _to_microseconds(whole), throttled, temperature)
        for board, batches, inferences, throttled, temperature, whole in rows[:_MOST_BOARDS]
    )


def _with_cells(
    views: Views,
    key: _Key,
    release: str,
    boards: tuple[BoardTimes, ...],
    count: int,
    most_cells: int,
) -> tuple[BoardTimes, ...]:
    """Adds times of `count` operators to as many boards as `most_cells` allows."""
    shown = boards[: most_cells // max(count, 1)]
    names = [board.board for board in shown]
    cells: dict[str, dict[int, float]] = {name: {} for name in names}
    for board, position, median in views.rows(_CELLS, [*key, release, names]):
        cells[board][position] = median / 1e3
    filled = tuple(
        replace(b, operators=tuple(cells[b.board].get(position) for position in range(count)))
        for b in shown
    )
    return filled + boards[len(shown) :]


def _to_microseconds(nanoseconds: Sequence[float]) -> Times:
    return Times(*(value / 1e3 for value in nanoseconds))


def _left_out(what: str, count: int) -> tuple[str, ...]:
    return (f"{count} {what}",) if count > 0 else ()
