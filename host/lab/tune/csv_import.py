"""Imports past measurements from CSV: all rows are validated before any is stored."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.compiler.costs.methods.gemm import Method, split_of
from edgekit.host.errors import InputError
from edgekit.host.lab.history.measurement import Measurement
from edgekit.kb.features import GemmShape, packed_of

REQUIRED = (
    "board", "platform", "dtype", "threads", "m", "k", "n", "mc", "kc", "nc", "pack_a", "pack_b",
    "mr", "nr", "seconds", "default_seconds",
)  # fmt: skip
_TRUE, _FALSE = ("1", "true", "yes"), ("0", "false", "no")


@dataclass(frozen=True)
class Imported:
    """Measurements from a file, and the rejected rows: line number and reason."""

    measurements: list[Measurement]
    refused: list[str]


def read_csv(path: Path, kit_version: str, when: str) -> Imported:
    """Reads a CSV with the columns `REQUIRED` (and optionally `split`, `packed`, `spread`, `when`,
    `cpu`).

    Raises InputError if the file or its header is unusable; unusable rows are listed in `refused`,
    and the caller decides whether to continue without them.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [c for c in REQUIRED if c not in (reader.fieldnames or ())]
            if missing:
                raise InputError(
                    f"{path}: expected the columns {', '.join(REQUIRED)}, found none named "
                    f"{', '.join(missing)}; add them to the first line"
                )
            return _parse_rows(reader, kit_version, when)
    except OSError as error:
        raise InputError(f"{path}: expected a CSV file, found: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: expected a CSV file, found: {error}") from None


def _parse_rows(reader: csv.DictReader[str], kit_version: str, when: str) -> Imported:
    measurements, refused = [], []
    for row in reader:
        try:
            measurements.append(_parse_measurement(row, kit_version, when))
        except (TypeError, ValueError) as error:
            refused.append(f"line {reader.line_num}: {error}")
    return Imported(measurements, refused)


def _parse_flag(row: Mapping[str, str], name: str) -> bool:
    value = row[name].strip().lower()
    if value not in (*_TRUE, *_FALSE):
        raise ValueError(f"expected {name} to be 0 or 1, found '{row[name]}'")
    return value in _TRUE


def _parse_measurement(row: Mapping[str, str], kit_version: str, when: str) -> Measurement:
    def integer(name: str) -> int:
        try:
            return int(row[name])
        except ValueError:
            raise ValueError(f"expected {name} to be a whole number, found '{row[name]}'") from None

    def real(name: str) -> float:
        try:
            return float(row[name])
        except ValueError:
            raise ValueError(f"expected {name} to be a number, found '{row[name]}'") from None

    def time(name: str) -> float:
        value = real(name)
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"expected {name} above 0, found {row[name]}")
        return value

    method = Method(
        integer("mc"), integer("kc"), integer("nc"),
        _parse_flag(row, "pack_a"), _parse_flag(row, "pack_b"),
        integer("mr"), integer("nr"), split_of(row.get("split") or "m"),
    )  # fmt: skip
    return Measurement(
        board=row["board"],
        platform=row["platform"],
        dtype=row["dtype"],
        threads=integer("threads"),
        shape=GemmShape(integer("m"), integer("k"), integer("n")),
        method=method,
        cost=time("seconds"),
        default_cost=time("default_seconds"),
        spread=real("spread") if row.get("spread") else 0.0,
        when=row.get("when") or when,
        kit_version=kit_version,
        source="import",
        packed=packed_of(row.get("packed") or "none"),
        cpu=row.get("cpu") or "",
    )
