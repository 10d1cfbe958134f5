"""Decodes JSON from outside: boards and the programs on them.

Only the shapes and sizes that our code relies on are checked, since a newer version may send more
fields. All text is made printable because it ends up in terminals.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar

from msgspec import Meta, ValidationError

from edgekit.host.common.text import printable
from edgekit.host.errors import TransferError
from edgekit.kb.decoding import convert

_LONGEST = 1 << 16  # characters of one text, e.g. the log of a release that was rolled back
_T = TypeVar("_T")

Text = Annotated[str, Meta(max_length=_LONGEST)]
Count = Annotated[int, Meta(ge=0, le=1 << 62)]
Number = Annotated[float, Meta(ge=-1e18, le=1e18)]


class NotAnAnswerError(TransferError):
    """The message states what was expected and, if there was a document, what was found."""


def decode(content: bytes | str, kind: type[_T]) -> _T:
    """Decodes a JSON document of type `kind`, keeping unknown fields; raises NotAnAnswerError."""
    return fitting(parsed(content), kind)


def parsed(content: bytes | str) -> Any:
    """Decodes any JSON document; raises NotAnAnswerError."""
    try:
        return _make_printable(json.loads(content))
    except (ValueError, RecursionError):
        raise NotAnAnswerError("expected a JSON document") from None


def fitting(document: Any, kind: type[_T]) -> _T:
    """Checks that a decoded document has type `kind`; keeps all fields; raises NotAnAnswerError."""
    try:
        convert(document, kind)
    except ValidationError as error:
        raise NotAnAnswerError(
            f"expected an answer from edgekit's runtime, found one that does not fit: "
            f"{printable(str(error), 200)}"
        ) from None
    found: _T = document
    return found


def _make_printable(value: Any) -> Any:
    """`value` with all text made printable; logs keep their line breaks."""
    if isinstance(value, str):
        return "\n".join(printable(line, _LONGEST) for line in value.split("\n"))
    if isinstance(value, list):
        return [_make_printable(item) for item in value]
    if isinstance(value, dict):
        return {printable(key, _LONGEST): _make_printable(item) for key, item in value.items()}
    return value
