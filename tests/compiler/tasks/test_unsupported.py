"""Models that are named, because they cannot be used for what they are."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.options import CompileOptions
from edgekit.host.errors import InputError
from tests.compiler.tasks.test_heads import prepared
from tests.support.detectors import detector
from tests.support.onnx_models import model, node, save, value

_CELLS = 16 * 16 + 8 * 8 + 4 * 4 + 2 * 2 + 1  # of 128 x 128 pixels


@pytest.mark.parametrize(
    ("size", "shapes", "said"),
    [
        (24, [(1, 2), (1, 4)], "MTCNN's three networks"),
        (48, [(1, 4), (1, 10), (1, 2)], "MTCNN's three networks"),
        (64, [(1, 2, 27, 27), (1, 4, 27, 27)], "MTCNN's three networks"),
        (64, [(1, 27, 27, 2), (1, 27, 27, 4)], "MTCNN's three networks"),
        (64, [(1, 27, 26, 2), (1, 27, 27, 4)], "its outputs are not known ones"),
        (128, [(1, 9 * _CELLS, 4), (1, 9 * _CELLS, 90)], "whose anchors the file does not state"),
        (128, [(1, 9 * _CELLS, 5), (1, 9 * _CELLS, 90)], "its outputs are not known ones"),
    ],
)
def test_a_detector_is_named(tmp_path, size, shapes, said):
    outputs = {f"y{i}": np.zeros(shape, np.float32) for i, shape in enumerate(shapes)}
    made = prepared(detector(tmp_path, outputs, (size, size)))
    assert made.task is None and said in made.source
    assert "--output FILE writes the tensors" in made.source


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ([(1, 3, 41), *[(1, 64)] * 4], "TEN VAD"),
        ([(1, 5, 400), *[(1, 128, 19, 1)] * 4], "FSMN-VAD"),
        ([(1, 5, 400), (1, 64)], "its inputs and outputs are not known ones"),
    ],
)
def test_a_listener_is_named(tmp_path, shapes, said):
    names = [f"x{i}" for i in range(len(shapes))]
    nodes = [node("Neg", [name], [f"y{name}"]) for name in names]
    inputs = [value(name, shape) for name, shape in zip(names, shapes, strict=True)]
    made = prepared(save(model(nodes, inputs, [f"y{n}" for n in names], opset=13), tmp_path))
    assert made.task is None and said in made.source


@pytest.mark.parametrize("name", ["input_features", "input_values"])
def test_an_encoder_of_sound_needs_its_decoder(tmp_path, name):
    nodes = [node("Reshape", [name, "shape"], ["last_hidden_state"])]
    given = [value(name, [1, 80, 100] if name == "input_features" else [1, 8000])]
    constants = {"shape": np.array([1, 40, 200])}
    path = save(model(nodes, given, ["last_hidden_state"], constants, opset=13), tmp_path)
    said = "put its decoder, decoder_model.onnx, and the .json files of both next to it"
    assert said in prepared(path).source
    for task in ("transcribe", "keyword"):
        with pytest.raises(InputError, match=said):
            prepared(path, CompileOptions(task=task))
