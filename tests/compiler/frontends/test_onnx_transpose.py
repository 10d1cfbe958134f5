"""Transposed convolutions in 1-D and 2-D against ONNX Runtime, and their multiplication counts."""

from __future__ import annotations

import math

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from edgekit.host.compiler.frontends import import_model  # noqa: E402
from edgekit.host.compiler.ir import ops  # noqa: E402
from edgekit.host.compiler.ir.evaluate import evaluate  # noqa: E402

_FORMS = [
    ((4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
    ((3, 3), {"strides": [2, 2], "pads": [2, 0, 2, 1]}),
    ((5, 4), {"strides": [3, 1], "pads": [1, 2, 0, 1]}),
    ((2, 3), {"strides": [3, 2]}),
    ((3, 3), {"strides": [2, 2], "pads": [4, 3, 5, 0]}),
    ((4, 4), {"strides": [2, 2], "output_shape": [13, 12]}),
    ((3, 2), {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    ((1, 1), {"strides": [9, 2]}),
    ((3, 3), {"strides": [2, 2], "dilations": [2, 1], "pads": [1, 1, 1, 1]}),
    ((3, 2), {"strides": [3, 2], "dilations": [2, 1]}),
    ((1, 3), {"strides": [2, 1], "output_shape": [12, 7], "auto_pad": "SAME_UPPER"}),
    ((1, 2), {"strides": [2, 3], "auto_pad": "SAME_LOWER"}),
    ((16,), {"strides": [8], "pads": [4, 4]}),
    ((11,), {"strides": [5], "pads": [3, 3]}),
]


def _model(shape, channels, groups, window, attributes, folder):
    """The file, and an input: a 1-D or 2-D transposed convolution with a bias."""
    rng = np.random.default_rng(7)
    w = rng.normal(size=(shape[1], channels // groups, *window)).astype(np.float32)
    b = rng.normal(size=channels).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], group=groups, **attributes)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )
    opsets = [helper.make_opsetid("", 13)]
    path = folder / "model.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    )
    return path, rng.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("channels", [4, 8, 20])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(("window", "attributes"), _FORMS)
def test_a_transposed_convolution(window, attributes, groups, channels, tmp_path):
    shape = (2, 4, *(6, 7)[-len(window) :])
    path, x = _model(shape, channels, groups, window, attributes, tmp_path)
    (want,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    found = evaluate(import_model(path), {"x": x}).outputs["y"]
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("window", "attributes", "groups"),
    [
        ((4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}, 1),
        ((4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}, 16),
        ((3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}, 1),
        ((16,), {"strides": [8], "pads": [4, 4]}, 1),
    ],
)
def test_no_zeros_between_pixels_are_multiplied(window, attributes, groups, tmp_path):
    shape = (1, 16, *(10, 12)[-len(window) :])
    path, _ = _model(shape, 16, groups, window, attributes, tmp_path)
    graph = import_model(path)
    made = 0
    for node in graph.nodes:
        if isinstance(node.op, (ops.Conv2D, ops.DepthwiseConv2D)):
            weights, y = graph.tensors[node.inputs[1]], graph.tensors[node.outputs[0]]
            made += math.prod(y.shape[:3]) * weights.elements
    assert made <= math.prod(shape) * 16 // groups * math.prod(window)
