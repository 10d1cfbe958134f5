"""Low-bit weights: the error on a transformer's layers, and operators left alone."""

from __future__ import annotations

import dataclasses
import os
import statistics
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Activation, Array, DType, Graph, Node, Tensor
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.transforms.passes.compress import compress_weights
from edgekit.host.compiler.transforms.passes.weight_scales import MOST
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, run_here, x86_boards, x86_params
from tests.support.op_cases import Case, constant, tensor
from tests.support.op_graphs import graph_of
from tests.support.outlier_graphs import tied, with_shared_tables
from tests.support.places import few_or_all

_MEDIAN, _WORST = 0.010, 0.016  # relative errors on real layers with 8 bits per row


def _layer(w: Array, shape: tuple[int, ...], matmul: bool = False) -> Graph:
    """y = x . w.T"""
    held = np.ascontiguousarray(w.T) if matmul else w
    tensors = {
        "x": Tensor("x", shape, DType.F32),
        "w": Tensor("w", held.shape, DType.F32, None, held),
        "y": Tensor("y", (*shape[:-1], len(w)), DType.F32),
    }
    op = ops.MatMul() if matmul else ops.FullyConnected(keep_dims=True)
    return Graph("layer", tensors, (Node("dense", op, ("x", "w"), ("y",)),), ("x",), ("y",))


def _relative(found: Array, exact: Array) -> float:
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def _activations(rows: int, k: int) -> Array:
    """Activations like a transformer's: two channels far beyond the others."""
    x = np.random.default_rng(1).standard_normal((rows, k)).astype(np.float32)
    x[:, [3, k - 1]] *= 40
    return x


@pytest.mark.parametrize(
    ("bits", "error"), [("int8", 0.02), ("int4", 0.2), ("int3", 0.25), ("int2", 0.5)]
)
@pytest.mark.parametrize("matmul", [False, True])
def test_products_stay_close(bits, error, matmul):
    w = np.random.default_rng(0).standard_normal((48, 96)).astype(np.float32)
    x = _activations(9, 96)
    graph = _layer(w, (1, 9, 96), matmul)
    after = compress_weights(graph, bits)
    assert isinstance(after.nodes[0].op, ops.OutlierFullyConnected)
    inputs = {"x": x[None]}
    made = evaluate(after, inputs).outputs["y"]
    assert _relative(made, evaluate(graph, inputs).outputs["y"]) < error
    stored = after.tensors[after.nodes[0].inputs[1]]
    assert stored.dtype is DType.I8 and stored.data.max() <= MOST[bits]


def test_without_outliers_it_is_plain_int8():
    w = np.eye(32, dtype=np.float32)
    x = np.random.default_rng(2).uniform(-5, 5, (4, 32)).astype(np.float32)
    made = evaluate(compress_weights(_layer(w, x.shape), "int8"), {"x": x}).outputs["y"]
    scale = np.abs(x).max(axis=1, keepdims=True) / 127
    np.testing.assert_allclose(made, np.rint(x / scale) * scale, rtol=1e-5, atol=1e-6)


def test_computed_matrices_and_vectors_stay():
    x = Tensor("x", (4, 4), DType.F32)
    y = Tensor("y", (4, 4), DType.F32)
    node = Node("square", ops.MatMul(), ("x", "x"), ("y",))
    graph = Graph("square", {"x": x, "y": y}, (node,), ("x",), ("y",))
    assert compress_weights(graph, "int8").nodes == graph.nodes


def _convolution(ic: int, size: int = 1, stride: int = 1) -> Graph:
    """A convolution with 12 channels and everything that can be fused into it."""
    rng = np.random.default_rng(3)
    w = rng.standard_normal((12, size, size, ic)).astype(np.float32)
    side = (8 - size) // stride + 1
    tensors = {
        "x": Tensor("x", (2, 8, 8, ic), DType.F32),
        "w": Tensor("w", w.shape, DType.F32, None, w),
        "b": Tensor("b", (12,), DType.F32, None, rng.standard_normal(12).astype(np.float32)),
        "r": Tensor("r", (2, side, side, 12), DType.F32),
        "y": Tensor("y", (2, side, side, 12), DType.F32),
    }
    op = ops.Conv2D((stride, stride), activation=Activation.RELU)
    node = Node("conv", op, ("x", "w", "b", "r"), ("y",))
    return Graph("conv", tensors, (node,), ("x", "r"), ("y",))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bits", "error"), few_or_all([("int8", 0.02), ("int4", 0.2)], [("int4", 0.2)])
)
def test_convolutions_of_pixels_are_products(bits, error, tmp_path):
    graph = _convolution(64)
    after = compress_weights(graph, bits)
    assert isinstance(after.nodes[0].op, ops.OutlierFullyConnected)
    rng = np.random.default_rng(4)
    x = rng.standard_normal((2, 8, 8, 64)).astype(np.float32)
    x[..., 7] *= 30
    inputs = {"x": x, "r": rng.standard_normal((2, 8, 8, 12)).astype(np.float32)}
    expected = evaluate(after, inputs).outputs["y"]
    assert _relative(expected, evaluate(graph, inputs).outputs["y"]) < error
    for board in x86_boards():
        made = run_here(build(after, board, tmp_path / board.simd), inputs)["y"]
        assert _relative(made, expected) < 1e-5


@pytest.mark.parametrize("graph", [_convolution(63), _convolution(64, 3), _convolution(64, 1, 2)])
def test_other_convolutions_stay(graph):
    assert compress_weights(graph, "int8").nodes == graph.nodes


@pytest.mark.parametrize("board", x86_params())
def test_four_bits_take_half_a_byte(board):
    w = np.random.default_rng(5).standard_normal((96, 3 * 128)).astype(np.float32)
    graph = compress_weights(_layer(w, (9, 384)), "int4")
    held = len(lower(graph, board).lowered.weights)
    assert w.size // 2 <= held < 0.7 * w.size


@pytest.mark.parametrize("bits", [2, 3])
@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize(
    ("board", "size"),
    [("rpi5", 16), ("rpi5", 32), ("rpi5", 256), ("rpi3", 64), ("orangepi-pc", 256), ("bpi-f3", 32)],
)
def test_few_bits_take_a_part_of_a_byte(board, size, rows, bits):
    rng, k = np.random.default_rng(5), 512
    values = constant(rng.integers(-(1 << bits - 1), 1 << bits - 1, (96, k)), DType.I8)
    scales = constant(rng.uniform(1, 2, (k // size, 96)).astype(np.float16))
    op = ops.OutlierFullyConnected(6.0)
    graph = graph_of([Case(op, (tensor((rows, k)), values, scales))])
    low = lower(graph, load_board(board)).lowered
    scaled = 2 * 96 * k // size
    assert len(low.weights) == -(-(96 * k * bits // 8 + scaled) // 64) * 64 + 4 * 96
    assert any(f"int{bits}" in call.kernel.symbol for step in low.steps for call in step.calls)


@pytest.mark.parametrize(
    ("rows", "bits", "k", "said"),
    [
        (1, 4, 576, "4-bit weights, groups of 96, unpacked in registers, since a row reads"),
        (1, 3, 640, "3-bit weights, groups of 128, unpacked in registers, since a row reads"),
        (1, 2, 640, "2-bit weights, groups of 320, unpacked in registers, since a row reads"),
        (9, 4, 576, "4-bit weights, a scale for each output, each panel unpacked to bytes once"),
        (1, 8, 576, "8-bit weights, a scale for each output, multiplied as they are (DOT4_SS)"),
    ],
)
def test_a_row_streams_few_bits_that_have_one_scale(rows, bits, k, said):
    """It took twice the time of the same row by bytes."""
    most, rng = 1 << bits - 1, np.random.default_rng(5)
    weights = constant(rng.integers(-most, most, (96, k)), DType.I8)
    operands = tensor((rows, k)), weights, constant(rng.uniform(1, 2, (1, 96)))
    low = lower(graph_of([Case(ops.OutlierFullyConnected(6.0), operands)]), load_board("rpi5"))
    (step,) = low.lowered.steps
    assert step.compiled.choice.why.startswith(said)
    if bits < 8:
        assert 96 * k * bits // 8 <= len(low.lowered.weights) < 96 * k * bits // 8 + 4096


@pytest.mark.parametrize("board", ["rpi5", "rpi3", "orangepi-pc", "bpi-f3"])
def test_a_table_that_a_product_streams_is_stored_once(board):
    rng, rows, k, size = np.random.default_rng(5), 96, 512, 32
    table = constant(rng.integers(-8, 8, (rows, k)), DType.I8)
    scale = rng.uniform(1, 2, (rows, k // size)).astype(np.float16).astype(np.float32)
    pick = Case(ops.GatherQuantized(), (table, tensor((1,), DType.I32), constant(scale)))
    by = tensor((1, k)), table, constant(np.ascontiguousarray(scale.T))
    graph = with_shared_tables(graph_of([pick, Case(ops.OutlierFullyConnected(6.0), by)]))
    weights = lower(graph, load_board(board)).lowered.weights
    assert len(weights) == rows * k // 2 + 2 * rows * k // size + 4 * rows


@pytest.mark.parametrize("board", ["local", "rpi5", "rpi3", "orangepi-pc", "bpi-f3"])
def test_scales_of_groups_take_two_bytes(board):
    w = np.random.default_rng(5).standard_normal((96, 384)).astype(np.float32)
    sizes = [
        len(
            lower(
                compress_weights(_layer(w, (9, 384)), "int4", size), load_board(board)
            ).lowered.weights
        )
        for size in (32, 64)
    ]
    assert sizes[0] - sizes[1] == 2 * (w.size // 32 - w.size // 64)


@pytest.mark.parametrize("board", ["rpi5", "rpi3", "orangepi-pc", "bpi-f3", "rv64gc"])
@pytest.mark.parametrize("size", [32, 128])
def test_groups_of_a_layer_are_one_call(board, size):
    w = np.random.default_rng(5).standard_normal((96, 384)).astype(np.float32)
    graph = compress_weights(_layer(w, (9, 384)), "int4", size)
    (step,) = lower(graph, load_board(board)).lowered.steps
    assert len(step.calls) == 2  # split and product


def _files() -> list[Path]:
    """Activations act_X [rows, k] and weights w_X [n, k]; float16."""
    folder = os.environ.get("EDGEKIT_EXTRA_DATA")
    return sorted(Path(folder).glob("**/outliers/*linear_layers.npz")) if folder else []


@pytest.mark.slow
@pytest.mark.parametrize("path", _files(), ids=lambda path: path.stem)
def test_real_layers_are_as_close_as_8_bits_allow(path, tmp_path):
    errors = []
    with np.load(path) as layers:
        names = [key[4:] for key in layers if key.startswith("act_")]
        pairs = [(layers[f"act_{n}"].astype(np.float32), layers[f"w_{n}"]) for n in names]
    tensors: dict[str, Tensor] = {}
    nodes: list[Node] = []
    for i, (x, w) in enumerate(pairs):
        part = compress_weights(_layer(w.astype(np.float32), x.shape), "int8")
        names_of = {t: f"{t}_{i}" for t in part.tensors}
        tensors |= {
            names_of[n]: Tensor(names_of[n], t.shape, t.dtype, t.quant, t.data)
            for n, t in part.tensors.items()
        }
        node = part.nodes[0]
        ins = tuple(None if t is None else names_of[t] for t in node.inputs)
        nodes.append(Node(f"dense_{i}", node.op, ins, (names_of["y"],)))
    xs = tuple(f"x_{i}" for i in range(len(pairs)))
    ys = tuple(f"y_{i}" for i in range(len(pairs)))
    graph = Graph("layers", tensors, tuple(nodes), xs, ys)
    inputs = {f"x_{i}": np.ascontiguousarray(x) for i, (x, _) in enumerate(pairs)}
    made = run_here(build(graph, load_board("local"), tmp_path), inputs)
    for i, (x, _) in enumerate(pairs):
        stored, scale = (graph.tensors[f"{t}_{i}"].data for t in ("w.int8", "w.int8.scale"))
        exact = x.astype(np.float64) @ (stored.astype(np.float64) * scale.T).T
        errors.append(_relative(made[f"y_{i}"], exact))
    assert statistics.median(errors) <= _MEDIAN and max(errors) <= _WORST


def _embedding(table: Array, indices: Array | None = None) -> Graph:
    tensors = {
        "table": Tensor("table", table.shape, DType.F32, None, table),
        "at": Tensor("at", (1, 5), DType.I64, None, indices),
        "y": Tensor("y", (1, 5, *table.shape[1:]), DType.F32),
    }
    node = Node("pick", ops.Gather(0), ("table", "at"), ("y",))
    return Graph("embedding", tensors, (node,), () if indices is not None else ("at",), ("y",))


@pytest.mark.parametrize(("bits", "error", "size"), [("int8", 0.01, 1.1), ("int4", 0.1, 0.58)])
@pytest.mark.parametrize("board", x86_params())
def test_embeddings_are_quantized_values(bits, error, size, board, tmp_path):
    table = np.random.default_rng(6).standard_normal((50, 96)).astype(np.float32)
    table[7] *= 1000  # must not coarsen any other row
    graph = _embedding(table)
    after = compress_weights(graph, bits)
    assert isinstance(after.nodes[0].op, ops.GatherQuantized)
    inputs = {"at": np.array([[0, 49, -1, 7, 1000]], np.int64)}
    made = run_here(build(after, board, tmp_path), inputs)["y"]
    np.testing.assert_array_equal(made, evaluate(after, inputs).outputs["y"])
    for row, exact in zip(made[0], table[[0, 49, 49, 7, 49]], strict=True):
        assert _relative(row, exact) < error
    assert len(lower(after, board).lowered.weights) < size * table.size


@pytest.mark.slow
@pytest.mark.parametrize("token", [0, 15, 16, 998, 1002, -1, 5000])
@pytest.mark.parametrize(("run", "matmul"), [(64, False), (70, True), (129, False)])
@pytest.mark.parametrize("board", x86_params())
def test_a_table_that_is_a_product_too_is_stored_once(board, run, matmul, token, tmp_path):
    words = 1003
    graph = tied(words, run, matmul)
    after = compress_weights(graph, "int8")
    assert after.nodes[0].inputs[0] == after.nodes[2].inputs[1]
    hidden = np.random.default_rng(1).standard_normal((1, run)).astype(np.float32)
    inputs = {"token": np.array([token], np.int64), "hidden": hidden}
    made = run_here(build(after, board, tmp_path), inputs)
    want = evaluate(after, inputs).outputs
    np.testing.assert_array_equal(made["row"], want["row"])
    np.testing.assert_allclose(made["logits"], want["logits"], rtol=1e-5, atol=1e-4)
    assert len(lower(after, board).lowered.weights) < words * (run + 20)


@pytest.mark.parametrize("options", [{"bits": "int4"}, {"bits": "int8", "group_size": 32}])
def test_a_table_quantized_unlike_the_product_is_separate(options):
    graph = tied(50, 64)
    after = compress_weights(graph, **options)
    assert after.nodes[0].inputs[0] != after.nodes[2].inputs[1]
    inputs = {"token": np.array([7]), "hidden": np.zeros((1, 64), np.float32)}
    made, exact = (evaluate(each, inputs).outputs["row"] for each in (after, graph))
    assert _relative(made, exact) < 0.1


@pytest.mark.parametrize("rows", [np.ones((9, 63)), np.full((9, 64), np.nan), np.ones((9, 64, 2))])
def test_other_tables_stay(rows):
    graph = _embedding(rows.astype(np.float32))
    assert compress_weights(graph, "int8").nodes == graph.nodes


def test_constant_picks_stay():
    graph = _embedding(np.ones((9, 64), np.float32), np.zeros((1, 5), np.int64))
    assert compress_weights(graph, "int8").nodes == graph.nodes


def test_quantized_values_of_4_bits_use_all_16_and_clip_none():
    """The side that reaches further gets the extra value, whichever it is."""
    w = np.random.default_rng(8).standard_normal((64, 96)).astype(np.float32)
    after = compress_weights(_layer(w, (1, 9, 96)), "int4", 32)
    stored, scale = (after.tensors[name].data for name in after.nodes[0].inputs[1:3])
    assert stored.min() == -8 and stored.max() == 7 and (scale < 0).any() and (scale > 0).any()
    wide = np.repeat(scale.T, 32, axis=1)
    assert np.all(np.abs(stored * wide - w) <= 0.5001 * np.abs(wide))
    symmetric = np.abs(w.reshape(64, 3, 32)).max(axis=2) / 7
    next_above = (symmetric.view(np.uint32) + np.uint32(0xFFFF)) & np.uint32(0xFFFF0000)
    assert np.all(np.abs(scale.T) <= next_above.view(np.float32))  # bfloat16


@pytest.mark.parametrize("size", [32, 96])
def test_8_bits_have_groups_too(size, tmp_path):
    w = np.random.default_rng(0).standard_normal((48, 96)).astype(np.float32)
    graph, inputs = _layer(w, (1, 9, 96)), {"x": _activations(9, 96)[None]}
    after = compress_weights(graph, "int8", size)
    stored, scale = (after.tensors[name].data for name in after.nodes[0].inputs[1:3])
    assert scale.shape == (96 // size, 48) and np.abs(stored).max() == 127
    made = run_here(build(after, load_board("local"), tmp_path), inputs)["y"]
    right = evaluate(after, inputs).outputs["y"]
    assert np.linalg.norm(made - right) < 1e-4 * np.linalg.norm(right)


@pytest.mark.parametrize(("bits", "group", "error"), [("int4", None, 0.15), ("int8", 32, 0.01)])
@pytest.mark.parametrize("first", [0, 1])
def test_a_table_and_a_product_by_it_have_quantized_values_of_their_own(bits, group, error, first):
    """They get separate quantized values if these differ, whichever comes first."""
    table = np.random.default_rng(7).standard_normal((40, 64)).astype(np.float32)
    graph = _embedding(table)
    dense = Node("out", ops.FullyConnected(keep_dims=True), ("x", "table"), ("scores",))
    tensors = {
        **graph.tensors,
        "x": Tensor("x", (1, 5, 64), DType.F32),
        "scores": Tensor("scores", (1, 5, 40), DType.F32),
    }
    nodes = (*graph.nodes, dense) if first == 0 else (dense, *graph.nodes)
    both = dataclasses.replace(
        graph, tensors=tensors, nodes=nodes, inputs=("at", "x"), outputs=("y", "scores")
    )
    inputs = {"at": np.array([[0, 1, 7, 39, 3]]), "x": _activations(5, 64)[None]}
    exact = evaluate(both, inputs).outputs
    made = evaluate(compress_weights(both, bits, group), inputs).outputs
    assert _relative(made["y"], exact["y"]) < error
    assert _relative(made["scores"], exact["scores"]) < error
