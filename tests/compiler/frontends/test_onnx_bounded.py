"""Results with data-dependent sizes: bounded buffers with a length, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from edgekit.host.compiler.frontends import import_model  # noqa: E402
from edgekit.host.compiler.ir.evaluate import evaluate  # noqa: E402
from edgekit.host.compiler.transforms.passes.pipeline import run_passes  # noqa: E402
from edgekit.host.errors import InputError  # noqa: E402

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


def _agrees(path, x):
    """Compare every output with ONNX Runtime up to its length, and check the filler after it."""
    session = onnxruntime.InferenceSession(path)
    names = [o.name for o in session.get_outputs()]
    wanted = session.run(names, x)
    graph = import_model(path)
    for each in (graph, run_passes(graph)[0]):
        found = evaluate(each, x).outputs
        for name, want in zip(names, wanted, strict=True):
            got = found[name]
            lengths = [int(v[0]) for n, v in found.items() if n.endswith("_length")]
            if got.shape != want.shape:
                assert any(n in want.shape for n in lengths)
                inside = tuple(slice(d) for d in want.shape)
                assert got.ndim == want.ndim
                got = got[inside]
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)
            assert got.dtype == want.dtype
    return graph, found


def _typed(nodes, inputs, outputs, constants, folder, opset=17):
    """`inputs`: arrays by name; `outputs`: types by name."""
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for n, v in inputs.items()
        ],
        [helper.make_tensor_value_info(n, k, None) for n, k in outputs.items()],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.bool_, np.float16])
@pytest.mark.parametrize(
    ("axis", "picked"), [(0, [1, 0, 1, 1]), (1, [0, 1]), (None, [1] * 7), (1, [0, 0])]
)
def test_what_a_computed_condition_picks(axis, picked, dtype, tmp_path):
    rng = np.random.default_rng(5)
    x = {"x": (rng.random((4, 3, 2)) * 9).astype(dtype), "c": np.array(picked, np.bool_)}
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    axes = {} if axis is None else {"axis": axis}
    nodes = [helper.make_node("Compress", ["x", "c"], ["y"], **axes)]
    path = _typed(nodes, x, {"y": kind}, {}, tmp_path)
    _, found = _agrees(path, x)
    assert found["y_length"].tolist() == [sum(picked)]


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int8])
def test_distinct_values(dtype, axis, kept, tmp_path):
    x = {"x": np.random.default_rng(8).integers(0, 3, (9, 2)).astype(dtype)}
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    axes = {} if axis is None else {"axis": axis}
    names = ["y", "first", "places", "counts"]
    nodes = [helper.make_node("Unique", ["x"], names, sorted=kept, **axes)]
    outputs = dict.fromkeys(names, TensorProto.INT64) | {"y": kind}
    _, found = _agrees(_typed(nodes, x, outputs, {}, tmp_path), x)
    assert found["y_length"].tolist() == [len(np.unique(x["x"], axis=axis))] or axis == 1


@pytest.mark.parametrize(
    ("dtype", "start", "limit", "delta"),
    [
        (np.int64, 2, 9, 3), (np.int64, 9, 2, -2), (np.int32, 5, 5, 1), (np.int64, 3, 1, 1),
        (np.float32, 0.5, 6, 0.75),
    ],
)  # fmt: skip
def test_a_range_with_bounded_ends(dtype, start, limit, delta, tmp_path):
    nodes = [
        helper.make_node("Max", ["start", "low"], ["a"]),
        helper.make_node("Min", ["limit", "high"], ["b"]),
        helper.make_node("Max", ["b", "low"], ["c"]),
        helper.make_node("Min", ["a", "high"], ["d"]),
        helper.make_node("Range", ["d", "c", "delta"], ["y"]),
    ]
    x = {"start": np.array(start, dtype), "limit": np.array(limit, dtype)}
    constants = {"low": dtype(0), "high": dtype(12), "delta": dtype(delta)}
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    _, found = _agrees(_typed(nodes, x, {"y": kind}, constants, tmp_path), x)
    assert found["y_length"].tolist() == [len(np.arange(start, limit, delta))]


def test_a_range_from_a_computed_start_of_a_known_length(tmp_path):
    nodes = [
        helper.make_node("Add", ["past", "more"], ["end"]),
        helper.make_node("Range", ["past", "end", "one"], ["y"]),
    ]
    x, constants = {"past": np.array(1000)}, {"more": 7, "one": 1}
    path = _typed(nodes, x, {"y": TensorProto.INT64}, constants, tmp_path)
    graph, _ = _agrees(path, x)
    assert graph.tensors["y"].shape == (7,)


def test_a_range_without_bound_is_refused(tmp_path):
    x = {"limit": np.array(3)}
    nodes = [helper.make_node("Range", ["zero", "limit", "one"], ["y"])]
    path = _typed(nodes, x, {"y": TensorProto.INT64}, {"zero": 0, "one": 1}, tmp_path)
    with pytest.raises(InputError, match=r"Range y.*--max-rows N sets the largest"):
        import_model(path)


_SHAPE = helper.make_node("Shape", ["at"], ["shape"])
_COUNT = helper.make_node("Gather", ["shape", "one"], ["n"])
_F, _I = TensorProto.FLOAT, TensorProto.INT64


@pytest.mark.parametrize(
    ("nodes", "kind"),
    [
        ([("Identity", ["n"], ["y"])], _I),
        ([("Cast", ["n"], ["f"]), ("Div", ["x", "f"], ["y"])], _F),
        ([("Range", ["zero", "n", "one"], ["y"])], _I),
        ([("Sub", ["n", "one"], ["m"]), ("Range", ["one", "m", "one"], ["y"])], _I),
        ([("Min", ["n", "two"], ["m"]), ("Unsqueeze", ["m", "first"], ["k"]),
          ("Slice", ["x", "first", "k", "first"], ["y"])], _F),
        ([("Unsqueeze", ["n", "first"], ["k"]), ("ConstantOfShape", ["k"], ["y"])], _F),
        ([("Slice", ["at", "first", "twos", "ones"], ["y"])], _I),
        ([("Greater", ["n", "two"], ["b"]), ("Where", ["b", "x", "n32"], ["y"])], _F),
        ([("Gather", ["shape", "zero"], ["r"]), ("Cast", ["r"], ["f"]), ("Add", ["x", "f"], ["y"])],
         _F),
        ([("Size", ["at"], ["y"])], _I),
        ([("Slice", ["shape", "ones", "twos"], ["y"])], _I),
    ],
)  # fmt: skip
@pytest.mark.parametrize("found", [0, 1, 4, 7])
def test_numbers_that_the_data_say(found, nodes, kind, tmp_path):
    made = [helper.make_node("NonZero", ["x"], ["at"]), _SHAPE, _COUNT]
    for op, ins, outs in nodes:
        made.append(helper.make_node(op, ins, outs, **({"to": 1} if op == "Cast" else {})))
    x = {"x": np.zeros(7, np.float32)}
    x["x"][7 - found :] = 3
    constants = {"zero": 0, "one": 1, "two": 2, "first": [0], "ones": [1], "twos": [2],
                 "n32": np.float32(5)}  # fmt: skip
    _agrees(_typed(made, x, {"y": kind}, constants, tmp_path), x)


@pytest.mark.parametrize(
    "nodes",
    [
        [("ReduceMean", ["at"], ["y"])],
        [("Shape", ["at"], ["n"]), ("Expand", ["x", "n"], ["y"]), ("MatMul", ["y", "x"], ["z"])],
        [("Slice", ["at", "last", "many", "one"], ["y"])],
    ],
)
def test_the_bound_is_not_taken_for_the_length(nodes, tmp_path):
    made = [helper.make_node("NonZero", ["x"], ["at"])]
    made += [helper.make_node(op, ins, outs) for op, ins, outs in nodes]
    constants = {"one": [1], "many": [99], "last": [-1]}
    path = _model(tmp_path, made, {"x": [2]}, {nodes[-1][2][0]: _I}, constants)
    with pytest.raises(InputError, match="data-dependent"):
        import_model(path)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("start", "end"), [(0, 3), (2, 4), (-3, 9), (3, 1), (1, -1), (-9, 2)])
def test_a_slice_with_computed_ends(start, end, axis, tmp_path):
    x = {
        "x": np.random.default_rng(2).random((5, 6)).astype(np.float32),
        "start": np.array([start]), "end": np.array([end]),
    }  # fmt: skip
    nodes = [helper.make_node("Slice", ["x", "start", "end", "axis"], ["y"])]
    _, found = _agrees(_typed(nodes, x, {"y": _F}, {"axis": [axis]}, tmp_path), x)
    wanted = range(*slice(start, end).indices((5, 6)[axis]))
    assert found["y_length"].tolist() == [len(wanted)]


def test_a_slice_of_a_known_size_has_no_length(tmp_path):
    nodes = [
        helper.make_node("Max", ["at", "zero"], ["low"]),
        helper.make_node("Min", ["low", "most"], ["start"]),
        helper.make_node("Cast", ["start"], ["f"], to=1),
        helper.make_node("Add", ["f", "two"], ["g"]),
        helper.make_node("Cast", ["g"], ["k"], to=7),
        helper.make_node("Min", ["k", "size"], ["end"]),
        helper.make_node("Slice", ["x", "start", "end", "axis"], ["y"]),
    ]
    constants = {"zero": [0], "most": [4], "two": np.float32(2), "size": [6], "axis": [1]}
    x = {"x": np.random.default_rng(2).random((5, 6)).astype(np.float32), "at": np.array([3])}
    graph, _ = _agrees(_typed(nodes, x, {"y": _F}, constants, tmp_path), x)
    assert graph.outputs == ("y",)
    assert graph.tensors["y"].shape == (5, 2)


@pytest.mark.parametrize("axis", [1, -1, 0, -2])
def test_sums_along_rows_whose_number_depends_on_data(axis, tmp_path):
    nodes = [
        helper.make_node("Compress", ["x", "c"], ["kept"], axis=0),
        helper.make_node("CumSum", ["kept", "axis"], ["y"]),
    ]
    x = {"x": np.random.default_rng(2).random((5, 6)).astype(np.float32), "c": np.arange(5) > 1}
    _agrees(_typed(nodes, x, {"y": _F}, {"axis": axis}, tmp_path), x)


def test_an_empty_slice_of_a_computed_shape(tmp_path):
    """TorchScript writes it where an element of every row is assigned."""
    nodes = [
        helper.make_node("Compress", ["x", "c"], ["kept"], axis=0),
        helper.make_node("Shape", ["kept"], ["size"]),
        helper.make_node("Slice", ["size", "two", "many", "zero"], ["none"]),
        helper.make_node("Concat", ["size", "none"], ["both"], axis=0),
        helper.make_node("Reshape", ["kept", "both"], ["y"]),
    ]
    x = {"x": np.random.default_rng(2).random((5, 4)).astype(np.float32), "c": np.arange(5) > 1}
    constants = {"two": [2], "many": [2**63 - 1], "zero": [0]}
    _agrees(_typed(nodes, x, {"y": _F}, constants, tmp_path), x)


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "outputs"),
    [
        ("Pad", ["f", "front"], {}, ["y"]),
        ("Pad", ["f", "back"], {}, ["y"]),
        ("Tile", ["f", "twice"], {}, ["y"]),
        ("Split", ["f", "halves"], {"axis": 1}, ["y", "z"]),
        ("Slice", ["f", "last", "first", "axis", "last"], {}, ["y"]),
    ],
)
def test_what_would_put_rows_behind_filler_is_refused(op, operands, attributes, outputs, tmp_path):
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Cast", ["places"], ["f"], to=TensorProto.FLOAT),
        helper.make_node(op, operands, outputs, **attributes),
    ]
    constants = {
        "front": [0, 1, 0, 0], "back": [0, 0, 0, 1], "ones": np.ones((1, 2), np.float32),
        "twice": [1, 2], "halves": [3, 3], "last": [-1], "first": [-100], "axis": [1],
    }  # fmt: skip
    path = _model(tmp_path, nodes, {"x": [6]}, dict.fromkeys(outputs, TensorProto.FLOAT), constants)
    with pytest.raises(InputError, match=r"row-wise operators|slice from the first"):
        import_model(path)


@pytest.mark.parametrize("at", [-1, [-1, 0, -2], [1]])
def test_indices_from_the_end_are_those_of_valid_rows(at, tmp_path):
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["m"]),
        helper.make_node("Compress", ["x", "m"], ["kept"]),
        helper.make_node("Gather", ["kept", "at"], ["y"]),
    ]
    path = _model(
        tmp_path,
        nodes,
        {"x": [12]},
        {"y": TensorProto.FLOAT},
        {"zero": np.float32(0), "at": np.array(at)},
    )
    x = {"x": np.random.default_rng(1).standard_normal(12).astype(np.float32)}
    found = evaluate(run_passes(import_model(path))[0], x).outputs
    assert list(found) == ["y"]
    (want,) = onnxruntime.InferenceSession(path).run(None, x)
    np.testing.assert_array_equal(found["y"], want)


@pytest.mark.parametrize("kind", ["Sum", "Max", "Min", "Prod", "L2", "LogSumExp"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reductions_leave_filler_out(kind, keepdims, tmp_path):
    axes = {"axes": np.array([0])} if kind == "Sum" else {}
    attributes = {} if axes else {"axes": [0]}
    nodes = [
        helper.make_node("Greater", ["k", "zero"], ["m"]),
        helper.make_node("Compress", ["x", "m"], ["kept"], axis=0),
        helper.make_node(f"Reduce{kind}", ["kept", *axes], ["y"], keepdims=keepdims, **attributes),
    ]
    constants = {"zero": np.float32(0), **axes}
    path = _model(tmp_path, nodes, {"x": [7, 3], "k": [7]}, {"y": TensorProto.FLOAT}, constants)
    rng = np.random.default_rng(2)
    x = {n: rng.standard_normal(s).astype(np.float32) - 0.5 for n, s in (("x", (7, 3)), ("k", 7))}
    found = evaluate(run_passes(import_model(path))[0], x).outputs
    assert list(found) == ["y"]
    (want,) = onnxruntime.InferenceSession(path).run(None, x)
    np.testing.assert_allclose(found["y"], want, rtol=1e-6)


def test_a_shape_whose_constant_is_larger_than_the_most_rows(tmp_path):
    """Detectors join the number of boxes with 6, the size of each."""
    node = helper.make_node
    nodes = [
        node("Compress", ["x", "c"], ["rows"], axis=0),
        node("Shape", ["rows"], ["shape"]),
        node("Slice", ["shape", "zero", "one"], ["count"]),
        node("Concat", ["count", "six"], ["sizes"], axis=0),
        node("Reshape", ["rows", "sizes"], ["y"]),
    ]
    x = {"x": np.arange(12, dtype=np.float32).reshape(2, 1, 6), "c": np.array([False, True])}
    constants = {"zero": np.array([0]), "one": np.array([1]), "six": np.array([6])}
    _agrees(_typed(nodes, x, {"y": TensorProto.FLOAT}, constants, tmp_path), x)
