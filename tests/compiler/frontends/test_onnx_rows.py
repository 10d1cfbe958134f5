"""Operators along the axis of rows whose number depends on data, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.errors import InputError
from tests.support.counted_rows import PAIR, N, agrees, both, counts, saved
from tests.support.onnx_models import node

_EMPTY = np.zeros((0, 2), np.float32)


def _output(name):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


@pytest.mark.parametrize(
    ("op", "weights", "options"),
    [
        ("Conv", (3, 2, 3), {"pads": [1, 1]}),
        ("Conv", (3, 2, 3), {"pads": [4, 1], "strides": [2], "dilations": [2]}),
        ("Conv", (2, 1, 4), {"auto_pad": "SAME_UPPER", "group": 2}),
        ("ConvTranspose", (2, 3, 4), {"pads": [1, 1], "strides": [2]}),
        ("ConvTranspose", (2, 3, 3), {"strides": [4], "output_padding": [1], "dilations": [2]}),
    ],
)
def test_convolutions_see_zeros_behind_the_last_row(op, weights, options, tmp_path):
    rng = np.random.default_rng(2)
    constants = {**both(), "w": rng.standard_normal(weights).astype(np.float32)}
    constants |= {"b": rng.random(3 if weights[1] != 1 else 2).astype(np.float32)}
    nodes = [*PAIR, node(op, ["image", "w", "b"], ["z"], **options), node("Relu", ["z"], ["y"])]
    path = saved(tmp_path, nodes, constants)
    for x in counts(4, 9, N):
        agrees(path, x)


@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("MaxPool", {"kernel_shape": [3], "pads": [1, 1]}),
        ("MaxPool", {"kernel_shape": [3], "strides": [2], "dilations": [2], "pads": [1, 0]}),
        ("MaxPool", {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}),
        ("AveragePool", {"kernel_shape": [2], "strides": [2]}),
        ("AveragePool", {"kernel_shape": [3], "pads": [2, 0]}),
        ("AveragePool", {"kernel_shape": [3], "pads": [1, 1], "count_include_pad": 1}),
        ("GlobalAveragePool", {}),
        ("GlobalMaxPool", {}),
    ],
)
def test_pools_leave_filler_out(op, options, tmp_path):
    """All values are negative, so filler of 0 would be the largest."""
    nodes = [*PAIR, node("Neg", ["image"], ["negative"]), node(op, ["negative"], ["y"], **options)]
    path = saved(tmp_path, nodes, both(), opset=19)
    for x in counts(4, 6, N):
        agrees(path, x)


@pytest.mark.parametrize(
    ("scale", "options"),
    [
        (2, {"mode": "nearest"}),
        (2, {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}),
        (2, {"mode": "linear"}),
        (1.5, {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}),
        (0.5, {"mode": "nearest", "nearest_mode": "floor"}),
    ],
)
def test_rows_are_resized_as_if_the_last_went_on(scale, options, tmp_path):
    constants = {**both(), "s": np.float32([1, 1, scale])}
    nodes = [*PAIR, node("Resize", ["image", "", "s"], ["y"], **options)]
    path = saved(tmp_path, nodes, constants)
    for x in counts(2, 5, N):
        agrees(path, x)


@pytest.mark.parametrize(
    ("op", "operands", "options"),
    [
        ("Resize", ["image", "", "scales"], {"coordinate_transformation_mode": "align_corners"}),
        ("Resize", ["image", "", "odd"], {}),
        ("Resize", ["image", "", "", "sizes"], {}),
        ("MaxPool", ["image"], {"kernel_shape": [2], "auto_pad": "SAME_UPPER"}),
        ("AveragePool", ["image"], {"kernel_shape": [3], "pads": [1, 1]}),
        ("AveragePool", ["image"], {"kernel_shape": [2], "strides": [2], "ceil_mode": 1}),
    ],
)
def test_windows_of_another_number_are_refused(op, operands, options, tmp_path):
    sizes = {"scales": np.float32([1, 1, 2]), "odd": np.float32([1, 1, 1.3])}
    constants = {**both(), **sizes, "sizes": np.array([1, 2, 26])}
    path = saved(tmp_path, [*PAIR, node(op, operands, ["y"], **options)], constants, opset=19)
    with pytest.raises(InputError, match=f"{op} y.*same for any number of rows"):
        import_model(path)


@pytest.mark.parametrize(("a", "b"), [("ik", "kj"), ("ik", "jk"), ("ki", "kj"), ("ki", "jk")])
def test_a_product_of_rows(a, b, tmp_path):
    """Along the rows of both operands, or each row by weights."""
    weights = np.random.default_rng(5).standard_normal((2, 3)).astype(np.float32)
    right = "pairs" if a == "ki" and b == "kj" else "columns" if a == "ki" else "w"
    constants = {**both(), "w": weights if b == "kj" else weights.T.copy()}
    gemm = node("Gemm", ["pairs", right], ["y"], transA=int(a == "ki"), transB=int(b == "jk"))
    path = saved(tmp_path, [*PAIR, gemm], constants)
    for x in counts(1, 6, N):
        agrees(path, x)


def test_padding_that_depends_on_the_rows_is_refused(tmp_path):
    constants = {**both(), "w": np.ones((3, 2, 3), np.float32)}
    conv = node("Conv", ["image", "w"], ["y"], auto_pad="SAME_UPPER", strides=[2])
    with pytest.raises(InputError, match=r"Conv y.*expected Conv with padding that is the same"):
        import_model(saved(tmp_path, [*PAIR, conv], constants))


@pytest.mark.parametrize(
    ("start", "end", "step", "axis"),
    [(0, -1, 1, 2), (0, 99, 2, 2), (2, 99, 1, 2), (1, -2, 3, 2), (0, 5, 1, 2), (-1, -9, -1, 1)],
)
def test_slices_of_rows(start, end, step, axis, tmp_path):
    numbers = {"s": [start], "e": [end], "a": [axis], "t": [step]}
    constants = {**both(), **{n: np.array(v) for n, v in numbers.items()}}
    path = saved(tmp_path, [*PAIR, node("Slice", ["image", *"seat"], ["y"])], constants)
    for x in counts(4, 6, N):
        agrees(path, x)


def test_a_row_from_the_end_is_no_slice(tmp_path):
    constants = {**both(), "s": np.array([-1]), "e": np.array([99]), "a": np.array([2])}
    nodes = [*PAIR, node("Slice", ["image", *"sea"], ["y"])]
    with pytest.raises(InputError, match="forward slice"):
        import_model(saved(tmp_path, nodes, constants))


def test_selections_by_one_mask_are_put_back(tmp_path):
    """As splines do with what is inside of their interval: two masks, each asked for repeatedly."""
    nodes = [
        node("Abs", ["x"], ["positive"]),
        node("Less", ["positive", "one"], ["inside"]),
        node("Not", ["inside"], ["outside"]),
        *(node("NonZero", [mask], [f"{mask}{i}"]) for mask in ("inside", "outside") for i in "ab"),
        *(
            node("Transpose", [f"{mask}{i}"], [f"{mask}_{i}"])
            for mask in ("inside", "outside")
            for i in "ab"
        ),
        node("GatherND", ["x", "inside_a"], ["small"]),
        node("GatherND", ["both", "inside_b"], ["pairs"]),
        node("ReduceSum", ["pairs", "last"], ["sums"], keepdims=0),
        node("Mul", ["small", "sums"], ["scaled"]),
        node("GatherND", ["x", "outside_a"], ["large"]),
        node("ScatterND", ["zeros", "outside_b", "large"], ["started"]),
        node("ScatterND", ["started", "inside_b", "scaled"], ["y"]),
    ]
    constants = {
        "both": both()["both"], "one": np.float32(1), "last": np.array([1]),
        "zeros": np.zeros(N, np.float32),
    }  # fmt: skip
    path = saved(tmp_path, nodes, constants)
    for scale in (0.1, 1, 100):
        rng = np.random.default_rng(4)
        agrees(path, {"x": (rng.standard_normal(N) * scale).astype(np.float32)})


def test_elements_are_put_back_by_the_rows_of_their_indices(tmp_path):
    """As torchvision puts regions of each level back: filler has no effect on the last row."""
    nodes = [
        *PAIR[:3],
        node("Expand", ["at", "wide"], ["rows"]),
        node("Neg", ["pairs"], ["new"]),
        node("ScatterElements", ["both", "rows", "new"], ["y"], axis=0),
    ]
    constants = {**both(), "wide": np.array([1, 2])}
    for x in counts(0, 4, N):
        agrees(saved(tmp_path, nodes, constants), {"x": x["x"][::-1].copy()})


@pytest.mark.parametrize("swapped", [False, True])
def test_no_rows_in_place_of_none(swapped, tmp_path):
    """As torchvision's exporter writes the non-maximum suppression of no boxes."""
    some = helper.make_graph([node("Neg", ["pairs"], ["kept"])], "some", [], [_output("kept")])
    empty = node("Constant", [], ["gone"], value=numpy_helper.from_array(_EMPTY))
    none = helper.make_graph([empty], "none", [], [_output("gone")])
    branches = {"then_branch": none, "else_branch": some}
    if swapped:
        branches = {"then_branch": some, "else_branch": none}
    nodes = [
        *PAIR[:3],
        node("Concat", ["pairs"], ["joined"], axis=0),
        node("Size", ["joined"], ["count"]),
        node("Greater" if swapped else "Equal", ["count", "nothing"], ["which"]),
        node("If", ["which"], ["made"], **branches),
        node("Abs", ["made"], ["y"]),
    ]
    path = saved(tmp_path, nodes, {**both(), "nothing": np.array(0)})
    for x in counts(0, 1, 4, N):
        found = agrees(path, x)
        assert found["y_length"] == np.count_nonzero(x["x"])


@pytest.mark.parametrize("index", [-1, 1])
def test_rows_that_are_written_by_index(index, tmp_path):
    constants = {**both(), "i": np.array([[index]]), "new": np.float32([[7, 8]])}
    nodes = [*PAIR[:3], node("ScatterND", ["pairs", "i", "new"], ["y"])]
    for x in counts(4, N):
        agrees(saved(tmp_path, nodes, constants), x)


@pytest.mark.parametrize(
    ("shape", "axes"), [([1, 1, -1], 0), ([0, 2, 1, -1], 1), ([1, -1, 2], 0), ([2, -1], 1)]
)
def test_rows_in_another_shape(shape, axes, tmp_path):
    """Rows merge with what follows them, not with what is before."""
    source = "pairs" if axes == 0 else "image"
    constants = {**both(), "shape": np.array(shape)}
    path = saved(tmp_path, [*PAIR, node("Reshape", [source, "shape"], ["y"])], constants)
    for x in counts(4, N):
        agrees(path, x)


def test_rows_behind_an_axis_do_not_merge_with_it(tmp_path):
    constants = {**both(), "shape": np.array([-1])}
    nodes = [*PAIR, node("Reshape", ["image", "shape"], ["y"])]
    with pytest.raises(
        InputError, match=r"along one axis, found Reshape of \[1, 2, 13\] to \[26\]"
    ):
        import_model(saved(tmp_path, nodes, constants))


_RANGE = [
    node("ReduceSum", ["x"], ["sum"], keepdims=0),
    node("Range", ["zero", "sum", "one"], ["r"]),
]
_ENDS = {"zero": np.float32(0), "one": np.float32(1)}


def test_a_range_that_only_data_limit_says_what_it_lacks_room_for(tmp_path):
    path = saved(tmp_path, [*_RANGE, node("Neg", ["r"], ["y"])], _ENDS)
    for total in (0.5, 6, 8, 8.5, 1e20):
        x = {"x": np.full(N, total / N, np.float32)}
        found = evaluate(import_model(path, max_rows=8), x).outputs
        assert found["y_length"] == (min(np.ceil(x["x"].sum()), 1 << 40))
        count = min(int(found["y_length"][0]), 8)
        np.testing.assert_array_equal(found["y"], [-i if i < count else 0 for i in range(8)])
    with pytest.raises(InputError, match="--max-rows N sets the largest"):
        import_model(path)


def test_what_is_computed_from_too_few_rows_says_so(tmp_path):
    path = saved(tmp_path, [*_RANGE, node("ReduceSum", ["r"], ["y"], keepdims=0)], _ENDS)
    for total, sum_ in ((4, 6), (9, 28)):
        x = {"x": np.eye(N, dtype=np.float32)[0] * total}
        found = evaluate(import_model(path, max_rows=8), x).outputs
        assert found["y"] == sum_ and found["rows_0_length"] == total


_CHOSEN = [
    node("NonZero", ["x"], ["places"]),
    node("Reshape", ["places", "flat"], ["at"]),
    node("Gather", ["table", "at"], ["rows"]),
]
_ALONG = [
    ("ReduceMean", ["rows", "axis"], {"keepdims": 0}),
    ("ReduceMean", ["rows"], {"noop_with_empty_axes": 1}),
    ("Softmax", ["rows"], {"axis": 0}),
    ("LogSoftmax", ["rows"], {"axis": -2}),
    ("Hardmax", ["rows"], {"axis": 0}),
    ("CumSum", ["rows", "first"], {}),
    ("CumSum", ["rows", "first"], {"reverse": 1, "exclusive": 1}),
]


@pytest.mark.parametrize(("op", "operands", "options"), _ALONG)
def test_rows_are_ranked_and_averaged(op, operands, options, tmp_path):
    table = np.random.default_rng(2).normal(-3, 1, (N, 4)).astype(np.float32)
    constants = {
        "flat": np.array([-1]), "axis": np.array([0]), "first": np.array(0), "table": table
    }  # fmt: skip
    path = saved(tmp_path, [*_CHOSEN, node(op, operands, ["y"], **options)], constants, opset=18)
    for x in counts(1, 6, N):
        agrees(path, x)
