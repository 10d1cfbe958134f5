"""Bundles from the cache: only of unchanged models, only undamaged ones, and not too many."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgekit.host.common.paths import cache_folder, data_folder
from edgekit.host.compiler.options import DEFAULT_OPTIONS
from edgekit.host.deploy.compiled import CompiledBundle, compiled, recall, remember
from edgekit.kb.targets.board import load_board
from tests.support.homes import home_over_the_cache
from tests.support.onnx_models import model, node, save, value

NOTES = ("a note", "NNA: no operator on the NNA")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))


@pytest.fixture
def made(tiny: Any) -> CompiledBundle:
    return CompiledBundle(tiny(), NOTES)


def files() -> list[Path]:
    """The files of the bundles in the cache, without lock files."""
    return sorted(p for p in (cache_folder() / "bundles").iterdir() if p.suffix != ".lock")


def test_what_is_kept_is_found_under_its_key_only(made: CompiledBundle) -> None:
    remember("key", made)
    found = recall("key")
    assert found is not None
    assert (found.bundle.to_bytes(), found.notes) == (made.bundle.to_bytes(), NOTES)
    assert recall("other") is None


@pytest.mark.parametrize("name", ["key.ekb", "key.json"])
@pytest.mark.parametrize("damage", ["missing", "empty", "half", "another's"])
def test_a_damaged_bundle_is_not_used(
    made: CompiledBundle, tiny: Any, name: str, damage: str
) -> None:
    remember("key", made)
    remember("another", CompiledBundle(tiny(counter=1), ()))
    file = cache_folder() / "bundles" / name
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    elif damage == "another's":
        shutil.copy(file.with_stem("another"), file)
    else:
        file.write_bytes(b"" if damage == "empty" else content[: len(content) // 2])
    assert recall("key") is None
    remember("key", made)
    assert recall("key") is not None


def test_a_bundle_with_one_bit_changed_is_not_used(made: CompiledBundle) -> None:
    remember("key", made)
    file = cache_folder() / "bundles" / "key.ekb"
    content = file.read_bytes()
    for entry in zipfile.ZipFile(file).infolist():
        damaged = bytearray(content)
        damaged[entry.header_offset + 30 + len(entry.filename) + entry.file_size // 2] ^= 1
        file.write_bytes(damaged)
        assert recall("key") is None, entry.filename


def test_the_least_recently_used_bundles_are_removed(made: CompiledBundle) -> None:
    for key in ("a", "b"):
        remember(key, made)
    recall("a")
    recall("b", mark_used=False)  # as a dry run does
    size = (cache_folder() / "bundles" / "a.ekb").stat().st_size
    remember("c", made, most_bytes=2 * size)
    assert [recall(key) is not None for key in "abc"] == [True, False, True]
    remember("d", made, most_bytes=size - 1)  # even one is too large
    assert files() == []


def test_a_cache_that_cannot_be_written_is_no_error(made: CompiledBundle) -> None:
    cache_folder().mkdir()
    (cache_folder() / "bundles").write_text("a file")
    remember("key", made)
    assert recall("key") is None


@pytest.mark.slow
def test_an_unchanged_model_is_compiled_once_unless_it_is_to_be_explained(tmp_path: Path) -> None:
    runs = []
    nodes, inputs = [node("Relu", ["x"], ["y"])], [value("x", (1, 16))]
    relu = save(model(nodes, inputs, ["y"]), tmp_path)

    @contextmanager
    def busy() -> Iterator[None]:
        runs.append(1)
        yield

    def release(explain: bool = False) -> str:
        found = compiled(relu, load_board("local"), DEFAULT_OPTIONS, 0, explain, busy())
        assert explain <= bool(found.explained)
        return found.bundle.manifest.id

    (tmp_path / "home").mkdir()
    with home_over_the_cache(tmp_path / "home"):
        first = release()
        assert (release(), len(runs)) == (first, 1)
        assert (release(explain=True), len(runs)) == (first, 2)
        shutil.rmtree(data_folder() / "explanations")  # profiles of the release need it
        assert (release(), len(runs)) == (first, 3)
