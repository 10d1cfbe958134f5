"""Weights that a file gives in f16 or 8 bits keep that size; results stay the same."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from onnx import TensorProto

from edgekit.host.compiler.driver import prepare_graph
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.lowering.narrow import narrowed
from edgekit.host.compiler.options import DEFAULT_OPTIONS
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check, run_here, x86_params
from tests.support.narrow_cases import channels_first_cases, narrow_cases, narrow_weights
from tests.support.onnx_models import model, node, save, value
from tests.support.op_graphs import graph_of, inputs_of


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["f16", "s8"])
@pytest.mark.parametrize("board", x86_params())
def test_kernels_widen_weights_to_the_values_of_the_file(kind, board, tmp_path):
    graph = graph_of([*narrow_cases(kind), *channels_first_cases(kind)])
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, board, tmp_path), inputs), inputs)


@pytest.mark.parametrize(("kind", "bytes_each"), [("f16", 2), ("s8", 1), ("f32", 4)])
@pytest.mark.parametrize("profile", ["a53", "a7", "rv64gcv", "bpi-f3"])
def test_weights_are_stored_in_their_own_type(profile, kind, bytes_each):
    graph = graph_of(narrow_cases(kind))
    count = sum(t.elements for t in graph.tensors.values() if t.data is not None and t.shape[1:])
    stored = len(lower(graph, load_board(profile)).lowered.weights)
    assert stored < 1.05 * bytes_each * count


@pytest.mark.parametrize("profile", ["a53", "a7", "rv64gcv", "bpi-f3"])
def test_pruned_weights_are_stored_in_their_own_type(profile):
    """Two bytes of a value and one of its column, but for rows of different length in a pair."""
    sparse, *_ = channels_first_cases("f16")
    graph = graph_of([sparse])
    count = np.count_nonzero(graph.tensors[graph.nodes[0].inputs[1]].data)
    assert len(lower(graph, load_board(profile)).lowered.weights) < 3.6 * count


def _file(kind: str, folder):
    """A product whose weights the file stores in `kind`, with scales per column for s8."""
    codes = np.random.default_rng(0).integers(-127, 128, (256, 64)).astype(np.int8)
    scales = np.linspace(0.01, 0.02, 64, dtype=np.float32)
    if kind == "f16":
        constants = {"stored": (codes * scales).astype(np.float16)}
        widen = node("Cast", ["stored"], ["w"], to=TensorProto.FLOAT)
    else:
        constants = {"stored": codes, "scale": scales}
        widen = node("DequantizeLinear", ["stored", "scale"], ["w"], axis=1)
    nodes = [widen, node("MatMul", ["x", "w"], ["y"])]
    return save(model(nodes, [value("x", (40, 256))], ["y"], constants), folder)


@pytest.mark.parametrize(("kind", "bytes_each"), [("f16", 2), ("s8", 1)])
def test_files_with_narrow_weights_need_no_more_memory(kind, bytes_each, tmp_path):
    board = load_board("a53")
    graph = prepare_graph(import_model(_file(kind, tmp_path)), board).graph
    _, plan = plan_of(graph, board, DEFAULT_OPTIONS)
    assert len(plan.lowered.weights) < 1.2 * bytes_each * 256 * 64


@pytest.mark.parametrize("kind", ["f16", "s8"])
def test_the_narrow_form_gives_back_every_bit(kind):
    weights = narrow_weights(kind, 129, 128)
    found = narrowed(weights)
    assert found is not None
    wide = found.values.astype(np.float32)
    np.testing.assert_array_equal(
        wide if found.scales is None else wide * found.scales[:, None], weights
    )


@pytest.mark.parametrize("spoiled", [np.nan, np.inf, 1e-30, 70000, 1 + 2.0**-20])
def test_one_other_value_keeps_weights_in_f32(spoiled):
    for kind in ("f16", "s8"):
        weights = narrow_weights(kind, 129, 128)
        weights[-1, -1] = spoiled
        assert narrowed(weights) is None


def _stored(path, board, options=DEFAULT_OPTIONS):
    graph = prepare_graph(import_model(path), board).graph
    return len(plan_of(graph, board, options)[1].lowered.weights)


def _convolutions(kind, tmp_path):
    """Eight convolutions of 64 channels, and the bytes of their weights in `kind`."""
    rng = np.random.default_rng(0)
    each = [rng.standard_normal((64, 64, 3, 3)).astype(kind) for _ in range(8)]
    constants = {f"w{i}": w.astype(np.float32) for i, w in enumerate(each)}
    nodes = [
        node("Conv", [f"x{i}" if i else "x", f"w{i}"], [f"x{i + 1}"], pads=[1, 1, 1, 1])
        for i in range(8)
    ]
    path = save(model(nodes, [value("x", (1, 64, 32, 32))], ["x8"], constants), tmp_path)
    return path, sum(w.nbytes for w in each)


def test_transformed_weights_double_narrow_ones_at_most(tmp_path):
    """Winograd's weights are eight times as large as f16; `--order memory` does without them."""
    path, own = _convolutions(np.float16, tmp_path)
    least = dataclasses.replace(DEFAULT_OPTIONS, order="memory")
    board = load_board("a72")
    assert 1.5 * own < _stored(path, board) < 2.1 * own
    assert _stored(path, board, least) < 1.1 * own


def test_transformed_weights_add_an_eighth_of_the_memory_at_most(tmp_path):
    path, own = _convolutions(np.float32, tmp_path)
    board = load_board("a72")
    small = dataclasses.replace(board, memory_bytes=16 << 20)
    assert _stored(path, board) > 3.9 * own
    assert 1.5 * own < _stored(path, small) < own + (16 << 20) // 8 + 4096
