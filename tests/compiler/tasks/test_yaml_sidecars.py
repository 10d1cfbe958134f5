"""Configurations in YAML next to a model."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.sidecars import read_yaml_sidecar
from tests.compiler.tasks.test_heads import prepared
from tests.support.detectors import detector

_METADATA = """# of an exporter
description: 'Ultralytics YOLO: a model'
date: '2026-11-28'
stride: 32
task: {}
imgsz:
- 64
- 96
args:
  nms: false  # by default
  half: ~
names:
  0: cat
  1: 'dog''s: tail'
  10: "traffic light"
kpt_shape: [17, 3]
"""


def read_yaml(folder, text):
    file = folder / "metadata.yaml"
    file.write_text(text)
    return read_yaml_sidecar(file)


def test_mappings_and_lists(tmp_path):
    assert read_yaml(tmp_path, _METADATA.format("pose")) == {
        "description": "Ultralytics YOLO: a model",
        "date": "2026-11-28",
        "stride": 32,
        "task": "pose",
        "imgsz": [64, 96],
        "args": {"nms": False, "half": None},
        "names": {0: "cat", 1: "dog's: tail", 10: "traffic light"},
        "kpt_shape": [17, 3],
    }
    steps = "a:\n- type: Resize\n  size:\n  - 1.5\n- type: Permute\n-\nb:\n  - [1, 2]\n  - c d\n"
    assert read_yaml(tmp_path, steps) == {
        "a": [{"type": "Resize", "size": [1.5]}, {"type": "Permute"}, None],
        "b": [[1, 2], "c d"],
    }


@pytest.mark.parametrize(
    "text",
    ["", "word", "- a\n- b", "a: 1\n   b: 2\n", "a:\n  b: 1\n c: 2\n", "a: 1\n- b\n", "\x00",
     "\n".join(f"{' ' * i}a:" for i in range(1000)), "- " * 500_000, "[" * 100_000,
     "a: &a [1]\nb: *a\n", "a: !!timestamp x\n", "a: 2026-99-99\n", "? [a]\n: 1\n", "a: [1"],
)  # fmt: skip
def test_other_texts_say_nothing(text, tmp_path):
    assert read_yaml(tmp_path, text) == {}


def test_metadata_next_to_a_model(tmp_path):
    """As Ultralytics' exporter leaves it in a folder with TensorFlow's files."""
    path = detector(tmp_path, {"y": np.full((1, 3), 0.3, np.float32)}, (64, 96))
    assert prepared(path).task is None
    (tmp_path / "metadata.yaml").write_text(_METADATA.format("classify"))
    made = prepared(path)
    assert made.task is not None and made.task.labels[:2] == ("cat", "dog's: tail")
    assert made.task.fit == "crop" and made.source.startswith("by metadata.yaml")
    own = detector(tmp_path, {"y": np.full((1, 2), 0.3, np.float32)}, (64, 96), stride=1,
                   task="classify", names={0: "a", 1: "b"})  # fmt: skip
    task = prepared(own).task
    assert task is not None and task.labels == ("a", "b")
