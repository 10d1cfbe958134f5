"""Tolerances in front of and behind steps: rounding, casts, comparisons, choices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, TensorProto

from edgekit.device.runtime.agent.specs import NOT_COMPARED
from edgekit.host.compiler.driver import prepare_graph
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.golden.margins import margin_of
from edgekit.host.compiler.golden.noise import noisy_runs
from edgekit.host.compiler.golden.vectors import golden_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Array, Graph, Padding
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, run_here
from tests.support.onnx_models import model, node, save, value
from tests.support.op_graphs import Case, constant, graph_of, tensor

_NEAR = np.float32(1 + 3e-7)  # a few units above 1: kernels of a function may be below
_FAR = np.float32(1.5)


def _graph(
    nodes: list[NodeProto],
    shape: tuple[int, ...],
    folder: Path,
    constants: Mapping[str, Array] | None = None,
) -> Graph:
    return import_model(save(model(nodes, [value("x", shape)], ["y"], constants), folder))


def _changes(graph: Graph, x: Array) -> Array:
    """Which results differ in some noisy run."""
    [runs] = noisy_runs(graph, {graph.inputs[0]: x}, 3).values()
    return np.any([y != runs.exact for y in runs.noisy or (runs.exact,)], axis=0)


_STEPS = {
    "floor": [node("Floor", ["e"], ["y"])],
    "cast": [node("Cast", ["e"], ["y"], to=TensorProto.INT64)],
    "comparison": [node("Less", ["e", "one"], ["y"])],
    "ceil": [node("Ceil", ["e"], ["y"])],
    "modulo": [node("Mod", ["e", "one"], ["y"], fmod=1)],
}


@pytest.mark.parametrize("name", _STEPS)
def test_only_values_near_a_threshold_change_behind_a_step(name, tmp_path):
    """Behind an exponential function, whose kernels are a few units off."""
    nodes = [node("Exp", ["x"], ["e"]), *_STEPS[name]]
    graph = _graph(nodes, (64,), tmp_path, {"one": np.float32(1)})
    x = np.log(np.where(np.arange(64) % 2, _FAR, _NEAR)).astype(np.float32)
    changed = _changes(graph, x)
    if name == "modulo":  # the rest itself moves; near the threshold by its height
        [runs] = noisy_runs(graph, {"x": x}, 3).values()
        changed = np.max([np.abs(y - runs.exact) for y in runs.noisy], axis=0) > 0.5
    assert changed.tolist() == [True, False] * 32


@pytest.mark.parametrize(("gap", "changes"), [(3e-7, True), (1e-3, False)])
def test_a_close_choice_is_not_compared(gap, changes, tmp_path):
    nodes = [node("Exp", ["x"], ["e"]), node("ArgMax", ["e"], ["y"], axis=1, keepdims=0)]
    graph = _graph(nodes, (40, 3), tmp_path)
    x = np.tile(np.log(np.float32([1, 1 + gap, 0.5])), (40, 1))
    assert _changes(graph, x).tolist() == [changes] * 40


def _whole(rng: np.random.Generator, *shape: int, most: int = 60) -> Array:
    return rng.integers(-most, most, shape).astype(np.float32)


def _integers(folder: Path) -> Graph:
    """As exporters of integer networks write them: whole weights, a factor, integers, a shift."""
    rng = np.random.default_rng(3)
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[5, 5], pads=[2] * 4),
        node("Mul", ["c", "k"], ["m"]),
        node("Cast", ["m"], ["i"], to=TensorProto.INT64),
        node("Mul", ["i", "a"], ["j"]),
        node("Div", ["j", "shift"], ["d"]),
        node("Cast", ["d"], ["f"], to=TensorProto.FLOAT),
        node("Clip", ["f", "low", "high"], ["y"]),
    ]
    constants = {
        "w": _whole(rng, 16, 1, 5, 5),
        "b": _whole(rng, 16, most=5000),
        "k": np.full((1, 16, 1, 1), 2047, np.float32),
        "a": np.array(24),
        "shift": np.array(1 << 24),
        "low": np.float32(0),
        "high": np.float32(255),
    }
    return _graph(nodes, (1, 1, 40, 40), folder, constants)


def test_integers_in_floats_are_compared_exactly(tmp_path):
    graph = _integers(tmp_path)
    golden = golden_of(graph, tmp_path / "golden")
    assert np.unique(golden.outputs[0]).size > 8
    assert golden.tolerances[0] < 0.01  # a code is 1


def test_integers_behind_rounded_sums_do_not_make_inputs_integers(tmp_path):
    """Seen: a detector's boxes are expectations over bins. Inputs of 0 to 255 exceeded f16."""
    rng = np.random.default_rng(0)
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("Softmax", ["m"], ["s"]),
        node("MatMul", ["s", "bins"], ["y"]),
    ]
    bins = np.arange(16, dtype=np.float32)[:, None]
    weights = rng.normal(0, 0.01, (8, 16)).astype(np.float32)
    graph = _graph(nodes, (64, 8), tmp_path, {"w": weights, "bins": bins})
    [inputs] = golden_of(graph, tmp_path / "golden").inputs
    assert np.max(np.abs(inputs)) <= 1


def test_a_kernel_gives_the_integers_of_the_reference(tmp_path):
    """Seen: the factor was folded into the weights, and one in 32,000 codes was one off."""
    graph = _integers(tmp_path)
    board = load_board("local")
    folder = build(prepare_graph(graph, board).graph, board, tmp_path / "built")
    rng = np.random.default_rng(0)
    for _ in range(4):
        x = rng.integers(0, 256, (1, 1, 40, 40)).astype(np.float32)
        constants = {n: graph.tensors[n].data for n in graph.tensors}
        [w] = [n for n in graph.nodes if isinstance(n.op, ops.Conv2D)]
        weights, bias = constants[w.inputs[1]], constants[w.inputs[2]]
        padded = np.pad(x[0, 0], 2).astype(np.int64)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5))
        total = np.einsum("hwij,oij->ohw", windows, weights[..., 0].astype(np.int64))
        products = ((total + bias.astype(np.int64)[:, None, None]) * 2047).astype(np.float32)
        quotients = products.astype(np.int64) * 24
        want = np.clip(np.trunc(quotients / (1 << 24)), 0, 255)
        [got] = run_here(folder, {"x": x}).values()
        assert np.array_equal(got[0], want.astype(np.float32))


def test_bounds_hold_for_a_run_that_they_were_not_derived_from():
    """Groups that move in rare jumps get the bound of the whole output."""
    rng = np.random.default_rng(0)
    golden = rng.uniform(1, 1.9, (64, 40)).astype(np.float32)
    runs = []
    for _ in range(3):
        jumps = rng.random(golden.shape) < 0.005
        runs.append(np.where(jumps, 0.5, 1e-6).astype(np.float32))
    margin = margin_of(golden, runs, is_index=False)
    assert margin.codes is None and 1 <= margin.tolerance <= 2
    calm = [rng.uniform(0, 1e-6, golden.shape).astype(np.float32) for _ in range(3)]
    calm[0][:, 0] = calm[1][:, 0] = calm[2][:, 0] = 0.5
    codes = margin_of(golden, calm, is_index=False).codes
    assert codes is not None and codes[:, 1:].min() > codes[:, 0].max()
    assert codes.max() != NOT_COMPARED


@pytest.mark.parametrize("behind", ["Floor", "Sigmoid"])
def test_a_quotient_in_front_of_a_step_is_a_quotient(behind, tmp_path):
    """49 * (1 / 49) is below 1 in f32. Elsewhere multiplying is faster."""
    nodes = [node("Div", ["x", "by"], ["q"]), node(behind, ["q"], ["y"])]
    graph = _graph(nodes, (8,), tmp_path, {"by": np.float32(49)})
    board = load_board("local")
    made = prepare_graph(graph, board).graph
    assert any(isinstance(n.op, ops.Div) for n in made.nodes) == (behind == "Floor")
    x = np.arange(8, dtype=np.float32) * 49
    [got] = run_here(build(made, board, tmp_path / "built"), {"x": x}).values()
    wanted = np.arange(8) if behind == "Floor" else 1 / (1 + np.exp(-np.arange(8.0)))
    assert np.allclose(got, wanted, atol=1e-6)


def test_a_bias_with_a_fraction_is_added_to_an_exact_sum(tmp_path):
    """Kernels begin with the bias, and would round each step of the sum."""
    rng = np.random.default_rng(1)
    nodes = [node("Gemm", ["x", "w", "b"], ["g"]), node("Floor", ["g"], ["y"])]
    constants = {"w": _whole(rng, 256, 8, most=127), "b": np.full(8, 0.3, np.float32)}
    graph = _graph(nodes, (64, 256), tmp_path, constants)
    board = load_board("local")
    x = rng.integers(0, 256, (64, 256)).astype(np.float32)
    [got] = run_here(
        build(prepare_graph(graph, board).graph, board, tmp_path / "b"), {"x": x}
    ).values()
    total = x.astype(np.int64) @ constants["w"].astype(np.int64)
    assert np.array_equal(got, np.floor(total.astype(np.float32) + np.float32(0.3)))


@pytest.mark.parametrize(("scale", "folded"), [(1.0, False), (0.1, True)])
def test_a_factor_is_folded_where_sums_are_rounded_anyway(scale, folded, tmp_path):
    rng = np.random.default_rng(1)
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Mul", ["m", "k"], ["y"])]
    weights = _whole(rng, 16, 8) * np.float32(scale)
    graph = _graph(nodes, (4, 16), tmp_path, {"w": weights, "k": np.float32(3)})
    made = prepare_graph(graph, load_board("local")).graph
    assert any(isinstance(n.op, ops.Mul) for n in made.nodes) != folded


@pytest.mark.parametrize(("scale", "family"), [(1.0, "in_place"), (0.1, "winograd")])
def test_winograd_rounds_sums_and_is_not_used_for_integers(scale, family):
    rng = np.random.default_rng(1)
    whole = np.rint(rng.normal(size=(32, 3, 3, 32)) * 1000)  # too large for 8 bits
    weights = constant((whole * scale).astype(np.float32))
    case = Case(ops.Conv2D(padding=Padding(1, 1, 1, 1)), (tensor((1, 32, 32, 32)), weights, None))
    [step] = lower(graph_of([case]), load_board("rpi4")).lowered.steps
    assert step.compiled is not None and step.compiled.method.family == family


def test_a_flat_part_crosses_a_threshold_as_one(tmp_path):
    """A mean behind the step does not cancel it."""
    nodes = [
        node("Exp", ["x"], ["e"]),
        node("Floor", ["e"], ["f"]),
        node("ReduceMean", ["f"], ["y"], axes=[1], keepdims=1),
    ]
    graph = _graph(nodes, (1, 64), tmp_path)
    x = np.full((1, 64), np.log(_NEAR), np.float32)
    [runs] = noisy_runs(graph, {"x": x}, 3).values()
    assert max(float(np.abs(y - runs.exact).max()) for y in runs.noisy) == 1.0


@pytest.mark.parametrize("alpha", [1 / 3, 0.1, 0.5])
@pytest.mark.parametrize("transposed", [0, 1])
def test_alpha_of_a_gemm_scales_whole_sums_rather_than_whole_weights(alpha, transposed, tmp_path):
    """Sums of weights that are thirds or tenths would be inexact in front of the step."""
    onnxruntime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    weights = rng.integers(-127, 128, (4, 6) if transposed else (6, 4)).astype(np.float32)
    x = rng.integers(-128, 128, (400, 6)).astype(np.float32)
    layer = node("Gemm", ["x", "w"], ["g"], alpha=alpha, transB=transposed)
    nodes = [layer, node("Floor", ["g"], ["y"])]
    path = save(model(nodes, [value("x", x.shape)], ["y"], {"w": weights}), tmp_path)
    (want,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    found = evaluate(run_passes(import_model(path))[0], {"x": x}).outputs
    np.testing.assert_array_equal(found["y"], want)
