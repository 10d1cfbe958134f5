"""Parses untrusted JSON: returns valid values, or raises InputError naming the invalid one."""

from __future__ import annotations

import json
import re
from typing import Any, Callable, Dict, List, Tuple, TypeVar

from edgekit.device.runtime.errors import InputError

MAX_INTEGER = 1 << 40

T = TypeVar("T")


def printable(text: str) -> str:
    """Replaces what a terminal would interpret."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def short(value: object, most: int = 80) -> str:
    """Formats `value` as one line of at most `most` printable characters."""
    text = printable(" ".join(str(value).split()))
    return text if len(text) <= most else text[: most - 3] + "..."


def bad(where: str, expected: str, found: object) -> InputError:
    """Returns the error for an invalid value at `where`."""
    return InputError(f"{where}: expected {expected}, found {short(found)}")


def distinct_keys(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    """Rejects duplicate keys in an object, for json.loads."""
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("an object with the same key twice")
    return result


def no_constant(name: str) -> float:
    """Rejects NaN and infinity, for json.loads."""
    raise ValueError(f"the number {name}")


def keys_of(
    raw: object, where: str, names: Tuple[str, ...], optional: Tuple[str, ...] = ()
) -> Dict[str, Any]:
    """Returns an object that has exactly the keys `names`, and possibly some of `optional`."""
    if not isinstance(raw, dict):
        raise bad(where or "document", "an object", type(raw).__name__)
    if odd := sorted(set(raw).difference(optional) ^ set(names)):
        word = "unknown" if odd[0] in raw else "missing"
        raise bad(where or "document", "keys " + ", ".join(names), f"{word} '{odd[0]}'")
    return raw


def file_keys(
    data: bytes,
    where: str,
    schema: str,
    names: Tuple[str, ...],
    optional: Tuple[str, ...] = (),
) -> Dict[str, Any]:
    """Returns the object in a JSON file that has exactly the key "schema", which is `schema`, the
    keys `names`, and perhaps those of `optional`."""
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        raise bad(where, "a JSON document", "something else") from None
    keys = keys_of(raw, where, ("schema", *names), optional)
    if keys["schema"] != schema:
        raise bad(f"{where}.schema", schema, keys["schema"])
    return keys


def text(raw: object, where: str) -> str:
    """Returns printable text of bounded length."""
    if not isinstance(raw, str) or len(raw) > 512 or not raw.isprintable():
        raise bad(where, "printable text of at most 512 characters", repr(raw))
    return raw


def matching(raw: object, where: str, pattern: "re.Pattern[str]", what: str) -> str:
    """Returns text that `pattern` matches in full; `what` describes it in the error."""
    if not isinstance(raw, str) or not pattern.fullmatch(raw):
        raise bad(where, what, repr(raw))
    return raw


def integer(raw: object, where: str, low: int = 0, high: int = MAX_INTEGER) -> int:
    """Returns an integer within bounds."""
    if not isinstance(raw, int) or isinstance(raw, bool) or not low <= raw <= high:
        raise bad(where, f"a whole number from {low} to {high}", repr(raw))
    return raw


def number(raw: object, where: str) -> float:
    """Returns a finite number."""
    if not isinstance(raw, (int, float)) or isinstance(raw, bool) or not abs(raw) < 1e300:
        raise bad(where, "a finite number", repr(raw))
    return float(raw)


def each(raw: object, where: str, parse: Callable[[Any, str], T]) -> Tuple[T, ...]:
    """Returns a list of bounded length, each entry parsed by `parse`."""
    if not isinstance(raw, (list, tuple)) or len(raw) > 65536:
        raise bad(where, "a list of at most 65536 entries", type(raw).__name__)
    return tuple(parse(item, f"{where}[{i}]") for i, item in enumerate(raw))
