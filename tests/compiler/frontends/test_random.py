"""Random numbers in a graph: their moments, their seeds, and the state that tells runs apart."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import helper

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.golden.vectors import golden_of
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import load_board
from tests.support import onnx_models
from tests.support.kernel_runs import build, runs_here
from tests.support.litert_cases import Single, fixed, given

_COUNT = 40_000


def _single(folder, op, inputs=(), outputs=("y",), opset=17, constants=None, **attributes):
    """A model of one operator on inputs of the given names and types, [_COUNT / 8, 8]."""
    names = [n for n, _ in inputs] + list(constants or {})
    node = helper.make_node(op, names, list(outputs), **attributes)
    ends = [onnx_models.value(n, [_COUNT // 8, 8], t) for n, t in inputs]
    proto = onnx_models.model([node], ends, outputs, constants, opset)
    return import_model(onnx_models.save(proto, folder))


def _runs(graph, inputs=None, count=2):
    """The first output of several runs of the reference."""
    found, states = [], None
    for _ in range(count):
        made = evaluate(graph, inputs or {}, states)
        states = made.states
        found.append(made.outputs[graph.outputs[0]])
    return found


def _moments(x):
    """Mean, variance, skewness and kurtosis."""
    wide = x.astype(np.float64).reshape(-1)
    unit = (wide - wide.mean()) / wide.std()
    return wide.mean(), wide.var(), (unit**3).mean(), (unit**4).mean()


def _correlation(a, b):
    return float(np.corrcoef(a.reshape(-1), b.reshape(-1))[0, 1])


@pytest.mark.parametrize("op", ["RandomNormal", "RandomNormalLike"])
def test_normal_numbers_have_the_moments_they_should(op, tmp_path):
    like = op.endswith("Like")
    more = {} if like else {"shape": [_COUNT // 8, 8]}
    graph = _single(tmp_path, op, [("x", "f32")] if like else [], mean=2.0, scale=3.0, **more)
    x = {"x": np.zeros((_COUNT // 8, 8), np.float32)} if like else {}
    first, second = _runs(graph, x)
    for y in (first, second):
        assert y.shape == (_COUNT // 8, 8) and y.dtype == np.float32
        np.testing.assert_allclose(_moments(y), (2, 9, 0, 3), atol=0.15)
        assert 3.5 < np.abs(y - 2).max() / 3 <= 5.8
    pairs = [(first, second), (first[:-1], first[1:]), (first[:, :-1], first[:, 1:])]
    assert max(abs(_correlation(a, b)) for a, b in pairs) < 0.02


@pytest.mark.parametrize("op", ["RandomUniform", "RandomUniformLike"])
def test_uniform_numbers_fill_their_range(op, tmp_path):
    like = op.endswith("Like")
    more = {} if like else {"shape": [_COUNT // 8, 8]}
    graph = _single(tmp_path, op, [("x", "f32")] if like else [], low=-1.0, high=3.0, **more)
    x = {"x": np.zeros((_COUNT // 8, 8), np.float32)} if like else {}
    first, second = _runs(graph, x)
    counts = np.histogram(first, 16, (-1, 3))[0]
    assert counts.sum() == _COUNT and np.abs(counts - _COUNT / 16).max() < 5 * (_COUNT / 16) ** 0.5
    np.testing.assert_allclose(_moments(first), (1, 4 / 3, 0, 1.8), atol=0.05)
    assert abs(_correlation(first, second)) < 0.02


@pytest.mark.parametrize("dtype", ["f32", np.dtype(np.float64), np.dtype(np.float16)])
def test_bernoulli_is_1_with_the_given_probability(dtype, tmp_path):
    graph = _single(tmp_path, "Bernoulli", [("x", dtype)], opset=15)
    shape = (_COUNT // 8, 8)
    p = np.broadcast_to(np.linspace(0, 1, 8), shape).astype(graph.tensors["x"].dtype.numpy)
    (y,) = _runs(graph, {"x": p}, 1)
    assert y.dtype == p.dtype and set(np.unique(y)) == {0, 1}
    np.testing.assert_allclose(y.astype(np.float64).mean(axis=0), p[0], atol=0.03)
    assert not y[:, 0].any() and y[:, 7].all()


def test_classes_are_drawn_by_their_scores(tmp_path):
    shares = np.float32([[0.1, 0.2, 0.7], [0.5, 0, 0.5]])
    node = helper.make_node("Multinomial", ["x"], ["y"], sample_size=_COUNT, dtype=7)
    proto = onnx_models.model([node], [onnx_models.value("x", [2, 3])], ["y"])
    graph = import_model(onnx_models.save(proto, tmp_path))
    with np.errstate(divide="ignore"):
        (y,) = _runs(graph, {"x": np.log(shares * 5)}, 1)
    assert y.dtype == np.int64 and y.shape == (2, _COUNT)
    for row, share in zip(y, shares, strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / _COUNT, share, atol=0.02)


def test_a_seed_fixes_the_numbers_of_an_operator(tmp_path):
    def drawn(*seeds):
        nodes = [
            helper.make_node(
                "RandomNormal", [], [f"y{i}"], shape=[64], **({} if s is None else {"seed": s})
            )
            for i, s in enumerate(seeds)
        ]
        names = [f"y{i}" for i in range(len(seeds))]
        graph = import_model(onnx_models.save(onnx_models.model(nodes, [], names), tmp_path))
        return [evaluate(graph, {}).outputs[n] for n in names]

    a, b, c, d, e = drawn(1.5, 1.5, -2.0, None, None)
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(drawn(None, 1.5)[1], a)
    assert len({x.tobytes() for x in (a, c, d, e)}) == 4


@pytest.mark.parametrize(("dtype", "number"), [("float64", 11), ("float16", 10)])
def test_numbers_have_the_type_that_the_file_says(dtype, number, tmp_path):
    for op, of_type in (("RandomNormalLike", {}), ("RandomUniformLike", {"dtype": 1})):
        graph = _single(tmp_path, op, [("x", np.dtype(dtype))], **of_type)
        x = {"x": np.zeros((_COUNT // 8, 8), dtype)}
        (y,) = _runs(graph, x, 1)
        assert y.dtype == (np.float32 if of_type else np.dtype(dtype))
    graph = _single(tmp_path, "RandomUniform", shape=[0, 3], dtype=number)
    assert evaluate(graph, {}).outputs["y"].shape == (0, 3)


def test_dropout_in_training_mode_drops(tmp_path):
    constants = {"ratio": np.float32(0.25), "training": np.array(True)}
    graph = _single(tmp_path, "Dropout", [("x", "f32")], ("y", "mask"), 13, constants)
    x = np.ones((_COUNT // 8, 8), np.float32)
    made = evaluate(graph, {"x": x}).outputs
    assert abs(made["mask"].mean() - 0.75) < 0.02
    np.testing.assert_allclose(made["y"], made["mask"] / np.float32(0.75), rtol=1e-6)


def _loop(folder, steps):
    """A loop whose steps add what they draw."""
    body = helper.make_graph(
        [
            helper.make_node("RandomNormalLike", ["s"], ["n"]),
            helper.make_node("Identity", ["c"], ["d"]),
            helper.make_node("Add", ["s", "n"], ["t"]),
        ],
        "body",
        [onnx_models.value("i", [], "s64"), onnx_models.value("c", [], np.dtype(bool)),
         onnx_models.value("s", [50])],
        [onnx_models.value("d", [], np.dtype(bool)), onnx_models.value("t", [50]),
         onnx_models.value("n", [50])],
    )  # fmt: skip
    node = helper.make_node("Loop", ["m", "", "x"], ["y", "rows"], body=body)
    constants = {"m": np.array(steps)}
    proto = onnx_models.model([node], [onnx_models.value("x", [50])], ["y", "rows"], constants)
    return import_model(onnx_models.save(proto, folder))


@pytest.mark.parametrize("steps", [3, 20])
def test_steps_of_a_short_loop_draw_different_numbers(steps, tmp_path):
    rows = evaluate(_loop(tmp_path, steps), {"x": np.zeros(50, np.float32)}).outputs["rows"]
    assert len(np.unique(rows)) == 50 * steps


@pytest.mark.slow
def test_random_numbers_in_a_long_loop_are_refused(tmp_path):
    with pytest.raises(InputError, match="random numbers outside of loops"):
        _loop(tmp_path, 600)


@pytest.mark.slow
def test_every_run_of_a_release_draws_what_the_reference_draws(tmp_path):
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["n"]),
        helper.make_node("RandomUniform", [], ["u"], shape=[7], seed=4.0),
        helper.make_node("Add", ["x", "n"], ["y"]),
        helper.make_node("Mul", ["u", "x"], ["z"]),
    ]
    proto = onnx_models.model(nodes, [onnx_models.value("x", [5, 7])], ["y", "z"])
    path = onnx_models.save(proto, tmp_path)
    graph, x = import_model(path), {"x": np.ones((5, 7), np.float32)}
    states = None
    for found in runs_here(build(graph, load_board("local"), tmp_path / "made"), [x] * 3):
        made = evaluate(graph, x, states)
        for name in ("y", "z"):
            np.testing.assert_allclose(found[name], made.outputs[name], atol=1e-5)
        states = made.states


def test_golden_outputs_of_random_numbers_are_those_of_a_first_run(tmp_path):
    graph = _single(tmp_path, "RandomNormalLike", [("x", "f32")])
    golden = golden_of(graph, tmp_path)
    x = dict(zip(graph.inputs, golden.inputs, strict=True))
    np.testing.assert_array_equal(golden.outputs[0], _runs(graph, x)[0])
    assert golden.tolerances[0] < 1e-3


@pytest.mark.parametrize("seeds", [{}, {"Seed": 3, "Seed2": 4}])
def test_numbers_of_tensorflow_lite(files, seeds):
    shape, like = fixed(np.int32([_COUNT // 8, 8])), given(np.zeros((_COUNT // 8, 8), np.float32))
    for code, expected in (
        ("RANDOM_UNIFORM", (0.5, 1 / 12, 0, 1.8)), ("RANDOM_STANDARD_NORMAL", (0, 1, 0, 3)),
    ):  # fmt: skip
        case = Single(code, [shape], [like], "RandomOptions", seeds)
        first, second = _runs(graph_from_tflite(case.content(files), "case"))
        np.testing.assert_allclose(_moments(first), expected, atol=0.06)
        assert first.shape == like.value.shape and abs(_correlation(first, second)) < 0.02
    scores = given(np.log(np.float32([[0.1, 0.9]])))
    for dtype in (np.int32, np.int64):
        drawn = given(np.zeros((1, 2000), dtype))
        case = Single(
            "MULTINOMIAL", [scores, fixed(np.int32(2000))], [drawn], "RandomOptions", seeds
        )
        (y,) = _runs(graph_from_tflite(case.content(files), "case"), case.inputs(), 1)
        assert y.dtype == dtype and abs(y.mean() - 0.9) < 0.04
