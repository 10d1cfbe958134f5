"""A board's knowledge of sparse matrices: matrix features → storage settings.

A table is JSON of the schema edgekit.kb.spmv/1; kb/tables/spmv holds edgekit's, `edgekit lab tune
spmv` writes the user's. A lookup tries an exact match, then the nearest row of equal spread and
band, then the patent's rule; every answer names its rule.
"""

from __future__ import annotations

import bisect
import json
import stat
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
from edgekit.device.runtime.errors import InputError

SCHEMA = "edgekit.kb.spmv/1"
_MOST_BYTES = 64 << 20  # of a file
_RULE = "patent"  # settings: the patent's rule, which nothing beat
ROWS_SEQUENCE = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
MEAN_SEQUENCE = (1, 3, 10, 30, 100, 300, 1_000)
SPREADS = ("even", "random", "skewed")
BANDS = ("narrow", "banded", "wide")
_EVEN, _RANDOM = 0.15, 0.8  # maximum of standard deviation over mean
_NARROW, _BANDED = 8.0, 0.1  # span of a row over its non-zeros; over all columns


@dataclass(frozen=True)
class MatrixFeatures:
    """Lookup features of a matrix. mean and deviation: of the non-zeros per row; longest: the
    most in one row; span: mean distance from the first to the last column of a row, 1 for a
    single one."""

    stored: str
    rows: int
    cols: int
    nonzeros: int
    mean: float
    deviation: float
    longest: int
    span: float

    @property
    def spread(self) -> str:
        """Even, random or skewed row lengths."""
        relative = self.deviation / self.mean if self.mean else 0.0
        return SPREADS[(relative > _EVEN) + (relative > _RANDOM)]

    @property
    def band(self) -> str:
        """Narrow (rows are about as long as they span), banded, or wide."""
        if self.span <= _NARROW * self.mean:
            return "narrow"
        return "banded" if self.span <= _BANDED * self.cols else "wide"


@dataclass(frozen=True, order=True)
class Key:
    """The lookup key of a matrix: quantized features, as positions in the sequences, and
    classes."""

    stored: str
    rows: int
    mean: int
    spread: str
    band: str


@dataclass(frozen=True)
class SpmvRow:
    """The best known settings of a key; None: nothing beat the patent's rule. `matrix`: the
    measured one; `ratio`: its time over the rule's in the same run, below 1 is faster.
    `by_rule`: blocks are as wide as the rule makes them for each matrix, a width of 0 in the
    file."""

    key: Key
    settings: Optional[BlockSettings]
    matrix: str
    ratio: float
    by_rule: bool = False

    def settings_for(self, rule: BlockSettings) -> BlockSettings:
        """The settings of a matrix whose rule's are given."""
        if self.settings is None:
            return rule
        return replace(self.settings, width=rule.width) if self.by_rule else self.settings


@dataclass(frozen=True)
class SparseChoice:
    """Settings, the rule that found them (exact, nearest or patent), and why."""

    key: Key
    settings: BlockSettings
    rule: str
    why: str


def nearest(value: float, sequence: Sequence[int]) -> int:
    """Returns the position of the entry nearest to `value` by ratio."""
    right = bisect.bisect_left(sequence, value)
    if right in (0, len(sequence)):
        return min(right, len(sequence) - 1)
    return right if value * value > sequence[right - 1] * sequence[right] else right - 1


def key_of(found: MatrixFeatures) -> Key:
    """Returns a matrix's lookup key."""
    return key_for(found.stored, found.rows, found.mean, found.spread, found.band)


def key_for(stored: str, rows: int, mean: float, spread: str, band: str) -> Key:
    """Returns the lookup key for these features."""
    return Key(stored, nearest(rows, ROWS_SEQUENCE), nearest(mean, MEAN_SEQUENCE), spread, band)


@dataclass(frozen=True)
class SpmvTable:
    """One platform's rows."""

    platform: str = ""
    rows: Tuple[SpmvRow, ...] = ()

    def lookup(self, wanted: MatrixFeatures, default: BlockSettings) -> SparseChoice:
        """Returns the settings for a matrix; `default` is the patent's rule."""
        key = key_of(wanted)
        alike = [row for row in self.rows if _structure_class(row.key) == _structure_class(key)]
        if not alike:
            why = f"no row of {key.stored}, {key.spread} rows, {key.band} band"
            return SparseChoice(key, default, "patent", why)
        best = min(alike, key=lambda row: (_distance(row.key, key), row.key))
        rule, why = "exact", f"measured on {best.matrix}"
        if best.key != key:
            rule, why = "nearest", f"nearest of {len(alike)} rows of its class, {why}"
        if best.settings is None:
            why += ", where nothing beat the default rule"
        return SparseChoice(key, best.settings_for(default), rule, why)

    def text(self) -> str:
        """Serializes the table: one sorted row per line, so that a change is one line of a diff."""
        lines = [
            json.dumps(_row_to_dict(row)) for row in sorted(self.rows, key=lambda row: row.key)
        ]
        body = "[\n  " + ",\n  ".join(lines) + "\n ]" if lines else "[]"
        head = f' "schema": {json.dumps(SCHEMA)},\n "platform": {json.dumps(self.platform)},\n'
        return "{\n" + head + f' "rows": {body}\n' + "}\n"


def read_table(path: Path) -> SpmvTable:
    """Reads a table; InputError if it is damaged or of another schema."""
    try:
        if (about := path.stat()).st_size > _MOST_BYTES or not stat.S_ISREG(about.st_mode):
            raise InputError(
                f"{path}: expected a table of SpMV, found no regular file of at most "
                f"{_MOST_BYTES} bytes"
            )
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise InputError(
                f"{path}: expected schema {SCHEMA}, found {document['schema']}; "
                "measure it again: edgekit lab tune sparse"
            )
        rows = tuple(_parse_row(row) for row in document["rows"])
        return SpmvTable(str(document["platform"]), rows)
    except OSError as error:
        raise InputError(f"{path}: expected a table of SpMV, found: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path}: expected a table of SpMV ({SCHEMA}), found: {error}; "
            "measure it again: edgekit lab tune sparse"
        ) from None


def _row_to_dict(row: SpmvRow) -> Dict[str, Any]:
    found: Dict[str, Any] = {**asdict(row), "settings": _RULE}
    if row.settings:
        found["settings"] = {**asdict(row.settings), **({"width": 0} if row.by_rule else {})}
    del found["by_rule"]
    return found


def _parse_row(raw: Mapping[str, Any]) -> SpmvRow:
    fields: Dict[str, Any] = dict(raw)
    key, how = Key(**fields.pop("key")), fields.pop("settings")
    by_rule = how != _RULE and how["width"] == 0
    settings = None if how == _RULE else BlockSettings.of({**how, "width": how["width"] or 1})
    return SpmvRow(key, settings, str(fields["matrix"]), float(fields["ratio"]), by_rule)


def _structure_class(key: Key) -> Tuple[str, str, str]:
    return key.stored, key.spread, key.band


def _distance(a: Key, b: Key) -> int:
    return abs(a.rows - b.rows) + abs(a.mean - b.mean)
