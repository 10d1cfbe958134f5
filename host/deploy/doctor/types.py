"""The result of a check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """INFO: an optional part is missing; fix it only if it is wanted."""

    OK = "ok"
    INFO = "info"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One check: `found` is the observation, `fix` the fix (empty when ok)."""

    check: str
    verdict: Verdict
    found: str
    fix: str = ""
