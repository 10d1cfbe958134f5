"""Explanations of locally built releases are stored by release, up to a limit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgekit.host.deploy.explanations import recall, remember


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    return tmp_path / "explanations"


def test_what_was_kept_of_a_release_comes_back() -> None:
    remember("0" * 16, {"model": "µ", "operators": []})
    assert recall("0" * 16) == {"model": "µ", "operators": []}
    assert recall("1" * 16) is None


def test_the_newest_stay(folder: Path) -> None:
    for number in range(4):
        remember(f"{number:016x}", {}, most=2)
        os.utime(folder / f"{number:016x}.json.gz", (number, number))
    remember(f"{9:016x}", {}, most=2)
    assert sorted(path.name[15] for path in folder.iterdir()) == ["3", "9"]


@pytest.mark.parametrize("damage", [b"", b"\x1f\x8b", b"[]", b"\xff" * 40])
def test_a_damaged_explanation_counts_as_missing(folder: Path, damage: bytes) -> None:
    remember("0" * 16, {})
    (folder / f"{'0' * 16}.json.gz").write_bytes(damage)
    assert recall("0" * 16) is None


def test_a_compile_does_not_fail_for_want_of_a_place(folder: Path) -> None:
    folder.write_text("a file where the folder should be")
    remember("0" * 16, {})
    assert recall("0" * 16) is None


def test_a_release_that_a_board_made_up_leads_nowhere(folder: Path) -> None:
    remember("0" * 16, {})
    (folder / f"{'0' * 16}.json.gz").rename(folder.parent / "other.json.gz")
    assert recall("../other") is None
