"""Low-bit weights fitted to samples: closer outputs, and thresholds that match the outliers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from edgekit.host.compiler.driver import prepare_graph
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Activation, Array, DType, Graph, Node, State, Tensor
from edgekit.host.compiler.options import CompileOptions, WeightBits
from edgekit.host.compiler.transforms.passes.calibrate import Cost
from edgekit.host.compiler.transforms.passes.calibrate import calibrate as calibrate_for
from edgekit.host.compiler.transforms.passes.compress import compress_weights
from edgekit.host.compiler.transforms.passes.mixed import Mixed, mixed, mixed_note
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, run_here
from tests.support.places import few_or_all

_WIDTH, _ROWS = 96, 20


def calibrate(
    floats: Graph, quantized: Graph, bits: WeightBits, samples: list[dict[str, Array]]
) -> Graph:
    """Calibrate with outlier channels at no cost."""
    return calibrate_for(floats, quantized, bits, samples, lambda *_: 1.0)[0]


def _layers() -> Graph:
    """Two fully connected layers, the first with a bias."""
    rng = np.random.default_rng(0)
    constants = {
        "w1": rng.standard_normal((2 * _WIDTH, _WIDTH)) / 10,
        "b1": rng.standard_normal(2 * _WIDTH),
        "w2": rng.standard_normal((_WIDTH, 2 * _WIDTH)) / 10,
    }
    tensors = {
        n: Tensor(n, v.shape, DType.F32, None, v.astype(np.float32)) for n, v in constants.items()
    }
    shapes = {"x": _WIDTH, "h": 2 * _WIDTH, "y": _WIDTH}
    tensors |= {n: Tensor(n, (_ROWS, size), DType.F32) for n, size in shapes.items()}
    dense = ops.FullyConnected(keep_dims=True)
    relu = dataclasses.replace(dense, activation=Activation.RELU)
    nodes = (
        Node("first", relu, ("x", "w1", "b1"), ("h",)),
        Node("second", dense, ("h", "w2"), ("y",)),
    )
    return Graph("layers", tensors, nodes, ("x",), ("y",))


def _samples(count: int, seed: int, largest: float = 4.5) -> list[dict[str, Array]]:
    """Low-rank rows, like real activations, with two channels far beyond the others."""
    rng = np.random.default_rng(seed)
    basis = np.random.default_rng(1).standard_normal((12, _WIDTH)) / 12**0.5
    made = [rng.standard_normal((_ROWS, 12)) @ basis for _ in range(count)]
    rows = [np.clip(each, -1, 1).astype(np.float32) for each in made]
    for each in rows:
        each[::3, [7, 30]] = largest
    return [{"x": each} for each in rows]


def _error(graph: Graph, exact: Graph, samples: list[dict[str, Array]]) -> float:
    pairs = [(evaluate(g, s).outputs["y"] for g in (graph, exact)) for s in samples]
    found, right = (np.stack(each) for each in zip(*pairs, strict=True))
    return float(np.linalg.norm(found - right) / np.linalg.norm(right))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bits", "gain"), [("int8", 1.5), ("int4", 2.0), ("int3", 2.0), ("int2", 2.0)]
)
def test_outputs_come_closer_on_samples_not_seen(bits, gain):
    floats = _layers()
    quantized = compress_weights(floats, bits)
    fitted = calibrate(floats, quantized, bits, _samples(16, 2))
    unseen = _samples(8, 3)
    assert gain * _error(fitted, floats, unseen) < _error(quantized, floats, unseen)


@pytest.mark.slow
@pytest.mark.parametrize(("changed", "fitted"), [(1, True), (4, False)])
def test_every_fourth_sample_is_held_out(changed, fitted, tmp_path):
    """Weights are fitted to the others; held-out samples show how near the outputs came."""
    board, options = load_board("a57"), CompileOptions(weights="int4")
    samples, weights = _samples(5, 2), []
    for each in (samples[changed], _samples(1, 9)[0]):
        samples[changed] = each
        made = prepare_graph(_layers(), board, options, samples=samples, cache=tmp_path)
        constants = (t.data for t in made.imported.tensors.values() if t.data is not None)
        weights.append(b"".join(data.tobytes() for data in constants))
    assert (weights[0] != weights[1]) is fitted


def test_the_mean_of_outputs_is_that_of_floats():
    floats, samples = _layers(), _samples(16, 2)
    fitted = calibrate(floats, compress_weights(floats, "int4"), "int4", samples)
    means = [
        np.mean([evaluate(g, s).outputs["y"] for s in samples], axis=(0, 1))
        for g in (fitted, floats)
    ]
    np.testing.assert_allclose(means[0], means[1], atol=1e-4)


def test_thresholds_are_where_outliers_are():
    """At 4.5 the default threshold of 6 would miss the outliers; at 1 there is nothing to split."""
    floats = _layers()
    quantized = compress_weights(floats, "int8")
    first = calibrate(floats, quantized, "int8", _samples(8, 2)).nodes[0].op
    assert 1 < first.threshold < 4.5 and first.outliers == 2  # its cost depends on them
    level = calibrate(floats, quantized, "int4", _samples(8, 2, largest=1)).nodes[0].op
    assert level.threshold > 1


def test_channels_are_apart_where_it_wins_more_than_it_costs():
    floats, samples = _layers(), _samples(8, 2)
    quantized = compress_weights(floats, "int8")
    counts = []
    for each in (0.0, 10.0):
        graph, splits = calibrate_for(floats, quantized, "int8", samples, _costed(each))
        assert {name: s.chosen.threshold for name, s in splits.items()} == {
            node.name: node.op.threshold for node in graph.nodes
        }
        counts.append([node.op.outliers for node in graph.nodes])
    assert counts[0][0] == 2 and counts[1] == [0, 0]


def test_four_bits_take_fewer_channels_apart():
    """The error of 4-bit weights is so large that finer activations gain little."""
    floats, samples, counts = _layers(), _samples(8, 2), []
    for bits in ("int8", "int4"):
        quantized = compress_weights(floats, bits)
        fitted = calibrate_for(floats, quantized, bits, samples, _costed(0.05))[0]
        counts.append(fitted.nodes[0].op.outliers)
    assert counts == [2, 0]


def _costed(each: float) -> Cost:
    """A layer costs 1, plus `each` per outlier."""
    return lambda _, node: 1 + each * node.op.outliers


def test_fitted_layers_run(tmp_path):
    floats = _layers()
    fitted = calibrate(floats, compress_weights(floats, "int4", 32), "int4", _samples(8, 2))
    assert fitted.tensors[fitted.nodes[1].inputs[2]].shape == (6, _WIDTH)
    inputs = _samples(1, 4)[0]
    made = run_here(build(fitted, load_board("local"), tmp_path), inputs)["y"]
    right = evaluate(fitted, inputs).outputs["y"]
    assert np.linalg.norm(made - right) < 1e-4 * np.linalg.norm(right)


def test_the_same_samples_make_the_same_weights():
    floats = _layers()
    quantized = compress_weights(floats, "int4")
    a, b = (calibrate(floats, quantized, "int4", _samples(8, 2)) for _ in range(2))
    for name, tensor in a.tensors.items():
        if tensor.data is not None:
            np.testing.assert_array_equal(tensor.data, b.tensors[name].data)


def test_a_channel_that_is_never_seen_is_no_error():
    floats, samples = _layers(), _samples(8, 2)
    for each in samples:
        each["x"][:, :40] = 0
    fitted = calibrate(floats, compress_weights(floats, "int8"), "int8", samples)
    assert _error(fitted, floats, samples) < 0.01


def test_states_are_refused():
    floats = dataclasses.replace(_layers(), states={"s": State("s", np.zeros(3, np.float32))})
    with pytest.raises(InputError, match="without states to fit to samples, found 1"):
        calibrate(floats, floats, "int8", _samples(8, 2))


def test_a_group_size_has_to_divide_k():
    with pytest.raises(InputError, match="divides the 96 values of k of first, found 64"):
        compress_weights(_layers(), "int4", 64)


def _wide_layer(k: int) -> Graph:
    """A product with many channels, a bias and a ReLU, between two elementwise operators."""
    rng = np.random.default_rng(5)
    constants = {"w": rng.standard_normal((40, k)) / k**0.5, "b": rng.standard_normal(40)}
    tensors = {
        n: Tensor(n, v.shape, DType.F32, None, v.astype(np.float32)) for n, v in constants.items()
    }
    shapes = {"x": k, "h": k, "s": 40, "y": 40}
    tensors |= {n: Tensor(n, (1, _ROWS, size), DType.F32) for n, size in shapes.items()}
    dense = ops.FullyConnected(keep_dims=True, activation=Activation.RELU)
    nodes = (
        Node("before", ops.Neg(), ("x",), ("h",)),
        Node("dense", dense, ("h", "w", "b"), ("s",)),
        Node("after", ops.Neg(), ("s",), ("y",)),
    )
    return Graph("wide", tensors, nodes, ("x",), ("y",))


def _uneven_rows(k: int, count: int, seed: int) -> list[dict[str, Array]]:
    """Rows with a few large values each, in different channels, as after GELU: no channel is an
    outlier in all rows."""
    rng = np.random.default_rng(seed)
    made = rng.standard_normal((count, 1, _ROWS, k)) * 0.05
    at = rng.integers(0, k, (count, _ROWS, 3))
    for i, rows in enumerate(at):
        for row, channels in enumerate(rows):
            made[i, 0, row, channels] = 4
    return [{"x": each.astype(np.float32)} for each in made]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bits", "group"), few_or_all([("int8", None), ("int8", 128), ("int4", 32)], [("int4", 32)])
)
def test_rows_of_wide_products_have_several_scales(bits, group, tmp_path):
    floats, samples = _wide_layer(1536), _uneven_rows(1536, 8, 6)
    fitted = calibrate(floats, compress_weights(floats, bits, group), bits, samples)
    products = [n for n in fitted.nodes if isinstance(n.op, ops.OutlierFullyConnected)]
    assert [fitted.tensors[n.inputs[1]].shape for n in products] == [(40, 384)] * 4
    assert all(len(fitted.tensors[n.inputs[2]].data) == 384 // (group or 384) for n in products)
    inputs = _uneven_rows(1536, 1, 7)[0]
    made = run_here(build(fitted, load_board("local"), tmp_path), inputs)["y"]
    right = evaluate(fitted, inputs).outputs["y"]
    assert np.linalg.norm(made - right) < 1e-4 * np.linalg.norm(right)


@pytest.mark.slow
def test_several_scales_of_a_row_come_closer():
    """A product in one part is limited by one 8-bit scale per row; one in four parts is closer."""
    errors = []
    for k in (1020, 1536):  # below 1024 there is one part
        floats, samples = _wide_layer(k), _uneven_rows(k, 8, 6)
        fitted = calibrate(floats, compress_weights(floats, "int8"), "int8", samples)
        errors.append(_error(fitted, floats, _uneven_rows(k, 4, 7)))
    assert errors[1] < 0.85 * errors[0]


def _uneven_layers() -> Graph:
    """`_layers` with weights in the second layer that 4 bits represent exactly."""
    graph = _layers()
    rng = np.random.default_rng(9)
    exact = rng.integers(-7, 8, (_WIDTH, 2 * _WIDTH)).astype(np.float32)
    exact[:, ::32] = -8
    tensors = {**graph.tensors, "w2": dataclasses.replace(graph.tensors["w2"], data=exact / 64)}
    return dataclasses.replace(graph, tensors=tensors)


def _mixed(floats: Graph, target: float) -> Mixed:
    def fit(eight: frozenset[str]) -> Graph:
        quantized = compress_weights(floats, "int4", 32, eight)
        return calibrate_for(floats, quantized, "int4", shown, lambda *_: 1.0, eight)[0]

    shown, held_out = _samples(8, 2), _samples(4, 3)
    return mixed(floats, compress_weights(floats, "int4", 32), fit, shown, held_out, target)


@pytest.mark.slow
def test_layers_that_4_bits_cost_most_get_8():
    floats = _uneven_layers()
    few = _mixed(floats, 0.5)
    assert few.eight == () and few.few == 2 and few.cosine < 0.9999
    some = _mixed(floats, 0.9999)
    assert some.eight == ("first",) and some.cosine >= 0.9999
    assert _error(some.graph, floats, _samples(8, 4)) < 0.5 * _error(
        few.graph, floats, _samples(8, 4)
    )
    stored = [some.graph.tensors[n.inputs[1]].data for n in some.graph.nodes]
    assert np.abs(stored[0]).max() > 8 and np.abs(stored[1]).max() <= 8
    every = _mixed(floats, 0.9999999)
    assert set(every.eight) == {"first", "second"}
    assert "8 bits in 2 of 2 operators: first, second; the target of" in mixed_note(
        every, 0.9999999
    )


@pytest.mark.slow
def test_8_bits_among_4_run(tmp_path):
    floats, inputs = _uneven_layers(), _samples(1, 4)[0]
    graph = _mixed(floats, 0.9999).graph
    made = run_here(build(graph, load_board("local"), tmp_path), inputs)["y"]
    right = evaluate(graph, inputs).outputs["y"]
    assert np.linalg.norm(made - right) < 1e-4 * np.linalg.norm(right)
