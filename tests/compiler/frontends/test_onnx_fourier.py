"""Fourier transforms that the node tests do not cover, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from edgekit.host.compiler.frontends import import_model  # noqa: E402
from edgekit.host.compiler.ir.evaluate import evaluate  # noqa: E402
from edgekit.host.errors import InputError  # noqa: E402


def _agrees(folder, op, shape, operands, atol=1e-4, **attributes):
    """`operands`: constants following the signal, None for omitted ones."""
    given = {f"c{i}": v for i, v in enumerate(operands) if v is not None}
    names = [f"c{i}" if v is not None else "" for i, v in enumerate(operands)]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *names], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(v), n) for n, v in given.items()],
    )
    opset = helper.make_opsetid("", 17)
    path = folder / "model.onnx"
    made = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    path.write_bytes(made.SerializeToString())
    x = np.random.default_rng(5).normal(size=shape).astype(np.float32)
    (want,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    found = evaluate(import_model(path), {"x": x}).outputs["y"]
    assert found.shape == want.shape
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=atol)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("points", [8, 12, 17, None])
@pytest.mark.parametrize("axis", [1, 2])
def test_a_transform_of_any_length(parts, points, axis, tmp_path):
    for inverse in (0, 1):
        _agrees(tmp_path, "DFT", [2, 12, 9, parts], [points], axis=axis, inverse=inverse)
    if parts == 1:
        _agrees(tmp_path, "DFT", [2, 12, 9, 1], [points], axis=axis, onesided=1)


def test_transforms_of_many_points_and_with_a_large_prime_factor(tmp_path):
    """Within the errors of ONNX Runtime, whose results are up to 300 and 50."""
    _agrees(tmp_path, "DFT", [1, 8192, 1], [None], atol=1e-3, axis=1, onesided=1)
    _agrees(tmp_path, "DFT", [1, 509, 1], [None], atol=1e-2, axis=1)


@pytest.mark.parametrize("window", [None, np.hanning(20).astype(np.float32)])
@pytest.mark.parametrize(("length", "step"), [(20, 7), (20, 20)])
def test_transforms_of_frames(window, length, step, tmp_path):
    for half in (0, 1):
        _agrees(tmp_path, "STFT", [2, 90, 1], [step, window, length], onesided=half)


@pytest.mark.parametrize(
    ("dtype", "shape"), [(TensorProto.FLOAT, [12]), (TensorProto.INT32, [2, 12, 1])]
)
def test_a_signal_without_a_batch_or_of_integers_is_refused(dtype, shape, tmp_path):
    graph = helper.make_graph(
        [helper.make_node("DFT", ["x"], ["y"], axis=0)],
        "g",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info("y", dtype, None)],
    )
    opset = helper.make_opsetid("", 17)
    path = tmp_path / "model.onnx"
    made = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    path.write_bytes(made.SerializeToString())
    with pytest.raises(InputError, match="expected a signal of floats, found"):
        import_model(path)
