"""Pools that the node tests do not cover, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402

from edgekit.host.compiler.frontends import import_model  # noqa: E402
from edgekit.host.compiler.ir.evaluate import evaluate  # noqa: E402
from edgekit.host.errors import InputError  # noqa: E402
from tests.support.onnx_models import model, node, save, value  # noqa: E402

_VOLUME = {"kernel_shape": [2, 1, 2], "strides": [1, 2, 1]}
_WINDOW = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
_SAME = {"kernel_shape": [3, 2], "strides": [2, 1], "auto_pad": "SAME_LOWER"}
# Automatic padding does not count dilations, and is negative in front of long strides.
_DILATED = {"kernel_shape": [2, 3], "strides": [2, 1], "dilations": [2, 1]}
_SPARSE = {"kernel_shape": [2, 1], "strides": [4, 6], "dilations": [2, 1]}


@pytest.mark.parametrize(
    ("kind", "outputs", "attributes"),
    [
        ("GlobalLpPool", 1, {}),
        ("GlobalLpPool", 1, {"p": 3}),
        ("LpPool", 1, {**_WINDOW, "p": 1}),
        ("LpPool", 1, {"kernel_shape": [1, 1], "strides": [4, 6], "auto_pad": "SAME_UPPER"}),
        ("LpPool", 1, {"kernel_shape": [1, 1], "strides": [4, 6], "auto_pad": "SAME_LOWER"}),
        ("MaxPool", 2, _WINDOW),
        ("MaxPool", 2, {**_WINDOW, "dilations": [2, 2]}),
        ("MaxPool", 2, {**_WINDOW, "storage_order": 1}),
        ("MaxPool", 2, {**_VOLUME, "storage_order": 1}),
        ("AveragePool", 1, {**_SAME, "count_include_pad": 1}),
        ("AveragePool", 1, {**_SAME, "count_include_pad": 0}),
        ("MaxPool", 1, {**_DILATED, "auto_pad": "SAME_UPPER"}),
        ("LpPool", 1, {**_DILATED, "auto_pad": "SAME_LOWER"}),
        ("AveragePool", 1, {**_DILATED, "auto_pad": "SAME_LOWER"}),
        (
            "AveragePool", 1,
            {**_DILATED, "auto_pad": "SAME_UPPER", "ceil_mode": 1, "count_include_pad": 1},
        ),
        ("MaxPool", 1, {"kernel_shape": [21, 18], "pads": [9, 8, 9, 9], "dilations": [1, 1]}),
        ("LpPool", 1, {"kernel_shape": [17, 3], "pads": [9, 2, 9, 2], "strides": [2, 2]}),
        ("LpPool", 1, {"kernel_shape": [23, 40], "pads": [22, 39, 22, 39], "strides": [9, 1]}),
        ("MaxPool", 1, {**_SPARSE, "auto_pad": "SAME_UPPER"}),
        ("LpPool", 1, {**_SPARSE, "auto_pad": "SAME_LOWER"}),
        ("AveragePool", 1, {**_SPARSE, "auto_pad": "SAME_LOWER"}),
    ],
)  # fmt: skip
def test_pools_are_those_of_onnx_runtime(kind, outputs, attributes, tmp_path):
    names = [f"y{i}" for i in range(outputs)]
    kinds = (TensorProto.FLOAT, TensorProto.INT64)
    shape = [2, 3, 7, 6, 5][: 2 + len(attributes.get("kernel_shape", [0, 0]))]
    graph = helper.make_graph(
        [helper.make_node(kind, ["x"], names, **attributes)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(n, k, None) for n, k in zip(names, kinds, strict=False)],
    )
    opsets = [helper.make_opsetid("", 19)]
    path = tmp_path / "model.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    )
    x = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = evaluate(import_model(path), {"x": x}).outputs
    for name, want in zip(names, session.run(names, {"x": x}), strict=True):
        np.testing.assert_allclose(found[name], want, rtol=1e-5)


@pytest.mark.parametrize("size", [(7, 5), (6, 4)])
def test_values_return_to_an_image_that_the_windows_did_not_fill(size, tmp_path):
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        node("MaxPool", ["x"], ["most", "at"], **window),
        node("MaxUnpool", ["most", "at", "shape"], ["y"], **window),
    ]
    shape = [2, 3, *size]
    made = model(nodes, [value("x", shape)], ["y"], {"shape": np.array(shape)}, opset=19)
    path = save(made, tmp_path)
    x = np.random.default_rng(4).normal(size=shape).astype(np.float32)
    (want,) = onnxruntime.InferenceSession(path).run(["y"], {"x": x})
    np.testing.assert_array_equal(evaluate(import_model(path), {"x": x}).outputs["y"], want)


def test_indices_from_elsewhere_count_in_the_output(tmp_path):
    """The example of ONNX 1.24; edgekit took them for indices of an image of 4 x 4."""
    made = node("MaxUnpool", ["x", "at", "shape"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    constants = {"at": np.array([[[[6, 8], [16, 18]]]]), "shape": np.array([1, 1, 5, 5])}
    path = save(model([made], [value("x", [1, 1, 2, 2])], ["y"], constants, opset=19), tmp_path)
    x = np.arange(5, 9, dtype=np.float32).reshape(1, 1, 2, 2)
    (want,) = onnxruntime.InferenceSession(path).run(["y"], {"x": x})
    np.testing.assert_array_equal(evaluate(import_model(path), {"x": x}).outputs["y"], want)


@pytest.mark.parametrize("kind", ["MaxPool", "LpPool", "AveragePool"])
def test_an_image_smaller_than_the_window_is_refused(kind, tmp_path):
    made = node(kind, ["x"], ["y"], kernel_shape=[3, 2], dilations=[2, 1])
    path = save(model([made], [value("x", [1, 2, 4, 6])], ["y"], opset=19), tmp_path)
    with pytest.raises(InputError, match="an image that holds one window of 5x2, found 4x6"):
        import_model(path)


def test_a_wide_window_takes_few_operators(tmp_path):
    made = node("LpPool", ["x"], ["y"], kernel_shape=[31, 31], pads=[1000] * 4)
    path = save(model([made], [value("x", [1, 2, 64, 64])], ["y"], opset=18), tmp_path)
    assert len(import_model(path).nodes) < 60
