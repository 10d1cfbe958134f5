"""Bands: less memory for the same results, on random chains, on models, and under a real limit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import edgekit
from edgekit.device.runtime.agent.model import LoadedModel
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.host.compiler.driver import compile_artifact, prepare_graph
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Activation, DType, Graph, Node, Operator, Padding, Tensor
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.compiler.transforms.passes.quantized import integer_form
from edgekit.host.compiler.transforms.split import split
from edgekit.host.compiler.transforms.split.build import even_cuts
from edgekit.host.compiler.transforms.split.live import Live
from edgekit.host.compiler.transforms.split.near import bands_for_time
from edgekit.host.compiler.transforms.split.rolling import run_in_turns
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import load_board
from tests.support.large_networks import Builder
from tests.support.op_cases import quant
from tests.support.op_graphs import inputs_of

_MODELS = Path(__file__).parents[4] / "models"
_LIMITED = Path(__file__).parents[3] / "support" / "limited_memory.py"
_FACE = _MODELS / "face_detection_short_range.tflite"


class _Chain:
    """Appends operators on 8-bit images."""

    def __init__(self, rng: np.random.Generator, size: int, channels: int) -> None:
        self.rng = rng
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.at = self.tensor((1, size, size, channels))
        self.input = self.at

    def tensor(self, shape: tuple[int, ...], data: np.ndarray | None = None) -> str:
        name = f"t{len(self.tensors)}"
        scale = quant(float(self.rng.uniform(0.02, 0.1)), int(self.rng.integers(-20, 20)))
        q = quant(0.02) if data is not None else scale
        self.tensors[name] = Tensor(name, shape, DType.I8, q, data)
        return name

    def weights(self, *shape: int) -> str:
        data = self.rng.integers(-127, 128, shape).astype(np.int8)
        return self.tensor(shape, data)

    def add(self, op: Operator, *ins: str) -> str:
        shape, _ = op.infer([self.tensors[i] for i in ins])[0]
        made = self.tensor(shape)
        self.nodes.append(Node(f"n{len(self.nodes)}", op, ins, (made,)))
        return made

    def step(self, kind: int) -> None:
        _, h, _, c = self.tensors[self.at].shape
        before, border = self.at, Padding(1, 1, 1, 1)
        if kind == 0:
            out = int(self.rng.integers(1, 12))
            self.at = self.add(ops.Conv2D(padding=border), self.at, self.weights(out, 3, 3, c))
        elif kind == 1 and h > 4:
            stride = Padding(int(self.rng.integers(0, 2)), 1, 1, 0)
            conv = ops.DepthwiseConv2D((2, 2), padding=stride, activation=Activation.RELU)
            self.at = self.add(conv, self.at, self.weights(1, 3, 3, c))
        elif kind == 2 and h > 4:
            self.at = self.add(ops.MaxPool2D((2, 2), (2, 2)), self.at)
        elif kind == 3:
            deep = self.add(ops.DepthwiseConv2D(padding=border), self.at, self.weights(1, 3, 3, c))
            same = self.add(ops.Conv2D(), deep, self.weights(c, 1, 1, c))
            self.at = self.add(ops.Add(), before, same)
        elif kind == 4 and h < 24:
            self.enlarge(self.rng.random() < 0.5)
        else:
            self.at = self.add(ops.Conv2D(), self.at, self.weights(c + 1, 1, 1, c))

    def enlarge(self, as_shapes: bool) -> None:
        """Pixels made of channels, by one operator, or by three as in transposed convolutions."""
        n, h, w, c = self.tensors[self.at].shape
        deep = self.add(ops.Conv2D(), self.at, self.weights(4 * c, 1, 1, c))
        if as_shapes:
            split = self.add(ops.Reshape((n, h, w, 2, 2, c)), deep)
            turned = self.add(ops.Transpose((0, 1, 3, 2, 4, 5)), split)
            self.at = self.add(ops.Reshape((n, 2 * h, 2 * w, c)), turned)
        else:
            self.at = self.add(ops.DepthToSpace(2), deep)

    def graph(self) -> Graph:
        mean = self.add(ops.Mean((1, 2)), self.at)
        return Graph("chain", self.tensors, tuple(self.nodes), (self.input,), (mean,))


def _as_low_as_it_goes(graph: Graph, share: float) -> Graph:
    limit = max(int(Live(graph).peak * share), 1)
    while True:
        try:
            return split(graph, limit).graph
        except InputError:
            limit = limit * 5 // 4 + 1


@settings(max_examples=40)
@pytest.mark.slow
@given(
    seed=st.integers(0, 10**6),
    kinds=st.lists(st.integers(0, 5), min_size=2, max_size=7),
    size=st.integers(5, 19),
    share=st.floats(0.2, 0.9),
)
def test_bands_of_a_chain_give_the_same_quantized_values(seed, kinds, size, share):
    chain = _Chain(np.random.default_rng(seed), size, 3)
    for kind in kinds:
        chain.step(kind)
    graph = chain.graph()
    after = _as_low_as_it_goes(graph, share)
    inputs = inputs_of(graph, seed)
    want = evaluate(graph, inputs).outputs
    for name, array in evaluate(after, inputs).outputs.items():
        np.testing.assert_array_equal(array, want[name])


@pytest.mark.parametrize("as_shapes", [False, True])
def test_bands_begin_within_pixels_that_are_made_of_channels(as_shapes):
    chain = _Chain(np.random.default_rng(5), 16, 4)
    for _ in range(2):
        chain.enlarge(as_shapes)
        chain.step(0)  # reads a row before its band, one of two made of the same pixels
    chain.step(0)
    graph = chain.graph()
    half = Live(graph).peak // 2
    after = split(graph, half).graph
    assert Live(after).peak <= half
    inputs = inputs_of(graph)
    want = evaluate(graph, inputs).outputs
    for name, array in evaluate(after, inputs).outputs.items():
        np.testing.assert_array_equal(array, want[name])


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    kinds=st.lists(st.integers(0, 5), min_size=1, max_size=6),
    size=st.integers(5, 19),
    count=st.integers(2, 6),
)
def test_bands_that_follow_each_other_compute_nothing_twice(seed, kinds, size, count):
    chain = _Chain(np.random.default_rng(seed), size, 3)
    for kind in (*kinds, 5):  # its rows can be cut anywhere
        chain.step(kind)
    graph, rows = chain.graph(), chain.tensors[chain.at].shape[1]
    origin: dict[str, str] = {}
    cuts = even_cuts(1, rows, -(-rows // count))
    after = run_in_turns(graph, graph.nodes[:-1], cuts, origin)
    assert after is not None
    inputs = inputs_of(graph, seed)
    want = evaluate(graph, inputs).outputs
    for name, array in evaluate(after, inputs).outputs.items():
        np.testing.assert_array_equal(array, want[name])
    made = dict.fromkeys((n.name for n in graph.nodes), 0)
    for node in after.nodes:
        if node.op.multiplies:
            made[origin.get(node.name, node.name)] += after.tensors[node.outputs[0]].elements
    for node in graph.nodes:
        whole = graph.tensors[node.outputs[0]].elements
        assert made[node.name] <= whole, node.name


def _pair(size: int, others: bool = False) -> Graph:
    """Two convolutions; `others`: what is between them is read elsewhere, too."""
    b = Builder(np.random.default_rng(1), DType.F32)
    x = b.tensor(1, size, size, 16)
    conv = ops.Conv2D((2, 2), padding=Padding(1, 1, 1, 1))
    between = b.add(conv, x, b.weights(16, 3, 3, 16))
    y = b.add(conv, between, b.weights(16, 3, 3, 16))
    return Graph("pair", b.tensors, tuple(b.nodes), (x,), (y, between) if others else (y,))


def test_images_that_leave_the_caches_stay_there_in_bands():
    board, graph = load_board("rpi5"), _pair(321)
    after = bands_for_time(graph, board, 4).graph
    assert len(after.nodes) > 2 * len(graph.nodes)
    assert Live(after).peak <= Live(graph).peak
    told = prepare_graph(graph, board, CompileOptions(threads=4)).notes[-1]
    assert told.startswith("2 operators run a few rows at a time")
    inputs = inputs_of(graph)
    want, made = (evaluate(g, inputs).outputs for g in (graph, after))
    for name, array in made.items():
        np.testing.assert_allclose(array, want[name], rtol=1e-5, atol=1e-5)
    for other, where in ((graph, "rpi4"), (_pair(65), "rpi5"), (_pair(321, others=True), "rpi5")):
        assert bands_for_time(other, load_board(where), 4).graph is other


def test_bands_take_less_memory_and_say_where_they_come_from():
    graph, _ = run_passes(integer_form(import_model(_FACE)))
    whole = Live(graph).peak
    found = split(graph, whole // 2)
    assert Live(found.graph).peak <= whole // 2
    names = {n.name for n in graph.nodes}
    for node in found.graph.nodes:
        assert (node.name in names) != (node.name in found.origin)
    assert set(found.origin.values()) <= names


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """The face detector unsplit, and for 640 KiB: folders with model.so and weights.bin."""
    folders = {}
    for limit in (None, 640 << 10):
        options = CompileOptions(memory_limit=limit)
        made = compile_artifact(_FACE, load_board("local"), options=options)
        folder = tmp_path_factory.mktemp("release")
        (folder / "model.so").write_bytes(made.library)
        (folder / "weights.bin").write_bytes(made.weights)
        folders[limit] = (folder, made)
    return folders


@pytest.mark.slow
def test_a_model_in_bands_computes_what_the_whole_model_does(releases):
    (folder, split_model), (_, whole) = releases[640 << 10], releases[None]
    memory = split_model.explain["memory"]
    assert memory["arena_bytes"] <= 640 << 10 == memory["limit_bytes"]
    assert whole.explain["memory"]["arena_bytes"] > 640 << 10
    origins = {o["split_from"] for o in split_model.explain["operators"]} - {None}
    operators = whole.explain["operators"]
    assert origins <= {n for o in operators for n in o["chain_of"] or [o["name"]]}
    model = LoadedModel(ReleaseFiles(folder))
    golden = split_model.golden
    specs = model.description.inputs
    inputs = {s.name: x for s, x in zip(specs, golden.inputs, strict=True)}
    outputs, _ = model.run(inputs)
    for spec, want, limit in zip(
        model.description.outputs, golden.outputs, golden.tolerances, strict=True
    ):
        got = np.frombuffer(outputs[spec.name].data, np.float32).reshape(spec.shape)
        np.testing.assert_allclose(got, want, rtol=0, atol=limit)
    model.close()


@pytest.mark.slow
def test_only_the_split_model_runs_where_memory_is_really_limited(releases):
    """The system limits the process to 512 KiB of private memory more than the model's limit."""
    modules = next(iter(edgekit.__path__))
    said = {}
    for limit, (folder, _) in releases.items():
        words = [str(Path(modules).parent), str(releases[640 << 10][0]), str(folder)]
        command = [sys.executable, str(_LIMITED), *words, str((640 + 512) << 10)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
        said[limit] = json.loads(done.stdout)
    assert said[640 << 10] == "runs"
    assert "bytes of memory, found that the system refused" in said[None]
