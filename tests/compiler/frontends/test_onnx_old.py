"""Operators of old opsets, whose operands were attributes, against ONNX Runtime on the new form."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from edgekit.host.compiler.frontends import import_model  # noqa: E402
from edgekit.host.compiler.frontends.onnx.old import MOVED  # noqa: E402
from edgekit.host.compiler.frontends.onnx.operators import onnx_operators  # noqa: E402
from edgekit.host.compiler.ir.evaluate import evaluate  # noqa: E402
from edgekit.host.compiler.transforms.passes.pipeline import run_passes  # noqa: E402
from tests.support.onnx_models import model, node, save, value  # noqa: E402


def _f32(*shape):
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def _ints(*numbers):
    return np.array(numbers, np.int64)


# Attributes that became operands under another name: (operator, attribute).
_RENAMED = {
    ("Pad", "value"): "constant_value", ("TopK", "k"): "K", ("Pad", "paddings"): "pads",
}  # fmt: skip
# No operand replaced these: what they asked for is what every later version does, or another
# attribute says it.
_DROPPED = {
    "axis", "broadcast", "consumed_inputs", "directions", "height_scale", "is_test",
    "output_sequence", "spatial", "width_scale",
}  # fmt: skip


def _moved_by_the_schemas():
    """{operator: (opset, {attribute: operand})} of the history of onnx's schemas."""
    versions = defaultdict(dict)
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.name in onnx_operators():
            versions[schema.name][schema.since_version] = schema
    found = {}
    for name, schemas in versions.items():
        newest = [i.name for i in schemas[max(schemas)].inputs]
        opsets = sorted(schemas)
        for before, since in itertools.pairwise(opsets):
            for gone in set(schemas[before].attributes) - set(schemas[since].attributes):
                operand = _RENAMED.get((name, gone), gone)
                if operand in newest:
                    opset, places = found.setdefault(name, (since, {}))
                    found[name] = max(opset, since), {**places, gone: newest.index(operand)}
                else:
                    assert gone in _DROPPED, f"{name}: where did attribute {gone} go?"
    return found


def test_every_attribute_that_became_an_operand_is_known():
    assert _moved_by_the_schemas() == MOVED


_IMAGE, _ROWS, _POSITIVE = _f32(1, 2, 3, 4), _f32(4, 9), np.abs(_f32(2, 3, 4)) + 0.1
_X = _f32(5, 6, 7)
_WIDE = _f32(2, 3, 4, 3)
_REDUCTIONS = [
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
]  # fmt: skip
_TWO = ["Add", "Sub", "Mul", "Div", "Pow"]
_TO = onnx.TensorProto

# Operator, opset, x, attributes; the form of opset 18: attributes and operands behind x.
_CASES = [
    *(("Clip", opset, _X, {"min": -0.5, "max": 0.4}, {}, [np.float32(-0.5), np.float32(0.4)])
      for opset in (1, 6, 10)),
    ("Clip", 6, _X, {"max": 0.5}, {}, [None, np.float32(0.5)]),
    ("Dropout", 1, _X, {"ratio": 0.3, "is_test": 1}, {}, [np.float32(0.3)]),
    ("Dropout", 10, _X, {"ratio": 0.3}, {}, [np.float32(0.3)]),
    ("Pad", 1, _ROWS, {"paddings": [1, 0, 2, 1], "value": 1.5}, {},
     [_ints(1, 0, 2, 1), np.float32(1.5)]),
    ("Pad", 2, _ROWS, {"pads": [1, 0, 2, 1], "value": 1.5}, {},
     [_ints(1, 0, 2, 1), np.float32(1.5)]),
    ("Pad", 10, _ROWS, {"pads": [-1, 0, 2, 1], "mode": "edge"}, {"mode": "edge"},
     [_ints(-1, 0, 2, 1)]),
    ("Reshape", 1, _ROWS, {"shape": [0, -1, 3], "consumed_inputs": [0]}, {}, [_ints(0, -1, 3)]),
    ("Reshape", 4, _ROWS, {"shape": [6, 6]}, {}, [_ints(6, 6)]),
    ("Slice", 1, _X, {"starts": [1, -3], "ends": [4, 100], "axes": [0, 2]}, {},
     [_ints(1, -3), _ints(4, 100), _ints(0, 2)]),
    ("Slice", 9, _X, {"starts": [1, 2], "ends": [-1, 5]}, {}, [_ints(1, 2), _ints(-1, 5)]),
    ("Split", 1, _ROWS, {"axis": 1, "split": [2, 3, 4]}, {"axis": 1}, [_ints(2, 3, 4)]),
    ("Split", 11, _ROWS, {"axis": 1, "split": [2, 3, 4]}, {"axis": 1}, [_ints(2, 3, 4)]),
    ("Squeeze", 1, _f32(1, 3, 1, 4), {"axes": [0, 2]}, {}, [_ints(0, 2)]),
    ("Squeeze", 11, _f32(1, 3, 1, 4), {}, {}, []),
    ("Unsqueeze", 1, _ROWS, {"axes": [0, 2]}, {}, [_ints(0, 2)]),
    ("TopK", 1, _ROWS, {"k": 3}, {}, [_ints(3)]),
    ("TopK", 1, _ROWS, {"k": 3, "axis": 0}, {"axis": 0}, [_ints(3)]),
    *((kind, 1, _POSITIVE, {"axes": [1]}, {}, [_ints(1)]) for kind in _REDUCTIONS),
    *((kind, 11, _POSITIVE, {"axes": [-1, 0], "keepdims": 0}, {"keepdims": 0}, [_ints(-1, 0)])
      for kind in _REDUCTIONS),
    ("DFT", 17, _f32(1, 5, 6, 1), {"axis": 2}, {}, [None, _ints(2).reshape(())]),
    ("DFT", 17, _f32(1, 5, 6, 1), {}, {}, [None, _ints(1).reshape(())]),
    # Other forms that later versions dropped.
    *((kind, opset, _POSITIVE, {"broadcast": 1, "axis": 1}, {}, [_POSITIVE[0, :, :1]])
      for kind in _TWO for opset in (1, 6)),
    *((kind, 1, _X, {"broadcast": 1, "axis": 1}, {}, [_f32(6, 1)]) for kind in ("Less", "Greater")),
    ("PRelu", 1, _WIDE, {}, {}, [_f32(3, 1, 1)]),
    ("Tile", 1, _ROWS, {}, {}, [_ints(1, 2)]),
    ("Concat", 1, _ROWS, {}, {"axis": 1}, [_f32(4, 2)]),
    ("Selu", 1, _X, {}, {"alpha": 1.6732, "gamma": 1.0507}, []),
    ("LpPool", 1, _IMAGE, {"kernel_shape": [2, 2], "p": 3.0}, {"kernel_shape": [2, 2], "p": 3}, []),
    ("GlobalLpPool", 1, _IMAGE, {"p": 3.0}, {"p": 3}, []),
    *(("Cast", opset, _X, {"to": kind}, {"to": number}, []) for opset in (1, 5)
      for kind, number in (("FLOAT", _TO.FLOAT), ("FLOAT16", _TO.FLOAT16), ("INT8", _TO.INT8),
                           ("INT64", _TO.INT64), ("DOUBLE", _TO.DOUBLE), ("BOOL", _TO.BOOL))),
]  # fmt: skip
# Operands that old versions have in another form than new ones.
_OLD_OPERANDS = {
    "PRelu": [_f32(3, 1, 1).reshape(3)], "Tile": [np.float32([2]), np.float32([1])],
    "Concat": [_f32(4, 2)],
    **{kind: [_POSITIVE[0, :, 0]] for kind in _TWO},
    **{kind: [_f32(6, 1).reshape(6)] for kind in ("Less", "Greater")},
}  # fmt: skip
_OUTPUTS = {"Split": 3, "TopK": 2}


def _graph(folder, kind, opset, x, attributes, operands):
    names = [f"c{i}" if v is not None else "" for i, v in enumerate(operands)]
    outputs = [f"y{i}" for i in range(_OUTPUTS.get(kind, 1))]
    constants = {n: np.asarray(v) for n, v in zip(names, operands, strict=True) if n}
    made = node(kind, ["x", *names], outputs, **attributes)
    proto = model([made], [value("x", x.shape, x.dtype)], outputs, constants, opset)
    for output in proto.graph.output:
        output.ClearField("type")
    return save(onnx.shape_inference.infer_shapes(proto), folder, f"{opset}.onnx")


@pytest.mark.parametrize(
    ("kind", "opset", "x", "attributes", "new", "operands"),
    _CASES,
    ids=lambda v: v if isinstance(v, str) else str(v) if isinstance(v, int) else "",
)
def test_an_old_form_is_the_new_one(kind, opset, x, attributes, new, operands, tmp_path):
    path = _graph(tmp_path, kind, 20 if kind == "DFT" else 18, x, new, operands)
    wanted = onnxruntime.InferenceSession(path).run(None, {"x": x})
    old = _OLD_OPERANDS.get(kind, [])
    graph = import_model(_graph(tmp_path, kind, opset, x, attributes, old))
    for each in (graph, run_passes(graph)[0]):
        found = evaluate(each, {"x": x}).outputs
        for got, want in zip(found.values(), wanted, strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("Affine", {"alpha": 0.5, "beta": 2.0}),
        ("Crop", {"border": [1, 0, 2, 1]}),
        ("Crop", {"border": [1, 0, 0, 0], "scale": [2, 3]}),
        ("ImageScaler", {"bias": [1.0, -2.0], "scale": 0.5}),
        ("ParametricSoftplus", {"alpha": 0.5, "beta": 2.0}),
        ("Scale", {"scale": -2.0}),
        ("ScaledTanh", {"alpha": 1.7, "beta": 0.6}),
    ],
)
def test_operators_that_onnx_dropped(kind, attributes, tmp_path):
    made = node(kind, ["x"], ["y"], **attributes)
    path = save(model([made], [value("x", _IMAGE.shape)], ["y"], {}, 7), tmp_path)
    (want,) = onnxruntime.InferenceSession(path).run(None, {"x": _IMAGE})
    got = evaluate(import_model(path), {"x": _IMAGE}).outputs["y"]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [1, 7, 8])
def test_scales_of_upsample_were_attributes(opset, tmp_path):
    named = {"height_scale": 2.0, "width_scale": 3.0, "mode": "bilinear"}
    listed = {"scales": [1.0, 1.0, 2.0, 3.0], "mode": "linear"}
    path = _graph(tmp_path, "Upsample", opset, _IMAGE, named if opset < 7 else listed, [])
    new = _graph(tmp_path, "Upsample", 9, _IMAGE, {"mode": "linear"}, [np.float32([1, 1, 2, 3])])
    (want,) = onnxruntime.InferenceSession(new).run(None, {"x": _IMAGE})
    got = evaluate(import_model(path), {"x": _IMAGE}).outputs["y0"]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [1, 6, 7])
def test_statistics_may_be_those_of_each_place(opset, tmp_path):
    x, scale, bias, mean = _f32(2, 3, 4, 5), _f32(3, 4, 5), _f32(1, 3, 4, 5)[0], _f32(3, 4, 5) / 2
    variance = np.abs(scale) + 0.1
    attributes = {"spatial": 0, "epsilon": 1e-3} | ({"is_test": 1} if opset < 7 else {})
    path = _graph(tmp_path, "BatchNormalization", opset, x, attributes,
                  [scale, bias, mean, variance])  # fmt: skip
    got = evaluate(import_model(path), {"x": x}).outputs["y0"]
    want = scale * (x - mean) / np.sqrt(variance + 1e-3) + bias
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def _cut(axes, start, end):
    return node("Slice", ["s"], ["n"], axes=axes, starts=[start], ends=[end])


def _as_float(name):
    return node("Cast", [name], ["y"], to=1)


_WEIGHTS = np.arange(8, dtype=np.float32).reshape(4, 1, 2)


def test_constants_are_reshaped_and_shapes_are_cut(tmp_path):
    """What failed: operands of sized operators were taken for granted."""
    reshaped = [node("Reshape", ["w"], ["w2"], shape=[4, 2]), node("MatMul", ["x", "w2"], ["y"])]
    x = _f32(1, 4)
    path = save(model(reshaped, [value("x", [1, 4])], ["y"], {"w": _WEIGHTS}, 1), tmp_path)
    got = evaluate(import_model(path), {"x": x}).outputs["y"]
    np.testing.assert_allclose(got, x @ _WEIGHTS.reshape(4, 2), rtol=1e-6)
    sized = [
        node("Shape", ["x"], ["s"]), _cut([0], 0, 1), node("Concat", ["n", "four"], ["to"], axis=0),
        node("Reshape", ["x", "to"], ["y"]),
    ]  # fmt: skip
    path = save(model(sized, [value("x", [1, 4])], ["y"], {"four": _ints(4)}, 9), tmp_path)
    np.testing.assert_array_equal(evaluate(import_model(path), {"x": x}).outputs["y"], x)


@pytest.mark.parametrize(
    "rest",
    [
        [node("Slice", ["z"], ["q"], axes=[1], starts=[0], ends=[2]), _as_float("q")],
        [node("Slice", ["z"], ["q"], axes=[0], starts=[0], ends=[1]), _as_float("q")],
        [node("Transpose", ["z"], ["t"]), node("Squeeze", ["t"], ["q"], axes=[1]), _as_float("q")],
        [node("Shape", ["z"], ["s"]), _cut([0], 1, 2), node("ConstantOfShape", ["n"], ["y"])],
        [node("Shape", ["z"], ["s"]), _cut([0], 1, 2), node("Concat", ["n", "m"], ["to"], axis=0),
         node("Reshape", ["z", "to"], ["q"]), _as_float("q")],
        [node("Shape", ["z"], ["s"]), _cut([0], 1, 2), node("Squeeze", ["n"], ["k"], axes=[0]),
         node("Unsqueeze", ["k"], ["to"], axes=[0]), node("Expand", ["one", "to"], ["y"])],
    ],
    ids=["rows", "columns", "squeezed", "filled", "reshaped", "expanded"],
)  # fmt: skip
def test_data_dependent_sizes_pass_old_operators(rest, tmp_path):
    nodes = [node("NonZero", ["x"], ["z"]), *rest]
    constants = {"m": _ints(1), "one": np.ones(1, np.float32)}
    x = np.array([0, 1, 0, 2, 3, 0], np.float32)
    path = save(model(nodes, [value("x", [6])], ["y"], constants, 9), tmp_path)
    (want,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    found = evaluate(import_model(path), {"x": x}).outputs
    (count,) = found["y_length"]
    assert count in want.shape
    np.testing.assert_array_equal(found["y"][tuple(slice(d) for d in want.shape)], want)
