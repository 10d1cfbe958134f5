"""Cost model constants measured on a board, and the file where the host keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.host.common.files import atomic_write, read_file
from edgekit.host.common.paths import data_folder
from edgekit.host.compiler.costs.work import AMOUNTS
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import BoardProfile

SCHEMA = "edgekit.cost/1"


@dataclass(frozen=True)
class Calibration:
    """Microseconds per amount (compiler.costs.work.AMOUNTS) and operator family on a board's first
    unit. `scale` is the ratio of measured to profiled time for all other families; `emulated`
    means the times come from an emulator."""

    board: str
    emulated: bool
    scale: float
    families: Mapping[str, tuple[float, ...]]


def calibration_file(board: BoardProfile) -> Path:
    """Return the path of the results of `edgekit lab tune cost` for a platform."""
    return data_folder() / "cost" / f"{board.platform}.json"


def save_calibration(board: BoardProfile, calibration: Calibration) -> Path:
    """Write the calibration where `calibration_of` looks for it; raises OSError."""
    path = calibration_file(board)
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "schema": SCHEMA,
        "board": calibration.board,
        "emulated": calibration.emulated,
        "scale": calibration.scale,
        "families": {
            name: dict(zip(AMOUNTS, values, strict=True))
            for name, values in sorted(calibration.families.items())
        },
    }
    atomic_write(path, json.dumps(document, indent=1).encode() + b"\n")
    return path


def calibration_of(board: BoardProfile) -> Calibration | None:
    """Return the calibration of the board's platform, or None if it was never measured. Raises
    InputError if the file cannot be read."""
    path = calibration_file(board)
    try:
        text = read_file(path).decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _calibration_error(path, str(error)) from None
    try:
        return _parse(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _calibration_error(path, repr(error)) from None


def _parse(document: Any) -> Calibration:
    if document["schema"] != SCHEMA:
        raise ValueError(f"schema {document['schema']}")
    families = {
        name: tuple(_parse_time(values[amount]) for amount in AMOUNTS)
        for name, values in document["families"].items()
    }
    scale = _parse_time(document["scale"])
    return Calibration(str(document["board"]), bool(document["emulated"]), scale, families)


def _parse_time(value: Any) -> float:
    number = float(value)
    if not 0 <= number < float("inf"):
        raise ValueError(f"{value} is not a time")
    return number


def _calibration_error(path: Path, found: str) -> InputError:
    return InputError(
        f"{path}: expected measured costs ({SCHEMA}), found {found}; "
        "delete it or measure again: edgekit lab tune cost"
    )
