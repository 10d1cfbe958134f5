"""Cycles of a core per unit of operator work: kb/tables/rates/CORE.json.

`scripts/fit_costs.py` fits these files to recorded cycles and prints the errors.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgekit.kb.decoding import decode_json

SCHEMA = "edgekit.kb.rates/1"
FOLDER = Path(__file__).parent / "rates"

Rates = Mapping[str, float]  # cycles by the name of an amount


@dataclass(frozen=True)
class CoreRates:
    """The rates of a core by group of operators, and the source of the fit."""

    core: str
    source: str
    groups: Mapping[str, Rates]

    def of(self, names: Iterable[str]) -> Rates:
        """The rates of the first of these groups that has any, else those of any operator."""
        return next((self.groups[name] for name in names if name in self.groups), self.groups[""])


class _File(msgspec.Struct, forbid_unknown_fields=True):
    schema: str
    core: str
    source: str
    amounts: list[str]
    groups: dict[str, list[float]]


@functools.cache
def rates_of(core: str) -> CoreRates | None:
    """The rates of a core by its short name ("a76"); None if none were fitted."""
    path = FOLDER / f"{core}.json"
    if not core or not path.is_file():
        return None
    file = decode_json(path.read_bytes(), _File)
    if file.schema != SCHEMA or file.core != core or "" not in file.groups:
        raise ValueError(f"{path.name}: expected {SCHEMA} of {core}, found {file.schema}")
    groups = {
        name: dict(zip(file.amounts, cycles, strict=True)) for name, cycles in file.groups.items()
    }
    return CoreRates(core, file.source, groups)


def rates_text(rates: CoreRates) -> str:
    """Formats the content of a core's file."""
    amounts = list(rates.groups[""])
    head: dict[str, object] = {"schema": SCHEMA, "core": rates.core, "source": rates.source}
    lines = [
        f"{_json(key)}: {_json(value)}" for key, value in (head | {"amounts": amounts}).items()
    ]
    groups = [
        f"  {_json(name)}: {_json([values[amount] for amount in amounts])}"
        for name, values in sorted(rates.groups.items())
    ]
    return "{" + ",\n ".join(lines) + ',\n "groups": {\n' + ",\n".join(groups) + "\n }}\n"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
