"""Maps of classes, whichever axis the classes are on."""

from __future__ import annotations

import json

import numpy as np
import pytest

from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.errors import InputError
from tests.compiler.tasks.test_heads import prepared
from tests.support.detectors import built, detector
from tests.support.onnx_models import model, node, save, value

_SIZE = (64, 96)
_ASKED = CompileOptions(task="segment")


def _model(folder, name: str, shape=(1, 5, 16, 24)):
    scores = np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)
    nodes = [
        node("Transpose", ["planes"], ["pixels"], perm=[0, 2, 3, 1]),
        node("ArgMax", ["planes"], ["classes"], axis=1, keepdims=0),
        node("ArgMax", ["planes"], ["plane"], axis=1),
    ]
    return built(folder, {"planes": scores}, nodes, [name], _SIZE), scores


@pytest.mark.parametrize("name", ["planes", "pixels", "classes", "plane"])
def test_classes_are_numbers_in_a_map(tmp_path, name):
    path, scores = _model(tmp_path, name)
    made = prepared(path, _ASKED)
    assert made.task is not None and made.task.output == "segments"
    x = {"images": np.zeros((1, 3, *_SIZE), np.float32)}
    found = evaluate(made.graph, x).outputs["segments"]
    np.testing.assert_array_equal(found, scores.argmax(1))
    assert found.dtype == np.uint8
    assert prepared(path).task is None  # five channels may be anything


@pytest.mark.parametrize("shape", [(1, 5, 16, 16), (1, 300, 16, 24), (1, 1, 16, 24)])
def test_other_outputs_are_no_maps_of_classes(tmp_path, shape):
    path, _ = _model(tmp_path, "planes", shape)
    with pytest.raises(InputError, match="--task segment: expected one output with the classes"):
        prepared(path, _ASKED)


def test_masks_of_objects_are_no_classes(tmp_path):
    """RTMDet-Ins has as many masks as boxes."""
    parts = {"dets": np.zeros((1, 9, 5), np.float32), "labels": np.zeros((1, 9), np.float32),
             "masks": np.zeros((1, 9, *_SIZE), np.float32)}  # fmt: skip
    cast = [node("Cast", ["labels"], ["whole"], to=7), node("Identity", ["whole"], ["found"])]
    made = prepared(built(tmp_path, parts, cast, ["dets", "found", "masks"], _SIZE))
    assert made.task is None and made.source.startswith("shows no results")
    named = prepared(detector(tmp_path, parts, _SIZE), CompileOptions(task="guess"))
    assert named.task is None


def test_labels_of_all_channels_show_a_map_of_classes(tmp_path):
    path, _ = _model(tmp_path, "planes", (1, 21, 16, 24))
    assert prepared(path).task is None  # may be places of joints
    names = {str(i): f"kind {i}" for i in range(21)}
    about = {"model_type": "segformer", "id2label": names}
    (tmp_path / "config.json").write_text(json.dumps(about))
    made = prepared(path)
    assert made.task is not None and made.task.kind == "segment"
    assert made.task.labels == tuple(names.values()) and "by config.json" in made.source


def test_the_only_label_is_that_of_what_stands_out(tmp_path):
    shares = np.random.default_rng(1).normal(0, 1, (1, 1, *_SIZE)).astype(np.float32)
    path = built(tmp_path, {"x": shares}, [node("Sigmoid", ["x"], ["y"])], ["y"], _SIZE)
    (tmp_path / "labels.txt").write_text("selfie\n")
    made = prepared(path)
    assert made.task is not None and made.task.labels == ("background", "selfie")


def test_shares_of_one_class_are_a_proposal(tmp_path):
    """U²-Net has seven such maps, the best one first."""
    first, others = (np.random.default_rng(i).normal(0, 1, (1, 1, *_SIZE)) for i in (2, 3))
    parts = {"a": first.astype(np.float32), "b": others.astype(np.float32)}
    nodes = [node("Sigmoid", ["a"], ["x"]), node("Sigmoid", ["b"], ["y"])]
    for outputs in (["x", "y"], ["x"]):
        path = built(tmp_path, parts, nodes, outputs, _SIZE)
        made = prepared(path)
        assert made.task is not None and made.task.kind == "segment" and not made.task.labels
        assert len(made.task.scale) == (3 if len(outputs) > 1 else 0)
        assert "'x' may be the share of one class" in made.graph.notes[-1]
        taken = "as PyTorch's models take them" if len(outputs) > 1 else "from 0 to 1"
        assert f", pixels {taken}" in made.source
        x = {"images": np.zeros((1, 3, *_SIZE), np.float32)}
        (found,) = evaluate(made.graph, x).outputs[made.task.output]
        np.testing.assert_array_equal(found, first[0, 0] > 0)
        assert prepared(path, CompileOptions()).task is None


def test_an_outline_may_be_before_its_sigmoid(tmp_path):
    logits = np.random.default_rng(2).normal(0, 1, (1, 1, *_SIZE)).astype(np.float32)
    path = detector(tmp_path, {"output_image": logits}, _SIZE)
    made = prepared(path.rename(tmp_path / "BiRefNet-general.onnx"))
    assert made.task is not None and (made.task.kind, len(made.task.scale)) == ("segment", 3)
    x = {"images": np.zeros((1, 3, *_SIZE), np.float32)}
    (found,) = evaluate(made.graph, x).outputs[made.task.output]
    np.testing.assert_array_equal(found, logits[0, 0] > 0)


def test_pixels_of_matting_are_by_files_that_list_no_classes(tmp_path):
    """Names of both ends show that BiRefNet's file ends before its sigmoid."""
    about = {"do_normalize": True, "image_mean": [0.5] * 3, "image_std": [1, 1, 1]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(about))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "modnet"}))
    for end, first, last in (("Sigmoid", "x", "y"), ("Identity", "input_image", "output_image")):
        nodes = [node("ReduceMean", [first], ["m"], axes=[1], keepdims=1), node(end, ["m"], [last])]
        made = model(nodes, [value(first, [1, 3, *_SIZE])], [last], opset=13)
        task = prepared(save(made, tmp_path)).task
        assert task is not None and (task.kind, task.scale) == ("segment", (255.0,) * 3)


def test_names_of_hugging_face_show_a_map_of_classes(tmp_path):
    nodes = [node("AveragePool", ["pixel_values"], ["p"], kernel_shape=[4, 4], strides=[4, 4]),
             node("Concat", ["p"] * 9, ["logits"], axis=1)]  # fmt: skip
    made = model(nodes, [value("pixel_values", [1, 3, *_SIZE])], ["logits"], opset=13)
    task = prepared(save(made, tmp_path)).task
    assert task is not None and task.kind == "segment" and not task.labels


def test_shares_of_all_classes_are_a_map(tmp_path):
    scores = np.random.default_rng(4).normal(0, 1, (1, 2, *_SIZE)).astype(np.float32)
    nodes = [node("Softmax", ["x"], ["y"], axis=1)]
    made = prepared(built(tmp_path, {"x": scores}, nodes, ["y"], _SIZE))
    assert made.task is not None and made.task.kind == "segment"
    assert prepared(built(tmp_path, {"x": scores}, [], ["x"], _SIZE)).task is None


def test_pixels_of_pascal_voc_are_a_proposal(tmp_path):
    scores = np.zeros((1, 21, *_SIZE), np.float32)
    path = built(tmp_path, {"x": scores}, [node("Identity", ["x"], ["y"])], ["y"], _SIZE)
    made = prepared(path)
    assert made.task is not None and made.task.fit == "stretch"
    assert made.task.mean == (123.675, 116.28, 103.53) and len(made.task.labels) == 21
    assert "pixels as PyTorch's models take them" in made.graph.notes[-1]


@pytest.mark.parametrize("dtype", [None, 1])
def test_the_best_class_of_each_pixel_is_a_map(tmp_path, dtype):
    scores = np.random.default_rng(5).normal(0, 1, (1, 7, *_SIZE)).astype(np.float32)
    nodes = [
        node("ArgMax", ["x"], ["best"], axis=1, keepdims=0),
        node("Cast", ["best"], ["y"], to=dtype or 6),
    ]
    path = built(tmp_path, {"x": scores}, nodes, ["y"], _SIZE)
    made = prepared(path)
    if dtype is not None:
        assert made.task is None  # floats may be anything
        return
    assert made.task is not None and made.task.kind == "segment" and not made.task.labels
    names = {str(i): f"kind {i}" for i in range(7)}
    about = {"model_type": "segformer", "id2label": names}
    (tmp_path / "config.json").write_text(json.dumps(about))
    made = prepared(path)
    assert made.task is not None and made.task.labels == tuple(names.values())
    x = {"images": np.zeros((1, 3, *_SIZE), np.float32)}
    np.testing.assert_array_equal(evaluate(made.graph, x).outputs["segments"], scores.argmax(1))
    (tmp_path / "config.json").write_text(json.dumps({**about, "id2label": {"0": "a"}}))
    other = prepared(path)
    assert other.task is not None and not other.task.labels
