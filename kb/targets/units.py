"""Compute units of a board: `[units.NAME]` tables of board profiles.

Every value states its origin: `{ value = 8, source = "..." }` is known, `{ value = 4, assumption =
"..." }` is our guess, to be corrected by anyone who has the chip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from edgekit.device.runtime.arrays.nna_chip import NnaChip
from edgekit.device.runtime.errors import InputError

_Kind = Literal["source", "assumption"]
_ORIGINS: tuple[_Kind, ...] = ("source", "assumption")


@dataclass(frozen=True)
class Origin:
    """The origin of a value: `text` names the source, or the basis of an assumption."""

    name: str
    kind: _Kind
    text: str


@dataclass(frozen=True)
class NnaUnit:
    """The convolution accelerator of a board, and the origin of every value of its chip."""

    chip: NnaChip
    origins: tuple[Origin, ...]


UnitKind = Literal["cpu", "core", "matrix", "vector", "memory"]
_MOST = 1e9  # limit of any speed
_BETWEEN = ("handover_us", "handover_kib_us", "wake_us")
_MAY_BE_0 = ("start_us", *_BETWEEN)
_COMMON = ("clock_mhz", "bytes_per_cycle", *_MAY_BE_0)
_SPEEDS: Mapping[UnitKind, tuple[str, ...]] = {
    "cpu": (*_COMMON, "f32_per_cycle", "s8_per_cycle", "elements_per_cycle"),
    "core": (*_BETWEEN, "f32_per_cycle", "s8_per_cycle"),
    "matrix": (*_COMMON, "f32_per_cycle", "s8_per_cycle"),
    "vector": (*_COMMON, "elements_per_cycle"),
    "memory": _COMMON,
}


@dataclass(frozen=True)
class ComputeUnit:
    """A unit that runs operators one by one, concurrently with other units.

    It is a core of a cluster, a matrix or a vector unit, or, with kind "memory", one that loads
    constants for all of them. For a "core" with a [timing.NAME] table, clock and speeds come from
    there (kb/tables/rates).

    Speeds are per cycle: multiply-adds of matrix products in f32 and in 8 bits, elements of all
    other operators, bytes read or written. 0: it does not support that work. `start_us` is added to
    each operator. `handover_us` is the delay until another unit sees a result, which it then
    fetches at `handover_kib_us` per KiB; `wake_us` is the delay until it starts if another unit
    goes first.
    """

    name: str
    kind: UnitKind
    clock_mhz: float = 0.0
    bytes_per_cycle: float = 0.0
    start_us: float = 0.0
    handover_us: float = 0.0
    handover_kib_us: float = 0.0
    wake_us: float = 0.0
    f32_per_cycle: float = 0.0
    s8_per_cycle: float = 0.0
    elements_per_cycle: float = 0.0
    origins: tuple[Origin, ...] = ()


def parse_unit(where: str, name: str, table: Any) -> ComputeUnit:
    """Parses a `[units.NAME]` table with its `kind`; ValueError as from `parse_nna`."""
    kind = next((k for k in _SPEEDS if isinstance(table, Mapping) and table.get("kind") == k), None)
    if kind is None:
        raise ValueError(
            f"{where}: expected units.{name}.kind of {', '.join(_SPEEDS)}, found {table!r}"
        )
    names = _SPEEDS[kind]
    values = {key: entry for key, entry in table.items() if key != "kind"}
    _check_names(where, name, values, names)
    origins = tuple(origin(where, f"units.{name}", key, values[key]) for key in names)
    for key in names:
        value = values[key]["value"]
        positive = 0 < value < _MOST if type(value) in (int, float) else False
        if not positive and not (key in _MAY_BE_0 and value == 0):
            raise ValueError(
                f"{where}: expected units.{name}.{key} to be a number above 0, found {value!r}"
            )
    numbers = {key: float(values[key]["value"]) for key in names}
    return ComputeUnit(name=name, kind=kind, origins=origins, **numbers)


def core_unit(name: str, lanes: int, dot_products: bool) -> ComputeUnit:
    """The core of a profile without speeds; its vector has `lanes` of 32 bits."""
    text = "one vector operation a cycle at 1 GHz; calibrate it: edgekit lab tune cost"
    return ComputeUnit(
        name=name,
        kind="cpu",
        clock_mhz=1000.0,
        bytes_per_cycle=8.0,
        start_us=0.2,
        handover_us=0.2,
        handover_kib_us=0.05,
        wake_us=3.0,
        f32_per_cycle=float(lanes),
        s8_per_cycle=float(lanes * (4 if dot_products else 2)),
        elements_per_cycle=lanes / 2,
        origins=tuple(Origin(f, "assumption", text) for f in _SPEEDS["cpu"]),
    )


def parse_nna(where: str, table: Any) -> NnaUnit:
    """Parses a `[units.nna]` table; `where` names the profile.

    Raises ValueError, in one line, if a value is missing, unknown, without origin, or inconsistent
    with others.
    """
    names = [field.name for field in fields(NnaChip)]
    if not isinstance(table, Mapping):
        raise ValueError(f"{where}: expected a table [units.nna], found {table!r}")
    _check_names(where, "nna", table, names)
    origins = tuple(origin(where, "units.nna", name, table[name]) for name in names)
    try:
        chip = NnaChip(**{name: table[name]["value"] for name in names})
    except InputError as error:
        raise ValueError(f"{where}: {error}") from None
    return NnaUnit(chip, origins)


def _check_names(where: str, unit: str, table: Mapping[str, Any], names: Sequence[str]) -> None:
    if unknown := sorted(set(table) - set(names)):
        raise ValueError(
            f"{where}: unknown values {', '.join(unknown)} of [units.{unit}]; "
            f"known are {', '.join(names)}"
        )
    if missing := [name for name in names if name not in table]:
        raise ValueError(f"{where}: expected {', '.join(missing)} in [units.{unit}], found none")


def origin(where: str, table: str, name: str, entry: Any) -> Origin:
    """The origin of the value `name` of a table; ValueError if the entry does not state it."""
    if isinstance(entry, Mapping) and set(entry) in ({"value", kind} for kind in _ORIGINS):
        for kind in _ORIGINS:
            text = entry.get(kind)
            if isinstance(text, str) and text.strip():
                return Origin(name, kind, text)
    raise ValueError(
        f"{where}: expected {table}.{name} = {{ value = ..., source = ... }} or "
        f"{{ value = ..., assumption = ... }}, found {entry!r}"
    )
