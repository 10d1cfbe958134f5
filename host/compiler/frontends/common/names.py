"""Names from a model file, as messages show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from edgekit.host.common.text import printable

_SHOWN = 80


def shown_name(name: str) -> str:
    """A short, printable version of a name from the file."""
    return printable(name, _SHOWN) or "without a name"


def duplicates(names: Sequence[str]) -> list[str]:
    """Names that occur more than once."""
    return [name for name, count in Counter(names).items() if count > 1]
