"""Results that are as long as the data say: buffers of their bound with a length, against ONNX
Runtime."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from edgekit.host.errors import InputError  # noqa: E402
from edgekit.host.graph.evaluate import evaluate  # noqa: E402
from edgekit.host.importers import import_model  # noqa: E402
from edgekit.host.passes.pipeline import run_passes  # noqa: E402

_N = 60


def _model(folder, nodes, inputs, outputs, constants=()):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, k, None) for n, k in outputs.items()],
        [numpy_helper.from_array(np.array(v), n) for n, v in dict(constants).items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def _boxes(rng):
    corner = rng.random((2, _N, 2))
    boxes = np.concatenate([corner, corner + rng.random((2, _N, 2))], 2).astype(np.float32)
    return {"boxes": boxes, "scores": rng.random((2, 3, _N)).astype(np.float32)}


@pytest.mark.parametrize("centers", [0, 1])
@pytest.mark.parametrize(("limit", "threshold"), [(4, 0.3), (1 << 40, 0.9), (5, 2.0)])
def test_kept_boxes_and_what_is_gathered_by_them(centers, limit, threshold, tmp_path):
    operands = ["boxes", "scores", "limit", "overlap", "threshold"]
    nodes = [
        helper.make_node("NonMaxSuppression", operands, ["kept"], center_point_box=centers),
        helper.make_node("Gather", ["kept", "column"], ["at"], axis=1),
        helper.make_node("Gather", ["rows", "at"], ["found"], axis=0),
    ]
    flat = helper.make_node("Reshape", ["boxes", "shape"], ["rows"])
    constants = {
        "limit": np.array([limit]), "overlap": np.array([0.4], np.float32),
        "threshold": np.array([threshold], np.float32), "column": 2, "shape": [-1, 4],
    }  # fmt: skip
    x = _boxes(np.random.default_rng(7))
    outputs = {"kept": TensorProto.INT64, "found": TensorProto.FLOAT}
    path = _model(tmp_path, [flat, *nodes], {n: v.shape for n, v in x.items()}, outputs, constants)
    wanted = onnxruntime.InferenceSession(path).run(list(outputs), x)
    graph, _ = run_passes(import_model(path))
    found = evaluate(graph, x).outputs
    count = len(wanted[0])
    assert found["kept_length"].tolist() == [count]
    assert found["kept"].shape == (2 * 3 * min(limit, _N), 3)
    for name, want in zip(outputs, wanted, strict=True):
        np.testing.assert_array_equal(found[name][:count], want)
    assert np.all(found["kept"][count:] == -1)


def test_places_of_elements_that_are_not_0(tmp_path):
    path = _model(
        tmp_path,
        [helper.make_node("NonZero", ["x"], ["y"])],
        {"x": [3, 5]},
        {"y": TensorProto.INT64},
    )
    x = {"x": (np.random.default_rng(3).random((3, 5)) > 0.5).astype(np.float32)}
    found = evaluate(import_model(path), x).outputs
    (want,) = onnxruntime.InferenceSession(path).run(None, x)
    assert found["y_length"].tolist() == [want.shape[1]]
    np.testing.assert_array_equal(found["y"][:, : want.shape[1]], want)
    assert np.all(found["y"][:, want.shape[1] :] == -1)


@pytest.mark.parametrize(
    ("nodes", "kind"),
    [
        ([("ReduceMax", ["at"], ["y"])], TensorProto.INT64),
        ([("Shape", ["at"], ["n"]), ("Cast", ["n"], ["y"])], TensorProto.FLOAT),
        (
            [("Shape", ["at"], ["n"]), ("Cast", ["n"], ["f"]), ("Div", ["x", "f"], ["y"])],
            TensorProto.FLOAT,
        ),
    ],
)
def test_the_bound_is_not_taken_for_the_length(nodes, kind, tmp_path):
    made = [helper.make_node("NonZero", ["x"], ["at"])]
    for op, ins, outs in nodes:
        made.append(helper.make_node(op, ins, outs, **({"to": 1} if op == "Cast" else {})))
    path = _model(tmp_path, made, {"x": [2]}, {"y": kind})
    with pytest.raises(InputError, match="the data say"):
        import_model(path)
