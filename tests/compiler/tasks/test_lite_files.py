"""Models as .tflite files in the forms of their publishers: Ultralytics, TensorFlow's zoo and hub,
LiteRT's converter."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest

from edgekit.host.compiler.exporters.tflite.file import SubgraphRecord, pack
from edgekit.host.compiler.ir.types import DType
from tests.compiler.tasks.test_heads import prepared, rows_of, same
from tests.support.detectors import Floats, best_boxes
from tests.support.litert_net import Net

_SIDE = 64
_CELLS = 8 * 8 + 4 * 4 + 2 * 2


class _File:
    """A network of a picture under construction, whose outputs are constants but for rounding."""

    def __init__(self, shape: tuple[int, ...] = (1, _SIDE, _SIDE, 3), dtype: DType = DType.F32):
        self.net = Net("f32")
        self.x = self.net.tensor(shape, dtype)
        x = self.x
        if dtype is not DType.F32:
            x = self.net.tensor(shape, DType.F32)
            self.net.operator("CAST", [self.x], [x], "CastOptions")
        mean = self.net.tensor((1,), DType.F32)
        axes = self.net.integers([*range(1, len(shape))])
        self.net.operator("MEAN", [x, axes], [mean], "ReducerOptions")
        zero = self.net.tensor((1,), DType.F32, None, np.zeros(1, np.float32))
        self.none = self.made("MUL", [mean, zero], (1,), "MulOptions")

    def made(
        self,
        code: str,
        operands: list[int],
        shape: tuple[int, ...],
        options: str = "",
        dtype: DType = DType.F32,
        **fields: Any,
    ) -> int:
        found = self.net.tensor(shape, dtype)
        self.net.operator(code, operands, [found], options, **fields)
        return found

    def value(self, data: Floats) -> int:
        data = np.asarray(data, np.float32)
        stored = self.net.tensor(data.shape, DType.F32, None, data)
        return self.made("ADD", [stored, self.none], data.shape, "AddOptions")

    def write(self, path: Path, ends: list[int], metadata: bytes = b"") -> Path:
        graph = SubgraphRecord("main", self.net.tensors, self.net.operators, (self.x,), tuple(ends))
        path.write_bytes(pack([graph], {"TFLITE_METADATA": metadata} if metadata else {}))
        return path


def _metadata(*labels: list[tuple[str, str]], mean: float = 0.0) -> bytes:
    """Metadata with files of labels, by name and locale, of each output, and perhaps a mean of the
    pixels."""
    b = flatbuffers.Builder()

    def table(fields: dict[int, int], kind: tuple[int, int] = (0, 0)) -> int:
        b.StartObject(12)
        for slot, offset in fields.items():
            b.PrependUOffsetTRelativeSlot(slot, offset, 0)
        b.PrependUint8Slot(*kind, 0)
        return int(b.EndObject())

    def vector(items: list[int]) -> int:
        b.StartVector(4, len(items), 4)
        for item in reversed(items):
            b.PrependUOffsetTRelative(item)
        return int(b.EndVector())

    def numbers(value: float) -> int:
        b.StartVector(4, 1, 4)
        b.PrependFloat32(value)
        return int(b.EndVector())

    def file(name: str, locale: str) -> int:
        fields = {0: b.CreateString(name)}
        if locale:
            fields[3] = b.CreateString(locale)
        return table(fields, (2, 2))

    outputs = vector([table({6: vector([file(*f) for f in files])}) for files in labels])
    scaling = table({0: numbers(mean), 1: numbers(127.5)})
    units = vector([table({1: scaling}, (0, 1))] if mean else [])
    graph = table({2: vector([table({4: units})]), 3: outputs})
    b.Finish(table({3: vector([graph])}))
    return bytes(b.Output())


def _with_files(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "a") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def _yolov5(wide: float) -> tuple[Floats, Floats, Floats]:
    """Centers and sizes relative to the picture, object scores and those of three classes; the
    first box, which nothing shows, is `wide`."""
    rng = np.random.default_rng(2)
    boxes = rng.uniform(0.1, 0.9, (3 * _CELLS, 4)).astype(np.float32)
    boxes[:, 2:] *= 0.3
    boxes[0, 2:] = wide
    sure = (rng.random((3 * _CELLS, 1)) ** 2).astype(np.float32)
    sure[0] = 0
    return boxes, sure, rng.random((3 * _CELLS, 3)).astype(np.float32)


@pytest.mark.parametrize("wide", [0.5, 4.7])
def test_boxes_of_yolov5_are_relative_whatever_their_size(tmp_path, wide):
    """Of 320 pixels, the largest anchor may give a box of 4.7 times the picture. Labels are in the
    file that YOLOv5's exporter attaches."""
    boxes, sure, scores = _yolov5(wide)
    file = _File()
    rows = np.concatenate([boxes, sure, scores], 1)[None]
    path = file.write(tmp_path / "best-fp16.tflite", [file.value(rows)], _metadata())
    said = {"stride": 32, "names": {0: "cat", 1: "dog", 2: "cup"}}
    made = prepared(_with_files(path, {"meta.txt": str(said)}))
    assert made.task is not None and made.task.labels == ("cat", "dog", "cup")
    expected = best_boxes(boxes * _SIDE, scores * sure, 0.25, 0.45)
    assert len(expected) > 3
    same(rows_of(made), expected[:100])


def test_boxes_in_pixels_stay(tmp_path):
    boxes, sure, scores = _yolov5(0.5)
    file = _File()
    rows = np.concatenate([boxes * _SIDE, sure, scores], 1)[None]
    made = prepared(file.write(tmp_path / "m.tflite", [file.value(rows)]))
    same(rows_of(made), best_boxes(boxes * _SIDE, scores * sure, 0.25, 0.45)[:100])


@pytest.mark.parametrize("first", ["boxes", "scores"])
def test_boxes_of_yolov4_for_tensorflow_lite(tmp_path, first):
    """tensorflow-yolov4-tflite: two grids of three boxes in each cell."""
    rng = np.random.default_rng(3)
    file, parts, boxes = _File(), [], []
    for cells in (4 * 4, 2 * 2):
        count = 3 * cells
        centers = rng.uniform(5, 60, (1, count, 2)).astype(np.float32)
        powers = rng.uniform(-0.5, 0.5, (1, count, 2)).astype(np.float32)
        anchors = file.net.tensor((1, 1, 2), DType.F32, None, np.float32([[[20, 14]]]))
        sizes = file.made("EXP", [file.value(powers)], powers.shape)
        sizes = file.made("MUL", [sizes, anchors], powers.shape, "MulOptions")
        parts.append(
            file.made(
                "CONCATENATION", [file.value(centers), sizes], (1, count, 4),
                "ConcatenationOptions", Axis=2,
            )
        )  # fmt: skip
        boxes.append(np.concatenate([centers, np.exp(powers) * [20, 14]], 2)[0])
    count = 3 * (16 + 4)
    joined = file.made(
        "CONCATENATION", parts, (1, count, 4), "ConcatenationOptions", Axis=1
    )  # fmt: skip
    scores = (rng.random((count, 2)) ** 2).astype(np.float32)
    ends = [joined, file.value(scores[None])]
    path = file.write(tmp_path / "yolov4-tiny.tflite", ends if first == "boxes" else ends[::-1])
    made = prepared(path)
    assert made.task is not None and (made.task.kind, made.task.fit) == ("detect", "stretch")
    expected = [
        (label, score, corners)
        for label in (0, 1)
        for _, score, corners in best_boxes(
            np.concatenate(boxes).astype(np.float32), scores[:, [label]], 0.25, 0.45
        )
    ]
    same(rows_of(made), sorted(expected, key=lambda each: -each[1]))


@pytest.mark.parametrize(("classes", "points"), [(90, False), (2, False), (1, True), (2, True)])
def test_selected_boxes_of_center_net(tmp_path, classes, points):
    """As TensorFlow's detection library exports it: with a share of each class in each cell, whose
    largest are selected."""
    rng, count = np.random.default_rng(classes), 5
    file = _File()
    odds = rng.normal(0, 1, (1, 8, 8, classes)).astype(np.float32)
    heat = file.made("LOGISTIC", [file.value(odds)], odds.shape)
    peaks = file.made(
        "MAX_POOL_2D", [heat], odds.shape, "Pool2DOptions", Padding=0, StrideW=1, StrideH=1,
        FilterWidth=3, FilterHeight=3,
    )  # fmt: skip
    flat = file.made("RESHAPE", [peaks, file.net.integers([1, -1])], (1, odds.size))
    scores = file.net.tensor((1, count), DType.F32)
    places = file.net.tensor((1, count), DType.I32)
    file.net.operator("TOPK_V2", [flat, file.net.integers(count)], [scores, places])
    floats = file.made("CAST", [places], (1, count), "CastOptions")
    boxes = np.sort(rng.random((1, count, 4)).astype(np.float32), 2)
    number = file.value(np.full(1, count))
    ends = [file.value(boxes), floats, scores, number]
    where = rng.random((1, count, 17, 2)).astype(np.float32)
    sure = rng.random((1, count, 17)).astype(np.float32)
    if points:
        ends += [file.value(where), file.value(sure)]
    made = prepared(file.write(tmp_path / "centernet.tflite", ends[::-1]))
    assert made.task is not None and made.task.kind == ("pose" if points else "detect")
    assert (made.task.mean, made.task.scale) == ((0.0,), (1.0,))
    assert len(made.task.labels) == {90: 90, 1: 1 if points else 0}.get(classes, 0)
    found = rows_of(made, 7 + 51 * points)
    assert len(found) == count
    corners = boxes[0][:, [1, 0, 3, 2]] * _SIDE
    order = np.argsort(corners[:, 0])
    rest = np.array([each[2] for each in sorted(found, key=lambda each: each[2][0])])
    np.testing.assert_allclose(rest[:, :4], corners[order], atol=1e-3)
    if points:
        expected = np.concatenate([where[0, ..., ::-1] * _SIDE, sure[0, ..., None]], 2)[order]
        np.testing.assert_allclose(rest[:, 4:].reshape(expected.shape), expected, atol=1e-3)
