"""Reads the records of a GGUF file: metadata, and where each tensor is.

The layout is that of ggml's document docs/gguf.md, versions 2 and 3. All counts are checked against
the bytes that are left before anything is made of them.
"""

from __future__ import annotations

import itertools
import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.host.compiler.frontends.common.files import check_size
from edgekit.host.compiler.frontends.common.names import shown_name
from edgekit.host.compiler.frontends.gguf.blocks import FORMS, NAMES
from edgekit.host.compiler.ir.types import Array
from edgekit.host.errors import InputError

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?"}
_SCALARS |= {10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_MOST_TENSORS, _MOST_VALUES, _MOST_NAME = 1 << 14, 1 << 16, 1 << 10
_MOST_AXES, _MOST_ELEMENTS = 4, 1 << 40
_ALIGNMENT = 32


@dataclass(frozen=True)
class TensorInfo:
    """`shape` in NumPy's order, rows first; `kind` is a key of `NAMES`; `start` within the file."""

    name: str
    shape: tuple[int, ...]
    kind: int
    start: int
    bytes: int


@dataclass(frozen=True)
class GgufFile:
    """The metadata and the tensors of a file, by name."""

    path: Path
    about: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]

    @property
    def architecture(self) -> str:
        return self.text("general.architecture")

    def text(self, key: str) -> str:
        found = self._stated(key, "a text")
        if not isinstance(found, str):
            raise InputError(f"{key}: expected a text, found {found!r:.60}")
        return found

    def integer(self, key: str, default: int | None = None, most: int = 1 << 24) -> int:
        """A whole number from 1 to `most` under the architecture's name."""
        key = f"{self.architecture}.{key}"
        found = self._stated(key, "a whole number", default)
        found = found[0] if isinstance(found, list) and len({*found}) == 1 else found
        if type(found) is not int or not 1 <= found <= most:
            raise InputError(
                f"{key}: expected a whole number from 1 to {most}, found {found!r:.60}"
            )
        return found

    def real(self, key: str, default: float | None = None) -> float:
        """A finite number under the architecture's name."""
        key = f"{self.architecture}.{key}"
        found = self._stated(key, "a number", default)
        if type(found) not in (int, float) or not math.isfinite(found):
            raise InputError(f"{key}: expected a finite number, found {found!r:.60}")
        return float(found)

    def truth(self, key: str, default: bool) -> bool:
        """A truth under the architecture's name."""
        key = f"{self.architecture}.{key}"
        found = self.about.get(key, default)
        if type(found) is not bool:
            raise InputError(f"{key}: expected true or false, found {found!r:.60}")
        return found

    def data(self, name: str) -> Array:
        """The stored bytes of a tensor, u8. They are read, not mapped: pages of the file would
        count as memory in use until all tensors are imported."""
        info = self.tensors[name]
        found = np.fromfile(self.path, np.uint8, info.bytes, offset=info.start)
        if len(found) < info.bytes:
            raise InputError(
                f"tensor {name}: expected {info.bytes} bytes, found {len(found)}; the file has "
                "changed while it was read"
            )
        return found

    def _stated(self, key: str, what: str, default: object = None) -> Any:
        found = self.about.get(key, default)
        if found is None:
            raise InputError(f"expected {what} as {key}, found none; the file is not complete")
        return found


def read_gguf(path: Path) -> GgufFile:
    """Raises InputError with one line, which does not start with the file's name."""
    check_size(path)  # says what is wrong with files that are missing or too large
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            return _read(path, content)
    except OSError as error:
        raise InputError(f"expected a readable file, found: {error.strerror}") from error


def _read(path: Path, content: mmap.mmap) -> GgufFile:
    source = _Source(content)
    magic, version = source.take("4sI", "a header")
    if magic != MAGIC or version not in _VERSIONS:
        raise InputError(
            f"expected a GGUF file of version 2 or 3, found {magic!r} of version {version}; "
            "convert the model again with a current converter"
        )
    count, values = source.take("QQ", "a header")
    for found, most, what in ((count, _MOST_TENSORS, "tensors"), (values, _MOST_VALUES, "values")):
        if found > most:
            raise InputError(f"expected at most {most:,} {what}, found {found:,}")
    about: dict[str, Any] = {}
    for _ in range(values):
        key = source.name("a key")
        if key in about:
            raise InputError(f"expected each key once, found {shown_name(key)} again")
        about[key] = source.value(source.take("I", key)[0], key)
    align = about.get("general.alignment", _ALIGNMENT)
    if type(align) is not int or not 1 <= align <= 1 << 16 or align & (align - 1):
        raise InputError(f"general.alignment: expected a power of two, found {align!r:.40}")
    infos = [_tensor_info(source) for _ in range(count)]
    start = -(-source.at // align) * align
    tensors: dict[str, TensorInfo] = {}
    for info in infos:
        if info.name in tensors:
            raise InputError(f"expected each tensor once, found {shown_name(info.name)} again")
        tensors[info.name] = _placed(info, start, align, len(content))
    _check_overlap(tensors)
    return GgufFile(path, about, tensors)


class _Source:
    """Reads records one after the other; raises InputError at the end of the file."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content, self._size = content, len(content)
        self.at = 0

    def take(self, form: str, what: str) -> tuple[Any, ...]:
        end = self.at + struct.calcsize(f"<{form}")
        self._need(end, what)
        found = struct.unpack_from(f"<{form}", self._content, self.at)
        self.at = end
        return found

    def name(self, what: str) -> str:
        found = self.text(what)
        if not 0 < len(found) <= _MOST_NAME or not found.isprintable():
            raise InputError(
                f"expected {what} of 1 to {_MOST_NAME} characters, found {found!r:.40}"
            )
        return found

    def text(self, what: str) -> str:
        (size,) = self.take("Q", what)
        self._need(self.at + size, what)
        found = self._content[self.at : self.at + size]
        self.at += size
        return found.decode("utf-8", "replace")

    def value(self, kind: int, key: str) -> Any:
        if kind == _TEXT:
            return self.text(key)
        if kind != _LIST:
            return self.take(_scalar(kind, key), key)[0]
        kind, count = self.take("IQ", key)
        if kind == _TEXT:
            self._need(self.at + 8 * count, key)
            return [self.text(key) for _ in range(count)]
        form = _scalar(kind, key)
        self._need(self.at + count * struct.calcsize(form), key)
        return list(self.take(f"{count}{form}", key))

    def _need(self, end: int, what: str) -> None:
        if end > self._size:
            raise InputError(
                f"expected {shown_name(what)} up to byte {end:,}, found a file of {self._size:,} "
                "bytes, which is cut or damaged; fetch it again"
            )


def _scalar(kind: int, key: str) -> str:
    if kind not in _SCALARS:
        raise InputError(f"{shown_name(key)}: expected a known type of value, found {kind}")
    return _SCALARS[kind]


def _tensor_info(source: _Source) -> TensorInfo:
    """A record of the table; `start` does not yet count from the beginning of the file."""
    name = source.name("the name of a tensor")
    (axes,) = source.take("I", name)
    if not 1 <= axes <= _MOST_AXES:
        raise InputError(f"tensor {name}: expected 1 to {_MOST_AXES} axes, found {axes}")
    shape = source.take(f"{axes}Q", name)[::-1]
    kind, offset = source.take("IQ", name)
    if min(shape) < 1 or math.prod(shape) > _MOST_ELEMENTS:
        raise InputError(f"tensor {name}: expected a shape that fits, found {list(shape)}")
    if kind not in FORMS:
        known = ", ".join(NAMES[k] for k in FORMS)
        raise InputError(
            f"tensor {name}: expected one of {known}, found {NAMES.get(kind, f'type {kind}')}; "
            "quantize the model to one of these"
        )
    form = FORMS[kind]
    if shape[-1] % form.values:
        raise InputError(
            f"tensor {name}: expected rows of a multiple of {form.values} values in "
            f"{NAMES[kind]}, found {shape[-1]}"
        )
    return TensorInfo(name, shape, kind, offset, math.prod(shape) // form.values * form.bytes)


def _placed(info: TensorInfo, start: int, align: int, size: int) -> TensorInfo:
    at = start + info.start
    if info.start % align or at + info.bytes > size:
        raise InputError(
            f"tensor {info.name}: expected {info.bytes:,} bytes at a multiple of {align} in a file "
            f"of {size:,}, found offset {info.start:,} of the data; the file is cut or damaged"
        )
    return TensorInfo(info.name, info.shape, info.kind, at, info.bytes)


def _check_overlap(tensors: Mapping[str, TensorInfo]) -> None:
    in_order = sorted(tensors.values(), key=lambda info: info.start)
    for one, following in itertools.pairwise(in_order):
        if one.start + one.bytes > following.start:
            raise InputError(
                f"tensor {following.name}: expected bytes of its own, found that it overlaps "
                f"{one.name}; the file is damaged"
            )
