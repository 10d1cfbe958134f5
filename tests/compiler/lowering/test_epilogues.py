"""Functions are fused into the preceding product if that remains an ordinary one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Activation, DType, Graph, Node, Operator, Padding, Tensor
from edgekit.host.compiler.lowering.gemm.epilogues import fuse_additions, fuse_epilogues
from edgekit.kb.targets.board import BoardProfile
from tests.support.kernel_runs import build, check, run_here, x86_boards, x86_params
from tests.support.op_cases import Case, constant, tensor
from tests.support.op_graphs import graph_of, inputs_of

_HARD_SWISH = ops.HardSwish()


def _graph(
    op: Operator,
    w_shape: tuple[int, ...],
    outputs: tuple[str, ...] = ("z",),
    function: Operator = _HARD_SWISH,
    slope: tuple[int, ...] | None = None,
) -> Graph:
    rng = np.random.default_rng(0)
    w = rng.standard_normal(w_shape).astype(np.float32)
    shape = op.infer([Tensor("x", (1, 7, 9, 20), DType.F32), Tensor("w", w_shape, DType.F32)])[0][0]
    tensors = {
        "x": Tensor("x", (1, 7, 9, 20), DType.F32),
        "w": Tensor("w", w_shape, DType.F32, None, w),
        "y": Tensor("y", shape, DType.F32),
        "z": Tensor("z", shape, DType.F32),
    }
    names = ["y"]
    if slope is not None:
        slopes = rng.standard_normal(slope).astype(np.float32)
        tensors["slope"] = Tensor("slope", slope, DType.F32, None, slopes)
        names.append("slope")
    nodes = (
        Node("c", op, ("x", "w", None), ("y",)),
        Node("h", function, tuple(names), ("z",)),
    )
    return Graph("gated", tensors, nodes, ("x",), outputs)


def _check_same(graph: Graph, fused: Graph, board: BoardProfile, folder: Path) -> None:
    """The fused graph has the reference's values, and its kernels as well."""
    inputs, (name,) = inputs_of(graph), graph.outputs
    expected, made = (evaluate(each, inputs).outputs[name] for each in (graph, fused))
    np.testing.assert_array_equal(made, expected)
    check(fused, run_here(build(fused, board, folder), inputs), inputs)


_SAME = Padding(1, 1, 1, 1)
_CONV, _DEPTHWISE = (24, 3, 3, 20), (1, 3, 3, 20)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "w_shape"),
    [(ops.Conv2D(), _CONV), (ops.Conv2D((2, 1)), _CONV), (ops.DepthwiseConv2D((2, 1)), _DEPTHWISE)],
)
@pytest.mark.parametrize("board", x86_params())
def test_hard_swish_is_part_of_the_convolution(op, w_shape, board, tmp_path):
    graph = _graph(op, w_shape)
    after = fuse_epilogues(graph)
    assert [n.op for n in after.nodes] == [dataclasses.replace(op, epilogue=ops.HardSwish())]
    _check_same(graph, after, board, tmp_path)


@pytest.mark.parametrize(
    "graph",
    [
        _graph(ops.Conv2D(), _CONV, ("z", "y")),  # read elsewhere
        _graph(ops.Conv2D(activation=Activation.RELU), _CONV),
        _graph(ops.Conv2D(padding=_SAME), _CONV, function=ops.PRelu(), slope=(7, 9, 24)),
        _graph(ops.Conv2D(padding=_SAME), _CONV, function=ops.PRelu(), slope=(9, 1)),
        _graph(ops.Conv2D(), _CONV, function=ops.Exp()),
    ],
)
def test_what_is_more_than_an_epilogue_stays(graph):
    assert fuse_epilogues(graph) is graph


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "w_shape"),
    [(ops.Conv2D(), _CONV), (ops.DepthwiseConv2D(), _DEPTHWISE), (ops.FullyConnected(), (8, 20))],
    ids=lambda value: getattr(value, "kind", ""),
)
@pytest.mark.parametrize("slope", [(), (1,), (1, None), (None,)])
def test_slopes_of_channels_are_the_fifth_operand(op, w_shape, slope, tmp_path):
    channels = w_shape[-1 if isinstance(op, ops.DepthwiseConv2D) else 0]
    shape = tuple(channels if d is None else d for d in slope)
    graph = _graph(op, w_shape, function=ops.PRelu(), slope=shape)
    after = fuse_epilogues(graph)
    (node,) = after.nodes
    assert node.inputs == ("x", "w", None, None, "slope")
    inputs = inputs_of(graph)
    expected, made = (evaluate(g, inputs).outputs["z"] for g in (graph, after))
    np.testing.assert_array_equal(made, expected)
    check(after, run_here(build(after, x86_boards()[-1], tmp_path), inputs), inputs)


def _plus(graph: Graph, other: str, add: ops.Add | None = None) -> Graph:
    """`graph`, whose output is added to another tensor of its shape."""
    tensors = {**graph.tensors, "s": dataclasses.replace(graph.tensors["z"], name="s")}
    if other not in tensors:
        tensors[other] = dataclasses.replace(graph.tensors["z"], name=other)
    node = Node("a", add or ops.Add(), ("z", other), ("s",))
    inputs = ("x", *({other} - {"x", "z", "y"}))
    return dataclasses.replace(
        graph, tensors=tensors, nodes=(*graph.nodes, node), inputs=inputs, outputs=("s",)
    )


@pytest.mark.slow
@pytest.mark.parametrize("function", [ops.LeakyRelu(0.1), ops.Silu(), ops.PRelu()])
@pytest.mark.parametrize("channels", [9, 24])
@pytest.mark.parametrize("board", x86_params())
def test_a_residual_is_added_after_the_function(function, channels, board, tmp_path):
    slope = (channels,) if isinstance(function, ops.PRelu) else None
    graph = _plus(_graph(ops.Conv2D(), (channels, 3, 3, 20), function=function, slope=slope), "r")
    after = fuse_additions(fuse_epilogues(graph))
    (node,) = after.nodes
    assert node.inputs[5] == "r"
    _check_same(graph, after, board, tmp_path)


@pytest.mark.parametrize(
    "graph",
    [
        _plus(_graph(ops.Conv2D(), _CONV), "r", ops.Add(Activation.RELU)),
        _plus(_graph(ops.Conv2D(), _CONV), "z"),
        _plus(_graph(ops.DepthwiseConv2D(), _DEPTHWISE), "r"),
        dataclasses.replace(_plus(_graph(ops.Conv2D(), _CONV), "r"), outputs=("s", "z")),
    ],
)
def test_other_additions_stay(graph):
    fused = fuse_epilogues(graph)
    assert fuse_additions(fused) is fused


def test_members_of_chains_keep_their_epilogues(tmp_path):
    depthwise = ops.DepthwiseConv2D(padding=_SAME, epilogue=ops.PRelu())
    chain = ops.RowChain((depthwise, ops.Conv2D(epilogue=ops.Silu())), (None,))
    rng = np.random.default_rng(0)

    def fixed(*shape: int) -> Tensor:
        return constant(rng.standard_normal(shape).astype(np.float32))

    own = (fixed(1, 3, 3, 20), None, None, fixed(20), fixed(24, 1, 1, 20), None, None, None)
    graph = graph_of([Case(chain, (tensor((1, 7, 9, 20)), *own))])
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, x86_boards()[-1], tmp_path), inputs), inputs)
