"""What kernels on either layout of images cost on a board: measured, kept by core type.

A table is JSON: for each kernel the nanoseconds (or instructions, on an emulator) of a product, of
a value of the output, and of a piece, fitted to operators that a board ran one by one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgekit.device.errors import InputError

SCHEMA = "edgekit.kb.layouts/1"
KERNELS = ("dense", "sparse", "depthwise", "planar_depthwise", "transpose")


@dataclass(frozen=True)
class Rate:
    """Costs of a kernel: of each product, each value of the output, and each piece of work that
    is started for itself (a row of a plane, else the whole)."""

    product: float
    value: float
    piece: float

    def cost(self, products: float, values: float, pieces: float = 1) -> float:
        return self.product * products + self.value * values + self.piece * pieces


@dataclass(frozen=True)
class LayoutTable:
    """Rates by kernel (KERNELS), in `unit`. `error`: the median of |fitted / measured - 1|;
    `cases`: how many operators were measured."""

    platform: str
    unit: str
    cases: int
    error: float
    rates: Mapping[str, Rate]

    def text(self) -> str:
        """As a file."""
        document = {
            "schema": SCHEMA,
            "platform": self.platform,
            "unit": self.unit,
            "cases": self.cases,
            "error": round(self.error, 3),
            "rates": {
                name: {
                    "product": _short(rate.product),
                    "value": _short(rate.value),
                    "piece": _short(rate.piece),
                }
                for name, rate in self.rates.items()
            },
        }
        return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    schema: str
    platform: str
    unit: str
    cases: int
    error: float
    rates: dict[str, Rate]


def read_layouts(path: Path) -> LayoutTable:
    """Raises InputError for a file that is none."""
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"{path}: expected a table of layouts, found: {error}") from None
    values = [v for r in file.rates.values() for v in (r.product, r.value, r.piece)]
    if file.schema != SCHEMA or set(file.rates) != set(KERNELS) or min(values) < 0:
        raise InputError(
            f"{path}: expected {SCHEMA} with costs of {', '.join(KERNELS)}, found "
            f"{file.schema} with {', '.join(sorted(file.rates))}; measure it anew: "
            "edgekit tune layouts"
        )
    return LayoutTable(file.platform, file.unit, file.cases, file.error, file.rates)


def _short(value: float) -> float:
    """Four digits."""
    if value == 0:
        return 0.0
    return round(value, 3 - math.floor(math.log10(abs(value))))
