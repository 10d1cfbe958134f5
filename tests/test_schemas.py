"""Documents in JSON: one name has one shape, because one place writes it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
# Measured in cli/report.py, estimated in estimate/report.py: one document with its times named so.
_SHARED = {"edgekit.bench.model/1"}
_NAME = re.compile(r'"(edgekit\.[a-z._]+/[0-9]+)"')


def test_each_name_of_a_document_is_told_by_one_file():
    files: Counter[str] = Counter()
    for folder in ("device", "host", "kb"):
        for path in (_ROOT / folder).rglob("*.py"):
            files.update(set(_NAME.findall(path.read_text())))
    assert [name for name, count in files.items() if count > 1 and name not in _SHARED] == []
    assert len(files) > 20
