"""Constants that repeat along an axis are stored once."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.ops import Add, Mul
from edgekit.host.compiler.ir.types import DType, Graph, Node, Quant, Tensor
from edgekit.host.compiler.transforms.passes.dead import dead
from edgekit.host.compiler.transforms.passes.repeats import share_repeats

ROW = np.arange(512, dtype=np.float32)


def graph_with(constant, shape, op=None, dtype=DType.F32, quant=None):
    """The constant, combined with an input of `shape`."""
    out = np.broadcast_shapes(shape, constant.shape)
    tensors = [
        Tensor("x", shape, dtype, quant),
        Tensor("c", constant.shape, dtype, quant, constant),
        Tensor("y", out, dtype, quant),
    ]
    node = Node("y", op or Add(), ("x", "c"), ("y",))
    return Graph("g", {t.name: t for t in tensors}, (node,), ("x",), ("y",), {})


def constants_of(graph):
    return [t.shape for t in dead(graph).tensors.values() if t.data is not None]


@pytest.mark.parametrize(
    ("shape", "axes", "kept"),
    [
        ((4, 8, 16, 512), (0, 1, 2), (1, 1, 1, 512)),
        ((4, 8, 16, 512), (0, 2), (1, 8, 1, 512)),
        ((4, 1, 1, 512), (0, 1, 2, 3), (1, 8, 16, 1)),  # nothing else has these sizes
    ],
)
def test_axes_that_repeat_and_that_another_operand_has_are_stored_once(shape, axes, kept):
    whole = np.random.default_rng(1).normal(size=(4, 8, 16, 512)).astype(np.float32)
    for axis in axes:
        whole = np.repeat(whole.take([0], axis), whole.shape[axis], axis)
    before = graph_with(whole, shape, Mul())
    after = share_repeats(before)
    assert constants_of(after) == [kept]
    x = {"x": np.random.default_rng(2).normal(size=shape).astype(np.float32)}
    np.testing.assert_array_equal(evaluate(after, x).outputs["y"], evaluate(before, x).outputs["y"])


def test_quantized_values_keep_their_scale():
    quantized = np.full((1, 64, 64, 8), 3, np.int8)
    quant = Quant(np.float32([0.5]), np.int64([1]))
    after = share_repeats(graph_with(quantized, quantized.shape, dtype=DType.I8, quant=quant))
    (part,) = (t for t in dead(after).tensors.values() if t.data is not None)
    assert part.shape == (1, 1, 1, 1)
    assert part.quant is quant


def test_zeros_of_other_signs_and_small_constants_stay():
    signs = np.zeros((64, 512), np.float32)
    signs[1, 1] = -0.0
    for constant in (signs, np.zeros((4, 512), np.float32)):
        assert constants_of(share_repeats(graph_with(constant, constant.shape))) == [constant.shape]
