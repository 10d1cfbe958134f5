"""Configurations in YAML next to a model."""

from __future__ import annotations

import json

import numpy as np
import pytest

from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.sidecars import read_yaml_sidecar
from edgekit.host.compiler.tasks import import_for_task, with_task
from tests.compiler.tasks.test_heads import prepared
from tests.support.detectors import detector
from tests.support.onnx_models import model, node, save, value

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
     "a: &a [1]\nb: &b [*a]\n", "a: &a 1\n" + "\n".join(f"b{i}: *a" for i in range(17)),
     "a: !!timestamp x\n", "a: 2026-99-99\n", "? [a]\n: 1\n", "a: [1"],
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


# The folder of a model of PaddleX has this next to it.
_PADDLE_X = """Global:
  model_name: {}
Hpi:
  backend_configs:
    paddle_infer:
      trt_dynamic_shapes: &id001
        x:
        - - 1
          - 3
    tensorrt:
      dynamic_shapes: *id001
PreProcess:
  transform_ops:
"""
_RECOGNIZER = """  - DecodeImage:
      img_mode: BGR
  - RecResizeImg:
      image_shape: [3, 48, 320]
PostProcess:
  name: CTCLabelDecode
  character_dict: ['!', '0', "'", s]
"""
_ORIENTATION = """  - ResizeImage:
      resize_short: 80
  - CropImage:
      size: 64
  - NormalizeImage:
      mean: [0.485, 0.456, 0.406]
      scale: 0.00392156862745098
      std: [0.229, 0.224, 0.225]
  - ToCHWImage: null
PostProcess:
  Topk:
    topk: 1
    label_list: ['0', '90', '180']
"""


@pytest.mark.parametrize("width", [96, "w"])
def test_characters_of_paddle_x(tmp_path, width):
    (tmp_path / "inference.yml").write_text(_PADDLE_X.format("PP-OCRv5_rec") + _RECOGNIZER)
    nodes = [
        node("ReduceMean", ["x"], ["mean"], axes=[1, 2], keepdims=0),
        node("Reshape", ["mean", "to"], ["places"]),
        node("MatMul", ["places", "w"], ["scores"]),
        node("Softmax", ["scores"], ["y"], axis=2),
    ]
    constants = {"to": np.array([1, -1, 1]), "w": np.zeros((1, 6), np.float32)}
    proto = model(nodes, [value("x", ["n", 3, 48, width])], ["y"], constants)
    path, options = save(proto, tmp_path), CompileOptions(task="guess")
    made = with_task(path, import_for_task(path, options), options)
    assert made.task is not None and (made.task.kind, made.task.fit) == ("ocr", "line")
    assert json.loads(made.files["characters.json"])["characters"] == ["!", "0", "'", "s", " "]
    assert made.graph.tensors["x"].shape == (1, 3, 48, 320 if width == "w" else width)


def test_classes_of_paddle_x(tmp_path):
    (tmp_path / "inference.yml").write_text(_PADDLE_X.format("PP-LCNet_doc_ori") + _ORIENTATION)
    made = prepared(detector(tmp_path, {"y": np.full((1, 3), 0.3, np.float32)}, (64, 64)))
    assert made.task is not None and made.task.labels == ("0", "90", "180")
    assert (made.task.fit, made.task.zoom) == ("crop", 80 / 64)
    assert made.task.mean == pytest.approx((123.675, 116.28, 103.53))
    assert made.source.startswith("by inference.yml")


def test_classes_of_deepghs(tmp_path):
    path = detector(tmp_path, {"y": np.full((1, 3), 0.3, np.float32)}, (64, 64))
    for labels, known in (("comic", ()), (["3d", "comic"], ()), (["3d", "art", "comic"], 3)):
        (tmp_path / "meta.json").write_text(json.dumps({"labels": labels}))
        made = prepared(path)
        assert made.task is None or made.task.labels == (tuple(labels) if known else ())
    assert made.task is not None and (made.task.fit, made.task.mean) == ("stretch", (127.5,) * 3)
    assert made.source.startswith("by meta.json")
