"""What users copy from docs/, in the linters of those who will run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_DOCS = Path(__file__).parents[2] / "docs"
_SCHEMAS = {
    "github.yml": ("vendor.github-workflows",),
    "gitlab.yml": ("vendor.gitlab-ci", "--data-transform", "gitlab-ci"),
}
# Whoever publishes the recipe adds an address.
_NOT_OURS = ("oelint.var.mandatoryvar.HOMEPAGE", "oelint.var.licenseremotefile")


def lint(module: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def against_schema(name: str, file: Path) -> subprocess.CompletedProcess[str]:
    return lint("check_jsonschema", "--builtin-schema", *_SCHEMAS[name], file)


@pytest.mark.parametrize("name", _SCHEMAS)
def test_ci_templates_fit_their_schemas(name: str):
    done = against_schema(name, _DOCS / "ci" / name)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "word"), [("github.yml", "timeout-minutes"), ("gitlab.yml", "before_script")]
)
def test_a_misspelled_word_does_not_fit(name: str, word: str, tmp_path: Path):
    file = tmp_path / name
    file.write_text((_DOCS / "ci" / name).read_text().replace(f"{word}:", f"{word}s:"))
    assert f"{word}s" in against_schema(name, file).stdout


def test_the_recipe_for_yocto_has_no_findings(tmp_path: Path):
    (recipe,) = (_DOCS / "packages" / "yocto").glob("*.bb")
    rules = [word for rule in _NOT_OURS for word in ("--suppress", rule)]
    done = lint("oelint_adv", "--quiet", "--hide", "info", *rules, recipe)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_makefile_for_buildroot_repeats_no_default():
    """As Buildroot's check-package has it; it begins with 80 number signs."""
    lines = (_DOCS / "packages" / "buildroot" / "edgekit-board.mk").read_text().splitlines()
    assert lines[0] == lines[4] == "#" * 80 and lines[5] == ""
    assert not [line for line in lines if line.startswith("EDGEKIT_BOARD_SOURCE")]
