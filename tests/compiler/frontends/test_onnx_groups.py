"""Normalization of channels and groups, over images and over rows that data count, against ONNX
Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.errors import InputError
from tests.support.counted_rows import PAIR, N, agrees, both, counts, saved
from tests.support.onnx_models import node, value

onnxruntime = pytest.importorskip("onnxruntime")

# "wide" [1, 4, rows] from "image" [1, 2, rows].
_WIDE = [*PAIR, node("Conv", ["image", "w"], ["wide"])]
_BY_GROUPS = [
    node("Reshape", ["wide", "by_group"], ["flat"]),
    node("InstanceNormalization", ["flat", "group_scale", "group_bias"], ["normal"], epsilon=1e-3),
    node("Shape", ["wide"], ["shape"]),
    node("Reshape", ["normal", "shape"], ["y"]),
]


def _constants():
    rng = np.random.default_rng(5)
    numbers = {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in (
            ("w", (4, 2, 1)), ("scale", 4), ("bias", 4), ("group_scale", 2), ("group_bias", 2)
        )
    }  # fmt: skip
    return {**both(), **numbers, "by_group": np.array([0, 2, -1])}


@pytest.mark.parametrize(
    "nodes",
    [
        [node("InstanceNormalization", ["wide", "scale", "bias"], ["y"], epsilon=1e-3)],
        [node("GroupNormalization", ["wide", "scale", "bias"], ["y"], num_groups=2)],
        _BY_GROUPS,
    ],
)
def test_rows_are_normalized_without_filler(nodes, tmp_path):
    path = saved(tmp_path, [*_WIDE, *nodes], _constants(), opset=21)
    for x in counts(2, 6, N):
        agrees(path, x)


@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("back", [[2, 4, 3, -1], [8, -1]])
def test_groups_of_images_between_two_shapes(batch, back, tmp_path):
    """With a batch of 1 the groups of all images are one."""
    constants = {**_constants(), "by_group": np.array([batch, 2, -1]), "shape": np.array(back)}
    nodes = [n for n in _BY_GROUPS if n.op_type != "Shape"]
    path = saved(tmp_path, nodes, constants, [value("wide", [2, 4, 3, 5])])
    x = {"wide": np.random.default_rng(6).standard_normal((2, 4, 3, 5)).astype(np.float32)}
    (want,) = onnxruntime.InferenceSession(path).run(["y"], x)
    np.testing.assert_allclose(evaluate(import_model(path), x).outputs["y"], want, atol=1e-5)


def test_a_shape_that_keeps_axes_of_the_groups_stays(tmp_path):
    """0 is the axis of what is reshaped, so the shape of the groups is needed."""
    nodes = [*(n for n in _BY_GROUPS if n.op_type != "Shape"), node("Neg", ["flat"], ["z"])]
    constants = {**_constants(), "shape": np.array([0, 0, 5, -1])}
    path = saved(tmp_path, nodes, constants, [value("wide", [2, 4, 3, 5])])
    x = {"wide": np.random.default_rng(6).standard_normal((2, 4, 3, 5)).astype(np.float32)}
    (want,) = onnxruntime.InferenceSession(path).run(["y"], x)
    np.testing.assert_allclose(evaluate(import_model(path), x).outputs["y"], want, atol=1e-5)


def test_rows_in_front_of_the_groups_are_refused(tmp_path):
    nodes = [*_WIDE, node("Transpose", ["wide"], ["turned"], perm=[0, 2, 1])]
    group = node("GroupNormalization", ["turned", "rows", "rows"], ["y"], num_groups=1)
    constants = {**_constants(), "rows": np.ones(N, np.float32)}
    with pytest.raises(InputError, match="rows behind channels in groups"):
        import_model(saved(tmp_path, [*nodes, group], constants, opset=21))
