"""The shared store as a folder."""

from __future__ import annotations

import os
import time
from pathlib import Path

from edgekit.host.fleet.profiles import SharedStore


def test_incomplete_files_are_removed_once_their_writer_must_be_dead(tmp_path: Path) -> None:
    folder = tmp_path / "parts" / "board=a57" / "month=2026-11"
    folder.mkdir(parents=True)
    abandoned, fresh, complete = (folder / name for name in (".old.tmp", ".new.tmp", "1.parquet"))
    for path in (abandoned, fresh, complete):
        path.write_bytes(b"rows")
    two_hours_ago = time.time() - 7200
    for path in (abandoned, complete):
        os.utime(path, (two_hours_ago, two_hours_ago))
    SharedStore(str(tmp_path)).make()
    assert not abandoned.exists()
    assert fresh.exists() and complete.exists()
