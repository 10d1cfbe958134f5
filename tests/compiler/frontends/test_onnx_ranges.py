"""Sizes of Range and Slice that are computed from floats, and large products."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from edgekit.host.compiler.frontends import import_model  # noqa: E402
from edgekit.host.compiler.ir.evaluate import evaluate  # noqa: E402
from edgekit.host.errors import InputError  # noqa: E402
from tests.support.onnx_models import model, node, save, value  # noqa: E402


def _f32(*numbers):
    return np.array(numbers if len(numbers) > 1 else numbers[0], np.float32)


def _agrees(folder, nodes, inputs, constants):
    """The valid elements of `y` are those of ONNX Runtime."""
    ends = [value(name, data.shape) for name, data in inputs.items()]
    path = save(model(nodes, ends, ["y"], constants), folder)
    (want,) = onnxruntime.InferenceSession(path).run(None, inputs)
    found = evaluate(import_model(path), inputs).outputs
    count = int(found["y_length"][0]) if "y_length" in found else len(found["y"])
    assert count == len(want)
    np.testing.assert_allclose(found["y"][:count], want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "bounds",
    [(-1.9, 7.4, 0.1), (0.9, 4.4, 0.05), (-1.9, 1.7, 0.9), (0.4, -2.9, -0.3), (0.0, 2.5, 1)],
)
def test_constant_ranges_are_counted_in_64_bits(bounds, tmp_path):
    constants = dict(zip("abc", map(_f32, bounds), strict=True)) | {"zero": _f32(0)}
    nodes = [node("Range", ["a", "b", "c"], ["r"]), node("Add", ["r", "x"], ["y"])]
    _agrees(tmp_path, nodes, {"x": np.zeros(1, np.float32)}, constants)


def test_a_bound_that_is_no_integer_counts_to_its_end(tmp_path):
    nodes = [
        node("Clip", ["x", "half", "one"], ["step"]),
        node("Range", ["zero", "limit", "step"], ["y"]),
    ]  # fmt: skip
    constants = {"half": _f32(0.5), "one": _f32(1), "zero": _f32(0), "limit": _f32(2.5)}
    for x in (0.25, 0.7, 2):
        _agrees(tmp_path, nodes, {"x": _f32(x)}, constants)


@pytest.mark.parametrize("x", [3.9861133, 1.7045565, 2.1787844])
def test_a_sum_that_is_rounded_up_has_room_for_one_more(x, tmp_path):
    nodes = [
        node("Clip", ["x", "low", "high"], ["start"]), node("Add", ["start", "width"], ["limit"]),
        node("Range", ["start", "limit", "step"], ["y"]),
    ]  # fmt: skip
    constants = {"low": _f32(0), "high": _f32(5), "width": _f32(0.7), "step": _f32(0.1)}
    _agrees(tmp_path, nodes, {"x": _f32(x)}, constants)


@pytest.mark.parametrize("x", [-0.5, 2.75, 2.9999998])
def test_a_slice_between_rounded_places_has_their_distance(x, tmp_path):
    """Cast(x + 3) − Cast(x) is 3 only if x is an integer."""
    nodes = [
        node("Clip", ["x", "low", "high"], ["start"]), node("Add", ["start", "width"], ["end"]),
        node("Cast", ["start"], ["from"], to=onnx.TensorProto.INT64),
        node("Cast", ["end"], ["to"], to=onnx.TensorProto.INT64),
        node("Slice", ["data", "from", "to"], ["y"]),
    ]  # fmt: skip
    constants = {"low": _f32(-1), "high": _f32(5), "width": _f32(3)}
    inputs = {"x": np.array([x], np.float32), "data": np.arange(9, dtype=np.float32)}
    if x < 0:
        inputs["data"] = inputs["data"][::-1].copy()
    _agrees(tmp_path, nodes, inputs, constants)


def test_rounded_places_are_a_known_distance_apart(tmp_path):
    nodes = [
        node("Clip", ["x", "low", "high"], ["inside"]), node("Floor", ["inside"], ["start"]),
        node("Add", ["start", "width"], ["end"]),
        node("Cast", ["start"], ["from"], to=onnx.TensorProto.INT64),
        node("Cast", ["end"], ["to"], to=onnx.TensorProto.INT64),
        node("Slice", ["data", "from", "to"], ["y"]),
    ]  # fmt: skip
    constants = {"low": _f32(0), "high": _f32(5), "width": _f32(3)}
    ends = [value("x", [1]), value("data", [9])]
    graph = import_model(save(model(nodes, ends, ["y"], constants), tmp_path))
    assert graph.outputs == ("y",) and graph.tensors["y"].shape == (3,)


@pytest.mark.parametrize("width", [np.inf, np.nan])
def test_a_bound_that_is_no_number_is_refused(width, tmp_path):
    nodes = [node("Add", ["x", "width"], ["limit"]), node("Range", ["x", "limit", "step"], ["y"])]
    constants = {"width": _f32(width), "step": _f32(1)}
    path = save(model(nodes, [value("x", [])], ["y"], constants), tmp_path)
    with pytest.raises(InputError, match="expected constant bounds"):
        import_model(path)


@pytest.mark.parametrize("axes", [[1], [0, 2]])
def test_products_of_integers_saturate(axes, tmp_path):
    x = np.random.default_rng(1).integers(-9, 10, (4, 40, 3), np.int32) | 1
    x[0] = 0
    reduced = node("ReduceProd", ["x"], ["p"], axes=axes, keepdims=0)
    cast = node("Cast", ["p"], ["y"], to=onnx.TensorProto.FLOAT)
    path = save(model([reduced, cast], [value("x", x.shape, x.dtype)], ["y"]), tmp_path)
    (want,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    np.testing.assert_array_equal(evaluate(import_model(path), {"x": x}).outputs["y"], want)
