"""Errors of operators against a reference, and which operator brings the loss in."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node, Quant, Tensor
from edgekit.host.compiler.transforms.passes.quantized import integer_form
from edgekit.host.lab.compare.layers import (
    References,
    Removal,
    equalized,
    error_of,
    float_twin,
    in_layout,
    real,
    run_in_floats,
    saturation,
)
from tests.support.onnx_models import model, node, save, value


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


@pytest.mark.parametrize("axis", [1, 3])
def test_equalized_channels_are_compared_as_they_are_scaled(axis: int) -> None:
    rng = np.random.default_rng(7)
    want = np.moveaxis(np.maximum(rng.normal(size=(1, 9, 9, 8)), 0), 3, axis)
    factors = np.moveaxis(rng.uniform(0.2, 3, (1, 1, 1, 8)), 3, axis)
    factors.flat[2] = 0.0  # a channel that is never used
    found = want * factors + 0.01 * rng.normal(size=want.shape) * (factors > 0)
    assert error_of(want, found, 0.0).sqnr_db < 10
    used = np.broadcast_to(factors > 0, want.shape)
    assert error_of(equalized(want, found)[used], found[used], 0.0).sqnr_db > 30


def test_other_differences_than_factors_of_channels_are_errors() -> None:
    rng = np.random.default_rng(8)
    want = rng.normal(size=(1, 9, 9, 8))
    noisy = want + 0.3 * rng.normal(size=want.shape)
    one_pixel = rng.normal(size=(1, 1, 1, 8))
    flipped = want * np.where(np.arange(8) == 3, -1, 2)
    for reference, found in (
        (want, noisy), (want, 1.1 * want), (want, flipped), (one_pixel, 3 * one_pixel + 1),
    ):  # fmt: skip
        assert equalized(reference, found) is reference


def test_the_float_twin_of_integers_with_a_bias_computes_the_same(tmp_path: Path) -> None:
    """The biases of Q/DQ graphs are sums of products, in units of both scales."""
    rng = np.random.default_rng(9)
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        node("Conv", ["xd", "wd", "b"], ["c"]),
        node("QuantizeLinear", ["c", "s", "z"], ["cq"]),
        node("DequantizeLinear", ["cq", "s", "z"], ["y"]),
    ]
    scales = rng.uniform(0.005, 0.01, 4).astype(np.float32)
    constants: dict[str, Array] = {
        "s": np.array(0.05, np.float32), "z": np.array(3, np.int8),
        "w": rng.integers(-127, 128, (4, 6, 1, 1)).astype(np.int8),
        "ws": scales, "wz": np.zeros(4, np.int8), "b": rng.normal(size=4).astype(np.float32),
    }  # fmt: skip
    path = save(model(nodes, [value("x", (1, 6, 5, 5))], ["y"], constants), tmp_path)
    graph = integer_form(import_model(path))
    assert any(t.dtype is DType.I32 and t.data is not None for t in graph.tensors.values())
    x = {"x": rng.normal(size=(1, 6, 5, 5)).astype(np.float32)}
    stored = evaluate(graph, x).outputs["y"]
    exact = evaluate(float_twin(graph), x, runner=run_in_floats).outputs["y"]
    assert error_of(exact, stored, 0.0).sqnr_db > 25
