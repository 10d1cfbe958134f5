"""What boards report of the releases that they were offered."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from edgekit.host.errors import InputError

_Text = Annotated[str, Meta(max_length=600)]
_Id = Annotated[str, Meta(pattern="^([0-9a-f]{16})?$")]


class BoardReport(Struct, forbid_unknown_fields=True, frozen=True):
    """How an offer ended on a board, as device/runtime/agent/fetch.py reports it."""

    name: Annotated[str, Meta(pattern="^[a-z0-9_-]{0,32}$")]
    rollout: Annotated[str, Meta(pattern="^[A-Za-z0-9._-]{1,64}$")]
    release: _Id
    back: bool
    end: Annotated[str, Meta(pattern="^(committed|unchanged|rolled back|failed|back)$")]
    message: _Text
    exit_code: Annotated[int, Meta(ge=0, le=255)]
    current: _Id
    previous: _Id
    saved_bytes: Annotated[int, Meta(ge=0)] = 0


_REPORT = msgspec.json.Decoder(BoardReport)
_REPORTS = msgspec.json.Decoder(dict[str, BoardReport])


def decode_report(data: bytes) -> BoardReport:
    """Parses a report of a board; InputError if it is none."""
    try:
        return _REPORT.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"expected a report about a release, found: {error}") from None


def decode_reports(data: bytes) -> dict[str, BoardReport]:
    """Parses the last reports of a board, by model; DecodeError if they are damaged."""
    return _REPORTS.decode(data)
