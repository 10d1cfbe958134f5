"""Fusing passes: they fire where allowed, preserve results, and leave the rest alone."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import (
    Activation,
    DType,
    Graph,
    Node,
    Operator,
    Padding,
    Tensor,
)
from edgekit.host.compiler.transforms.passes.fuse import fuse_activation, fuse_pad, fuse_residual
from edgekit.host.compiler.transforms.passes.neutral import drop_neutral
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from tests.support.op_cases import quant
from tests.support.op_graphs import constant, inputs_of, tensor

_RNG = np.random.default_rng(3)


class Builder:
    """Appends nodes; shapes are inferred."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []

    def input(self, *shape: int) -> str:
        return self._add("x", tensor(shape))

    def weights(self, *shape: int) -> str:
        return self._add("w", constant(_RNG.standard_normal(shape).astype(np.float32)))

    def constant(self, values: np.ndarray) -> str:
        return self._add("w", constant(values.astype(np.float32)))

    def __call__(self, op: Operator, *ins: str | None) -> str:
        made = [None if n is None else self.tensors[n] for n in ins]
        shape, dtype = op.infer(made)[0]
        name = self._add("t", tensor(shape, dtype))
        self.nodes.append(Node(f"{op.kind}_{len(self.nodes)}", op, ins, (name,)))
        return name

    def _add(self, prefix: str, t: Tensor) -> str:
        name = f"{prefix}{len(self.tensors)}"
        self.tensors[name] = Tensor(name, t.shape, t.dtype, t.quant, t.data)
        return name

    def graph(self, *outputs: str) -> Graph:
        inputs = tuple(n for n in self.tensors if n.startswith("x"))
        return Graph("built", self.tensors, tuple(self.nodes), inputs, outputs)


def same_results(before: Graph, after: Graph) -> None:
    inputs = inputs_of(before)
    ours, theirs = evaluate(after, inputs).outputs, evaluate(before, inputs).outputs
    for name, want in theirs.items():
        np.testing.assert_allclose(ours[name], want, rtol=0, atol=1e-5 * np.abs(want).max())


def kinds(graph: Graph) -> list[str]:
    return [n.op.kind for n in graph.nodes]


def test_a_residual_block_becomes_two_nodes():
    b = Builder()
    x = b.input(1, 6, 6, 4)
    padded = b(ops.Pad((0, 1, 1, 0), (0, 1, 1, 0)), x)
    deep = b(ops.DepthwiseConv2D(), padded, b.weights(1, 3, 3, 4), b.weights(4))
    mixed = b(ops.Conv2D(), b(ops.Clamp(), deep), b.weights(4, 1, 1, 4), b.weights(4))
    total = b(ops.Clamp(Activation.RELU6), b(ops.Add(), x, mixed))
    before = b.graph(total)
    after, counts = run_passes(before)
    assert kinds(after) == ["depthwise_conv2d", "conv2d"]
    deep_op, conv_op = (n.op for n in after.nodes)
    assert deep_op.padding == Padding(1, 1, 1, 1) and deep_op.activation is Activation.RELU
    assert conv_op.activation is Activation.RELU6 and after.nodes[1].inputs[3] == x
    assert counts[0].before == 6 and counts[-1].after == 2
    same_results(before, after)


def test_a_tensor_with_other_readers_is_not_fused_away():
    b = Builder()
    x = b.input(1, 4, 4, 2)
    conv = b(ops.Conv2D(), x, b.weights(2, 1, 1, 2), None)
    clamped = b(ops.Clamp(), conv)
    for graph in (b.graph(clamped, conv), b.graph(b(ops.Mul(), clamped, conv))):
        assert kinds(fuse_activation(graph)).count("clamp") == 1


def test_padding_of_channels_or_images_stays():
    for before in ((0, 0, 0, 1), (1, 0, 0, 0)):
        b = Builder()
        x = b.input(1, 4, 4, 2)
        padded = b(ops.Pad(before, (0, 0, 0, 0)), x)
        c = b.tensors[padded].shape[3]
        graph = b.graph(b(ops.Conv2D(), padded, b.weights(2, 1, 1, c), None))
        assert fuse_pad(graph) is graph


def test_padding_adds_to_padding():
    b = Builder()
    x = b.input(1, 5, 5, 2)
    inner = b(ops.Pad((0, 0, 1, 0), (0, 1, 0, 0)), b(ops.Pad((0, 1, 0, 0), (0, 0, 2, 0)), x))
    graph = b.graph(
        b(ops.Conv2D(padding=Padding(1, 0, 0, 1)), inner, b.weights(3, 2, 2, 2), b.weights(3))
    )
    after = fuse_pad(graph)
    assert [n.op.padding for n in after.nodes] == [Padding(2, 1, 1, 3)]
    same_results(graph, after)


@pytest.mark.parametrize("activation", [Activation.RELU, Activation.RELU6])
def test_a_convolution_that_clamps_takes_no_residual(activation):
    b = Builder()
    x = b.input(1, 4, 4, 3)
    conv = b(ops.Conv2D(activation=activation), x, b.weights(3, 1, 1, 3), None)
    graph = b.graph(b(ops.Add(), conv, x))
    assert fuse_residual(graph) is graph


def test_both_operands_from_convolutions_fuse_once():
    b = Builder()
    x = b.input(1, 4, 4, 3)
    left = b(ops.Conv2D(), x, b.weights(3, 1, 1, 3), None)
    right = b(ops.Conv2D(), x, b.weights(3, 1, 1, 3), None)
    graph = b.graph(b(ops.Add(Activation.RELU), left, right))
    after = fuse_residual(graph)
    assert kinds(after) == ["conv2d", "conv2d"]
    same_results(graph, after)


def test_a_sum_with_itself_or_broadcast_stays():
    b = Builder()
    x = b.input(1, 4, 4, 3)
    conv = b(ops.Conv2D(), x, b.weights(3, 1, 1, 3), None)
    doubled = b.graph(b(ops.Add(), conv, conv))
    assert fuse_residual(doubled) is doubled
    c = Builder()
    x = c.input(1, 4, 4, 3)
    row = c.input(1, 1, 1, 3)
    wide = c.graph(c(ops.Add(), c(ops.Conv2D(), x, c.weights(3, 1, 1, 3), None), row))
    assert fuse_residual(wide) is wide


def test_products_with_one_and_sums_with_zero_disappear():
    b = Builder()
    x = b.input(1, 4, 6)
    one, zero, wide = (b.constant(v) for v in (np.ones((4, 1)), np.zeros(1), np.zeros((3, 1, 1))))
    graph = b.graph(b(ops.Tanh(), b(ops.Add(), zero, b(ops.Mul(), x, one))))
    after = drop_neutral(graph)
    assert kinds(after) == ["tanh"]
    same_results(graph, after)
    wider = drop_neutral(b.graph(b(ops.Tanh(), b(ops.Add(), x, wide))))
    assert kinds(wider)[-2:] == ["add", "tanh"]
    clamped = b(ops.Tanh(), b(ops.Mul(Activation.RELU), x, one))
    assert kinds(drop_neutral(b.graph(clamped)))[-2:] == ["mul", "tanh"]


def test_a_reshape_to_the_same_shape_is_removed():
    b = Builder()
    x = b.input(1, 4, 6)
    graph = b.graph(b(ops.Tanh(), b(ops.Reshape((1, 4, 6)), x)))
    after = drop_neutral(graph)
    assert kinds(after) == ["tanh"]
    same_results(graph, after)
    assert kinds(drop_neutral(b.graph(b(ops.Tanh(), b(ops.Reshape((4, 6)), x)))))[-2] == "reshape"
    assert kinds(drop_neutral(b.graph(b(ops.Reshape((1, 4, 6)), x))))[-1] == "reshape"


@pytest.mark.parametrize(("zero", "removed"), [(-3, True), (4, False)])
def test_a_reshape_that_changes_the_quantization_stays(zero, removed):
    tensors = {
        name: Tensor(name, (1, 4), DType.I8, quant(0.05, point))
        for name, point in (("x", -3), ("same", zero), ("y", zero))
    }
    nodes = (
        Node("same", ops.Reshape((1, 4)), ("x",), ("same",)),
        Node("y", ops.Tanh(), ("same",), ("y",)),
    )
    after = drop_neutral(Graph("g", tensors, nodes, ("x",), ("y",)))
    assert (kinds(after) == ["tanh"]) == removed
