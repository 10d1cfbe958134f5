"""What MODEL.toml next to a model says: a table for each kind of input."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from edgekit.device.runtime.agent.task import (
    CHANNELS,
    CORNER,
    CROP,
    FILTERS,
    LETTERBOX,
    MOST_ZOOM,
    PICTURES,
    STRETCH,
)
from edgekit.host.compiler.sidecars import features_file, read_sidecar
from edgekit.host.errors import InputError

PICTURE = "picture"
_WORDS = {
    "task": PICTURES, "fit": (LETTERBOX, CORNER, STRETCH, CROP), "channels": CHANNELS,
    "filter": FILTERS[1:],
}  # fmt: skip
_VALUES = ("mean", "scale")  # of pixels
_NUMBERS = {"fill": (0, 255), "zoom": (1, MOST_ZOOM)}
_MOST = 1e6


def stated_table(model: Path, name: str) -> dict[str, Any] | None:
    """A table of the file; None without one. Raises InputError if it is no TOML."""
    file = features_file(model)
    data = read_sidecar(file)
    if data is None:
        return None
    try:
        table = tomllib.loads(data.decode()).get(name)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: expected TOML, found: {error}") from None
    return table if isinstance(table, dict) else None


def stated_picture(model: Path) -> tuple[str, dict[str, Any]]:
    """The task, and how a picture becomes the input, as fields of a TaskSpec; empty for what is not
    said. Raises InputError."""
    file, found = features_file(model), dict(stated_table(model, PICTURE) or {})
    for key, value in found.items():
        if key in _VALUES:
            found[key] = _colors(value, positive=key == "scale")
            wrong, expected = not found[key], "1 or 3 numbers, and none of 0 for scale"
        elif key in _NUMBERS:
            (least, most), whole = _NUMBERS[key], key == "fill"
            wrong = not (_is_number(value) and least <= value <= most)
            wrong |= whole and not isinstance(value, int)
            expected = f"a number of {least} to {most}"
        else:
            wrong = value not in _WORDS.get(key, ())
            expected = " or ".join(_WORDS.get(key, ())) or "no such key"
        if wrong:
            raise InputError(f"{file}: {key}: expected {expected}, found {value!r}")
    if len(found.keys() & {*_VALUES}) == 1:
        raise InputError(f"{file}: expected mean and scale in [{PICTURE}], found one of them")
    if "zoom" in found:
        found["zoom"] = float(found["zoom"])
    return found.pop("task", ""), found


def _colors(value: Any, positive: bool) -> tuple[float, ...]:
    """One number, or one of each color; empty for anything else."""
    values = value if isinstance(value, list) else [value]
    fits = len(values) in (1, 3) and all(_is_number(v) and (v > 0 or not positive) for v in values)
    return tuple(map(float, values)) if fits else ()


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < _MOST
