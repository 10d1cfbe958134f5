"""The NNA figures in docs/architecture.md match the current emulator."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

_ROOT = Path(__file__).parents[3]


def test_figures_are_up_to_date_and_linked():
    done = subprocess.run(
        [sys.executable, str(_ROOT / "scripts" / "nna_figures.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    page = (_ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for name in ("nna-fram.svg", "nna-sweep.svg"):
        assert f"(images/{name})" in page
        ElementTree.parse(_ROOT / "docs" / "images" / name)
