"""The order of the rooms is one list: what import-linter checks is what the docs show."""

from __future__ import annotations

import configparser
from pathlib import Path

_ROOT = Path(__file__).parents[1]


def test_the_docs_show_the_order_that_is_checked():
    contracts = configparser.ConfigParser()
    contracts.read(_ROOT / ".importlinter")
    layers = contracts["importlinter:contract:host"]["layers"].strip()
    assert f"```\n{layers}\n```" in (_ROOT / "docs" / "architecture.md").read_text()
