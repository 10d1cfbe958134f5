"""The committed models are what their manifest says."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

_MODELS = Path(__file__).parents[2] / "models"
_FILES = json.loads((_MODELS / "manifest.json").read_text(encoding="utf-8"))["files"]
_BUDGET_BYTES = 15_000_000


def test_the_manifest_lists_every_model_and_input():
    there = {p.name for p in _MODELS.iterdir() if p.suffix in (".tflite", ".png", ".npz")}
    assert {entry["path"] for entry in _FILES} == there


def test_sizes_and_hashes_are_right():
    for entry in _FILES:
        data = (_MODELS / entry["path"]).read_bytes()
        assert len(data) == entry["bytes"]
        assert hashlib.sha256(data).hexdigest() == entry["sha256"]


def test_every_file_has_an_origin_and_a_license():
    for entry in _FILES:
        assert set(entry["origin"]) in ({"wheel", "member"}, {"made"})
        assert entry["license"]


def test_the_folder_stays_small():
    assert sum(entry["bytes"] for entry in _FILES) < _BUDGET_BYTES
