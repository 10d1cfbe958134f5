"""Models as .tflite files in the forms of their publishers: Ultralytics, TensorFlow's zoo and hub,
LiteRT's converter."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest

from edgekit.host.compiler.exporters.tflite.file import SubgraphRecord, pack
from edgekit.host.compiler.frontends.formats import format_of
from edgekit.host.compiler.inputs import read_notes
from edgekit.host.compiler.ir.types import DType
from edgekit.host.errors import InputError
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


def test_channels_first_are_of_pytorch(tmp_path):
    """LiteRT's converter keeps them; TensorFlow's has none such."""
    for shape, torch in (((1, 3, 64, 64), True), ((1, 64, 64, 3), False)):
        file = _File(shape)
        path = file.write(tmp_path / "resnet18.tflite", [file.value(np.zeros((1, 1000)))])
        made = prepared(path)
        assert (made.task is not None) == torch
        if made.task is not None:
            assert made.task.mean == (123.675, 116.28, 103.53)
            assert "pixels as PyTorch's models for ImageNet take them" in made.source
        else:
            assert "does not say which values pixels have" in made.source


@pytest.mark.parametrize(
    ("stem", "softmax", "mean"),
    [
        ("resnet50", True, (103.939, 116.779, 123.68)),
        ("vgg16_float32", True, (103.939, 116.779, 123.68)),
        ("ResNet50V2", True, (127.5,)),
        ("densenet121", True, (123.675, 116.28, 103.53)),
        ("efficientnet-lite4-11", True, (127.0,)),
        ("efficientnet-b4", True, None),
        ("resnet50", False, None),
        ("resnet50_v1", True, None),
    ],
)
def test_networks_of_keras_are_known_by_name_and_softmax(tmp_path, stem, softmax, mean):
    file = _File()
    odds = file.value(np.zeros((1, 1000)))
    end = file.made("SOFTMAX", [odds], (1, 1000), "SoftmaxOptions", Beta=1.0) if softmax else odds
    made = prepared(file.write(tmp_path / f"{stem}.tflite", [end]))
    assert (made.task and made.task.mean) == mean
    if made.task is not None:
        whose = "Google" if stem.startswith("efficient") else "Keras"
        assert f"pixels as {whose}'s models for ImageNet take them" in made.source
        assert made.task.fit == ("crop" if whose == "Google" else "stretch")
        assert made.task.channels == ("bgr" if mean[0] == 103.939 else "rgb")


@pytest.mark.parametrize("stem", ["deeplabv3_257_mv_gpu", "deeplabv3_mnv2_dm05_pascal"])
def test_maps_of_deep_lab_take_pixels_around_zero(tmp_path, stem):
    file = _File()
    path = file.write(tmp_path / f"{stem}.tflite", [file.value(np.zeros((1, _SIDE, _SIDE, 21)))])
    made = prepared(path)
    assert made.task is not None and (made.task.kind, made.task.mean) == ("segment", (127.5,))


@pytest.mark.parametrize(("dtype", "mean"), [(DType.F32, (127.5,)), (DType.U8, ())])
def test_bytes_are_taken_as_they_are(tmp_path, dtype, mean):
    """Whatever metadata says of their scaling; and of two lists of labels, names count more than
    identifiers."""
    file = _File(dtype=dtype)
    files = [("ids.txt", ""), ("names-de.txt", "de"), ("names-en.txt", "en")]
    ends = [file.value(np.zeros((1, 2)))]
    path = file.write(tmp_path / "birds.tflite", ends, _metadata(files, mean=127.5))
    lists = {"ids.txt": "/m/1\n/m/2", "names-de.txt": "Amsel\nStar", "names-en.txt": "jay\nwren"}
    made = prepared(_with_files(path, lists))
    assert made.task is not None and made.task.labels == ("jay", "wren")
    assert made.task.mean == mean and read_notes(path).inputs[0].mean == mean


def test_features_of_edge_impulse_are_told(tmp_path):
    file = _File((1, 650))
    stem = "ei-keywords-nn-classifier-tensorflow-lite-float32-model"
    path = file.write(tmp_path / f"{stem}.lite", [file.value(np.zeros((1, 4)))])
    assert "as Edge Impulse computes them" in prepared(path).source


def test_words_of_the_user_count_more_than_those_of_yamnet(tmp_path):
    """As Model Maker writes classifiers of sounds."""
    for order in (1, -1):
        file = _File((1, 15600))
        ends = [file.value(np.zeros((1, n))) for n in (521, 2)][::order]
        files = [[("all.txt", "")], [("own.txt", "")]][::order]
        path = file.write(tmp_path / f"birds{order}.tflite", ends, _metadata(*files))
        lists = {"all.txt": "\n".join(map(str, range(521))), "own.txt": "jay\nwren"}
        made = prepared(_with_files(path, lists))
        assert made.task is not None and (made.task.kind, made.task.labels) == (
            "keyword", ("jay", "wren"))  # fmt: skip
        assert "without YAMNet's" in made.source


def _of_tokens(path: Path, shapes: list[tuple[int, ...]], metadata: bytes) -> Path:
    net = Net("f32")
    given = [net.tensor((1, 16), DType.I32) for _ in range(3)]
    net.tensors[:] = [
        type(t)(name, t.shape, t.dtype, t.quant, t.data)
        for t, name in zip(net.tensors, ("ids", "mask", "segment_ids"), strict=True)
    ]
    total = net.tensor((1, 16), DType.I32)
    net.operator("ADD", given[:2], [total], "AddOptions")
    every = net.tensor((1, 16), DType.I32)
    net.operator("ADD", [total, given[2]], [every], "AddOptions")
    floats = net.tensor((1, 16), DType.F32)
    net.operator("CAST", [every], [floats], "CastOptions")
    ends = []
    for shape in shapes:
        begin = [net.integers([0, 0]), net.integers(list(shape))]
        ends.append(net.tensor(shape, DType.F32))
        net.operator("SLICE", [floats, *begin], [ends[-1]])
    graph = SubgraphRecord("main", net.tensors, net.operators, tuple(given), tuple(ends))
    path.write_bytes(pack([graph], {"TFLITE_METADATA": metadata}))
    return path


_PIECES = "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad"])


def test_classes_of_texts_are_in_the_metadata(tmp_path):
    path = _of_tokens(tmp_path / "bert.tflite", [(1, 2)], _metadata([("labels.txt", "")]))
    made = prepared(_with_files(path, {"vocab.txt": _PIECES, "labels.txt": "negative\npositive"}))
    assert made.task is not None and made.task.labels == ("negative", "positive")
    assert "the labels of the file's metadata" in made.source


@pytest.mark.parametrize("listed", [True, False])
def test_answers_to_questions_are_named(tmp_path, listed):
    path = _of_tokens(tmp_path / "qa.tflite", [(1, 16), (1, 16)], _metadata())
    made = prepared(_with_files(path, {"vocab.txt": _PIECES} if listed else {}))
    assert made.task is None and "may find where a text answers a question" in made.source


def test_numbers_of_whole_words_are_asked_for(tmp_path):
    path = _of_tokens(tmp_path / "words.tflite", [(1, 2)], _metadata())
    with pytest.raises(InputError, match="found numbers of whole words"):
        prepared(_with_files(path, {"vocab.txt": "<PAD> 0\n<START> 1\ngood 2\n"}))


@pytest.mark.parametrize("end_to_end", [False, True])
def test_ultralytics_files_of_litert(tmp_path, end_to_end):
    """Channels first, with metadata in JSON; relative boxes, but pixels of models that select."""
    rng = np.random.default_rng(7)
    file = _File((1, 3, _SIDE, _SIDE))
    about = {"task": "detect", "names": {"0": "cat", "1": "dog"}, "stride": 32}
    corners = np.sort(rng.random((30, 2, 2)).astype(np.float32), 1).reshape(30, 4) * _SIDE
    if end_to_end:
        fields = np.column_stack([rng.random(30), rng.integers(0, 2, 30)])
        rows = np.column_stack([corners, fields]).astype(np.float32)
        path = file.write(tmp_path / "yolo26n.tflite", [file.value(rows[None])])
        expected = [(int(r[5]), r[4], tuple(r[:4])) for r in rows]
    else:
        boxes = rng.uniform(0.2, 0.7, (_CELLS, 4)).astype(np.float32)
        scores = rng.random((_CELLS, 2)).astype(np.float32) ** 4
        output = np.concatenate([boxes, scores], 1).T[None]
        path = file.write(tmp_path / "yolo11n.tflite", [file.value(output)])
        expected = best_boxes(boxes * _SIDE, scores, 0.25, 0.7)
    assert format_of(path) == "tflite"
    made = prepared(_with_files(path, {"metadata.json": json.dumps(about)}))
    assert made.task is not None and (made.task.labels, made.task.mean) == (("cat", "dog"), ())
    same(rows_of(made), sorted(expected, key=lambda each: -each[1]))
