"""Reads the tensors of .safetensors files: a JSON table, and then their bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.host.compiler.ir.types import Array
from edgekit.host.errors import InputError

_MOST_HEADER = 64 << 20
BYTES = {"F32": 4, "F16": 2, "BF16": 2, "U8": 1}


@dataclass(frozen=True)
class Stored:
    """A tensor in a file: `dtype` is a key of BYTES; `start` within the file."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int

    def data(self) -> Array:
        """Its bytes, u8, mapped from the file."""
        size = math.prod(self.shape) * BYTES[self.dtype]
        return np.memmap(self.file, np.uint8, "r", self.start, (size,))


def read_tensors(folder: Path) -> dict[str, Stored]:
    """The tensors of all such files in a folder, by name. Raises InputError with one line."""
    found: dict[str, Stored] = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            found.update(_table(file))
        except OSError as error:
            raise InputError(f"{file}: expected a readable file, found {error.strerror}") from None
    return found


def _table(file: Path) -> Iterator[tuple[str, Stored]]:
    size = file.stat().st_size
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if length > min(_MOST_HEADER, size):
            raise _damaged(file, f"a table of {length} bytes in a file of {size}")
        try:
            table = json.loads(opened.read(length))
        except (ValueError, RecursionError):
            raise _damaged(file, "no JSON table") from None
    if not isinstance(table, dict):
        raise _damaged(file, "another document")
    for name, about in table.items():
        if name != "__metadata__":
            yield name, _stored(file, name, about, 8 + length, size)


def _stored(file: Path, name: str, about: Any, start: int, size: int) -> Stored:
    try:
        dtype, shape = about["dtype"], tuple(about["shape"])
        first, last = about["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise _damaged(file, f"no place of {name!r:.60}") from None
    if dtype not in BYTES:
        raise unknown_type(file, name, dtype)
    whole = all(type(n) is int and n > 0 for n in shape) and type(first) is type(last) is int
    if not whole or last - first != math.prod(shape) * BYTES[dtype] or not 0 <= first <= last:
        raise _damaged(file, f"another size of {name!r:.60}")
    if start + last > size:
        raise _damaged(file, f"{name!r:.60} beyond its end")
    return Stored(file, dtype, shape, start + first)


def unknown_type(file: Path, name: str, found: object) -> InputError:
    return InputError(
        f"{file.name}: {name:.60}: expected F32, F16 or BF16, found {found!r:.20}; "
        "name the folder of the model before it was quantized"
    )


def _damaged(file: Path, found: str) -> InputError:
    return InputError(
        f"{file.name}: expected a .safetensors file, found {found}; it is cut or damaged"
    )
