"""Files with a single defect each: one clear line, never another exception."""

from __future__ import annotations

import re
import tracemalloc

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.errors import InputError


def weights(files, **changes):
    given = {"name": "w", "shape": [4, 1, 1, 3], "data": np.ones((4, 1, 1, 3), np.float32)}
    return files.tensor(**{**given, **changes})


def convolution(files, tensors=None, op=None, inputs=("x",), outputs=("y",), extra=()):
    """A model of one convolution with some parts replaced."""
    fields = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": 1}
    known = {
        "x": files.tensor("x", [1, 5, 5, 3]),
        "w": weights(files),
        "b": files.tensor("b", [4], data=np.zeros(4, np.float32)),
        "y": files.tensor("y", [1, 5, 5, 4]),
        **(tensors or {}),
    }
    given = {
        "code": "CONV_2D",
        "inputs": ["x", "w", "b"],
        "outputs": ["y"],
        "options": "Conv2DOptions",
        **(op or {}),
    }
    given["fields"] = (
        {**fields, **given.get("fields", {})} if given["options"] == "Conv2DOptions" else {}
    )
    return files.model(
        files.graph(list(known.values()), [files.op(**given), *extra], inputs, outputs)
    )


def quantized(files, **changes):
    """The tensors of an 8-bit convolution."""
    stored = np.ones((4, 1, 1, 3), np.int8)
    tensors = {
        "x": files.tensor("x", [1, 5, 5, 3], "INT8", None, [0.1], [0]),
        "w": files.tensor("w", [4, 1, 1, 3], "INT8", stored, [0.1] * 4, [0] * 4),
        "b": files.tensor("b", [4], "INT32", np.zeros(4, np.int32), [0.01] * 4),
        "y": files.tensor("y", [1, 5, 5, 4], "INT8", None, [0.1], [0]),
    }
    return {**tensors, **changes}


def test_the_model_that_is_changed_below_is_sound(files):
    assert len(graph_from_tflite(convolution(files), "m").nodes) == 1
    assert len(graph_from_tflite(convolution(files, quantized(files)), "m").nodes) == 1


TENSORS = {
    "negative size of an input": ("x", {"shape": [1, -5, 5, 3]}, "at least 0"),
    "empty input": ("x", {"shape": [1, 0, 5, 3]}, "at least 1"),
    "huge input": ("x", {"shape": [1, 40000, 40000, 3]}, "2147483647 elements"),
    "product of sizes that overflows": ("x", {"shape": [2**31 - 1] * 4}, "2147483647 elements"),
    "input with a value": ("x", {"data": np.zeros((1, 5, 5, 3), np.float32)}, "found one"),
    "rank of an input": ("x", {"shape": [5, 5, 3]}, "rank 4"),
    "too many dimensions": ("x", {"shape": [1] * 9}, "at most 8 dimensions"),
    "type of an input": ("x", {"type": "COMPLEX64"}, "supported type, found COMPLEX64"),
    "weights of another type": ("w", {"type": "INT32"}, "weights of type f32 or s8"),
    "rank of the weights": ("w", {"shape": [4, 3]}, "rank 4"),
    "weights that do not fit": ("w", {"shape": [3, 1, 1, 4]}, "weights of shape"),
    "too few bytes": ("w", {"data": b"1234"}, "expected 48 bytes for f32[4, 1, 1, 3], found 4"),
    "too many bytes": ("w", {"data": bytes(49)}, "found 49"),
    "negative size of a constant": ("w", {"shape": [-4, 1, 1, -3]}, "sizes of at least 0"),
    "buffer that is not there": ("w", {"buffer": 99}, "expected a buffer below"),
    "constant without data": ("w", {"data": None}, "expected tensor 1 (w) to be a constant"),
    "bias that does not fit": ("b", {"shape": [2, 2]}, "bias of shape"),
    "type of the output": ("y", {"type": "INT32"}, "output of type f32, found s32"),
}


@pytest.mark.parametrize("case", TENSORS)
def test_a_wrong_tensor_is_named(files, case):
    name, changes, message = TENSORS[case]
    sound = {
        "x": {"shape": [1, 5, 5, 3]},
        "w": {"shape": [4, 1, 1, 3], "data": np.ones((4, 1, 1, 3), np.float32)},
        "b": {"shape": [4], "data": np.zeros(4, np.float32)},
        "y": {"shape": [1, 5, 5, 4]},
    }[name]
    tensor = files.tensor(**{"name": name, **sound, **changes})
    with pytest.raises(InputError, match=re.escape(message)):
        graph_from_tflite(convolution(files, {name: tensor}), "m")


OPERATORS = {
    "input index": ({"inputs": ["x", 77, "b"]}, "expected a tensor from 0 to 3, found 77"),
    "negative index": ({"inputs": ["x", -2, "b"]}, "found -2"),
    "output index": ({"outputs": [77]}, "found 77"),
    "missing weights": ({"inputs": ["x"]}, "input 1 (weights)"),
    "absent weights": ({"inputs": ["x", -1, "b"]}, "input 1 (weights)"),
    "no output": ({"outputs": []}, "expected an output"),
    "two outputs": ({"outputs": ["y", "y"]}, "write each tensor once"),
    "output into the input": ({"outputs": ["x"]}, "write each tensor once"),
    "output into a constant": ({"outputs": ["w"]}, "write each tensor once"),
    "its own output": ({"inputs": ["y", "w", "b"]}, "output of an earlier operator"),
    "stride 0": ({"fields": {"StrideH": 0}}, "stride of at least 1, found 0x1"),
    "negative stride": ({"fields": {"StrideW": -3}}, "stride of at least 1"),
    "dilation 0": ({"fields": {"DilationHFactor": 0}}, "dilation of at least 1"),
    "padding kind": ({"fields": {"Padding": 7}}, "SAME or VALID, found number 7"),
    "activation": ({"fields": {"FusedActivationFunction": 5}}, "fused activation"),
    "options of another operator": (
        {"options": "AddOptions"},
        "expected Conv2DOptions, found AddOptions",
    ),
    "no options": ({"options": ""}, "stride of at least 1"),
    "weights for bias": ({"inputs": ["x", "w", "w"]}, "bias of shape"),
}


@pytest.mark.parametrize("case", OPERATORS)
def test_a_wrong_operator_is_named(files, case):
    changes, message = OPERATORS[case]
    content = convolution(files, op=changes)
    with pytest.raises(InputError, match=r"operator 0 \(CONV_2D\): .*" + re.escape(message)):
        graph_from_tflite(content, "m")


def test_a_dilation_beyond_the_image_is_refused(files):
    w = weights(files, shape=[4, 3, 1, 3], data=np.ones((4, 3, 1, 3), np.float32))
    dilated = {"fields": {"DilationHFactor": 2**30, "Padding": 0}}
    with pytest.raises(InputError, match="padding from 0 to 65536"):
        graph_from_tflite(convolution(files, {"w": w}, dilated), "m")


def test_computed_weights_of_quantized_values_are_refused(files):
    x = files.tensor("x", [4, 5, 5, 3], "INT8", scale=[0.5], zero=[0])
    y = files.tensor("y", [4, 1, 1, 4], "INT8", scale=[0.5], zero=[0])
    content = convolution(files, {"x": x, "y": y}, {"inputs": ["x", "x"]})
    with pytest.raises(InputError, match="constant quantized weights"):
        graph_from_tflite(content, "m")


@pytest.mark.parametrize(
    ("name", "scale", "zero", "message"),
    [
        ("x", [0.0], [0], "positive finite scales"),
        ("x", [-0.1], [0], "positive finite scales"),
        ("x", [float("nan")], [0], "positive finite scales"),
        ("x", [float("inf")], [0], "positive finite scales"),
        ("x", [], [], "expected one scale for image, which is s8"),
        ("y", [0.1] * 5, [0] * 5, "one scale per channel"),
        ("x", [0.1], [0, 0, 0], "expected 1 zero points, found 3"),
        ("x", [0.1], [1 << 40], "zero points from -128 to 127, found 1099511627776"),
        ("w", [0.1] * 4, [0, 0, 1, 0], "zero points from 0 to 0"),
        ("w", [0.1] * 3, [0] * 3, "one scale per channel"),
        ("w", [], [], "weights with a scale"),
        ("y", [1e-9], [0], "ratio of scales"),
    ],
)
def test_wrong_scales_are_refused(files, name, scale, zero, message):
    tensors = quantized(files)
    old = tensors[name]
    tensors[name] = files.tensor(name, old.shape, old.type, old.data, scale, zero)
    with pytest.raises(InputError, match=message):
        graph_from_tflite(convolution(files, tensors), "m")


@pytest.mark.parametrize("kind", ["INT8", "UINT8", "INT16"])
@pytest.mark.parametrize(
    ("code", "scales", "options"),
    [("GELU", (0.5, None), "GeluOptions"), ("ABS", (0.5, None), ""),
     ("DIV", (0.5, 0.5, None), "DivOptions"), ("SUB", (None, None, 0.5), "SubOptions"),
     ("SUB", (0.5, None, 0.5), "SubOptions"), ("SQUARED_DIFFERENCE", (0.5, 0.5, None), "")],
)  # fmt: skip
def test_quantized_values_of_which_some_have_no_scale_are_refused(
    files, code, scales, options, kind
):
    tensors = [
        files.tensor(f"t{i}", [4], kind, None, *(([scale], [0]) if scale else ()))
        for i, scale in enumerate(scales)
    ]
    *ins, out = range(len(scales))
    model = files.model(files.graph(tensors, [files.op(code, ins, [out], options)], ins, [out]))
    with pytest.raises(InputError, match=rf"operator 0 \({code}\): expected .* found"):
        graph_from_tflite(model, "m")


@pytest.mark.parametrize(("scale", "zero"), [(0.1, 0), (1 / 32768, 1)])
def test_softmax_of_16_bits_demands_fractions(files, scale, zero):
    x = files.tensor("x", [1, 9], "INT16", None, [0.1], [0])
    y = files.tensor("y", [1, 9], "INT16", None, [scale], [zero])
    op = files.op("SOFTMAX", ["x"], ["y"], "SoftmaxOptions", {"Beta": 1.0})
    with pytest.raises(InputError, match="scale 1/32768"):
        graph_from_tflite(files.model(files.graph([x, y], [op], ["x"], ["y"])), "m")


def test_all_unsupported_operators_are_listed_in_one_line(files):
    tensors = [files.tensor(n, [3]) for n in "abcd"]
    ops = [
        files.op("HASHTABLE_FIND", ["a"], ["b"]),
        files.op("RELU", ["b"], ["c"]),
        files.op("CUSTOM:Evil\nName", ["c"], ["d"]),
    ]
    content = files.model(files.graph(tensors, ops, ["a"], ["d"]))
    expected = (
        "operators HASHTABLE_FIND (0), CUSTOM:Evil?Name (2) are not supported; what to do instead: "
        "edgekit inspect MODEL; supported operators: edgekit compile --list-operators"
    )
    with pytest.raises(InputError, match=re.escape(expected)):
        graph_from_tflite(content, "m")


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        (["x"], [], "model with outputs"),
        (["x", "x"], ["y"], "distinct inputs"),
        ([99], ["y"], "from 0 to 3, found 99"),
        (["x"], [-1], "found -1"),
        ([], ["y"], "output of an earlier operator"),
    ],
)
def test_wrong_ends_are_refused(files, inputs, outputs, message):
    with pytest.raises(InputError, match=message):
        graph_from_tflite(convolution(files, inputs=inputs, outputs=outputs), "m")


def test_an_output_listed_twice_is_returned_twice(files):
    graph = graph_from_tflite(convolution(files, outputs=["y", "y"]), "m")
    assert graph.outputs == ("y", "y_2")
    made = evaluate(graph, {"x": np.ones((1, 5, 5, 3), np.float32)}).outputs
    np.testing.assert_array_equal(made["y"], made["y_2"])
    assert made["y"].any()


def test_operators_out_of_order_are_refused(files):
    tensors = [files.tensor(n, [3]) for n in "abc"]
    ops = [files.op("RELU", ["b"], ["c"]), files.op("RELU", ["a"], ["b"])]
    with pytest.raises(InputError, match=r"operator 0 \(RELU\): expected tensor 1 \(b\)"):
        graph_from_tflite(files.model(files.graph(tensors, ops, ["a"], ["c"])), "m")


def test_a_cycle_is_refused(files):
    tensors = [files.tensor(n, [3]) for n in "ab"]
    ops = [files.op("RELU", ["b"], ["a"]), files.op("RELU", ["a"], ["b"])]
    with pytest.raises(InputError, match="output of an earlier operator"):
        graph_from_tflite(files.model(files.graph(tensors, ops, [], ["a"])), "m")


@pytest.mark.parametrize("sizes", [[2**20, 2**20], [-1, -1], [0, 5], [1, 1, 1, 1, 1, 1, 1, 1, 6]])
def test_a_reshape_to_something_absurd_is_refused(files, sizes):
    tensors = [
        files.tensor("x", [6]),
        files.tensor("s", [len(sizes)], "INT32", np.array(sizes, np.int32)),
        files.tensor("y", [6]),
    ]
    content = files.model(
        files.graph(tensors, [files.op("RESHAPE", ["x", "s"], ["y"])], ["x"], ["y"])
    )
    with pytest.raises(InputError, match=r"operator 0 \(RESHAPE\)"):
        graph_from_tflite(content, "m")


def test_a_bomb_of_broadcasts_is_refused(files):
    tensors = [files.tensor("a", [2**16, 1]), files.tensor("b", [1, 2**16]), files.tensor("y", [1])]
    op = files.op("ADD", ["a", "b"], ["y"], "AddOptions")
    content = files.model(files.graph(tensors, [op], ["a", "b"], ["y"]))
    tracemalloc.start()
    with pytest.raises(InputError, match="2147483647 elements"):
        graph_from_tflite(content, "m")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 24


def test_computed_constants_without_readers_are_released(files):
    """A chain of 30 transposes of 1 MiB, of which only the last result is read."""
    first = np.arange(1 << 18, dtype=np.float32).reshape(256, 1024)
    shapes = ([1024, 256], [256, 1024])
    tensors = [files.tensor("t0", shapes[1], "FLOAT32", first)]
    tensors += [files.tensor(f"t{i + 1}", shapes[i % 2]) for i in range(30)]
    tensors.append(files.tensor("p", [2], "INT32", np.array([1, 0], np.int32)))
    tensors += [files.tensor(name, shapes[1]) for name in "xy"]
    made = [files.op("TRANSPOSE", [f"t{i}", "p"], [f"t{i + 1}"]) for i in range(30)]
    made.append(files.op("ADD", ["x", "t30"], ["y"], "AddOptions"))
    content = files.model(files.graph(tensors, made, ["x"], ["y"]))
    tracemalloc.start()
    graph = graph_from_tflite(content, "m")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    (held,) = (t.data for t in graph.tensors.values() if t.data is not None)
    assert most < 10 << 20 and np.array_equal(held, first)


def test_a_pad_of_gigabytes_is_refused(files):
    tensors = [
        files.tensor("x", [1, 1, 1, 1]),
        files.tensor("p", [4, 2], "INT32", np.full((4, 2), 2**31 - 1, np.int32)),
        files.tensor("y", [1]),
    ]
    content = files.model(files.graph(tensors, [files.op("PAD", ["x", "p"], ["y"])], ["x"], ["y"]))
    with pytest.raises(InputError, match="padding from 0 to"):
        graph_from_tflite(content, "m")


@pytest.mark.parametrize(("name", "shown"), [("v", "v"), ("v\v\0", r"v\\x0b\\x00")])
def test_a_variable_without_a_first_value_is_refused(files, name, shown):
    tensors = [files.tensor("h", [], "RESOURCE"), files.tensor("y", [3])]
    ops = [
        files.op("VAR_HANDLE", [], ["h"], "VarHandleOptions", {"SharedName": name}),
        files.op("READ_VARIABLE", ["h"], ["y"]),
    ]
    with pytest.raises(InputError, match=f"variable {shown} to have an initial value"):
        graph_from_tflite(files.model(files.graph(tensors, ops, [], ["y"])), "m")


@pytest.mark.parametrize("number", [0, 5, -1])
def test_a_missing_initial_subgraph_is_refused(files, number):
    tensors = [files.tensor("x", [3]), files.tensor("y", [3])]
    ops = [
        files.op("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": number}),
        files.op("RELU", ["x"], ["y"]),
    ]
    with pytest.raises(InputError, match="initial subgraph"):
        graph_from_tflite(files.model(files.graph(tensors, ops, ["x"], ["y"])), "m")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty file"),
        (b"x", "expected a .tflite, .onnx, .gguf or .prototxt model"),
        (b"PK\x03\x04 a zip", "expected a .tflite, .onnx, .gguf or .prototxt model"),
        (b"\x08\x07\x12\x07pytorch", "ONNX model"),
        (b"\x1c\x00\x00\x00TFL3", "truncated or corrupt"),
        (b"\xff\xff\xff\xffTFL3" + bytes(100), "truncated or corrupt"),
        (b"\x08\x00\x00\x00TFL3" + bytes(100), "version 3, found 0"),
        (b"\x10\x00\x00\x00TFL2" + bytes(100), "begins with .*TFL2"),
    ],
)
def test_a_file_that_is_not_a_model_is_refused_by_name(tmp_path, content, message):
    path = tmp_path / "thing.tflite"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        import_model(path)
    assert "thing.tflite" in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_files_and_directories_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"nosuch\.tflite: .*found nothing"):
        import_model(tmp_path / "nosuch.tflite")
    with pytest.raises(InputError, match="found a directory"):
        import_model(tmp_path)


def test_another_schema_version_is_refused(files):
    graph = files.graph([files.tensor("x", [3])], [], ["x"], ["x"])
    with pytest.raises(InputError, match="version 3, found 4"):
        graph_from_tflite(files.model(graph, version=4), "m")


def test_no_subgraph_is_refused(files):
    with pytest.raises(InputError, match="with a subgraph"):
        graph_from_tflite(files.model(), "m")


def test_an_output_beyond_the_tensors_is_refused(files):
    op = files.op("RELU", [0], [1])
    graph = files.graph([files.tensor("x", [3]), files.tensor("y", [3])], [op], [0], [1, 77])
    with pytest.raises(InputError, match="expected a tensor from 0 to 1, found 77"):
        graph_from_tflite(files.model(graph), "m")


def test_a_huge_variable_is_refused_before_it_is_made(files):
    tensors = [
        files.tensor("x", [1, 4]),
        files.tensor("w", [2, 4], data=np.ones((2, 4), np.float32)),
        files.tensor("t", [2, 3], data=np.ones((2, 3), np.float32)),
        files.tensor("state", [1 << 30, 6], variable=True),
        files.tensor("y", [1, 2]),
    ]
    op = files.op("SVDF", ["x", "w", "t", -1, "state"], ["y"], "SVDFOptions", {"Rank": 1})
    with pytest.raises(InputError, match="expected a variable of at most 1024 MiB"):
        graph_from_tflite(files.model(files.graph(tensors, [op], ["x"], ["y"])), "m")


def test_more_operators_than_any_model_has(files):
    tensors = [files.tensor("x", [1]), files.tensor("y", [1])]
    graph = files.graph(tensors, [files.op("RELU", [0], [1])] * 16_385, [0], [1])
    with pytest.raises(InputError, match="at most 16,384 operators, found 16,385"):
        graph_from_tflite(files.model(graph), "m")
