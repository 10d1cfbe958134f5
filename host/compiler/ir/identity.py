"""Identity of graphs: a hash of their names and of everything their outputs depend on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from edgekit.host.common.content import release_pages
from edgekit.host.compiler.ir.types import Graph


def identity(graph: Graph) -> str:
    """SHA-256 of operators, shapes, quantization, states and constants, as hex digits."""
    digest = hashlib.sha256()
    _feed(digest, graph)
    return digest.hexdigest()


def _feed(digest: Any, value: object) -> None:
    """Hash each value with its type and size, so that different graphs never feed equal bytes."""
    if isinstance(value, np.ndarray):
        digest.update(f"array {value.dtype.str} {value.shape} ".encode())
        digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        release_pages()
    elif isinstance(value, Enum):
        digest.update(f"{type(value).__name__}.{value.name} ".encode())
    elif is_dataclass(value):
        digest.update(f"{type(value).__name__} ".encode())
        for field in fields(value):
            _feed(digest, getattr(value, field.name))
    elif isinstance(value, Mapping):
        digest.update(f"map {len(value)} ".encode())
        for key, item in value.items():
            _feed(digest, key)
            _feed(digest, item)
    elif isinstance(value, tuple | list):
        digest.update(f"tuple {len(value)} ".encode())
        for item in value:
            _feed(digest, item)
    else:
        text = repr(value).encode()
        digest.update(f"{type(value).__name__} {len(text)} ".encode() + text)
