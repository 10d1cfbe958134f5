"""Tracks the headers included by C files, so that objects are rebuilt exactly when one changes.

Conditional includes count as taken, which may rebuild too much but never too little.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_SYSTEM = re.compile(rb"^#include <([^>\n]+)>", re.MULTILINE)


def headers_hash(
    text: bytes, folder: Path, macros: Sequence[tuple[str, str]], kernels: Path
) -> bytes:
    """Hashes all headers that `text`, a file in `folder`, includes directly or indirectly.

    Headers are searched in the directory of the including file, then under `kernels`. A macro whose
    value is a quoted name counts as included.
    """
    found: dict[Path, bytes] = {}
    _collect_headers([*_INCLUDE.findall(text), *_quoted_headers(macros)], folder, kernels, found)
    digest = hashlib.sha256()
    for path in sorted(found):
        digest.update(hashlib.sha256(found[path]).digest())
    return digest.digest()


def system_headers(macros: Sequence[tuple[str, str]], kernels: Path) -> tuple[str, ...]:
    """The system headers included directly or indirectly by headers that macros name."""
    found: dict[Path, bytes] = {}
    _collect_headers(_quoted_headers(macros), kernels, kernels, found)
    names = [name.decode() for text in found.values() for name in _SYSTEM.findall(text)]
    return tuple(dict.fromkeys(names))


def _quoted_headers(macros: Sequence[tuple[str, str]]) -> list[bytes]:
    return [value.strip('"').encode() for _, value in macros if value.startswith('"')]


def _collect_headers(
    names: Iterable[bytes], folder: Path, kernels: Path, found: dict[Path, bytes]
) -> None:
    for name in names:
        for base in (folder, kernels):
            path = (base / name.decode()).resolve()
            if not path.is_file():
                continue
            if path not in found:
                found[path] = path.read_bytes()
                _collect_headers(_include_names(found[path]), path.parent, kernels, found)
            break


@functools.lru_cache(maxsize=512)
def _include_names(text: bytes) -> tuple[bytes, ...]:
    return tuple(_INCLUDE.findall(text))
