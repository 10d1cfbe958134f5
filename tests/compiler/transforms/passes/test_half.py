"""Which operators compute in half precision, and where conversions are inserted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.driver import prepare, prepare_graph
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Activation, DType, Graph, Node, Padding, Tensor
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.pipeline import run_pipeline
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.compiler.target import Target
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.transforms.passes.half import to_half
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import load_profile
from tests.support.op_cases import Case, constant, tensor
from tests.support.op_graphs import graph_of

_MODEL = Path(__file__).parents[4] / "models" / "face_detection_short_range.tflite"
_HALF = CompileOptions(precision="f16")


def _two_convolutions(weight: float) -> Graph:
    shape = (1, 12, 12, 32)
    weights = np.full((32, 3, 3, 32), weight, np.float32)
    tensors = {n: Tensor(n, shape if n != "y" else (1, 8, 8, 32), DType.F32) for n in "xy"}
    tensors["t"] = Tensor("t", (1, 10, 10, 32), DType.F32)
    tensors["w"] = Tensor("w", weights.shape, DType.F32, data=weights)
    nodes = (
        Node("first", ops.Conv2D(), ("x", "w", None), ("t",)),
        Node("second", ops.Conv2D(), ("t", "w", None), ("y",)),
    )
    return Graph("two", tensors, nodes, ("x",), ("y",))


def _convolution(channels: int) -> Graph:
    weights = np.full((channels, 3, 3, 32), 0.01, np.float32)
    tensors = {
        "x": Tensor("x", (1, 12, 12, 32), DType.F32),
        "w": Tensor("w", weights.shape, DType.F32, data=weights),
        "y": Tensor("y", (1, 10, 10, channels), DType.F32),
    }
    return Graph(
        "one", tensors, (Node("c", ops.Conv2D(), ("x", "w", None), ("y",)),), ("x",), ("y",)
    )


def test_tensors_between_operators_of_half_precision_are_not_converted():
    made = to_half(_two_convolutions(0.01))
    assert [n.op.kind for n in made.nodes] == ["convert", "conv2d", "conv2d", "convert"]
    assert made.tensors[made.outputs[0]].dtype is DType.F32


def test_recurrent_layers_of_half_precision_keep_their_states_in_f32():
    hidden = 64
    rng = np.random.default_rng(0)
    weights = [constant(rng.uniform(-1, 1, (4 * hidden, hidden)) / 8) for _ in range(2)]
    state = tensor((1, hidden))
    layer = Case(ops.Lstm(), (weights[1], None, state, state))
    x = tensor((9, 1, hidden))
    graph = graph_of([Case(ops.FullyConnected(True), (x, weights[0]), after=layer)])
    made = to_half(graph)
    assert [n.op.kind for n in made.nodes] == ["convert", "fully_connected", "lstm", "convert"]
    types = [made.tensors[n].dtype for n in (*made.nodes[2].inputs[3:5], *made.nodes[2].outputs)]
    assert types == [DType.F32, DType.F32, DType.F16, DType.F32, DType.F32]
    inputs = {name: rng.uniform(-1, 1, made.tensors[name].shape) for name in made.inputs}
    inputs = {name: x.astype(np.float32) for name, x in inputs.items()}
    want, got = (evaluate(g, inputs).outputs for g in (graph, made))
    for name in graph.outputs:
        assert 0 < np.abs(want[name] - got[name]).max() < 0.01, name


def test_outputs_in_half_precision_are_near_those_of_f32():
    graph = _two_convolutions(0.01)
    x = {"x": np.random.default_rng(1).normal(size=(1, 12, 12, 32)).astype(np.float32)}
    want, got = (evaluate(g, x).outputs["y"] for g in (graph, to_half(graph)))
    off = np.abs(want - got).max()
    assert 0 < off < 2**-5 * np.abs(want).max()  # sums of 288 terms, which are f16 too


def _dense(inputs: int, outputs: int) -> Graph:
    """A fully connected layer and a softmax."""
    weights = np.full((outputs, inputs), 0.01, np.float32)
    tensors = {n: Tensor(n, (1, outputs), DType.F32) for n in "sy"}
    tensors["x"] = Tensor("x", (1, inputs), DType.F32)
    tensors["w"] = Tensor("w", weights.shape, DType.F32, data=weights)
    nodes = (
        Node("dense", ops.FullyConnected(), ("x", "w", None), ("s",)),
        Node("softmax", ops.Softmax(), ("s",), ("y",)),
    )
    return Graph("dense", tensors, nodes, ("x",), ("y",))


def test_operators_that_are_done_sooner_than_their_conversions_stay_f32():
    """A keyword spotter's last layers take 0.2 us, and the two conversions 0.1 us."""
    small, large = _dense(64, 12), _dense(1024, 1000)
    assert to_half(small).nodes == small.nodes
    assert DType.F16 in {tensor.dtype for tensor in to_half(large).tensors.values()}


def test_conversions_that_threads_wait_for_are_costed_by_all_of_them():
    """12 x 12 x 32 values are two tasks: their conversions take as long as their convolutions."""
    graph = _convolution(channels=4)
    assert to_half(graph, threads=1).nodes != graph.nodes
    assert to_half(graph, threads=4).nodes == graph.nodes
    large = _convolution(channels=64)
    assert to_half(large, threads=4).nodes != large.nodes


def test_products_of_tensors_are_costed_by_their_depth():
    operands = (tensor((1, 32, 256)), tensor((1, 256, 64)))
    made = to_half(graph_of([Case(ops.MatMul(), operands)]))
    assert [n.op.kind for n in made.nodes] == ["convert", "convert", "matmul", "convert"]


def test_a_cache_that_products_read_once_is_not_converted():
    """Its parts are views, and products read them by columns."""
    sizes = {"cache": (4, 6, 1500, 64), "q": (1, 6, 1, 64)}
    tensors = {n: Tensor(n, shape, DType.F32) for n, shape in sizes.items()}
    keys = tuple(f"k{i}" for i in range(4))
    nodes = [Node("parts", ops.Split(0, (1, 1, 1, 1)), ("cache",), keys)]
    for key in keys:
        tensors[key] = Tensor(key, (1, 6, 1500, 64), DType.F32)
        tensors[f"{key}t"] = Tensor(f"{key}t", (1, 6, 64, 1500), DType.F32)
        tensors[f"y{key}"] = Tensor(f"y{key}", (1, 6, 1, 1500), DType.F32)
        nodes.append(Node(f"t{key}", ops.Transpose((0, 1, 3, 2)), (key,), (f"{key}t",)))
        nodes.append(Node(f"m{key}", ops.MatMul(), ("q", f"{key}t"), (f"y{key}",)))
    outputs = tuple(f"y{key}" for key in keys)
    graph = Graph("step", tensors, tuple(nodes), ("q", "cache"), outputs)
    assert not [n for n in to_half(graph).nodes if n.op.kind == "convert"]


def test_constants_beyond_half_precision_stay_f32():
    assert to_half(_two_convolutions(1e5)).nodes == _two_convolutions(1e5).nodes


@pytest.mark.exhaustive
def test_a_face_detector_converts_inputs_and_outputs_alone():
    graph = prepare(_MODEL, load_profile("a76"), _HALF).graph
    converted = [n for n in graph.nodes if isinstance(n.op, ops.Convert)]
    assert len(converted) == len(graph.inputs) + len(graph.outputs)


@pytest.mark.slow
def test_auto_takes_half_precision_where_golden_outputs_stay_near():
    made = prepare(_MODEL, load_profile("a76"), CompileOptions(precision="auto"))
    assert made.exact is not None
    assert "to_half" in [count.name for count in made.counts]


@pytest.mark.exhaustive
def test_auto_takes_half_precision_on_risc_v_that_computes_in_it():
    for name, in_half in (("bpi-f3", True), ("rv64gcv", False)):
        made = prepare(_MODEL, load_profile(name), CompileOptions(precision="auto"))
        assert (made.exact is not None) is in_half


def _random_convolution(finds_edges: bool = False) -> Graph:
    weights = np.random.default_rng(0).standard_normal((16, 3, 3, 16)).astype(np.float32)
    if finds_edges:
        weights -= weights.mean((1, 2), keepdims=True)
    return graph_of([Case(ops.Conv2D(), (tensor((1, 18, 18, 16)), constant(weights)))])


@pytest.mark.parametrize(("limit", "winograd"), [(0.02, True), (0.0055, False)])
def test_half_precision_takes_winograd_where_golden_outputs_stay_near(limit, winograd):
    """Its loss is up to 0.9% here, that of direct sums 0.52%."""
    board, options = load_profile("a76"), CompileOptions(precision="auto")
    folder = cache_folder() / "golden"
    target = Target(board, options, None, table_of(board), folder, half_loss=limit)
    made = run_pipeline(_random_convolution(), target)
    (conv,) = (n for n in made.graph.nodes if isinstance(n.op, ops.Conv2D))
    assert made.graph.tensors[conv.outputs[0]].dtype is DType.F16
    assert conv.op.winograd is winograd


@pytest.mark.parametrize(("factor", "winograd"), [(64.0, True), (1.0, False)])
def test_f16_takes_winograd_where_it_loses_little_more_than_f16_does(factor, winograd):
    """Beyond what `auto` permits: 1.5 times as much with large weights at the center, else 2.2."""
    graph, board = _random_convolution(), load_profile("a76")
    (name,) = (n for n, t in graph.tensors.items() if t.data is not None and len(t.shape) == 4)
    weights = graph.tensors[name].data.copy()
    weights[:, 1, 1] *= factor
    tensors = {**graph.tensors, name: replace(graph.tensors[name], data=weights)}
    options, folder = CompileOptions(precision="f16"), cache_folder() / "golden"
    target = Target(board, options, None, table_of(board), folder, half_loss=1e-6)
    made = run_pipeline(replace(graph, tensors=tensors), target)
    (conv,) = (n for n in made.graph.nodes if isinstance(n.op, ops.Conv2D))
    assert conv.op.winograd is winograd


def _finds_noise() -> Graph:
    """A picture's pixels that differ much from their neighbors: none in smooth ones."""
    rng = np.random.default_rng(0)
    weights = np.repeat(rng.uniform(0.5, 1, (16, 1, 1, 3)), 9, axis=1).reshape(16, 3, 3, 3) / -8
    weights[:, 1, 1] *= -8
    bias = -0.75 * weights[:, 1, 1].sum(1)
    operands = (tensor((1, 34, 34, 3)), *(constant(x.astype(np.float32)) for x in (weights, bias)))
    return graph_of([Case(ops.Conv2D(activation=Activation.RELU), operands)])


@pytest.mark.parametrize(
    ("graph", "limit", "loss"),
    [(_random_convolution(finds_edges=True), 0.006, "1.17%"), (_finds_noise(), 0.005, "0.96%")],
    ids=["smooth", "golden"],
)
def test_auto_decides_by_random_inputs_and_the_golden_one(graph, limit, loss):
    """Differences of smooth images lose 1.2%, those of the golden input only 0.4%; a detector of
    noise loses nothing of those."""
    board, folder = load_profile("a76"), cache_folder() / "golden"
    options = CompileOptions(precision="auto")
    target = Target(board, options, None, table_of(board), folder, half_loss=limit)
    made = run_pipeline(graph, target)
    assert made.exact is None
    assert f"outputs by {loss} of their largest value on random inputs" in made.notes[-1]


@pytest.mark.parametrize(("limit", "in_half"), [(0.012, 4), (0.006, 3), (0.002, 2), (0.0002, 0)])
def test_auto_keeps_the_operators_in_f32_that_lose_most(limit, in_half):
    """An edge detector loses 1.2%, and each of the three layers after it much less."""
    rng = np.random.default_rng(0)
    edges = rng.standard_normal((32, 3, 3, 16)).astype(np.float32)
    edges -= edges.mean((1, 2), keepdims=True)
    case = None
    for _ in range(3):
        mix = constant(rng.uniform(0, 1, (32, 1, 1, 32)).astype(np.float32))
        case = Case(ops.Conv2D(), (mix,), after=case)
    graph = graph_of([Case(ops.Conv2D(), (tensor((1, 18, 18, 16)), constant(edges)), after=case)])
    board, folder = load_profile("a76"), cache_folder() / "golden"
    options = CompileOptions(precision="auto")
    target = Target(board, options, None, table_of(board), folder, half_loss=limit)
    made = run_pipeline(graph, target)
    convolutions = [n for n in made.graph.nodes if isinstance(n.op, ops.Conv2D)]
    narrow = [made.graph.tensors[n.outputs[0]].dtype is DType.F16 for n in convolutions]
    assert sum(narrow) == in_half and (in_half == 4 or not narrow[0])
    assert any("operators that lose most" in note for note in made.notes) is (0 < in_half < 4)


@pytest.mark.parametrize(("end", "in_half"), [(ops.Softmax(), True), (ops.Tanh(), False)])
def test_small_probabilities_may_change_by_as_much_as_large_ones(end, in_half):
    """Seen: MobileNet's largest of 1,001 was 0.09 for random pictures, and 11% of that too much."""
    rng = np.random.default_rng(0)
    weights = constant(rng.uniform(-0.05, 0.05, (1000, 1024)).astype(np.float32))
    case = Case(ops.FullyConnected(), (tensor((1, 1024)), weights), after=Case(end, ()))
    board, options = load_profile("a76"), CompileOptions(precision="auto")
    folder = cache_folder() / "golden"
    target = Target(board, options, None, table_of(board), folder, half_loss=1e-4)
    assert (run_pipeline(graph_of([case]), target).exact is not None) is in_half


def test_auto_decides_by_samples_if_there_are_some():
    graph = _random_convolution(finds_edges=True)
    noise = np.random.default_rng(0).uniform(-1, 1, (1, 18, 18, 16)).astype(np.float32)
    board, folder = load_profile("a76"), cache_folder() / "golden"
    options, samples = CompileOptions(precision="auto"), ({graph.inputs[0]: noise},)
    target = Target(board, options, None, table_of(board), folder, samples, half_loss=0.006)
    assert run_pipeline(graph, target).exact is not None


@pytest.mark.slow
def test_auto_keeps_f32_where_they_do_not_and_says_so():
    board, options, golden = load_profile("a76"), CompileOptions(precision="auto"), cache_folder()
    target = Target(board, options, None, table_of(board), golden / "golden", half_loss=1e-6)
    made = run_pipeline(import_model(_MODEL), target)
    assert made.exact is None
    assert made.notes[-1].startswith("f32: half precision would change outputs by ")


def test_outputs_beyond_half_precision_are_refused_and_auto_stays_f32():
    """Golden outputs of such a release would be inf or NaN, which its health check cannot judge."""
    graph, board = _two_convolutions(1000.0), load_profile("a76")
    with pytest.raises(InputError, match=r"--precision f16: .* up to 65504.*use auto"):
        prepare_graph(graph, board, _HALF)
    made = prepare_graph(graph, board, CompileOptions(precision="auto"))
    assert made.exact is None
    assert made.notes[-1] == "f32: values exceed 65504, the largest of half precision"


@pytest.mark.parametrize(("precision", "shown"), [("f16", True), ("auto", True), ("f32", False)])
def test_a_model_that_gains_nothing_by_half_precision_says_so(precision, shown):
    table = constant(np.ones((1, 4, 4, 8), np.float32))
    graph = graph_of([Case(ops.SquaredDifference(), (tensor((1, 4, 4, 8)), table))])
    made = prepare_graph(graph, load_profile("a76"), CompileOptions(precision=precision))
    assert made.exact is None
    assert any(note.startswith("f32: no operator has a faster") for note in made.notes) is shown


def test_auto_stores_recurrent_weights_beyond_the_cache_in_half_precision():
    state, rng = tensor((1, 256)), np.random.default_rng(0)
    weights = constant(rng.uniform(-1, 1, (768, 256)) / 16)
    graph = graph_of([Case(ops.Gru(), (tensor((2, 1, 768)), weights, None, state, None))])
    for board, stored in (("rpi3", DType.F16), ("rpi4", DType.F32)):  # of 512 KiB, of 1 MiB
        made = prepare_graph(graph, load_profile(board), CompileOptions(precision="auto"))
        assert [made.graph.tensors[n.inputs[1]].dtype for n in made.graph.nodes] == [stored]
        assert {made.graph.tensors[name].dtype for name in made.graph.outputs} == {DType.F32}
        assert bool(made.exact) == (stored is DType.F16)


def test_auto_is_f32_on_cores_without_half_precision():
    made = prepare(_MODEL, load_profile("a72"), CompileOptions(precision="auto"))
    assert made.exact is None
    assert made.graph.nodes == prepare(_MODEL, load_profile("a72")).graph.nodes


def test_a_board_without_half_precision_is_named():
    with pytest.raises(InputError, match=r"asimdhp.*zvfh.*found a72; leave .* out, or use auto"):
        prepare(_MODEL, load_profile("a72"), _HALF)


@pytest.mark.slow
def test_what_boxes_are_selected_is_no_loss():
    """Selected rows change places where scores are much alike."""
    graph = _random_convolution()
    to = Appender(graph, "d")
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 50, (1, 256, 1, 2))
    boxes = to.constant(np.concatenate([low, low + rng.uniform(5, 9, low.shape)], -1))
    scores = to.add(ops.Reshape((1, 16, 256)), to.floats(graph.outputs[0]))
    rows = to.add(ops.DetectionOutput(50, 50, 0.0, 0.5), boxes, scores)
    board, options = load_profile("a76"), CompileOptions(precision="auto")
    target = Target(board, options, None, table_of(board), cache_folder() / "golden")
    made = run_pipeline(to.with_output(rows, "detections"), target)
    assert made.exact is not None


@pytest.mark.slow
def test_a_limit_of_memory_leaves_some_f16_convolutions_direct():
    """Their transformed weights may then take 1 MiB."""
    weights = np.random.default_rng(0).standard_normal((128, 3, 3, 128)).astype(np.float32)
    case = Case(
        ops.Conv2D(padding=Padding(1, 1, 1, 1)), (tensor((1, 8, 8, 128)), constant(weights))
    )
    graph, found = graph_of([case, case]), []
    for limit in (None, 1 << 20):
        options = CompileOptions(precision="f16", memory_limit=limit, threads=1)
        made = prepare_graph(graph, load_profile("a76"), options)
        found.append(sum(getattr(node.op, "winograd", False) for node in made.graph.nodes))
    assert found == [2, 1]


@pytest.mark.slow
def test_f16_convolutions_run_direct_if_threads_would_wait_for_transformed_weights():
    """On four A55 this takes 6.1 instead of 11.6 million cycles of simulated time."""
    weights = np.random.default_rng(0).standard_normal((128, 3, 3, 128)).astype(np.float32) / 34
    x = tensor((1, 28, 28, 128))
    graph = graph_of([Case(ops.Conv2D(padding=Padding(1, 1, 1, 1)), (x, constant(weights)))])
    for threads, winograd in ((1, True), (None, False)):
        options = CompileOptions(precision="f16", threads=threads)
        made = prepare_graph(graph, load_profile("rk3566"), options)
        assert any(getattr(n.op, "winograd", False) for n in made.graph.nodes) is winograd
