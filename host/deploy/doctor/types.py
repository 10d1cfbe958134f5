"""What a check tells."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """INFO is something optional that is not there: nothing to mend unless wanted."""

    OK = "ok"
    INFO = "info"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One check: `found` is what was seen, `mend` what to do about it (empty when ok)."""

    check: str
    verdict: Verdict
    found: str
    mend: str = ""
