"""Names of a file in messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

_SHOWN = 80


def shown_name(name: str) -> str:
    """A name of the file as messages show it: short and printable."""
    readable = "".join(c if c.isprintable() else "?" for c in name[:_SHOWN])
    return readable or "without a name"


def duplicates(names: Sequence[str]) -> list[str]:
    """Names that stand more than once."""
    return [name for name, count in Counter(names).items() if count > 1]
