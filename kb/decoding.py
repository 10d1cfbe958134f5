"""Decodes documents into dataclasses, structs and typed dictionaries, in any thread.

msgspec 0.22 prepares a type at its first use, and crashes the process if a second thread uses the
type meanwhile. Here one thread prepares it, and others wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")
Hook = Callable[[type, Any], Any]  # makes a value of a type that msgspec does not know

_lock = threading.Lock()
_prepared: set[Any] = set()


def decode_json(data: bytes | str, kind: type[_T], hook: Hook | None = None) -> _T:
    """Decodes JSON. msgspec.DecodeError or msgspec.ValidationError if it is no such document."""
    _prepare(kind, hook)
    return msgspec.json.decode(data, type=kind, dec_hook=hook)


def convert(value: object, kind: type[_T], hook: Hook | None = None) -> _T:
    """Converts dictionaries, lists and the like. msgspec.ValidationError if they do not fit."""
    _prepare(kind, hook)
    return msgspec.convert(value, kind, dec_hook=hook)


def _prepare(kind: Any, hook: Hook | None) -> None:
    if kind not in _prepared:
        with _lock:
            msgspec.json.Decoder(kind, dec_hook=hook)
            _prepared.add(kind)
