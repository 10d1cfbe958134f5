"""Convolutions that run as a chain: which ones, and that they compute what they do alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.compiler import prepare
from edgekit.host.explain import explain
from edgekit.host.fit import plan_of
from edgekit.host.graph import ops
from edgekit.host.graph.evaluate import evaluate
from edgekit.host.graph.types import Activation, DType, Graph, Node, Padding, Quant, Tensor
from edgekit.host.lower.chains import chain_for_memory, chain_for_time
from edgekit.host.options import CompileOptions
from edgekit.host.schedule.work import work_of
from edgekit.kb.board import BoardProfile, load_board, load_profile
from edgekit.kb.gemm_file import board_table
from tests.support.kernel_runs import build, run_here, x86_params
from tests.support.op_graphs import inputs_of

_HEIGHT, _WIDTH = 40, 28
_SAME = Padding(1, 1, 1, 1)


def _quant(dtype: DType, scale: float, zero: int = 3) -> Quant | None:
    return Quant(np.float32([scale]), np.int64([zero])) if dtype.is_quantized else None


def _block(dtype: DType = DType.F32, stride: int = 1, frames: int = 1) -> Graph:
    """Expand, depthwise, project, as in MobileNet v2, with a residual where types allow."""
    rng = np.random.default_rng(stride)
    height, width = _HEIGHT // stride, _WIDTH // stride
    tensors: dict[str, Tensor] = {}

    def image(name: str, h: int, w: int, c: int, scale: float) -> str:
        tensors[name] = Tensor(name, (frames, h, w, c), dtype, _quant(dtype, scale))
        return name

    def weights(name: str, *shape: int) -> str:
        data = rng.standard_normal(shape).astype(np.float32)
        if dtype.is_quantized:
            data = np.clip(np.round(data * 40), -127, 127).astype(np.int8)
        tensors[name] = Tensor(name, shape, dtype, _quant(dtype, 0.02, 0), data)
        return name

    image("x", _HEIGHT, _WIDTH, 16, 0.05)
    image("wide", _HEIGHT, _WIDTH, 72, 0.1)
    image("deep", height, width, 72, 0.2)
    image("y", height, width, 16, 0.4)
    relu = Activation.RELU6
    adds = ("x",) if dtype is DType.F32 and stride == 1 else ()
    depthwise = ops.DepthwiseConv2D((stride, stride), (1, 1), _SAME, 1, relu)
    nodes = (
        Node("expand", ops.Conv2D(activation=relu), ("x", weights("a", 72, 1, 1, 16)), ("wide",)),
        Node("depth", depthwise, ("wide", weights("b", 1, 3, 3, 72), None), ("deep",)),
        Node("project", ops.Conv2D(), ("deep", weights("c", 16, 1, 1, 72), None, *adds), ("y",)),
    )
    return Graph("block", tensors, nodes, ("x",), ("y",))


def _small(board: BoardProfile, l2_bytes: int = 8192) -> BoardProfile:
    """A board whose cache holds little."""
    return dataclasses.replace(board, l2_bytes=l2_bytes)


def _chained(graph: Graph, board: BoardProfile) -> Graph:
    return chain_for_time(graph, board, board_table(board))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dtype", [DType.F32, DType.I8])
@pytest.mark.parametrize("board", x86_params())
def test_a_chain_computes_what_its_members_compute(board, dtype, stride, tmp_path):
    graph = _block(dtype, stride)
    chain = _chained(graph, _small(board, 65536 if dtype is DType.F32 else 16384))
    assert [n.op.names for n in chain.nodes] == [("expand", "depth", "project")]
    inputs = inputs_of(graph)
    np.testing.assert_allclose(
        evaluate(chain, inputs).outputs["y"], evaluate(graph, inputs).outputs["y"], rtol=1e-6
    )
    alone = run_here(build(graph, board, tmp_path / "alone"), inputs)
    for threads in (1, 3):
        together = run_here(build(chain, board, tmp_path / f"{threads}"), inputs, threads)
        np.testing.assert_array_equal(together["y"], alone["y"])


def test_a_kernel_may_be_called_alone_and_in_a_chain(tmp_path):
    graph = _block()
    tensors = {**graph.tensors, "z": dataclasses.replace(graph.tensors["deep"], name="z")}
    alone = dataclasses.replace(graph.nodes[1], name="alone", inputs=("v", "b"), outputs=("z",))
    tensors["v"] = dataclasses.replace(graph.tensors["wide"], name="v")
    both = dataclasses.replace(
        graph, tensors=tensors, nodes=(*graph.nodes, alone), inputs=("x", "v"), outputs=("y", "z")
    )
    board = load_board("local")
    chain = chain_for_memory(both, board, board_table(board), graph.tensors["wide"].bytes // 2)
    assert [n.op.kind for n in chain.nodes] == ["row_chain", "depthwise_conv2d"]
    inputs = inputs_of(both)
    made = run_here(build(chain, board, tmp_path), inputs)
    for name, expected in evaluate(both, inputs).outputs.items():
        np.testing.assert_allclose(made[name], expected, rtol=1e-4, atol=1e-4)


def test_large_caches_need_no_chains():
    graph = _block()
    board = load_profile("x86-64-v4")
    assert _chained(graph, board) is graph
    assert _chained(graph, _small(load_profile("a57"), 65536)) is graph  # never timed


def test_a_core_that_chains_were_estimated_on_has_them():
    graph = _chained(_block(), _small(load_profile("a53"), 65536))
    assert [n.op.kind for n in graph.nodes] == ["row_chain"]


def test_images_that_are_read_elsewhere_stay_whole():
    graph = _block()
    board = _small(load_profile("x86-64-v4"), 65536)
    for name, left in (("wide", [("depth", "project")]), ("deep", [])):
        asked = dataclasses.replace(graph, outputs=("y", name))
        found = [n.op.names for n in _chained(asked, board).nodes if isinstance(n.op, ops.RowChain)]
        assert found == left  # expand and depthwise alone gain nothing
    several = _block(frames=2)
    assert _chained(several, board) is several


def test_a_link_that_keeps_more_alive_is_left_out():
    """What a chain reads and makes is alive at once; here both are larger than what is between."""
    tensors = {
        "x": Tensor("x", (1, 64, 64, 64), DType.F32),
        "in": Tensor("in", (1, 64, 64, 64), DType.F32),
        "thin": Tensor("thin", (1, 64, 64, 2), DType.F32),
        "out": Tensor("out", (1, 64, 64, 64), DType.F32),
        "y": Tensor("y", (1, 64, 64, 64), DType.F32),
        "d": Tensor("d", (1, 3, 3, 2), DType.F32, None, np.ones((1, 3, 3, 2), np.float32)),
        "a": Tensor("a", (2, 1, 1, 64), DType.F32, None, np.ones((2, 1, 1, 64), np.float32)),
        "b": Tensor("b", (64, 1, 1, 2), DType.F32, None, np.ones((64, 1, 1, 2), np.float32)),
        "thin2": Tensor("thin2", (1, 64, 64, 2), DType.F32),
    }
    nodes = (
        Node("before", ops.Logistic(), ("x",), ("in",)),
        Node("expand", ops.Conv2D(), ("in", "a"), ("thin",)),
        Node("depth", ops.DepthwiseConv2D(padding=_SAME), ("thin", "d"), ("thin2",)),
        Node("project", ops.Conv2D(), ("thin2", "b"), ("out",)),
        Node("after", ops.Logistic(), ("out",), ("y",)),
    )
    graph = Graph("thin", tensors, nodes, ("x",), ("y",))
    made = _chained(graph, _small(load_profile("x86-64-v4")))
    assert [n.op.names for n in made.nodes if isinstance(n.op, ops.RowChain)] == [
        ("depth", "project")
    ]


def test_memory_that_is_missing_makes_chains():
    graph = _block(DType.I8)
    table, board = board_table(load_board("local")), load_board("local")
    wide = graph.tensors["wide"].bytes
    assert chain_for_memory(graph, board, table, 3 * wide) is graph
    less = chain_for_memory(graph, board, table, wide // 2)
    assert [n.op.names for n in less.nodes] == [("expand", "depth", "project")]


def test_boards_with_units_for_products_have_no_chains():
    graph = _block()
    assert _chained(graph, _small(load_board("nna2"))) is graph


def test_work_is_that_of_the_members():
    graph = _block()
    chain = _chained(graph, _small(load_profile("x86-64-v4"), 65536))
    whole = work_of(chain, chain.nodes[0], 16).amounts
    parts = [work_of(graph, node, 16).amounts for node in graph.nodes]
    assert whole.steps == sum(p.steps for p in parts)
    assert whole.moved < sum(p.moved for p in parts)


def test_a_model_with_little_memory_is_chained():
    model = Path(__file__).parents[2] / "models" / "hand_landmark_lite.tflite"
    board, options = load_board("local"), CompileOptions(memory_limit=2450 << 10)
    _, made = prepare(model, board, options)
    chains = [n for n in made.graph.nodes if isinstance(n.op, ops.RowChain)]
    scheduled, plan = plan_of(made.graph, board, options)
    assert chains and plan.memory.arena_bytes <= 2450 << 10
    told = explain(scheduled, plan, board, made.counts, made.origin, made.limit)
    of = {o["name"]: o["chain_of"] for o in told["operators"]}
    assert of[chains[0].name] == list(chains[0].op.names)
