"""Errors of operators against a reference, and which operator brings the loss in."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node, Quant, Tensor
from edgekit.host.lab.compare.layers import (
    References,
    Removal,
    error_of,
    float_twin,
    in_layout,
    real,
    saturation,
)


def quant(scale: float, zero: int = 0) -> Quant:
    return Quant(np.array([scale], np.float32), np.array([zero], np.int64))


def int8(name: str, scale: float, shape: tuple[int, ...] = (1, 4, 4, 3)) -> Tensor:
    return Tensor(name, shape, DType.I8, quant(scale))


def test_errors_are_those_of_their_definitions() -> None:
    rng = np.random.default_rng(1)
    want, noise = rng.normal(size=1000), 0.01 * rng.normal(size=1000)
    found = error_of(want, want + noise, 0.0)
    power = float(np.sum(want**2) / np.sum(noise**2))
    assert found.sqnr_db == pytest.approx(10 * math.log10(power))
    assert found.largest == pytest.approx(np.abs(noise).max())
    lengths = np.linalg.norm(want) * np.linalg.norm(want + noise)
    assert found.cosine == pytest.approx(want @ (want + noise) / lengths)
    assert error_of(want, want, 0.0).sqnr_db == 200.0
    broken = want.copy()
    broken[3] = np.nan
    assert error_of(want, broken, 0.0).sqnr_db == -200.0
    assert error_of(broken, broken, 0.0).sqnr_db == 200.0


def test_only_values_beyond_the_range_are_saturated() -> None:
    tensor = Tensor("x", (4,), DType.I8, quant(0.1, -128))  # 0 to 25.5
    want = np.array([0.0, -3.0, 25.5, 30.0])
    assert saturation(np.array([-128, -128, 127, 127], np.int8), tensor, want) == 0.5
    half = Tensor("x", (2,), DType.F16)
    assert saturation(np.array([np.inf, 1], np.float16), half, np.array([1e5, 1.0])) == 0.5


def test_a_picture_is_compared_in_either_layout() -> None:
    picture = np.random.default_rng(2).normal(size=(1, 5, 5, 5))
    laid = in_layout(picture, picture.transpose(0, 3, 1, 2))
    assert laid is not None and np.array_equal(laid, picture.transpose(0, 3, 1, 2))
    assert in_layout(picture, np.zeros((1, 5, 5, 6))) is None


def graph_of(scales: tuple[float, float, float]) -> Graph:
    """x + x, then twice the rest, each result with a scale of its own."""
    names = ("a", "b", "c")
    tensors = {"x": int8("x", 0.01)} | {n: int8(n, s) for n, s in zip(names, scales, strict=True)}
    nodes, last = [], "x"
    for name in names:
        nodes.append(Node(f"add_{name}", ops.Add(), (last, "x"), (name,)))
        last = name
    return Graph("sums", tensors, tuple(nodes), ("x",), ("c",))


def brought_by(graph: Graph) -> dict[str, float | None]:
    rng = np.random.default_rng(3)
    x = {"x": rng.integers(-127, 128, (1, 4, 4, 3)).astype(np.int8)}
    twin = float_twin(graph)
    floats: dict[str, Array] = {"x": real(x["x"], graph.tensors["x"]).astype(np.float32)}
    removal = Removal(graph, x, References(twin, floats, {}, by_value=False, in_floats=True))
    assert all(removal.rounds(node) for node in graph.nodes)
    return {node.name: removal.brought_db(node) for node in graph.nodes}


@pytest.mark.parametrize("coarse", [0, 1, 2])
def test_the_operator_that_rounds_coarsely_brings_the_loss_in(coarse: int) -> None:
    scales = [0.05, 0.05, 0.05]
    scales[coarse] = 0.9
    found = brought_by(graph_of((scales[0], scales[1], scales[2])))
    worst = max(found, key=lambda name: found[name] or 0.0)
    assert worst == f"add_{'abc'[coarse]}" and (found[worst] or 0) > 10
    assert all((found[name] or 0) < 1 for name in found if name != worst)


def test_a_tensor_of_another_name_is_found_by_its_values() -> None:
    graph = float_twin(graph_of((0.05, 0.05, 0.05)))
    x = np.random.default_rng(4).normal(size=(1, 4, 4, 3)).astype(np.float32)
    named = References(graph, {"x": x}, {}, by_value=False, in_floats=False)
    by_value = References(graph, {"x": x}, {}, by_value=True, in_floats=False)
    found = (3 * x).transpose(0, 3, 1, 2)
    assert named.like("other", found) is None
    want = by_value.like("other", found)
    assert want is not None and want.shape == found.shape
    assert by_value.like("other", np.random.default_rng(5).normal(size=found.shape)) is None
