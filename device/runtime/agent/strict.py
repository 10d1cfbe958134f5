"""Parses JSON that nobody vouches for: each value as it must be, or InputError with its place."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Tuple, TypeVar

from edgekit.device.runtime.errors import InputError

MAX_WHOLE = 1 << 40

T = TypeVar("T")


def short(value: object, most: int = 80) -> str:
    """`value` in one line of at most so many characters."""
    text = " ".join(str(value).split())
    return text if len(text) <= most else text[: most - 3] + "..."


def bad(where: str, expected: str, found: object) -> InputError:
    """The error of a value at `where`."""
    return InputError(f"{where}: expected {expected}, found {short(found)}")


def distinct_keys(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    """An object that has each key once, for json.loads."""
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("an object with the same key twice")
    return result


def no_constant(name: str) -> float:
    """Refuses NaN and infinity, for json.loads."""
    raise ValueError(f"the number {name}")


def keys_of(raw: object, where: str, names: Tuple[str, ...]) -> Dict[str, Any]:
    """An object with just the keys `names`."""
    if not isinstance(raw, dict):
        raise bad(where or "document", "an object", type(raw).__name__)
    if set(raw) != set(names):
        odd = sorted(set(raw) ^ set(names))
        word = "unknown" if odd[0] in raw else "missing"
        raise bad(where or "document", "keys " + ", ".join(names), f"{word} '{odd[0]}'")
    return raw


def text(raw: object, where: str) -> str:
    """Printable text of bounded length."""
    if not isinstance(raw, str) or len(raw) > 512 or not raw.isprintable():
        raise bad(where, "printable text of at most 512 characters", repr(raw))
    return raw


def matching(raw: object, where: str, pattern: "re.Pattern[str]", what: str) -> str:
    """Text that `pattern` matches as a whole; `what` says what that is."""
    if not isinstance(raw, str) or not pattern.fullmatch(raw):
        raise bad(where, what, repr(raw))
    return raw


def whole(raw: object, where: str, low: int = 0, high: int = MAX_WHOLE) -> int:
    """A whole number within bounds."""
    if not isinstance(raw, int) or isinstance(raw, bool) or not low <= raw <= high:
        raise bad(where, f"a whole number from {low} to {high}", repr(raw))
    return raw


def number(raw: object, where: str) -> float:
    """A finite number."""
    if not isinstance(raw, (int, float)) or isinstance(raw, bool) or not abs(raw) < 1e300:
        raise bad(where, "a finite number", repr(raw))
    return float(raw)


def each(raw: object, where: str, parse: Callable[[Any, str], T]) -> Tuple[T, ...]:
    """A list of bounded length, each entry parsed by `parse`."""
    if not isinstance(raw, (list, tuple)) or len(raw) > 65536:
        raise bad(where, "a list of at most 65536 entries", type(raw).__name__)
    return tuple(parse(item, f"{where}[{i}]") for i, item in enumerate(raw))
