"""The result of a long suite: the last line that begins with a number."""

from __future__ import annotations

import re

_RESULT = re.compile(r"^\d[\d,]* .*", re.MULTILINE)


def result_line(printed: str) -> str | None:
    lines = _RESULT.findall(printed)
    return lines[-1] if lines else None
