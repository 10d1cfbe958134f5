"""Turns profiles from boards in the field into operator measurements.

A profile has the time of each operator of a release; which method was compiled, and which would
be used without a row of the knowledge base, is kept on the host that made the release. A row is
judged by two kinds of evidence:

- The same operator of the same model ran in another release with its rowless default method, on
  boards of that type: the two times are compared.
- Otherwise its time is compared with an expected time derived from the estimated costs of both
  methods and from operators that are nearest in cost and use their default, in the same release
  or else on any board of that type. Estimates are coarse, so this is only ever used as evidence
  against a method that takes far longer.

Other programs on a board slow down all operators of an inference alike: if a release never ran on
an idle board, only the second kind of evidence counts, and only within that release.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from statistics import median
from typing import Any, NamedTuple

from edgekit.host.compiler.costs.methods.operators import OperatorMethod
from edgekit.host.deploy.explanations import recall, variant_of
from edgekit.host.fleet.profiles import ProfileStore, asking
from edgekit.host.lab.history.operator_history import OperatorMeasurement
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import UnknownBoardError, load_board

_NEAREST = 5  # operators that determine an expected time
_FEWEST = 3
_FAR = 1.5  # times the expected: more than the error of cost estimates
_SAME = 0.05  # relative difference below which two releases' times are considered equal
_OTHERS = 0.5  # cores used by other programs, above which a board is busy
_WITH_FASTEST = f"""
    SELECT operators.*, fastest, coalesce(others, 0) > {_OTHERS} AS busy
    FROM operators JOIN (
        SELECT board, cluster, max(frequency_mhz) AS fastest FROM batches GROUP BY board, cluster
    ) USING (board, cluster)
"""
# Neither hot nor throttled, and the clock near the fastest seen on this cluster.
_COOL = """
    throttled IS NOT TRUE AND coalesce(temperature_c, 0) < 85
    AND (frequency_mhz IS NULL OR frequency_mhz >= 0.9 * fastest)
"""
# If a release ever ran on idle boards, keep only those batches.
KEPT = f"""
    SELECT * FROM ({_WITH_FASTEST}) WHERE {_COOL}
    QUALIFY busy = bool_and(busy) OVER (PARTITION BY release, model, profile, variant, threads)
"""
_OF_BOARDS = f"""
    SELECT release, model, profile, variant, threads, name, board, max(kit) AS kit,
        max(received) AS received, median(median_ns) AS ns, bool_and(busy) AS busy
    FROM ({KEPT}) WHERE median_ns > 0
    GROUP BY release, model, profile, variant, threads, name, board
"""
_TIMES = f"""
    SELECT release, model, profile, variant, threads, name, max(kit), max(received), median(ns),
        bool_and(busy)
    FROM ({_OF_BOARDS}) GROUP BY release, model, profile, variant, threads, name ORDER BY ALL
"""
_BOARDS = f"SELECT DISTINCT release, profile, board FROM ({_OF_BOARDS})"
_LEFT_OUT = f"""
    SELECT profile, count(*) FROM batches ANTI JOIN (SELECT DISTINCT board, uuid FROM ({KEPT}))
    USING (board, uuid) GROUP BY profile
"""


@dataclass(frozen=True)
class FieldHistory:
    """Measurements from `boards` boards. `unknown` releases were made on another host or too long
    ago and cannot be used; `left_out` batches come from boards that were hot, throttled, or busier
    than others with that release."""

    measurements: tuple[OperatorMeasurement, ...] = ()
    boards: int = 0
    releases: int = 0
    unknown: int = 0
    left_out: int = 0


class _Key(NamedTuple):
    """A release variant as run by boards of one type."""

    release: str
    model: str
    profile: str
    variant: int
    threads: int


@dataclass(frozen=True)
class _Operator:
    """An operator as compiled, from the release's explanation, and its time in seconds."""

    name: str
    form: str
    shape: GemmShape
    method: OperatorMethod
    default: OperatorMethod
    cost: float
    default_cost: float
    seconds: float
    kit: str
    when: str
    busy: bool

    @property
    def is_default(self) -> bool:
        return self.method == self.default


def field_history(platform: str, store: ProfileStore | None = None) -> FieldHistory:
    """Measurements from the user's profile store for a platform; empty if there is no store or
    DuckDB is not installed."""
    store = store or ProfileStore()
    if not store.folder.is_dir() or find_spec("duckdb") is None:
        return FieldHistory()
    with asking(store) as views:
        times, boards, left_out = (views.rows(sql) for sql in (_TIMES, _BOARDS, _LEFT_OUT))
    profiles = {name for name in {row[2] for row in times} if platform_of(name) == platform}
    groups: dict[_Key, list[tuple[Any, ...]]] = defaultdict(list)
    for row in times:
        if row[2] in profiles:
            groups[_Key(*row[:5])].append(row[5:])
    known = {key: found for key, rows in groups.items() if (found := _join_explanation(key, rows))}
    releases = {key.release for key in known}
    return FieldHistory(
        tuple(_usable_measurements(known, platform)),
        len({board for release, profile, board in boards if release in releases}),
        len(releases),
        len({key.release for key in groups} - releases),
        sum(count for name, count in left_out if platform_of(name) == platform),
    )


def platform_of(profile: str) -> str:
    """The platform of a board profile; empty if this edgekit does not know the profile."""
    try:
        return load_board(profile).platform
    except UnknownBoardError:
        return ""


def _join_explanation(key: _Key, rows: Iterable[tuple[Any, ...]]) -> list[_Operator]:
    """The operators of a release that have a choice of methods, with their times."""
    document = variant_of(recall(key.release), key.variant) or {}
    found: list[_Operator] = []
    explained = {each["name"]: each for each in document.get("operators", ())}
    for name, kit, received, ns, busy in rows:
        entry = explained.get(name)
        if not (entry and entry.get("form") and entry.get("default")):
            continue
        when = datetime.fromtimestamp(received, UTC).isoformat(timespec="seconds")
        form, default = entry["form"], entry["default"]
        found.append(
            _Operator(
                name,
                form["name"],
                GemmShape(form["m"], form["k"], form["n"]),
                OperatorMethod(**entry["method"]),
                OperatorMethod(**default["method"]),
                float(form["vector_operations"]),
                float(form["vector_operations"]) * default["relative_cost"],
                ns * 1e-9,
                kit,
                when,
                busy,
            )
        )
    return found


def _usable_measurements(
    known: Mapping[_Key, Sequence[_Operator]], platform: str
) -> Iterator[OperatorMeasurement]:
    """Measurements of operators that were compiled from a row, where there is evidence."""
    defaults: dict[tuple[_Key, str, GemmShape, OperatorMethod], list[float]] = defaultdict(list)
    of_boards: dict[tuple[str, int], list[_Operator]] = defaultdict(list)
    for key, operators in known.items():
        in_peace = [each for each in operators if not each.busy]
        of_boards[key.profile, key.threads] += in_peace
        for each in in_peace:
            if each.is_default:
                defaults[key._replace(release=""), each.name, each.shape, each.method].append(
                    each.seconds
                )
    for key, operators in known.items():
        for each in operators:
            if each.is_default:
                continue
            same = (key._replace(release=""), each.name, each.shape, each.default)
            measured = [] if each.busy else defaults[same]
            others = [] if each.busy else of_boards[key.profile, key.threads]
            usual = median(measured) if measured else None
            if usual is None:
                usual = _expected_default_seconds(each, operators) or _expected_default_seconds(
                    each, others
                )
                if usual is None or each.seconds < _FAR * usual:
                    continue
            elif abs(each.seconds / usual - 1) < _SAME:
                continue
            yield _to_measurement(key, each, platform, usual)


def _expected_default_seconds(operator: _Operator, others: Sequence[_Operator]) -> float | None:
    """Expected seconds of the method without a row, from operators of the same kind; None if there
    are too few."""
    alike = [
        o
        for o in others
        if o.is_default
        and o.cost > 0
        and _method_kind(o) == _method_kind(operator)
        and o.seconds > 0
    ]
    if operator.default_cost <= 0 or len(alike) < _FEWEST:
        return None
    near = sorted(alike, key=lambda o: abs(math.log(o.cost / operator.default_cost)))
    return operator.default_cost * median(o.seconds / o.cost for o in near[:_NEAREST])


def _method_kind(operator: _Operator) -> tuple[str, str]:
    kinds = ("depthwise", "dense", "conv", "product")
    return next(k for k in kinds if operator.form.startswith(k)), operator.method.precision


def _to_measurement(
    key: _Key, operator: _Operator, platform: str, default_seconds: float
) -> OperatorMeasurement:
    """One measurement for all boards of a type, so that their number carries no weight."""
    return OperatorMeasurement(
        board=key.profile,
        platform=platform,
        model=key.model,
        operator=operator.name,
        form=operator.form,
        threads=key.threads,
        shape=operator.shape,
        method=operator.method,
        cost=operator.seconds,
        default_cost=default_seconds,
        when=operator.when,
        kit_version=operator.kit,
        source="profile",
    )
