"""Constants of the cost model that were measured on a board, and where a host keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.host.common.files import atomic_write
from edgekit.host.common.paths import data_folder
from edgekit.host.compiler.costs.work import AMOUNTS
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import BoardProfile

SCHEMA = "edgekit.cost/1"


@dataclass(frozen=True)
class Calibration:
    """Microseconds of each amount (compiler.costs.work.AMOUNTS) by family of operators, on the
    first unit of a board. `scale`: by how much operators of other families take longer than the
    profile says. `emulated`: the times were an emulator's."""

    board: str
    emulated: bool
    scale: float
    families: Mapping[str, tuple[float, ...]]


def calibration_file(board: BoardProfile) -> Path:
    """The file of what `edgekit lab tune cost` measured on boards of a platform."""
    return data_folder() / "cost" / f"{board.platform}.json"


def save_calibration(board: BoardProfile, calibration: Calibration) -> Path:
    """Writes it where `calibration_of` finds it; raises OSError."""
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
    """What was measured on boards of its platform; None if nothing was. InputError if the file
    cannot be read."""
    path = calibration_file(board)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, str(error)) from None
    try:
        return _parse(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(path, repr(error)) from None


def _parse(document: Any) -> Calibration:
    if document["schema"] != SCHEMA:
        raise ValueError(f"schema {document['schema']}")
    families = {
        name: tuple(_number(values[amount]) for amount in AMOUNTS)
        for name, values in document["families"].items()
    }
    scale = _number(document["scale"])
    return Calibration(str(document["board"]), bool(document["emulated"]), scale, families)


def _number(value: Any) -> float:
    number = float(value)
    if not 0 <= number < float("inf"):
        raise ValueError(f"{value} is no time")
    return number


def _unreadable(path: Path, found: str) -> InputError:
    return InputError(
        f"{path}: expected measured costs ({SCHEMA}), found something else ({found}); "
        "delete it, or measure again: edgekit lab tune cost"
    )
