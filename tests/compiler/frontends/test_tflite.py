"""Importing valid files: names, padding, shapes, variables, sparse weights."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite, supported_operators
from edgekit.host.compiler.frontends.tflite.schema import FileDimension, FileSparsity
from edgekit.host.compiler.frontends.tflite.sparse import to_dense
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Activation, DType, Padding
from edgekit.host.compiler.transforms.passes.dead import dead
from edgekit.host.compiler.transforms.passes.fold import fold


def relu_chain(files, names):
    """A chain of RELU operators over tensors with these names."""
    tensors = [files.tensor(n, [3]) for n in names]
    pairs = zip(range(len(names)), range(1, len(names)), strict=False)
    chain = [files.op("RELU", [a], [b]) for a, b in pairs]
    return files.model(files.graph(tensors, chain, [0], [len(names) - 1]))


def test_ends_keep_their_names_and_all_names_are_unique(files):
    graph = graph_from_tflite(relu_chain(files, ["in", "same", "same", "", "same"]), "m")
    assert (graph.inputs, graph.outputs) == (("in",), ("same",))
    assert list(graph.tensors) == ["in", "same_2", "same_3", "tensor_3", "same"]
    assert [n.name for n in graph.nodes] == ["same_2", "same_3", "relu_2.clamp", "same"]


def test_long_or_unprintable_names_are_replaced(files):
    graph = graph_from_tflite(relu_chain(files, ["in", "x" * 501, "a\nb", "y" * 60, "out"]), "m")
    assert list(graph.tensors) == ["in", "tensor_1", "tensor_2", "y" * 60, "out"]
    assert [n.name for n in graph.nodes] == ["relu_0.clamp", "relu_1.clamp", "relu_2.clamp", "out"]


def test_names_of_fused_operators_are_kept(files):
    """TensorFlow joins them, to hundreds of characters; viewers find results by them."""
    joined = ";".join(["batch_normalization/FusedBatchNormV3"] * 8)
    graph = graph_from_tflite(relu_chain(files, ["in", joined, "out"]), "m")
    assert list(graph.tensors) == ["in", joined, "out"]


def conv_file(files, size, kernel, stride, dilation=1):
    w = np.zeros((2, *kernel, 1), np.float32)
    tensors = [
        files.tensor("x", [1, *size, 1]),
        files.tensor("w", w.shape, data=w),
        files.tensor("y", [1]),
    ]
    fields = {"StrideH": stride[0], "StrideW": stride[1], "Padding": 0}
    fields |= {"DilationHFactor": dilation, "DilationWFactor": dilation}
    fields |= {"FusedActivationFunction": 3}
    op = files.op("CONV_2D", ["x", "w"], ["y"], "Conv2DOptions", fields)
    return files.model(files.graph(tensors, [op], ["x"], ["y"]))


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "dilation", "padding"),
    [
        ((7, 7), (3, 3), (1, 1), 1, Padding(1, 1, 1, 1)),
        ((8, 7), (3, 3), (2, 2), 1, Padding(0, 1, 1, 1)),
        ((7, 7), (2, 4), (1, 1), 1, Padding(0, 1, 1, 2)),
        ((7, 7), (3, 3), (1, 1), 3, Padding(3, 3, 3, 3)),
        ((6, 6), (1, 1), (3, 2), 1, Padding()),
    ],
)
def test_same_padding_becomes_explicit(files, size, kernel, stride, dilation, padding):
    graph = graph_from_tflite(conv_file(files, size, kernel, stride, dilation), "m")
    op = graph.nodes[0].op
    assert op == ops.Conv2D(stride, (dilation,) * 2, padding, Activation.RELU6)
    rows, columns = -(-size[0] // stride[0]), -(-size[1] // stride[1])
    assert graph.tensors["y"].shape == (1, rows, columns, 2)


def test_a_shape_that_is_computed_reaches_the_reshape(files):
    """SHAPE → STRIDED_SLICE → PACK → RESHAPE, as converters write for a dynamic batch."""
    ints = {"zero": [0], "one": [1], "rest": -1}
    tensors = [
        files.tensor("x", [2, 3, 4]),
        files.tensor("shape", [3], "INT32"),
        files.tensor("batch", [], "INT32"),
        files.tensor("sizes", [2], "INT32"),
        files.tensor("y", [1]),  # result shapes in the file are ignored
        *(files.tensor(n, np.shape(v), "INT32", np.array(v, np.int32)) for n, v in ints.items()),
    ]
    slice_fields = {"ShrinkAxisMask": 1}
    chain = [
        files.op("SHAPE", ["x"], ["shape"], "ShapeOptions"),
        files.op("STRIDED_SLICE", ["shape", "zero", "one", "one"], ["batch"],
                 "StridedSliceOptions", slice_fields),
        files.op("PACK", ["batch", "rest"], ["sizes"], "PackOptions", {"ValuesCount": 2}),
        files.op("RESHAPE", ["x", "sizes"], ["y"]),
    ]  # fmt: skip
    graph = graph_from_tflite(files.model(files.graph(tensors, chain, ["x"], ["y"])), "m")
    assert graph.tensors["y"].shape == (2, 12)
    assert [n.op.kind for n in graph.nodes] == ["reshape"]


def test_a_constant_is_reshaped_to_a_shape_in_options(files):
    tensors = [
        files.tensor("x", [2, 3]),
        files.tensor("line", [6], data=np.ones(6, np.float32)),
        files.tensor("matrix", [2, 3]),
        files.tensor("y", [2, 3]),
    ]
    chain = [
        files.op("RESHAPE", ["line"], ["matrix"], "ReshapeOptions", {"NewShape": [2, 3]}),
        files.op("ADD", ["x", "matrix"], ["y"], "AddOptions"),
    ]
    graph = graph_from_tflite(files.model(files.graph(tensors, chain, ["x"], ["y"])), "m")
    assert [n.op.kind for n in graph.nodes] == ["add"]


def test_variables_become_states(files):
    first = np.float32([10, 20])
    handle = files.tensor("h", [], "RESOURCE")
    named = {"SharedName": "total"}
    main = files.graph(
        [handle, *(files.tensor(n, [2]) for n in ("x", "old", "new"))],
        [
            files.op("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": 1}),
            files.op("VAR_HANDLE", [], ["h"], "VarHandleOptions", named),
            files.op("READ_VARIABLE", ["h"], ["old"]),
            files.op("ADD", ["x", "old"], ["new"], "AddOptions"),
            files.op("ASSIGN_VARIABLE", ["h", "new"], []),
        ],
        ["x"],
        ["new"],
    )
    initial = files.graph(
        [handle, files.tensor("c", [2], data=first)],
        [
            files.op("VAR_HANDLE", [], ["h"], "VarHandleOptions", named),
            files.op("ASSIGN_VARIABLE", ["h", "c"], []),
        ],
        [],
        [],
    )
    graph = dead(fold(graph_from_tflite(files.model(main, initial), "m")))
    assert [n.op.kind for n in graph.nodes] == ["read_state", "add", "write_state"]
    np.testing.assert_array_equal(graph.states["total"].initial, first)
    x = {"x": np.float32([1, 2])}
    once = evaluate(graph, x)
    np.testing.assert_array_equal(evaluate(graph, x, once.states).outputs["new"], [12, 24])


@pytest.mark.parametrize(
    ("padding", "size", "borders"),
    [(1, (6, 9), (0, 0)), (2, (6, 9), (0, 0)), (1, (6, 7), (0, 1))],
)
def test_mediapipes_transposed_convolution(files, padding, size, borders):
    """Under SAME (1) images of odd size lose a border; VALID (2) keeps everything."""
    height, width = 3, 4 if borders[1] else 3
    stride = (2, 2) if borders[1] else (2, 3)
    kernel = (2, 2) if borders[1] else (2, 3)
    x = files.tensor("x", [1, height, width, 2])
    w = np.arange(1, 1 + 2 * kernel[0] * kernel[1] * 5, dtype=np.float32)
    w = w.reshape(5, *kernel, 2)
    tensors = [x, files.tensor("w", w.shape, data=w), files.tensor("y", [1])]
    tensors.append(files.tensor("b", [5], data=np.arange(5, dtype=np.float32)))
    op = files.op(
        "CUSTOM:Convolution2DTransposeBias",
        ["x", "w", "b"],
        ["y"],
        custom=struct.pack("<3i", padding, *stride),
    )
    graph = graph_from_tflite(files.model(files.graph(tensors, [op], ["x"], ["y"])), "m")
    image = np.random.default_rng(0).normal(size=(1, height, width, 2)).astype(np.float32)
    y = evaluate(graph, {"x": image}).outputs["y"]
    # Windows do not overlap: each pixel produces one block.
    expected = np.einsum("nhwc,oijc->nhiwjo", image.astype(float), w) + np.arange(5)
    whole = expected.reshape(1, height * kernel[0], width * kernel[1], 5)
    np.testing.assert_allclose(y, whole[:, : y.shape[1], : y.shape[2]], rtol=1e-5, atol=1e-5)
    cut = [max(k - (n - 1) % s - 1, 0) if padding == 1 else 0
           for k, n, s in zip(kernel, (height, width), stride, strict=True)]  # fmt: skip
    assert y.shape[1:3] == (whole.shape[1] - cut[0], whole.shape[2] - cut[1])


def test_half_precision_weights_become_f32(files):
    half = np.float16([1.5, -2.0, 0.25])
    tensors = [
        files.tensor("x", [3]),
        files.tensor("h", [3], "FLOAT16", half),
        files.tensor("c", [3]),
        files.tensor("y", [3]),
    ]
    chain = [
        files.op("DEQUANTIZE", ["h"], ["c"], "DequantizeOptions"),
        files.op("MUL", ["x", "c"], ["y"], "MulOptions"),
    ]
    graph = graph_from_tflite(files.model(files.graph(tensors, chain, ["x"], ["y"])), "m")
    assert [n.op.kind for n in graph.nodes] == ["mul"]
    factor = graph.tensors[graph.nodes[0].inputs[1]]
    assert factor.dtype is DType.F32
    np.testing.assert_array_equal(factor.data, half.astype(np.float32))


def compressed(segments, indices):
    return FileDimension(0, np.array(segments), np.array(indices))


def dense(size):
    return FileDimension(size, None, None)


def test_compressed_rows_become_dense():
    sparsity = FileSparsity((0, 1), (), (dense(3), compressed([0, 2, 2, 3], [1, 3, 0])))
    found = to_dense(np.float32([5, 6, 7]), (3, 4), sparsity)
    np.testing.assert_array_equal(found, [[0, 5, 0, 6], [0, 0, 0, 0], [7, 0, 0, 0]])


def test_traversal_may_start_with_the_last_dimension():
    sparsity = FileSparsity((1, 0), (), (dense(2), compressed([0, 1, 3], [2, 0, 1])))
    found = to_dense(np.int8([1, 2, 3]), (3, 2), sparsity)
    np.testing.assert_array_equal(found, [[0, 2], [0, 3], [1, 0]])


def test_blocks_become_dense():
    """Two 2x2 blocks of a 4x4 matrix, the first in the corner."""
    levels = (dense(2), compressed([0, 1, 2], [0, 1]), dense(2), dense(2))
    sparsity = FileSparsity((0, 1, 2, 3), (0, 1), levels)
    found = to_dense(np.arange(1, 9), (4, 4), sparsity)
    expected = np.zeros((4, 4))
    expected[:2, :2], expected[2:, 2:] = [[1, 2], [3, 4]], [[5, 6], [7, 8]]
    np.testing.assert_array_equal(found, expected)


def test_supported_operators_are_named_as_in_the_schema():
    names = supported_operators()
    assert names == sorted(names)
    assert {"CONV_2D", "DENSIFY", "CALL_ONCE", "CUSTOM:Convolution2DTransposeBias"} <= set(names)


def test_a_part_without_elements_is_split_off(files):
    """TensorFlow's converters write this for a slice that covers everything."""
    tensors = [
        files.tensor("x", [2, 3]),
        files.tensor("s", [3], "INT32", np.int32([1, 2, 0])),
        files.tensor("a", [], "INT32", np.int32(1)),
        *(files.tensor(n, [2, k]) for n, k in (("y", 1), ("z", 2), ("none", 0))),
    ]
    op = files.op("SPLIT_V", ["x", "s", "a"], ["y", "z", "none"], "SplitVOptions", {"NumSplits": 3})
    graph = graph_from_tflite(files.model(files.graph(tensors, [op], ["x"], ["y", "z"])), "m")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = evaluate(graph, {"x": x}).outputs
    np.testing.assert_array_equal(found["y"], x[:, :1])
    np.testing.assert_array_equal(found["z"], x[:, 1:])
