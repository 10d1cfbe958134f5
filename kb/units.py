"""Compute units of a board beside its cores: `[units.NAME]` tables of board profiles.

Every value says where it comes from: `{ value = 8, source = "..." }` is known, `{ value = 4,
assumption = "..." }` is our guess, for whoever has the chip to correct.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from edgekit.device.errors import InputError
from edgekit.device.nna_chip import NnaChip

_Kind = Literal["source", "assumption"]
_ORIGINS: tuple[_Kind, ...] = ("source", "assumption")


@dataclass(frozen=True)
class Origin:
    """Where a value comes from: `text` names the source, or what an assumption rests on."""

    name: str
    kind: _Kind
    text: str


@dataclass(frozen=True)
class NnaUnit:
    """The convolution accelerator of a board, and the origin of every value of its chip."""

    chip: NnaChip
    origins: tuple[Origin, ...]


def parse_nna(where: str, table: Any) -> NnaUnit:
    """The unit of a `[units.nna]` table; ValueError, in one line, if a value is missing, unknown,
    without origin, or does not fit the others. `where` names the profile."""
    names = [field.name for field in fields(NnaChip)]
    if not isinstance(table, Mapping):
        raise ValueError(f"{where}: expected a table [units.nna], found {table!r}")
    if unknown := sorted(set(table) - set(names)):
        raise ValueError(
            f"{where}: unknown values {', '.join(unknown)} of [units.nna]; "
            f"known are {', '.join(names)}"
        )
    if missing := [name for name in names if name not in table]:
        raise ValueError(f"{where}: expected {', '.join(missing)} in [units.nna], found none")
    origins = tuple(_origin(where, name, table[name]) for name in names)
    try:
        chip = NnaChip(**{name: table[name]["value"] for name in names})
    except InputError as error:
        raise ValueError(f"{where}: {error}") from None
    return NnaUnit(chip, origins)


def _origin(where: str, name: str, entry: Any) -> Origin:
    if isinstance(entry, Mapping) and set(entry) in ({"value", kind} for kind in _ORIGINS):
        for kind in _ORIGINS:
            text = entry.get(kind)
            if isinstance(text, str) and text.strip():
                return Origin(name, kind, text)
    raise ValueError(
        f"{where}: expected units.nna.{name} = {{ value = ..., source = ... }} or "
        f"{{ value = ..., assumption = ... }}, found {entry!r}"
    )
