"""Models of well-known shapes and names, which are taken for what they usually are, and told."""

from __future__ import annotations

import json

import numpy as np
import pytest

from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks import import_for_task, with_task
from tests.compiler.tasks.test_heads import prepared, rows_of
from tests.support.detectors import built, detector
from tests.support.onnx_models import model, node, save, value

_POSE = (64, 48)


def _random(*shape: int, seed: int = 0):
    return np.random.default_rng(seed).uniform(0, 1, shape).astype(np.float32)


@pytest.mark.parametrize("chosen", [False, True])
def test_maps_of_a_person_are_read_in_pixels_of_the_input(tmp_path, chosen):
    maps = np.zeros((1, 17, _POSE[0] // 4, _POSE[1] // 4), np.float32)
    rng = np.random.default_rng(1)
    places = [(int(rng.integers(3, 9)), int(rng.integers(3, 13))) for _ in range(17)]
    y, x = np.mgrid[: maps.shape[2], : maps.shape[3]]
    for number, (across, down) in enumerate(places):
        maps[0, number] = np.exp(-((x - across) ** 2 + (y - down) ** 2) / 2)
    nodes = [node("Reshape", ["output", "flat"], ["rows"]),
             node("ArgMax", ["rows"], ["places"], axis=2, keepdims=0)]  # fmt: skip
    parts = {"output": maps, "flat": np.array([1, 17, -1])}
    path = built(tmp_path, parts, nodes if chosen else [], ["output", *["places"] * chosen], _POSE)
    made = prepared(path)
    assert made.task is not None and made.task.kind == "pose" and made.task.labels == ("person",)
    assert "may be maps of the points of one body" in made.graph.notes[-1]
    x = {"images": np.zeros((1, 3, *_POSE), np.float32)}
    row = evaluate(made.graph, x).outputs[made.task.output].reshape(-1)
    points = row[7:].reshape(17, 3)
    np.testing.assert_allclose(points[:, :2], 4 * np.array(places), atol=0.5)
    np.testing.assert_allclose(points[:, 2], 1, atol=1e-6)


def test_maps_of_other_points_are_taken_if_asked_for(tmp_path):
    path = detector(tmp_path, {"output": _random(1, 21, 16, 16)}, (64, 64))
    assert "may be 21 maps of points, for --task pose" in prepared(path).source
    made = prepared(path, CompileOptions(task="pose"))
    assert made.task is not None and made.task.kind == "pose"


@pytest.mark.parametrize(
    ("size", "length", "whose", "scale", "name"),
    [
        ((112, 112), 512, "of a face, pixels as InsightFace's", (127.5,), "m"),
        ((112, 112), 512, "of a face, pixels as AdaFace's", (127.5,), "adaface_ir50"),
        ((160, 160), 512, "of a face, pixels as facenet-pytorch takes them", (128.0,), "m"),
        ((256, 128), 256, "of a person, pixels as PyTorch's", (58.395, 57.12, 57.375), "m"),
        ((224, 224), 512, "", (68.5005327, 66.6321579, 70.323163), "clip_visual"),
        ((224, 224), 384, "", (), "m"),
        ((112, 112), 100, "", (), "m"),
    ],
)
def test_vectors_of_faces_and_persons(tmp_path, size, length, whose, scale, name):
    vector = np.random.default_rng(2).normal(0, 1, (1, length)).astype(np.float32)
    path = detector(tmp_path, {"y": vector}, size)
    made = prepared(path.rename(tmp_path / f"{name}.onnx"))
    if not scale:
        assert made.task is None and f"'y' may be {length} scores" in made.source
        return
    assert made.task is not None and (made.task.kind, made.task.scale) == ("embed", scale)
    assert whose in made.graph.notes[-1] and "pixels as" in made.graph.notes[-1]
    x = {"images": np.zeros((1, 3, *size), np.float32)}
    found = evaluate(made.graph, x).outputs[made.task.output]
    np.testing.assert_allclose(found, vector / np.linalg.norm(vector), atol=1e-6)


def test_feelings_of_gray_faces(tmp_path):
    nodes = [node("ReduceMean", ["x"], ["mean"], axes=[2, 3], keepdims=0),
             node("Add", ["mean", "c"], ["y"])]  # fmt: skip
    constants = {"c": np.arange(8, dtype=np.float32)[None]}
    path = save(model(nodes, [value("x", [1, 1, 64, 64])], ["y"], constants, opset=13), tmp_path)
    task = prepared(path).task
    assert task is not None and task.kind == "classify"
    assert (task.labels[0], len(task.labels), task.scale) == ("neutral", 8, (1.0,))
    assert "labels and pixels of FER+" in prepared(path).source


@pytest.mark.parametrize(
    ("name", "first", "count"),
    [("fer2013_mini_XCEPTION.102-0.66", "angry", 7), ("gender_mini_XCEPTION.21-0.95", "woman", 2)],
)
def test_classes_of_gray_faces_by_mini_xception(tmp_path, name, first, count):
    nodes = [node("ReduceMean", ["x"], ["mean"], axes=[1, 2], keepdims=0),
             node("Add", ["mean", "c"], ["y"]), node("Softmax", ["y"], ["p"])]  # fmt: skip
    constants = {"c": np.zeros((1, count), np.float32)}
    path = save(model(nodes, [value("x", [1, 64, 64, 1])], ["p"], constants, opset=13), tmp_path)
    task = prepared(path.rename(tmp_path / f"{name}.onnx")).task
    assert task is not None and (task.mean, task.scale) == ((127.5,), (127.5,))
    assert (task.labels[0], len(task.labels)) == (first, count)


@pytest.mark.parametrize(("name", "first"), [("mnist", "0"), ("fashion_mnist", "T-shirt")])
def test_digits_without_channels_are_pictures(tmp_path, name, first):
    weights = np.random.default_rng(4).normal(0, 1, (784, 10)).astype(np.float32)
    nodes = [node("Reshape", ["x", "flat"], ["row"]), node("MatMul", ["row", "w"], ["y"]),
             node("Softmax", ["y"], ["p"])]  # fmt: skip
    constants = {"w": weights, "flat": np.array([1, 784])}
    path = save(model(nodes, [value("x", [1, 28, 28])], ["p"], constants, opset=13), tmp_path)
    made = prepared(path.rename(tmp_path / f"{name}.onnx"))
    assert made.task is not None and (made.task.kind, made.task.scale) == ("classify", (255.0,))
    assert (made.task.labels[0], len(made.task.labels)) == (first, 10)
    pixels = np.random.default_rng(5).random((1, 28, 28, 1)).astype(np.float32)
    found = evaluate(made.graph, {made.task.input: pixels}).outputs[made.task.output]
    scores = np.exp(pixels.reshape(1, 784) @ weights)
    np.testing.assert_allclose(found, scores / scores.sum(), atol=1e-5)


def test_boxes_of_paddle_without_a_selection(tmp_path):
    count = 64 + 16 + 4
    boxes = np.tile(np.float32([8, 8, 24, 24]), (1, count, 1))
    scores = np.full((1, 3, count), -9, np.float32)
    scores[0, 2, 5], boxes[0, 5] = 3, (10, 20, 30, 50)
    nodes = [node("Sigmoid", ["s"], ["scores"])]
    path = built(tmp_path, {"boxes": boxes, "s": scores}, nodes, ["boxes", "scores"], (64, 64))
    assert "infer_cfg.yml" in prepared(path).source
    made = prepared(path, CompileOptions(task="detect", head="paddle"))
    [(label, score, corners)] = rows_of(made)
    assert (label, corners) == (2, (10, 20, 30, 50))
    assert score == pytest.approx(1 / (1 + np.exp(-3)), abs=1e-6)


def test_ssd_of_the_zoo_counts_from_1(tmp_path):
    outputs = {"bboxes": np.float32([[[0.25, 0.5, 0.75, 1]]]), "labels": np.float32([[17]]),
               "scores": np.float32([[0.9]])}  # fmt: skip
    made = prepared(detector(tmp_path, outputs, (40, 80)))
    assert made.task is not None and made.task.labels[17] == "dog"
    [(label, _, corners)] = rows_of(made)
    assert (label, corners) == (17, (20, 20, 60, 40))


def test_cars_of_yolop(tmp_path):
    count, size = 3 * (64 + 16 + 4), (64, 64)
    rows = np.zeros((1, count, 6), np.float32)
    rows[0, 7] = (30, 20, 20, 10, 0.9, 1)
    maps = _random(1, 2, *size)
    path = detector(tmp_path, {"det": rows, "area": maps, "line": maps}, size)
    made = prepared(path)
    assert made.task is not None and made.task.labels == ("car",)
    [(_, score, corners)] = rows_of(made)
    assert corners == (20, 15, 40, 25) and score == pytest.approx(0.9)


def test_scores_of_every_pixel_are_classes_and_faces_are_no_streets(tmp_path):
    for size, part, labels in (((32, 64), 1, 19), ((32, 64), 8, 19), ((32, 32), 1, 0)):
        maps = _random(1, 19, *(n // part for n in size))
        outputs = {"out": maps, "aux": maps} if part == 1 else {"y": maps}
        made = prepared(detector(tmp_path, outputs, size))
        assert made.task is not None and made.task.kind == "segment"
        assert len(made.task.labels) == labels
    outputs = {name: _random(1, 19, 64, 64, seed=i) for i, name in enumerate("abc")}
    made = prepared(detector(tmp_path, outputs, (64, 64)))
    assert made.task is not None and made.task.labels[17] == "hair" and "'a'" in made.source


def test_levels_of_efficient_det_and_colors_are_named(tmp_path):
    sides = (16, 8, 4, 2, 1)
    levels = {f"c{n}": _random(1, 18, n, n) for n in sides}
    levels |= {f"b{n}": _random(1, 36, n, n) for n in sides}
    assert "like EfficientDet's" in prepared(detector(tmp_path, levels, (128, 128))).source
    nodes = [node("Concat", ["x", "x"], ["ab"], axis=1)]
    path = save(model(nodes, [value("x", [1, 1, 32, 32])], ["ab"], opset=13), tmp_path)
    assert "colors of a gray picture" in prepared(path).source


def test_a_picture_with_open_sides_and_channels_has_those_of_its_files(tmp_path):
    nodes = [node("Sigmoid", ["pixel_values"], ["logits"])]
    given = [value("pixel_values", ["b", "c", "h", "w"])]
    path = save(model(nodes, given, ["logits"], opset=13), tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "swin2sr"}))
    about = {"do_rescale": True, "rescale_factor": 1 / 255, "do_resize": True,
             "size": {"height": 48, "width": 48}}  # fmt: skip
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(about))
    guess = CompileOptions(task="guess")
    graph = import_for_task(path, guess)
    assert graph.tensors["pixel_values"].shape == (1, 3, 48, 48)
    made = with_task(path, graph, guess)
    assert made.task is not None and made.task.kind == "image"


def test_words_in_sound_of_any_length_are_heard_in_a_second(tmp_path):
    nodes = [node("ReduceMean", ["x"], ["mean"], axes=[1], keepdims=1),
             node("Add", ["mean", "c"], ["logits"])]  # fmt: skip
    constants = {"c": np.arange(3, dtype=np.float32)[None]}
    path = save(model(nodes, [value("x", [1, "n"])], ["logits"], constants, opset=13), tmp_path)
    about = {"model_type": "wav2vec2", "architectures": ["Wav2Vec2ForSequenceClassification"],
             "id2label": {"0": "yes", "1": "no", "2": "stop"}}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(about))
    pixels = {"sampling_rate": 16000, "feature_extractor_type": "Wav2Vec2FeatureExtractor"}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(pixels))
    guess = CompileOptions(task="guess")
    made = with_task(path, import_for_task(path, guess), guess)
    assert made.task is not None and made.task.labels == ("yes", "no", "stop")
    assert made.graph.tensors[made.graph.inputs[0]].shape == (1, 16000)


@pytest.mark.parametrize(
    ("samples", "classes", "rate"),
    [(15600, 521, 16000), (320000, 527, 32000), (44032, 20, 44100), (8000, 35, 0)],
)
def test_sounds_of_many_classes_have_numbers_without_labels(tmp_path, samples, classes, rate):
    """YAMNet and PANNs also give features of the sound."""
    nodes = [
        node("ReduceMean", ["x"], ["mean"], axes=[1], keepdims=1),
        node("Add", ["mean", "c"], ["all"]),
        node("Sigmoid", ["all"], ["scores"]),
        node("Add", ["mean", "e"], ["features"]),
    ]
    constants = {"c": _random(1, classes), "e": _random(1, 1024)}
    given = [value("x", [1, samples])]
    made = model(nodes, given, ["scores", "features"], constants, opset=13)
    found = prepared(save(made, tmp_path))
    if not rate:
        assert found.task is None and "samples may be a second or half of it" in found.source
        found = prepared(tmp_path / "m.onnx", CompileOptions(task="keyword"))
        rate = 16000
    assert found.task is not None and found.task.kind == "keyword"
    assert (found.task.output, found.task.rate) == ("scores", rate)
    assert "by number, since m.txt next to it lists no labels" in found.source
    assert ("which is usual" in found.source) == (rate == 16000)
    if samples == 8000:
        return
    (tmp_path / "m.txt").write_text("\n".join(f"sound {i}" for i in range(classes)))
    labeled = prepared(tmp_path / "m.onnx").task
    assert labeled is not None and labeled.labels[3] == "sound 3"


def test_birds_of_perch_are_as_loud_as_it_takes_them(tmp_path):
    """Without a mean, and with a peak of 0.25; a list with a line for its title names them."""
    nodes = [node("ReduceMax", ["inputs"], ["peak"], axes=[1], keepdims=1),
             node("Mul", ["peak", "gain"], ["label"]),
             node("Add", ["peak", "e"], ["embedding"])]  # fmt: skip
    gain = np.zeros((1, 14795), np.float32)
    gain[0, 4] = 40
    constants = {"gain": gain, "e": _random(1, 1536)}
    given = [value("inputs", ["batch", 160_000])]
    made = model(nodes, given, ["embedding", "label"], constants, opset=13)
    path = save(made, tmp_path)
    options = CompileOptions(task="guess")
    asked = with_task(path, import_for_task(path, options), options)
    assert asked.task is None and "'label' may be 14795 scores" in asked.source
    (tmp_path / "labels.csv").write_text("\n".join(["species", *(f"s{i}" for i in range(14795))]))
    found = with_task(path, import_for_task(path, options), options)
    assert found.task is not None and found.task.rate == 32000 and found.task.labels[4] == "s4"
    x = np.full((1, 160_000), 0.7, np.float32)
    x[0, ::2] = 0.5
    scores = evaluate(found.graph, {found.task.input: x}).outputs[found.task.output]
    assert scores[0, 4] == pytest.approx(1 / (1 + 14794 * np.exp(-10)), abs=1e-3)


@pytest.mark.parametrize("count", [1, 8])
def test_persons_of_movenet_in_pictures_of_any_size(tmp_path, count):
    """A file for eight pictures says so."""
    found = np.zeros((1, 6, 56), np.float32)
    found[0, 0] = [*[0.5, 0.25, 0.9] * 17, 0.1, 0.2, 0.8, 0.9, 0.95]
    nodes = [node("Cast", ["input"], ["x"], to=1), node("ReduceMean", ["x"], ["mean"], keepdims=0),
             node("Mul", ["mean", "zero"], ["none"]),
             node("Add", ["c", "none"], ["output_0"])]  # fmt: skip
    shape = [1, "height", "width", 3] if count == 1 else [count, 64, 64, 3]
    constants = {"c": np.repeat(found, count, 0), "zero": np.zeros(1, np.float32)}
    given = [value("input", shape, np.dtype(np.int32))]
    path = save(model(nodes, given, ["output_0"], constants, opset=13), tmp_path)
    options = CompileOptions(task="guess")
    made = with_task(path, import_for_task(path, options), options)
    if count > 1:
        assert made.task is None and "it takes 8 pictures at a time" in made.source
        return
    assert made.task is not None and made.task.kind == "pose"
    assert "open shapes are input=1,256,256,3, as MoveNet's files" in made.graph.notes[-2]
    row = evaluate(made.graph, {"input": np.zeros((1, 256, 256, 3), np.int32)}).outputs
    row = row[made.task.output][0, 0, 0]
    assert row[2:10] == pytest.approx((0.95, 51.2, 25.6, 230.4, 204.8, 64, 128, 0.9), abs=1e-3)
