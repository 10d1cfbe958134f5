"""Which convolutions run as a chain, and that chains match their separate operators."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.runtime.kernel_facts import CHAIN_BYTES
from edgekit.host.compiler.costs.chain import Between, beyond_caches
from edgekit.host.compiler.costs.work import work_of
from edgekit.host.compiler.driver import prepare, prepare_graph
from edgekit.host.compiler.explain import explain
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.chains import members_of, with_chains
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import DType, Graph, Node, Padding, Tensor
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.conv.chains import chain_for_memory, chain_for_time
from edgekit.host.compiler.lowering.conv.row_chain import RowStrips, strips_of
from edgekit.host.compiler.lowering.groups import MethodGroups
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tables.gemm_file import board_table
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.compiler.transforms.split.live import Live
from edgekit.kb.targets.board import BoardProfile, load_board, load_profile
from tests.support.group_graphs import expanded_block
from tests.support.kernel_runs import build, run_here, x86_params
from tests.support.observed_calls import observed_calls
from tests.support.op_graphs import inputs_of

_MODELS = Path(__file__).parents[3] / "models"
_SAME = Padding(1, 1, 1, 1)


def _small(board: BoardProfile, l2_bytes: int = 8192) -> BoardProfile:
    """A board with a small cache."""
    return dataclasses.replace(board, l2_bytes=l2_bytes)


def _chained(graph: Graph, board: BoardProfile) -> Graph:
    return chain_for_time(graph, board, board_table(board))


@pytest.mark.slow
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dtype", [DType.F32, DType.I8])
@pytest.mark.parametrize("board", x86_params())
def test_a_chain_computes_what_its_members_compute(board, dtype, stride, tmp_path):
    graph = expanded_block(dtype, stride)
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


def test_a_chain_whose_whole_tiles_do_not_fit_is_cut_elsewhere(tmp_path):
    """With several threads tiles may be taller than with one, for which chains are sized."""
    graph, board = expanded_block(), load_profile("x86-64-v3")  # other boards' tiles may all fit
    chain = _chained(graph, _small(board, 65536))
    (node,) = chain.nodes
    inner, members = members_of(chain, node)
    ctx = Context(inner, board.isa, board, board_table(board))
    for room in range(1024, CHAIN_BYTES, 1024):
        if strips_of(ctx, members, whole=False, room=room):
            break
    assert strips_of(ctx, members, room=room) is None
    inputs, board = inputs_of(graph), load_board("local")
    chain = _chained(graph, _small(board, 65536))
    alone = run_here(build(graph, board, tmp_path / "alone"), inputs)
    for threads in (1, 3):
        together = run_here(build(chain, board, tmp_path / f"{threads}"), inputs, threads)
        np.testing.assert_array_equal(together["y"], alone["y"])


def _busiest(cuts: RowStrips, height: int, width: int, threads: int) -> int:
    """Pixels of the thread with the most, as the thread pool shares pieces out."""
    columns = cuts.columns or width
    strips = -(-height // cuts.rows) * -(-width // columns)
    pieces = -(-strips // cuts.together)
    return -(-pieces // threads) * cuts.together * cuts.rows * columns


@pytest.mark.parametrize("threads", [2, 3, 4])
@pytest.mark.parametrize("height", [28, 56, 80, 112])
def test_threads_share_the_rows_of_a_chain_evenly(height, threads):
    graph = expanded_block(DType.I8, 2, columns=112, rows=2 * height)
    board = load_profile("rpi4")
    ctx = Context(graph, board.isa, board, board_table(board), threads=threads)
    cuts = strips_of(ctx, graph.nodes)
    assert cuts is not None
    assert _busiest(cuts, height, 56, threads) <= (1.1 * height / threads + 1) * 56


def test_a_kernel_may_be_called_alone_and_in_a_chain(tmp_path):
    graph = expanded_block()
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
    graph = expanded_block()
    board = load_profile("x86-64-v4")
    assert _chained(graph, board) is graph
    assert _chained(graph, load_profile("rpi5")) is graph  # its L3 holds them
    unknown = _small(load_profile("generic-aarch64"), 65536)
    assert _chained(graph, unknown) is graph  # its memory speed is unknown


@pytest.mark.parametrize("board", ["a53", "a57", "rpi4", "bpi-f3"])
def test_what_leaves_the_cache_is_a_chain_on_cores_with_a_cost_of_memory(board):
    graph = _chained(expanded_block(), _small(load_profile(board), 65536))
    assert [n.op.kind for n in graph.nodes] == ["row_chain"]
    assert _chained(graph, _small(load_profile(board), 1 << 20)) is graph


@pytest.mark.parametrize(
    ("board", "chains"), [("rpi3", 2), ("rk3566", 2), ("rpi4", 2), ("rpi5", 0), ("visionfive2", 0)]
)
def test_chains_of_a_face_detector_are_those_that_gain(board, chains):
    """In simulated time the first chain takes 0.6 to 0.9 of its separate members on the first
    three boards, and as long on the others, whose last-level cache has 2 MB."""
    graph, profile = import_model(_MODELS / "face_detection_short_range.tflite"), load_board(board)
    made = prepare_graph(graph, profile, table=KnowledgeBase((profile.platform,)))
    assert sum(isinstance(n.op, ops.RowChain) for n in made.graph.nodes) == chains


def test_a_chain_may_take_the_convolution_of_the_site_before_it():
    """Two candidate chains compete for the pointwise convolution between them; the second gets it,
    because its images are larger."""
    image = (1, 112, 112, 8)
    tensors = {n: Tensor(n, image, DType.F32) for n in ("x", "a")}
    tensors["b"] = Tensor("b", (1, 112, 112, 32), DType.F32)
    tensors["c"] = Tensor("c", (1, 56, 56, 32), DType.F32)
    tensors["y"] = Tensor("y", (1, 56, 56, 32), DType.F32)
    for name, shape in (
        ("wa", (1, 3, 3, 8)), ("wb", (32, 1, 1, 8)), ("wc", (1, 3, 3, 32)), ("wy", (32, 1, 1, 32)),
    ):  # fmt: skip
        tensors[name] = Tensor(name, shape, DType.F32, None, np.ones(shape, np.float32))
    strided = ops.DepthwiseConv2D(stride=(2, 2), padding=Padding(0, 1, 0, 1))
    nodes = (
        Node("first", ops.DepthwiseConv2D(padding=_SAME), ("x", "wa"), ("a",)),
        Node("between", ops.Conv2D(), ("a", "wb"), ("b",)),
        Node("second", strided, ("b", "wc"), ("c",)),
        Node("last", ops.Conv2D(), ("c", "wy"), ("y",)),
    )
    graph = Graph("two sites", tensors, nodes, ("x",), ("y",))
    board = load_board("rpi3")
    table = KnowledgeBase((board.platform,))
    groups = MethodGroups(board, table)
    chained = chain_for_time(graph, board, table, groups)
    names = [n.op.names for n in chained.nodes if isinstance(n.op, ops.RowChain)]
    assert names == [("between", "second", "last")]


def test_cost_of_an_image_counts_what_the_last_cache_does_not_hold():
    image, board = 384 << 10, load_board("rpi3")
    near, far, farther = (
        beyond_caches(board, Between(image, touched)) for touched in (512 << 10, 1 << 20, 3 << 19)
    )
    assert near == 0 < far < farther
    assert beyond_caches(board, Between(2 * image, 1 << 20)) == pytest.approx(2 * far)
    assert beyond_caches(board, Between(image // 4, 1 << 20)) == 0  # it was written last
    assert beyond_caches(load_board("rpi5"), Between(image, 1 << 20)) == 0


def test_images_that_are_read_elsewhere_stay_whole():
    graph = expanded_block()
    board = _small(load_profile("x86-64-v4"), 65536)
    for name, left in (("wide", [("depth", "project")]), ("deep", [])):
        asked = dataclasses.replace(graph, outputs=("y", name))
        found = [n.op.names for n in _chained(asked, board).nodes if isinstance(n.op, ops.RowChain)]
        assert found == left  # expand and depthwise alone gain nothing
    several = expanded_block(frames=2)
    assert _chained(several, board) is several


def test_a_link_that_keeps_more_alive_is_left_out():
    """A chain's input and output are live at once; here both are larger than the intermediates."""
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
    graph = expanded_block(DType.I8)
    table, board = board_table(load_board("local")), load_board("local")
    wide = graph.tensors["wide"].bytes
    assert chain_for_memory(graph, board, table, 3 * wide) is graph
    less = chain_for_memory(graph, board, table, wide // 2)
    assert [n.op.names for n in less.nodes] == [("expand", "depth", "project")]


def test_boards_with_units_for_products_have_no_chains():
    graph = expanded_block()
    assert _chained(graph, _small(load_board("nna2"))) is graph


def test_work_is_that_of_the_members():
    graph = expanded_block()
    chain = _chained(graph, _small(load_profile("x86-64-v4"), 65536))
    whole = work_of(chain, chain.nodes[0], 16).amounts
    parts = [work_of(graph, node, 16).amounts for node in graph.nodes]
    assert whole.steps == sum(p.steps for p in parts)
    assert whole.moved < sum(p.moved for p in parts)


def test_a_model_with_little_memory_is_chained():
    model = _MODELS / "hand_landmark_lite.tflite"
    board, options = load_board("local"), CompileOptions(memory_limit=2450 << 10)
    made = prepare(model, board, options)
    chains = [n for n in made.graph.nodes if isinstance(n.op, ops.RowChain)]
    scheduled, plan = plan_of(made.graph, board, options)
    assert chains and plan.memory.arena_bytes <= 2450 << 10
    shown = explain(scheduled, plan, board, made.counts, made.origin, made.limit, scheduled.costs)
    of = {o["name"]: o["chain_of"] for o in shown["operators"]}
    assert of[chains[0].name] == list(chains[0].op.names)


def _blocks(count: int) -> Graph:
    """Depthwise and 1x1 convolutions by turns; the last images become one, joined by channels."""
    image, wide = (1, 24, 24, 16), (1, 24, 24, 32)
    tensors = {"x": Tensor("x", image, DType.F32), "y": Tensor("y", wide, DType.F32)}
    for name, shape in (("w", (1, 3, 3, 16)), ("v", (16, 1, 1, 16))):
        tensors[name] = Tensor(name, shape, DType.F32, None, np.ones(shape, np.float32))
    nodes, last = [], "x"
    for i in range(count):
        depth, point = f"d{i}", f"p{i}"
        tensors |= {name: Tensor(name, image, DType.F32) for name in (depth, point)}
        op = ops.DepthwiseConv2D(padding=_SAME)
        nodes.append(Node(f"depth{i}", op, (last, "w", None), (depth,)))
        nodes.append(Node(f"point{i}", ops.Conv2D(), (depth, "v", None), (point,)))
        last = point
    nodes.append(Node("join", ops.Concat(3), (f"p{count - 2}", last), ("both",)))
    tensors["both"] = Tensor("both", wide, DType.F32)
    nodes.append(Node("bend", ops.Logistic(), ("both",), ("y",)))
    return Graph("blocks", tensors, tuple(nodes), ("x",), ("y",))


def test_the_search_for_chains_is_linear_in_the_size_of_the_graph():
    board = load_board("rpi4")
    _chained(_blocks(8), board)  # what is computed once per process
    counts = []
    for n in (10, 40):
        with observed_calls() as calls:
            _chained(_blocks(n), board)
        counts.append(len(calls))
    assert counts[1] < 6 * counts[0]


@pytest.mark.parametrize("joined", [(0,), (1, 2), (3,), (4, 5), (0, 2, 4, 5)])
def test_the_memory_bound_of_chains_is_no_less_than_their_peak(joined):
    graph = _blocks(6)
    pairs = [(graph.nodes[2 * i], graph.nodes[2 * i + 1]) for i in joined]
    chained = with_chains(graph, {n.name: pair for pair in pairs for n in pair})
    found = Live(graph).peak_if_joined(pairs)
    assert found >= Live(chained).peak
    if 5 not in joined:  # nothing leaves the concatenation
        assert found == Live(chained).peak
