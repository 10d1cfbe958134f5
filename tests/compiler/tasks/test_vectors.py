"""Vectors of texts and pictures, as files next to a model say how they are made."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks import import_for_task, with_task
from edgekit.host.errors import InputError
from tests.compiler.tasks.test_heads import prepared
from tests.support.detectors import detector
from tests.support.onnx_models import node
from tests.support.text_models import text_model


@pytest.mark.parametrize(
    ("modes", "how"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "the mean of all"),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, "the mean of all"),
        ({"pooling_mode": "cls"}, "the first token"),
        ({"pooling_mode_max_tokens": True}, "found max_tokens; export the model with its pooling"),
        ({"pooling_mode_lasttoken": True}, "found lasttoken; "),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "found cls_token, m"),
    ],
)
def test_texts_are_pooled_as_stated_or_not_at_all(tmp_path, modes, how):
    path = text_model(tmp_path)
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling/config.json").write_text(json.dumps(modes))
    options = CompileOptions(task="guess", shapes={"input_ids": (1, 7)})
    made = with_task(path, import_for_task(path, options), options)
    assert (made.task is None) == ("found" in how) and how in made.graph.notes[-1]
    (tmp_path / "2_Dense").mkdir()
    (tmp_path / "2_Dense/config.json").write_text("{}")
    asked = CompileOptions(task="embed", shapes={"input_ids": (1, 7)})
    with pytest.raises(InputError, match=r"export the model with its pooling$"):
        with_task(path, import_for_task(path, asked), asked)


@pytest.mark.parametrize(
    ("folder", "base", "how"),
    [("bge-small-en", "", "the first token"), ("model", "BAAI/bge-m3", "the first token"),
     ("gte-small", "", "the mean of all"), ("gte-base-en-v1.5", "", "the first token")],
)  # fmt: skip
def test_names_tell_how_texts_are_pooled_where_no_file_does(tmp_path, folder, base, how):
    made = tmp_path / folder
    made.mkdir()
    path = text_model(made, length=7)
    (made / "config.json").write_text(json.dumps({"_name_or_path": base}))
    assert how in prepared(path).source


def test_pixels_of_clip_are_in_its_configuration(tmp_path):
    vector = np.arange(1, 10, dtype=np.float32)[None]
    path = detector(tmp_path, {"image_embeds": vector}, (32, 32))
    assert prepared(path).task is None
    assert prepared(path, CompileOptions(task="embed")).task is not None
    (tmp_path / "config.json").write_text('{"model_type": "clip"}')
    about = {
        "do_normalize": True, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.2],
        "do_center_crop": True, "crop_size": {"height": 32, "width": 32},
        "do_resize": True, "size": {"shortest_edge": 40},
    }  # fmt: skip
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(about))
    task = prepared(path).task
    assert task is not None and (task.kind, task.fit, task.zoom) == ("embed", "crop", 1.25)
    assert task.mean == pytest.approx((127.5, 102, 76.5))


def test_the_vector_of_dino_is_its_first_token(tmp_path):
    tokens = np.random.default_rng(0).normal(0, 1, (1, 7, 9)).astype(np.float32)
    path = detector(tmp_path, {"last_hidden_state": tokens}, (32, 32))
    assert prepared(path).task is None
    pixels = {"do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.2] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(pixels))
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    assert prepared(path).task is None  # whose vector may be another
    (tmp_path / "config.json").write_text('{"model_type": "dinov2"}')
    made = prepared(path)
    assert made.task is not None and made.task.kind == "embed"
    x = {"images": np.zeros((1, 3, 32, 32), np.float32)}
    found = evaluate(made.graph, x).outputs[made.task.output]
    expected = tokens[:, 0] / np.linalg.norm(tokens[:, 0])
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_texts_are_no_longer_than_the_places_of_the_model(tmp_path):
    path, options = text_model(tmp_path), CompileOptions(task="guess")
    assert import_for_task(path, options).tensors["input_ids"].shape == (1, 128)
    for places, length in ((9, 9), (512, 128), (0, 128), ("9", 128)):
        about = {"model_type": "bert", "max_position_embeddings": places}
        (tmp_path / "config.json").write_text(json.dumps(about))
        assert import_for_task(path, options).tensors["input_ids"].shape == (1, length)


def test_pixels_of_a_vector_need_no_number_of_classes(tmp_path):
    vector = np.arange(1, 10, dtype=np.float32)[None]
    path = detector(tmp_path, {"image_embeds": vector}, (32, 32))
    about = {"model_type": "clip_vision_model", "id2label": {"0": "LABEL_0", "1": "LABEL_1"}}
    (tmp_path / "config.json").write_text(json.dumps(about))
    pixels = {"do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.2] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(pixels))
    task = prepared(path).task
    assert task is not None and task.mean == pytest.approx((127.5,) * 3)
    made = {**about, "architectures": ["ViTForImageClassification"]}
    (tmp_path / "config.json").write_text(json.dumps(made))
    assert prepared(path).task is None  # of another model


@pytest.mark.parametrize(
    ("classes", "name"), [(0, "logits"), (9, "logits"), (0, "probs"), (0, "contextual"), (0, "y")]
)
def test_scores_of_tokens_are_no_vectors(tmp_path, classes, name):
    """Names, punctuation or words in a text; the mean of their scores says nothing."""
    path = text_model(tmp_path, classes, 7)
    made = onnx.load(path)
    last = made.graph.node[-1]
    last.output[0] = "states" if name == "y" else name
    if name == "y":
        made.graph.node.append(node("Softmax", ["states"], ["y"], axis=2))
    made.graph.output[0].name = name
    onnx.save(made, path)
    found = prepared(path)
    assert found.task is None and found.source.startswith(f"shows no results: '{name}' is neither")
    asked = prepared(path, CompileOptions(task="embed"))
    assert asked.task is not None and asked.task.kind == "embed"
