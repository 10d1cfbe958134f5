"""Detectors of text by a map: where text is in a picture."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks import import_for_task
from edgekit.host.errors import InputError
from tests.compiler.tasks.test_heads import prepared
from tests.support.onnx_models import model, node, save, value

_HEIGHT, _WIDTH = 64, 96


def _detector(folder, twice=True, sizes=(_HEIGHT, _WIDTH)):
    """Gives the share of white in squares of 4 pixels, enlarged by transposed convolutions."""
    nodes = [
        node("AveragePool", ["x"], ["p"], kernel_shape=[4, 4], strides=[4, 4]),
        node("ReduceMean", ["p"], ["gray"], axes=[1], keepdims=1),
        node("ConvTranspose", ["gray", "one"], ["a"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Relu", ["a"], ["b"]),
        node("ConvTranspose", ["b", "one"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    if not twice:
        nodes[2:] = [node("Resize", ["gray", "", "scales"], ["c"], mode="nearest")]
    nodes += [
        node("Mul", ["c", "eight"], ["d"]),
        node("Add", ["d", "minus"], ["e"]),
        node("Sigmoid", ["e"], ["map"]),
    ]
    constants = {
        "one": np.ones((1, 1, 2, 2), np.float32),
        "scales": np.array([1, 1, 4, 4], np.float32),
        "eight": np.float32(8),
        "minus": np.float32(-4),
    }
    made = model(nodes, [value("x", ["batch", 3, *sizes])], ["map"], constants)
    return save(made, folder)


def test_boxes_are_around_what_is_text(tmp_path):
    made = prepared(_detector(tmp_path), CompileOptions(task="detect"))
    assert made.task is not None and made.task.labels == ("text",)
    assert "like DB's" in made.source
    x = np.zeros((1, 3, _HEIGHT, _WIDTH), np.float32)
    x[..., 8:16, 16:48] = 1
    x[..., 40:52, 60:92] = 0.8
    x[..., 56:58, 4:8] = 1  # half of a square: not sure
    rows = evaluate(made.graph, {"x": x}).outputs[made.task.output].reshape(-1, 7)
    found = rows[rows[:, 1] >= 0]
    scores = 1 / (1 + np.exp(-np.array([4, 2.4])))
    np.testing.assert_allclose(found[:, 2], scores, rtol=1e-5)
    grown = [1.5 * w * h / (2 * (w + h)) for w, h in ((32, 8), (32, 12))]
    expected = [
        (16 - grown[0], 8 - grown[0], 48 + grown[0], 16 + grown[0]),
        (60 - grown[1], 40 - grown[1], 96, 52 + grown[1]),
    ]
    np.testing.assert_allclose(found[:, 3:], expected, rtol=1e-5)


def test_a_map_of_segmentation_is_no_text(tmp_path):
    made = prepared(_detector(tmp_path, twice=False), CompileOptions(task="guess"))
    assert made.task is None or made.task.kind != "detect"


@pytest.mark.parametrize("twice", [True, False])
def test_open_sizes_are_those_of_a_page_if_the_map_is_of_text(tmp_path, twice):
    path = _detector(tmp_path, twice, ("height", "width"))
    if not twice:
        with pytest.raises(InputError, match="expected fixed shapes, found open ones"):
            import_for_task(path, CompileOptions())
        return
    graph = import_for_task(path, CompileOptions())
    assert graph.tensors["x"].shape == (1, 3, 640, 640)
    assert "x=1,3,640,640, for a page of text" in graph.notes[0]
