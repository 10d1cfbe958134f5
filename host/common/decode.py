"""The one way in for JSON that others wrote: boards, and programs on them.

Only shapes and sizes are checked that somebody here relies on: another version may say more. All
text comes out printable, because it ends in terminals.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar

from msgspec import Meta, ValidationError, convert

from edgekit.host.common.text import printable
from edgekit.host.errors import TransferError

_LONGEST = 1 << 16  # characters of one text: a log of a release that was rolled back
_T = TypeVar("_T")

Text = Annotated[str, Meta(max_length=_LONGEST)]
Count = Annotated[int, Meta(ge=0, le=1 << 62)]
Number = Annotated[float, Meta(ge=-1e18, le=1e18)]


class NotAnAnswerError(TransferError):
    """The message says what was expected and, where there was a document, what was found."""


def decode(content: bytes | str, kind: type[_T]) -> _T:
    """A JSON document that is of `kind`, with all that it says; raises NotAnAnswerError."""
    return fitting(parsed(content), kind)


def parsed(content: bytes | str) -> Any:
    """A JSON document of any kind; raises NotAnAnswerError."""
    try:
        return _printable(json.loads(content))
    except (ValueError, RecursionError):
        raise NotAnAnswerError("expected a JSON document") from None


def fitting(document: Any, kind: type[_T]) -> _T:
    """A decoded document that is of `kind`, with all that it says; raises NotAnAnswerError."""
    try:
        convert(document, kind)
    except ValidationError as error:
        raise NotAnAnswerError(
            f"expected an answer of edgekit's runtime, found one that does not fit: "
            f"{printable(str(error), 200)}"
        ) from None
    found: _T = document
    return found


def _printable(value: Any) -> Any:
    """The same with all text fit to be shown; logs keep their lines."""
    if isinstance(value, str):
        return "\n".join(printable(line, _LONGEST) for line in value.split("\n"))
    if isinstance(value, list):
        return [_printable(item) for item in value]
    if isinstance(value, dict):
        return {printable(key, _LONGEST): _printable(item) for key, item in value.items()}
    return value
