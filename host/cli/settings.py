"""edgekit.toml in the working directory: the model and board to use when none is named."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgekit.host.errors import InputError

FILE_NAME = "edgekit.toml"


@dataclass(frozen=True)
class Settings:
    """`model` is relative to the folder that holds edgekit.toml."""

    model: str | None = None
    board: str = "local"


def read_settings(folder: Path) -> Settings:
    """Settings of `folder`; the defaults when it has no edgekit.toml.

    Raises InputError for a file that is not TOML or holds unknown or wrongly typed keys.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        return Settings()
    import tomllib

    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{FILE_NAME}: expected TOML, found: {error}") from None
    raw.pop("boards", None)  # the inventory's own; edgekit.host.inventory reads it
    for key, value in raw.items():
        if key not in ("model", "board"):
            raise InputError(f"{FILE_NAME}: expected model, board or [boards.NAME], found '{key}'")
        if not isinstance(value, str) or not value:
            raise InputError(f'{FILE_NAME}: expected {key} = "...", found {value!r}')
    return Settings(**raw)
