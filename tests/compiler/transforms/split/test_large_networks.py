"""Networks of larger layers in less memory than they need unsplit, with the same results."""

from __future__ import annotations

import re

import numpy as np
import pytest

from edgekit.device.runtime.agent.model import LoadedModel
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.host.compiler.driver import build_graph, prepare_graph
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import DType, Graph, Node, Tensor
from edgekit.host.compiler.options import DEFAULT_OPTIONS, CompileOptions
from edgekit.host.compiler.pipeline import PreparedGraph
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.compiler.transforms.split.live import Live
from edgekit.host.compiler.transforms.split.search import BandSearch
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import load_board
from tests.support.field_networks import field_network
from tests.support.large_networks import KINDS, network
from tests.support.op_graphs import inputs_of
from tests.support.places import few_or_all

_TYPES = (DType.F32, DType.I8)
# The others fit as well, more slowly.
_HALVED = [("plain", 1), ("mobile", 2), ("residual", 0), ("dense", 1), ("unet", 1), ("encoder", 2)]


def _arena(made: PreparedGraph, options: CompileOptions) -> int:
    _, plan = plan_of(made.graph, load_board("rpi4"), options)
    return plan.memory.arena_bytes


def _whole_and_split(graph: Graph, share: float) -> tuple[PreparedGraph, PreparedGraph]:
    board = load_board("rpi4")
    whole = prepare_graph(graph, board)
    limit = int(_arena(whole, DEFAULT_OPTIONS) * share)
    options = CompileOptions(memory_limit=limit)
    made = prepare_graph(graph, board, options)
    assert _arena(made, options) <= limit
    return whole, made


def _same(one: PreparedGraph, other: PreparedGraph) -> None:
    inputs = inputs_of(one.imported)
    wanted = evaluate(one.graph, inputs).outputs
    for name, got in evaluate(other.graph, inputs).outputs.items():
        limit = 1e-5 * np.abs(wanted[name]).max() if got.dtype.kind == "f" else 0
        np.testing.assert_allclose(got, wanted[name], rtol=0, atol=limit)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("kind, seed", _HALVED)
def test_a_network_in_half_of_its_arena_computes_the_same(kind, seed, dtype):
    _same(*_whole_and_split(network(kind, seed, dtype), 0.5))


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    few_or_all(["mobilenet1", "shuffle", "audio", "yolo", "tcn", "aspp"], ["mobilenet1", "audio"]),
)
def test_a_common_network_in_half_of_its_arena_computes_the_same(kind):
    _same(*_whole_and_split(field_network(kind, 1, DType.I8), 0.5))


@pytest.mark.exhaustive
@pytest.mark.parametrize("share, least", [(0.9, 1.0), (0.75, 0.9), (0.5, 0.6)])
def test_most_networks_fit_into_less(share, least):
    fits = []
    for kind in KINDS:
        for seed in (0, 1):
            try:
                _whole_and_split(network(kind, seed), share)
                fits.append(True)
            except InputError:
                fits.append(False)
    assert sum(fits) >= least * len(fits), fits


@pytest.mark.parametrize("kind", ["tcn", "aspp"])
def test_what_every_band_reads_or_averages_does_not_end_a_chain(kind):
    graph = run_passes(field_network(kind, 2))[0]
    half = Live(graph).peak // 2
    found, _ = BandSearch().in_bands_again(graph, half)
    assert Live(found).peak <= half


def test_what_a_split_costs_is_noted():
    _, made = _whole_and_split(network("plain", 0), 0.5)
    (note,) = made.notes
    found = re.fullmatch(
        r"split to fit into memory: (\d+) of \d+ operators became (\d+); "
        r"\+([\d.]+)% multiply-adds, \+[\d.]+% estimated time",
        note,
    )
    assert found is not None
    assert int(found[1]) < int(found[2]) and 0 < float(found[3]) < 100


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["ds_cnn", "mobilenet1", "audio"])
def test_a_larger_limit_costs_no_more(kind):
    graph, board = field_network(kind, 1, DType.I8), load_board("rpi4")
    arena = _arena(prepare_graph(graph, board), DEFAULT_OPTIONS)
    times = []
    for share in (0.625, 0.75):
        options = CompileOptions(memory_limit=int(arena * share))
        (note,) = prepare_graph(graph, board, options).notes
        times.append(float(note.rpartition("+")[2].partition("%")[0]))
    assert times == sorted(times, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        pytest.param("unet", DType.I8, marks=pytest.mark.exhaustive),
        pytest.param("encoder", DType.F32, marks=pytest.mark.exhaustive),
        pytest.param("unet", DType.F32, marks=pytest.mark.exhaustive),
        pytest.param("encoder", DType.I8, marks=pytest.mark.exhaustive),
    ],
)
def test_the_library_of_a_split_network_equals_the_unsplit_one(kind, dtype, tmp_path):
    board, graph, results = load_board("local"), network(kind, 2, dtype), []
    arena = _arena(prepare_graph(graph, board), DEFAULT_OPTIONS)
    for options in (DEFAULT_OPTIONS, CompileOptions(memory_limit=int(arena * 0.8))):
        made = prepare_graph(graph, board, options)
        artifact = build_graph(made, "0" * 64, board, options=options)
        folder = tmp_path / str(len(results))
        folder.mkdir()
        (folder / "model.so").write_bytes(artifact.library)
        (folder / "weights.bin").write_bytes(artifact.weights)
        model = LoadedModel(ReleaseFiles(folder))
        inputs = zip(model.description.inputs, artifact.golden.inputs, strict=True)
        found, _ = model.run({spec.name: x for spec, x in inputs})
        results.append([np.frombuffer(f.data, dtype.numpy) for f in found.values()])
        model.close()
    assert bool(made.origin)
    for whole, split in zip(*results, strict=True):
        limit = 1e-5 * np.abs(whole).max() if dtype is DType.F32 else 0
        np.testing.assert_allclose(split, whole, rtol=0, atol=limit)


def _channels_normalized() -> Graph:
    """Convolution, an operator on channels-first rows, and another convolution."""
    rng = np.random.default_rng(0)
    shapes = {"x": (1, 32, 40, 3), "a": (1, 32, 40, 16), "b": (1, 16, 32, 40), "c": (1, 16, 32, 40)}
    shapes |= {"d": (1, 32, 40, 16), "e": (1, 16, 20, 4)}
    tensors = {n: Tensor(n, s, DType.F32) for n, s in shapes.items()}
    for name, shape in {"v": (16, 1, 1, 3), "w": (4, 2, 2, 16), "one": (32, 40)}.items():
        data = rng.normal(0, 1, shape).astype(np.float32)
        tensors[name] = Tensor(name, shape, DType.F32, None, data)
    nodes = (
        Node("first", ops.Conv2D(), ("x", "v"), ("a",)),
        Node("apart", ops.Transpose((0, 3, 1, 2)), ("a",), ("b",)),
        Node("norm", ops.LayerNorm(2), ("b", "one", "one"), ("c",)),
        Node("back", ops.Transpose((0, 2, 3, 1)), ("c",), ("d",)),
        Node("last", ops.Conv2D((2, 2)), ("d", "w"), ("e",)),
    )
    return Graph("normalized", tensors, nodes, ("x",), ("e",))


@pytest.mark.exhaustive
def test_parts_of_a_transpose_are_written_into_their_place():
    whole, made = _whole_and_split(_channels_normalized(), 0.75)
    assert "norm" in made.origin.values()
    _same(whole, made)
