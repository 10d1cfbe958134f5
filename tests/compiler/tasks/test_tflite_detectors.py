"""Detectors as .tflite files: what they state of boxes, classes and pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from flatbuffers import flexbuffers

from edgekit.host.compiler.exporters.tflite.file import SubgraphRecord, pack
from edgekit.host.compiler.inputs import read_detection_notes
from edgekit.host.compiler.ir.types import DType
from tests.compiler.frontends.conftest import Files
from tests.compiler.tasks.test_heads import prepared, rows_of, same
from tests.support.detectors import Floats, best_boxes, scattered
from tests.support.litert_net import Net

_COUNT, _CLASSES, _SIDE = 60, 3, 64
_SCALES = {6: 10.0, 7: 5.0, 8: 4.0, 9: 2.0}  # of x, y, width and height


class _Tables:
    """Tables of a flatbuffer by the numbers of their fields."""

    def __init__(self) -> None:
        self.b = flatbuffers.Builder()

    def table(self, fields: dict[int, Any], numbers: dict[int, float] | None = None) -> int:
        self.b.StartObject(12)
        for slot, offset in fields.items():
            self.b.PrependUOffsetTRelativeSlot(slot, offset, 0)
        for slot, number in (numbers or {}).items():
            if isinstance(number, bool):
                self.b.PrependBoolSlot(slot, number, False)
            else:
                self.b.PrependFloat32Slot(slot, number, 0.0)
        return int(self.b.EndObject())

    def vector(self, items: list[int]) -> int:
        self.b.StartVector(4, len(items), 4)
        for item in reversed(items):
            self.b.PrependUOffsetTRelative(item)
        return int(self.b.EndVector())

    def finished(self, root: int) -> bytes:
        self.b.Finish(root)
        return bytes(self.b.Output())


def _metadata(anchors: Floats, scales: dict[int, float], grows: bool, logits: bool) -> bytes:
    """Metadata as MediaPipe's object_detector writes it; `anchors` are x, y, width, height."""
    t = _Tables()
    each = [t.table({}, dict(enumerate(map(float, row)))) for row in anchors]
    schema = t.table({0: t.vector(each)})
    decoding = t.table({}, {**scales, 10: grows, 11: logits})
    options = t.finished(t.table({1: t.table({0: schema}), 2: decoding}))
    t = _Tables()
    data = t.b.CreateByteVector(options)
    custom = t.table({0: t.b.CreateString("DETECTOR_METADATA"), 1: data})
    graph = t.table({9: t.vector([custom])})
    return t.finished(t.table({3: t.vector([graph])}))


def _detector(path: Path, outputs: dict[str, Floats], metadata: bytes) -> Path:
    """A file whose outputs are constants, but for rounding."""
    net = Net("f32")
    x = net.tensor((1, _SIDE, _SIDE, 3), DType.F32)
    mean = net.tensor((1,), DType.F32)
    axes = net.integers([1, 2, 3])
    net.operator("MEAN", [x, axes], [mean], "ReducerOptions")
    none = net.tensor((1,), DType.F32)
    zero = net.tensor((1,), DType.F32, None, np.zeros(1, np.float32))
    net.operator("MUL", [mean, zero], [none], "MulOptions")
    ends = []
    for value in outputs.values():
        stored = net.tensor(value.shape, DType.F32, None, value)
        ends.append(net.tensor(value.shape, DType.F32))
        net.operator("ADD", [stored, none], [ends[-1]], "AddOptions")
    graph = SubgraphRecord("main", net.tensors, net.operators, (x,), tuple(ends))
    path.write_bytes(pack([graph], {"TFLITE_METADATA": metadata}))
    return path


@pytest.mark.parametrize(("grows", "logits"), [(True, True), (True, False), (False, False)])
def test_anchors_of_mediapipe(tmp_path, grows, logits):
    rng = np.random.default_rng(4)
    anchors = (scattered(_COUNT, (_SIDE, _SIDE), 3) / _SIDE).astype(np.float32)
    raw = rng.normal(0, 1, (_COUNT, 4)).astype(np.float32)  # y, x, height, width
    raw[:, 2:] = raw[:, 2:] if grows else 2 + np.abs(raw[:, 2:])
    scores = (rng.random((_COUNT, _CLASSES)) ** 6).astype(np.float32)
    shown = np.log(scores / (1 - scores)) if logits else scores
    path = tmp_path / "efficientdet_lite0.tflite"
    notes = _metadata(anchors, _SCALES, grows, logits)
    made = prepared(_detector(path, {"b": raw[None], "s": shown[None]}, notes))
    assert made.task is not None and made.task.fit == "stretch"
    assert (made.task.mean, made.task.scale) == ((127.5,), (127.5,))
    assert "pixels from -1 to 1, as TensorFlow's detectors take them" in made.source
    boxes = np.empty_like(raw)
    boxes[:, 0] = raw[:, 1] / 10 * anchors[:, 2] + anchors[:, 0]
    boxes[:, 1] = raw[:, 0] / 5 * anchors[:, 3] + anchors[:, 1]
    boxes[:, 2] = (np.exp(raw[:, 3] / 4) if grows else raw[:, 3] / 4) * anchors[:, 2]
    boxes[:, 3] = (np.exp(raw[:, 2] / 2) if grows else raw[:, 2] / 2) * anchors[:, 3]
    expected = best_boxes(boxes * _SIDE, scores, 0.3, 0.5)
    assert len(expected) > 3
    same(rows_of(made), expected)


@pytest.mark.parametrize("scales", [{}, {**_SCALES, 6: 0.0}, {**_SCALES, 6: float("nan")}])
def test_anchors_without_scales_are_none(tmp_path, scales):
    anchors = np.ones((_COUNT, 4), np.float32)
    outputs = {"b": np.zeros((1, _COUNT, 4), np.float32), "s": np.zeros((1, _COUNT, 3), np.float32)}
    path = _detector(tmp_path / "m.tflite", outputs, _metadata(anchors, scales, True, True))
    assert read_detection_notes(path).anchors is None
    assert prepared(path).task is None


def test_damaged_anchors_are_ignored(tmp_path):
    outputs = {"b": np.zeros((1, 4, 4), np.float32), "s": np.zeros((1, 4, 3), np.float32)}
    notes = _metadata(np.ones((4, 4), np.float32), _SCALES, True, True)
    path = _detector(tmp_path / "m.tflite", outputs, notes)
    assert read_detection_notes(path).anchors is not None
    good, rng = path.read_bytes(), np.random.default_rng(5)
    at = good.index(notes)
    for _ in range(200):
        damaged = bytearray(good)
        for place in rng.integers(at, at + len(notes), 3):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        read_detection_notes(path)


def _postprocessed(path: Path, dtype: str, classes: int, scaled: bool = False) -> Path:
    """A file that ends in TFLite_Detection_PostProcess."""
    files, shape = Files(), (1, _SIDE, _SIDE, 3)
    rng = np.random.default_rng(classes)
    quant = {"scale": (0.0078125,), "zero": (128,)} if dtype == "UINT8" else {}
    options = {
        "max_detections": 5, "max_classes_per_detection": 1, "num_classes": classes,
        "nms_score_threshold": 0.3, "nms_iou_threshold": 0.5,
        "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
    }  # fmt: skip
    constants = {
        "axes": np.int32([1, 2, 3]), "factor": np.float32(0.5), "zero": np.zeros(1, np.float32),
        "offsets": rng.normal(0, 1, (1, 9, 4)).astype(np.float32),
        "odds": rng.random((1, 9, classes)).astype(np.float32),
        "anchors": rng.uniform(0.2, 0.8, (9, 4)).astype(np.float32),
    }  # fmt: skip
    made = {
        "floats": shape,
        "scaled": shape,
        "mean": (1,),
        "none": (1,),
        "b": (1, 9, 4),
        "s": (1, 9, classes),
        "p": (1, 5, 4),
        "p:1": (1, 5),
        "p:2": (1, 5),
        "p:3": (1,),
    }
    tensors = [
        files.tensor("x", shape, dtype, **quant),
        *(files.tensor(n, v.shape, "INT32" if v.dtype == np.int32 else "FLOAT32", v)
          for n, v in constants.items()),
        *(files.tensor(name, extents) for name, extents in made.items()),
    ]  # fmt: skip
    steps = [files.op("DEQUANTIZE", ["x"], ["floats"], "DequantizeOptions")] if quant else []
    if scaled:
        steps.append(files.op("MUL", ["x", "factor"], ["floats"], "MulOptions"))
    rest = [
        files.op("MEAN", ["floats" if steps else "x", "axes"], ["mean"], "ReducerOptions"),
        files.op("MUL", ["mean", "zero"], ["none"], "MulOptions"),
        files.op("ADD", ["offsets", "none"], ["b"], "AddOptions"),
        files.op("ADD", ["odds", "none"], ["s"], "AddOptions"),
        files.op("CUSTOM:TFLite_Detection_PostProcess", ["b", "s", "anchors"],
                 ["p", "p:1", "p:2", "p:3"], custom=bytes(flexbuffers.Dumps(options))),
    ]  # fmt: skip
    ends = ["p", "p:1", "p:2", "p:3"]
    path.write_bytes(files.model(files.graph(tensors, [*steps, *rest], ["x"], ends)))
    return path


@pytest.mark.parametrize(("dtype", "mean"), [("FLOAT32", (127.5,)), ("UINT8", ())])
def test_detectors_of_floats_take_pixels_around_zero(tmp_path, dtype, mean):
    """Without metadata; quantized ones say by their scale which values pixels have."""
    made = prepared(_postprocessed(tmp_path / "ssd.tflite", dtype, 90))
    assert made.task is not None and made.task.mean == made.task.scale == mean
    assert ("pixels from -1 to 1" in made.source) == bool(mean)
    assert len(made.task.labels) == 90 and made.task.labels[:2] == ("person", "bicycle")
    assert made.source.endswith("labels of COCO because there are 90 classes")
    names = [f"l{i}" for i in range(80)]
    names[0], names[-1] = "person", "toothbrush"
    (tmp_path / "labels.txt").write_text("\n".join(names))  # whose numbers have no gaps
    labels = prepared(tmp_path / "ssd.tflite").task.labels
    assert len(labels) == 90 and (labels[10:13], labels[-1]) == (("l10", "", "l11"), "toothbrush")


def test_detectors_that_scale_pixels_are_left_to_the_user(tmp_path):
    made = prepared(_postprocessed(tmp_path / "ssd.tflite", "FLOAT32", 90, scaled=True))
    assert made.task is not None and made.task.mean == () and "from -1" not in made.source


def test_other_classes_have_no_labels_of_coco(tmp_path):
    made = prepared(_postprocessed(tmp_path / "ssd.tflite", "FLOAT32", 4))
    assert made.task is not None and made.task.labels == ()


def test_numbered_labels_may_leave_numbers_out(tmp_path):
    """As Coral's lists for COCO do."""
    path = _postprocessed(tmp_path / "ssd.tflite", "UINT8", 4)
    (tmp_path / "labels.txt").write_text("0  person\n2  car\n3  boat\n")
    made = prepared(path)
    assert made.task is not None and made.task.labels == ("person", "", "car", "boat")
