"""Weights that a file gives in f16 or 8 bits keep that size; results stay the same."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from onnx import TensorProto

from edgekit.host.compiler.driver import prepare_graph
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.lowering.gemm.winograd_memory import winograd_note
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.lowering.narrow import narrowed
from edgekit.host.compiler.options import DEFAULT_OPTIONS
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check, run_here, x86_boards, x86_params
from tests.support.narrow_cases import channels_first_cases, narrow_cases, narrow_weights
from tests.support.onnx_models import model, node, save, value
from tests.support.op_graphs import graph_of, inputs_of
from tests.support.places import few_or_all


@pytest.mark.slow
@pytest.mark.parametrize("kind", few_or_all(["f16", "s8"], ["s8"]))
@pytest.mark.parametrize("board", x86_params())
def test_kernels_widen_weights_to_the_values_of_the_file(kind, board, tmp_path):
    graph = graph_of([*narrow_cases(kind), *channels_first_cases(kind)])
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, board, tmp_path), inputs), inputs)


@pytest.mark.parametrize("kind", ["f16", "s8"])
def test_recurrent_layers_widen_weights_on_a_core_without_vectors(kind, tmp_path):
    graph = graph_of([c for c in narrow_cases(kind) if isinstance(c.op, ops.Recurrent)])
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, x86_boards()[0], tmp_path), inputs), inputs)


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
    quantized = np.random.default_rng(0).integers(-127, 128, (256, 64)).astype(np.int8)
    scales = np.linspace(0.01, 0.02, 64, dtype=np.float32)
    if kind == "f16":
        constants = {"stored": (quantized * scales).astype(np.float16)}
        widen = node("Cast", ["stored"], ["w"], to=TensorProto.FLOAT)
    else:
        constants = {"stored": quantized, "scale": scales}
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


def _plan(path, board, options=DEFAULT_OPTIONS):
    graph = prepare_graph(import_model(path), board).graph
    return plan_of(graph, board, options)[1]


def _methods(plan):
    """The words "winograd" and "making" for each convolution that has them."""
    sources = [[c.kernel.source for c in step.calls] for step in plan.lowered.steps]
    making = [s for s in sources if "layout/winograd_weights.c" in s]
    return sum("conv/f32_winograd.c" in s for s in sources), len(making)


def _memory(plan):
    return len(plan.lowered.weights) + plan.memory.arena_bytes


def _convolutions(kind, tmp_path, layers=8, size=32):
    """Convolutions of 64 channels with weights in `kind`, transformed ones of 576 KiB."""
    rng = np.random.default_rng(0)
    each = [rng.standard_normal((64, 64, 3, 3)).astype(kind) for _ in range(layers)]
    constants = {f"w{i}": w.astype(np.float32) for i, w in enumerate(each)}
    nodes = [
        node("Conv", [f"x{i}" if i else "x", f"w{i}"], [f"x{i + 1}"], pads=[1, 1, 1, 1])
        for i in range(layers)
    ]
    ends = [value("x", (1, 64, size, size))], [f"x{layers}"]
    return save(model(nodes, *ends, constants), tmp_path)


_SCARCE = dataclasses.replace(load_board("a72"), memory_bytes=32 << 20)


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_transformed_weights_of_many_layers_share_scarce_memory(kind, tmp_path):
    """Eight layers by Winograd's transform take 1 MiB more than eight direct ones at most."""
    path = _convolutions(kind, tmp_path)
    plan = _plan(path, _SCARCE)
    direct = _plan(path, _SCARCE, dataclasses.replace(DEFAULT_OPTIONS, order="memory"))
    assert _methods(direct) == (0, 0)
    winograd, making = _methods(plan)
    assert (winograd, making > 4) == (8, True)
    assert _memory(plan) <= _memory(direct) + (1 << 20)


@pytest.mark.parametrize("size", [8, 24])
def test_transformed_weights_are_stored_where_they_gain_much_and_the_board_has_memory(
    size, tmp_path
):
    """Making them takes about as long as direct convolutions of few pixels, little of those of many
    pixels. If a limit is set, a fifth of the model's memory, or 1 MiB, is the most."""
    path, board = _convolutions(np.float32, tmp_path, size=size), load_board("a72")
    plan, direct = (
        _plan(path, board, dataclasses.replace(DEFAULT_OPTIONS, order=order))
        for order in ("search", "memory")
    )
    assert _methods(plan) == (8, 0)
    graph = prepare_graph(import_model(path), board).graph
    note = winograd_note(graph, plan.lowered.transformed)
    assert "of 8 convolutions take 4,718,592 bytes on the board instead of 1,179,648;" in note
    kept = plan.lowered.transformed
    halves = [dataclasses.replace(n, name=f"{n.name}/1") for n in graph.nodes if n.name in kept]
    parts = dataclasses.replace(graph, nodes=(*graph.nodes, *halves))
    assert winograd_note(parts, {**kept, **{f"{name}/1": kept[name] for name in kept}}) == note
    limited = _plan(path, board, dataclasses.replace(DEFAULT_OPTIONS, memory_limit=2 << 20))
    assert 0 < _methods(limited)[0] < 8
    assert _memory(limited) <= _memory(direct) + (1 << 20)
    large = _plan(_convolutions(np.float32, tmp_path), board)
    assert _methods(large)[1] > 4


def test_transformed_weights_of_few_layers_are_stored(tmp_path):
    assert _methods(_plan(_convolutions(np.float32, tmp_path, 2), load_board("a72"))) == (2, 0)


def test_transformed_weights_take_an_eighth_of_the_memory_at_most(tmp_path):
    board = dataclasses.replace(load_board("a72"), memory_bytes=4 << 20)
    path = _convolutions(np.float32, tmp_path)
    direct = _plan(path, board, dataclasses.replace(DEFAULT_OPTIONS, order="memory"))
    assert _methods(_plan(path, board)) == (8, 8)  # in parts
    assert _memory(_plan(path, board)) <= _memory(direct) + (4 << 20) // 8


def test_a_limit_of_the_arena_leaves_no_room_for_transformed_weights(tmp_path):
    options = dataclasses.replace(DEFAULT_OPTIONS, memory_limit=600 << 10)
    plan = _plan(_convolutions(np.float32, tmp_path), load_board("a72"), options)
    assert _methods(plan)[1] == 0
    assert plan.memory.arena_bytes <= 600 << 10
