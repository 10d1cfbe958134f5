"""Grids with anchors, whose family the layers before them may show."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.tasks.test_heads import prepared
from tests.support.onnx_models import model, node, save, value

_SIZE = (64, 96)
_GRIDS = [(8, 8, 12), (16, 4, 6), (32, 2, 3)]  # stride, rows, columns


def _network(folder, kernel, stride, layers, classes):
    """Constant grids behind layers in which the families differ. Kernel 0: of 3 x 3, behind pixels
    that become channels; two grids for `tiny` layers."""
    grids = {f"o{s}": (1, 3, *n, 5 + classes) for s, *n in _GRIDS["tiny" in layers :]}
    constants = {f"c.{name}": np.full(shape, -9, np.float32) for name, shape in grids.items()}
    channels, side = (3, kernel) if kernel else (12, 3)
    constants["w"] = np.ones((2, channels, side, side), np.float32)
    constants["zero"] = np.zeros(1, np.float32)
    options = {"MaxPool": {"kernel_shape": [2, 2], "strides": [2, 2]}, "Split": {"axis": 1}}
    kinds = [kind for kind in layers if kind != "tiny"]
    nodes = [] if kernel else [node("SpaceToDepth", ["images"], ["seen"], blocksize=2)]
    window = {"strides": [stride] * 2, "pads": [side // 2] * 4}
    nodes.append(node("Conv", ["seen" if nodes else "images", "w"], ["x"], **window))
    for kind in kinds:
        ins, outs = ["x", "x"] if kind == "Add" else ["x"], [kind, "rest"][: 1 + (kind == "Split")]
        nodes.append(node(kind, ins, outs, **options.get(kind, {})))
        nodes.append(node("ReduceMean", [kind], [f"m{kind}"], keepdims=0))
    nodes += [
        node("Sum", [f"m{kind}" for kind in kinds], ["sum"]),
        node("Mul", ["sum", "zero"], ["none"]),
        *(node("Add", [f"c.{name}", "none"], [name]) for name in grids),
    ]
    made = model(nodes, [value("images", [1, 3, *_SIZE])], list(grids), constants, opset=13)
    return save(made, folder)


@pytest.mark.parametrize(
    ("name", "kernel", "stride", "layers"),
    [
        ("yolov5", 6, 2, ("Add", "Sigmoid")),
        ("yolov5", 0, 1, ("Add", "LeakyRelu")),
        ("yolov7", 3, 1, ("MaxPool", "Sigmoid")),
        ("yolov7-tiny", 3, 2, ("MaxPool", "LeakyRelu")),
        ("yolov3-tiny", 3, 1, ("MaxPool", "LeakyRelu", "tiny")),
        ("yolov4-tiny", 3, 2, ("MaxPool", "LeakyRelu", "Split", "tiny")),
        ("", 3, 1, ("Add", "MaxPool", "Sigmoid")),  # YOLOv3
        ("", 3, 2, ("LeakyRelu",)),
    ],
)
def test_anchors_are_proposed_where_layers_show_the_family(tmp_path, name, kernel, stride, layers):
    made = prepared(_network(tmp_path, kernel, stride, layers, 80))
    assert (made.task is not None) == bool(name)
    said = f"like {name}'s, whose published anchors are a proposal" if name else "name the right"
    assert said in made.source
    # Of other classes than COCO's, fields may be points.
    path = _network(tmp_path, kernel, stride, layers, 3)
    assert prepared(path).task is None
    (tmp_path / "labels.txt").write_text("cat\ndog\nbird\n")
    assert (prepared(path).task is not None) == bool(name)
    if not name:  # but that of the file
        source = prepared(path.rename(tmp_path / "YOLO_v4-416.onnx")).source
        assert "like yolov4's, whose published anchors are a proposal, by the file's name" in source
