"""Writes GGUF files, version 3."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from edgekit.host.compiler.frontends.gguf.file import MAGIC
from edgekit.host.compiler.ir.types import Array

_ALIGNMENT = 32
_U32, _I32, _F32, _BOOL, _TEXT, _LIST = 4, 5, 6, 7, 8, 9


def write_gguf(
    path: Path,
    about: Mapping[str, Any],
    table: Mapping[str, tuple[int, tuple[int, ...], int]],
    data: Iterable[Array],
) -> None:
    """Writes `about`, the metadata; the `table`, kind, shape and bytes of each tensor; and the
    tensors' `data`, u8, in that order, one in memory at a time."""
    head = struct.pack("<4sIQQ", MAGIC, 3, len(table), len(about))
    head += b"".join(_text(key) + _value(value) for key, value in about.items())
    at = 0
    for name, (kind, shape, size) in table.items():
        head += _text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        head += struct.pack("<IQ", kind, at)
        at += size + -size % _ALIGNMENT
    with path.open("wb") as file:
        file.write(head + bytes(-len(head) % _ALIGNMENT))
        for part in data:
            file.write(part.data)
            file.write(bytes(-part.nbytes % _ALIGNMENT))


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "replace")
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    """A value behind its type."""
    if isinstance(value, bool):
        return struct.pack("<I?", _BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", _U32, value)
    if isinstance(value, float):
        return struct.pack("<If", _F32, value)
    if isinstance(value, str):
        return struct.pack("<I", _TEXT) + _text(value)
    if value and isinstance(value[0], str):
        return struct.pack("<IIQ", _LIST, _TEXT, len(value)) + b"".join(map(_text, value))
    kind, form = (_F32, "f") if value and isinstance(value[0], float) else (_I32, "i")
    return struct.pack(f"<IIQ{len(value)}{form}", _LIST, kind, len(value), *value)
