"""3-D convolutions against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from edgekit.host.compiler.frontends import import_model  # noqa: E402
from edgekit.host.compiler.ir.evaluate import evaluate  # noqa: E402
from edgekit.host.compiler.transforms.passes.pipeline import run_passes  # noqa: E402

_FORMS = [
    {},
    {"strides": [2, 1, 2], "pads": [1, 0, 1, 1, 1, 0]},
    {"dilations": [2, 1, 1], "strides": [1, 2, 1]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2, 2]},
]


@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("form", [*_FORMS, {"strides": [2, 2, 2], "output_padding": [1, 0, 1]}])
def test_a_convolution_of_volumes(kind, groups, form, tmp_path):
    if kind == "Conv" and "output_padding" in form:
        return
    rng = np.random.default_rng(1)
    ends = (8, 4 // groups) if kind == "Conv" else (4, 8 // groups)
    w = rng.normal(size=(*ends, 3, 2, 3)).astype(np.float32)
    b = rng.normal(size=8).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node(kind, ["x", "w", "b"], ["y"], group=groups, **form)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 5, 6, 7])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    x = rng.normal(size=(2, 4, 5, 6, 7)).astype(np.float32)
    (want,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    found = evaluate(run_passes(import_model(path))[0], {"x": x}).outputs["y"]
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_windows_that_leave_out_the_end_begin_where_onnx_runtime_begins(kind, axes, tmp_path):
    """Its automatic padding is negative there."""
    sizes, windows, strides = (13, 10, 6)[:axes], (2, 1, 3)[:axes], (13, 5, 4)[:axes]
    w = np.ones((1, 1, *windows), np.float32)
    made = helper.make_model(
        helper.make_graph(
            [helper.make_node("Conv", ["x", "w"], ["y"], auto_pad=kind, strides=strides)],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, *sizes])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(w, "w")],
        ),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    x = np.arange(np.prod(sizes), dtype=np.float32).reshape(1, 1, *sizes)
    (want,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    np.testing.assert_array_equal(evaluate(import_model(path), {"x": x}).outputs["y"], want)
