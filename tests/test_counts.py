"""scripts/counts: the sizes of the project."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

_SCRIPTS = Path(__file__).parents[1] / "scripts"
sys.path.insert(0, str(_SCRIPTS))
counts = importlib.import_module("counts")
sys.path.remove(str(_SCRIPTS))


def test_words_are_counted_per_page_and_without_the_generated_page(tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("one two")
    (docs / "commands.md").write_text("three four five")
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n## Unreleased\nsix\n## 0.1.0\nseven\n")
    assert counts.words(docs) == {
        "a.md": 2,
        "commands.md": 3,
        "pages without commands.md": 1,
        "words without commands.md": 2,
        "CHANGELOG.md, Unreleased": 1,
    }


def test_minutes_are_read_from_what_continuous_integration_says():
    log = "ci: scripts/test --boards ok in 90 s\nnoise\nci: scripts/test failed in 61 s\n"
    assert counts.minutes(log) == {"scripts/test --boards": 1.5, "scripts/test": 1.0}


def test_an_operator_is_found_by_its_class_and_its_function():
    files = [Path("host") / path.name for path in (counts._ROOT / "host").glob("*.py")]
    assert counts.files_of("NoSuchOperator", files) == 0
    everything = counts._code_files()
    assert 3 <= counts.files_of("HardSigmoid", everything) <= 7
    # Elu is not a part of Relu.
    assert counts.files_of("Elu", everything) < counts.files_of("Conv2D", everything) / 3


def test_commands_are_counted_without_their_groups():
    assert counts.commands()["product"] > 20


@pytest.mark.exhaustive
def test_small_modules_with_one_importer_are_found():
    found = counts.small_modules(counts._code_files())
    assert Path("host/cli/doctor.py") in found  # which app.py imports
    assert Path("host/errors.py") not in found
