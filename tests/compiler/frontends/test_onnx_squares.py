"""Attention of rows to rows whose number depends on data, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.errors import InputError
from tests.support.counted_rows import PAIR, N, agrees, both, counts, saved
from tests.support.onnx_models import node

# Queries, keys and values [2 heads, rows, 2] from "pairs" [rows, 2].
_HEADS = [
    *PAIR[:3],
    *(
        part
        for name in ("q", "k", "v")
        for part in (
            node("MatMul", ["pairs", f"w_{name}"], [f"{name}_flat"]),
            node("Reshape", [f"{name}_flat", "by_head"], [f"{name}_heads"]),
            node("Transpose", [f"{name}_heads"], [name], perm=[1, 0, 2]),
        )
    ),
]
_BY_MATMUL = [
    node("Transpose", ["k"], ["keys"], perm=[0, 2, 1]),
    node("MatMul", ["q", "keys"], ["scores"]),
    node("Softmax", ["scores"], ["shares"], axis=-1),
    node("MatMul", ["shares", "v"], ["y"]),
]
_BY_EINSUM = [
    node("Einsum", ["q", "k"], ["scores"], equation="hid,hjd->hij"),
    node("Softmax", ["scores"], ["shares"], axis=-1),
    node("Einsum", ["shares", "v"], ["y"], equation="hij,hjd->ihd"),
]
# A mask of later rows, made from the number of rows; scores in another shape and order.
_MASKED = [
    node("Shape", ["pairs"], ["shape"], start=0, end=1),
    node("Squeeze", ["shape"], ["count"]),
    node("Range", ["zero", "count", "one"], ["order"]),
    node("Unsqueeze", ["places", "last"], ["column"]),
    node("Unsqueeze", ["places", "front"], ["line"]),
    node("Less", ["column", "line"], ["later"]),
    node("Einsum", ["k", "q"], ["turned"], equation="...jd,...id->...ji"),
    node("Transpose", ["turned"], ["scores"], perm=[0, 2, 1]),
    node("Where", ["later", "least", "scores"], ["masked"]),
    node("Unsqueeze", ["masked", "front"], ["batch"]),
    node("Softmax", ["batch"], ["shares"]),
    node("Shape", ["scores"], ["scores_shape"]),
    node("Reshape", ["shares", "scores_shape"], ["heads"]),
    node("MatMul", ["heads", "v"], ["y"]),
]


def _constants():
    rng = np.random.default_rng(3)
    weights = {f"w_{n}": rng.standard_normal((2, 4)).astype(np.float32) * 2 for n in "qkv"}
    numbers = {"zero": np.array(0), "one": np.array(1), "least": np.float32(-1e9)}
    places = {"by_head": [-1, 2, 2], "front": [0], "last": [1]}
    return {**both(), **weights, **numbers, **{n: np.array(v) for n, v in places.items()}}


@pytest.mark.parametrize("nodes", [_BY_MATMUL, _BY_EINSUM, _MASKED])
def test_rows_attend_to_all_valid_rows(nodes, tmp_path):
    path = saved(tmp_path, [*_HEADS, *nodes], _constants())
    for x in counts(1, 6, N):
        agrees(path, x)


def test_sums_over_rows_leave_filler_out(tmp_path):
    """Filler is the pair of the last row, not zeros."""
    nodes = [*PAIR, node("MatMul", ["image", "pairs"], ["y"])]
    for x in counts(1, 6, N):
        assert "y_length" not in agrees(saved(tmp_path, nodes, both()), x)


def test_pairwise_differences_are_ranked(tmp_path):
    nodes = [
        *PAIR[:3],
        node("Slice", ["pairs", "front", "one", "one"], ["column"]),
        node("Transpose", ["column"], ["line"]),
        node("Sub", ["column", "line"], ["differences"]),
        node("Softmax", ["differences"], ["y"]),
    ]
    constants = {**_constants(), "one": np.array([1])}
    for x in counts(1, 6, N):
        agrees(saved(tmp_path, nodes, constants), x)


@pytest.mark.parametrize(
    ("op", "operands", "options"),
    [
        ("ReduceSum", ["scores"], {}),
        ("Gather", ["scores", "front"], {"axis": 1}),
        ("Softmax", ["scores"], {"axis": 1}),
        ("Reshape", ["scores", "flat"], {}),
        ("MatMul", ["scores", "table"], {}),
        ("Einsum", ["q", "k", "v"], {"equation": "hid,hjd,hkd->hijk"}),
    ],
)
def test_what_would_mix_valid_elements_with_filler_is_refused(op, operands, options, tmp_path):
    nodes = [*_HEADS, *_BY_MATMUL[:2], node(op, operands, ["y"], **options)]
    table = np.ones((N, 3), np.float32)
    path = saved(tmp_path, nodes, {**_constants(), "flat": np.array([2, -1]), "table": table})
    with pytest.raises(InputError, match=f"data-dependent.*found.*{op}"):
        import_model(path)


@pytest.mark.parametrize("width", [8, 24])
def test_a_width_that_is_also_the_largest_number_of_rows(width, tmp_path):
    """A buffer of the same size as another axis would not say which axis is that of the rows."""
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Range", ["zero", "sum", "one"], ["numbers"]),
        node("Unsqueeze", ["numbers", "last"], ["rows"]),
        node("Mul", ["rows", "w"], ["wide"]),
        node("Transpose", ["wide"], ["high"]),
        node("MatMul", ["high", "wide"], ["y"]),
    ]
    w = np.linspace(-1, 1, width, dtype=np.float32)[None]
    constants = {"zero": np.float32(0), "one": np.float32(1), "last": np.array([1]), "w": w}
    path = saved(tmp_path, nodes, constants)
    x = {"x": np.eye(N, dtype=np.float32)[0] * 5}
    (want,) = onnxruntime.InferenceSession(path).run(["y"], x)
    found = evaluate(import_model(path, max_rows=8), x).outputs
    np.testing.assert_allclose(found["y"], want, rtol=1e-6)
    assert found["rows_0_length"] == 5
