"""`-o`: a file, or the folder for a file of the usual name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

_MODEL = Path(__file__).parents[2] / "models" / "okay_nabu.tflite"


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("compile MODEL --board a57 -o missing/", "okay_nabu-a57.ekb"),
        ("compile MODEL --board a57 --html missing/", "report.html"),
        ("quantize MODEL --samples MODEL -o missing/", "okay_nabu.int8.tflite"),
        ("prune MODEL --sparsity 0.5 --samples MODEL -o missing/", "okay_nabu.pruned.tflite"),
        ("choose MODEL --boards a57 --fps 1 -o missing/", "boards.csv"),
        ("estimate MODEL --board a57 -o missing/", "estimate.html"),
        ("profile report -o missing/", "report.html"),
        ("profile list -o missing/", "profiles.csv"),
        ("lab tune model MODEL --board a57 --orders 2 -o missing/", "okay_nabu-a57.ekb"),
    ],
)
def test_a_path_that_ends_in_a_slash_is_a_folder(
    edgekit: Any, home: Path, line: str, file: str
) -> None:
    done = edgekit(*line.replace("MODEL", str(_MODEL)).split())
    assert (done.code, [*home.iterdir()]) == (2, [])
    assert f"missing/{file}: expected its folder to exist" in done.complaint


def test_a_folder_gets_a_file_in_it(edgekit: Any, home: Path) -> None:
    (home / "made" / "okay_nabu-a57.ekb").mkdir(parents=True)
    done = edgekit("compile", _MODEL, "--board", "a57", "-o", "made")
    assert done.code == 2
    assert "made/okay_nabu-a57.ekb: expected a file to write, found a folder" in done.complaint
