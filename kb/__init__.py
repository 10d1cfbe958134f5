"""Board profiles and the knowledge base of methods: data files and the code that queries them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.kb.features import GemmShape, index_of
    from edgekit.kb.tables.gemm_table import KnowledgeBase

__all__ = ["GemmShape", "KnowledgeBase", "index_of"]

_HOMES = {
    "GemmShape": "edgekit.kb.features",
    "KnowledgeBase": "edgekit.kb.tables.gemm_table",
    "index_of": "edgekit.kb.features",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
