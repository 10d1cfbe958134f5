"""Convolutions whose weights are inputs of the model, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from edgekit.host.compiler.frontends import import_model  # noqa: E402
from edgekit.host.compiler.ir.evaluate import evaluate  # noqa: E402
from edgekit.host.compiler.transforms.passes.pipeline import run_passes  # noqa: E402
from edgekit.host.errors import InputError  # noqa: E402
from tests.support.onnx_models import model, node, save, value  # noqa: E402

_FORMS = [
    {},
    {"strides": [2, 1], "pads": [1, 0, 2, 1]},
    {"dilations": [1, 2], "pads": [0, 2, 1, 0]},
    {"strides": [1, 2], "auto_pad": "SAME_LOWER"},
]


def _agrees(folder, constants, inputs, **attributes):
    made = node("Conv", ["x", "w", "b"], ["y"], **attributes)
    ends = [value(name, v.shape) for name, v in inputs.items()]
    path = save(model([made], ends, ["y"], constants), folder)
    (want,) = onnxruntime.InferenceSession(path).run(None, inputs)
    graph = import_model(path)
    for each in (graph, run_passes(graph)[0]):
        found = evaluate(each, inputs).outputs["y"]
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


def _drawn(groups, rank=2):
    rng = np.random.default_rng(groups)
    size = (7, 9, 6)[:rank]
    shapes = {"x": (2, 4, *size), "w": (8, 4 // groups, *(3, 2, 3)[:rank]), "b": (8,)}
    return {name: rng.normal(size=s).astype(np.float32) for name, s in shapes.items()}


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("form", _FORMS)
def test_computed_weights(groups, form, tmp_path):
    _agrees(tmp_path, {}, _drawn(groups), group=groups, **form)


@pytest.mark.parametrize("given", ["w", "b"])
def test_either_operand_may_be_computed(given, tmp_path):
    values = _drawn(2)
    inputs = {name: values.pop(name) for name in ("x", given)}
    _agrees(tmp_path, values, inputs, group=2)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_volumes(groups, tmp_path):
    inputs = _drawn(groups, 3)
    form = {"strides": [1, 2, 1], "dilations": [2, 1, 1], "pads": [1, 0, 2, 2, 1, 0]}
    _agrees(tmp_path, {}, inputs, group=groups, **form)
    _agrees(tmp_path, {"w": inputs.pop("w")}, inputs, group=groups)


@pytest.mark.parametrize("groups", [1, 4])
def test_lines_of_samples(groups, tmp_path):
    _agrees(tmp_path, {}, _drawn(groups, 1), group=groups, strides=[2], pads=[1, 1])


def test_the_template_of_a_tracker_is_found_in_each_channel(tmp_path):
    """Depthwise cross-correlation of an image's features with those of a template."""
    rng = np.random.default_rng(5)
    inputs = {"x": rng.normal(size=(1, 16, 12, 12)), "z": rng.normal(size=(1, 16, 5, 5))}
    inputs = {name: v.astype(np.float32) for name, v in inputs.items()}
    nodes = [
        node("Relu", ["z"], ["r"]),
        node("Reshape", ["r", "shape"], ["w"]),
        node("Conv", ["x", "w"], ["y"], group=16),
    ]
    ends = [value(name, v.shape) for name, v in inputs.items()]
    path = save(model(nodes, ends, ["y"], {"shape": np.array([16, 1, 5, 5])}), tmp_path)
    (want,) = onnxruntime.InferenceSession(path).run(None, inputs)
    found = evaluate(run_passes(import_model(path))[0], inputs).outputs["y"]
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "groups", "match"),
    [
        ((8, 3, 3, 2), 2, "2 groups of 2 channels"),
        ((7, 2, 3, 2), 2, "2 groups of 2 channels"),
        ((8, 4, 3), 1, "rank 4"),
        ((8, 4, 99, 2), 1, "image"),
    ],
)
def test_weights_that_do_not_fit(shape, groups, match, tmp_path):
    made = node("Conv", ["x", "w"], ["y"], group=groups)
    ends = [value("x", [1, 4, 7, 9]), value("w", shape)]
    with pytest.raises(InputError, match=match):
        import_model(save(model([made], ends, ["y"]), tmp_path))
