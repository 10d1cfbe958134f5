"""Slices of a tensor that are concatenated again, as chunks in the CSP blocks of detectors."""

from __future__ import annotations

import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Tensor
from edgekit.host.compiler.transforms.passes.join_slices import join_slices
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from tests.compiler.transforms.passes.test_fuse import Builder, kinds, same_results
from tests.support.op_cases import quant


def _slice(build: Builder, x: str, begin: int, count: int) -> str:
    shape = (1, 4, 4, count)
    return build(ops.StridedSlice((0, 0, 0, begin), (1,) * 4, shape, shape), x)


def _conv(build: Builder, x: str, channels: int) -> str:
    return build(ops.Conv2D(), x, build.weights(channels, 1, 1, channels), None)


def test_a_tensor_is_concatenated_instead_of_its_slices():
    build = Builder()
    x = build.input(1, 4, 4, 12)
    first, second = _slice(build, x, 0, 6), _slice(build, x, 6, 6)
    more = _conv(build, second, 6)
    graph = build.graph(build(ops.Concat(3), first, second, more))
    after, _ = run_passes(graph)
    assert kinds(after) == ["strided_slice", "conv2d", "concat"]
    assert after.nodes[-1].inputs == (x, more)
    same_results(graph, after)


@pytest.mark.parametrize("sizes", [(6, 6), (2, 10)])
def test_a_split_of_which_one_part_is_read_becomes_a_slice(sizes):
    build = Builder()
    x = build.input(1, 4, 4, 12)
    build(ops.Split(3, sizes), x)
    *_, split = build.nodes
    names = [f"{split.outputs[0]}.{i}" for i in range(2)]
    for name, size in zip(names, sizes, strict=True):
        build.tensors[name] = build.tensors[x].__class__(
            name, (1, 4, 4, size), build.tensors[x].dtype
        )
    build.nodes[-1] = split.__class__(split.name, split.op, split.inputs, tuple(names))
    more = _conv(build, names[1], sizes[1])
    graph = build.graph(build(ops.Concat(3), more, *names))
    after, _ = run_passes(graph)
    assert kinds(after) == ["strided_slice", "conv2d", "concat"]
    assert after.nodes[-1].inputs == (more, x)
    same_results(graph, after)


@pytest.mark.parametrize("order", [(6, 0), (0, 0), (0, 4)])
def test_other_slices_stay(order):
    """In another order, twice the same, or with a gap."""
    build = Builder()
    x = build.input(1, 4, 4, 12)
    parts = [_slice(build, x, begin, 6) for begin in order]
    graph = build.graph(build(ops.Concat(3), *parts, x))
    after, _ = run_passes(graph)
    assert x not in after.nodes[-1].inputs[:2]
    same_results(graph, after)


@pytest.mark.parametrize(("scale", "first"), [(0.1, "x"), (0.2, "half")])
def test_slices_of_bytes_are_joined_if_they_have_the_scale_of_their_source(scale, first):
    """A file states the scale of each tensor anew."""
    shapes = {"x": 12, "half": 6, "rest": 6, "more": 6, "y": 18}
    tensors = {
        name: Tensor(name, (1, 4, 4, n), DType.I8, quant(scale if name == "half" else 0.1))
        for name, n in shapes.items()
    }
    nodes = (
        Node("cut", ops.Split(3, (6, 6)), ("x",), ("half", "rest")),
        Node("more", ops.MaxPool2D((1, 1)), ("rest",), ("more",)),
        Node("y", ops.Concat(3), ("half", "rest", "more"), ("y",)),
    )
    after = join_slices(Graph("bytes", tensors, nodes, ("x",), ("y",)))
    assert after.nodes[-1].inputs[0] == first
