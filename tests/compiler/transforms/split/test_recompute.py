"""Networks that bands alone do not halve: gates beside a skip, pyramids, means of large images."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.driver import prepare_graph
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import DType, Graph
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.schedule.schedule import schedule
from edgekit.host.compiler.transforms.split import split
from edgekit.host.compiler.transforms.split.live import Live
from edgekit.host.compiler.transforms.split.search import BandSearch
from edgekit.kb.targets.board import load_board
from tests.support.field_networks import FIELD_KINDS
from tests.support.kernel_runs import build, check, run_here
from tests.support.large_networks import Builder, drawn
from tests.support.op_graphs import inputs_of


def _network(kind: str, size: int, dtype: DType) -> Graph:
    """A network in the order of least memory."""
    graph = drawn(kind, FIELD_KINDS[kind], (size,), 1, dtype)
    return schedule(graph, load_board("rpi4"), CompileOptions(order="memory")).graph


def _same(before: Graph, after: Graph) -> None:
    """Quantized values are equal; f32 differs by the rounding of the means of rows."""
    inputs = inputs_of(before)
    wanted = evaluate(before, inputs).outputs
    for name, got in evaluate(after, inputs).outputs.items():
        limit = 1e-5 * np.abs(wanted[name]).max() if got.dtype.kind == "f" else 0
        np.testing.assert_allclose(got, wanted[name], rtol=0, atol=limit)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, size, dtype",
    [
        ("gated_residual", 24, DType.F32), ("gated_residual", 24, DType.I8),
        ("pyramid", 64, DType.I8), ("ds_cnn", 48, DType.F32),
    ],
)  # fmt: skip
def test_half_of_the_memory_is_enough_where_tensors_are_computed_again(kind, size, dtype):
    graph = _network(kind, size, dtype)
    half = Live(graph).peak // 2
    assert Live(split(graph, half, operators=False).graph).peak > half
    found = split(graph, half, operators=False, bands_of=BandSearch().in_bands_again)
    assert Live(found.graph).peak <= half
    assert {*found.origin.values()} <= {node.name for node in graph.nodes}
    assert {*found.origin} <= {node.name for node in found.graph.nodes}
    _same(graph, found.graph)


def _attention(b: Builder, x: str) -> list[str]:
    """Two heads; values are transposed behind the softmax."""
    rows, width = b.shape(x)[1] * b.shape(x)[2], 12
    x = b.add(ops.Reshape((1, rows, 1, 3)), x)
    q, k, v = (b.add(ops.Reshape((1, rows, 2, width // 2)), b.conv(x, width, 1)) for _ in range(3))
    turned = b.add(ops.Transpose((0, 2, 3, 1)), k)
    scores = b.add(ops.MatMul(), b.add(ops.Transpose((0, 2, 1, 3)), q), turned)
    shares = b.add(ops.Softmax(), scores)
    mixed = b.add(ops.MatMul(), shares, b.add(ops.Transpose((0, 2, 1, 3)), v))
    return [b.dense(b.add(ops.Transpose((0, 2, 1, 3)), mixed), 4)]


def test_keys_and_values_of_attention_are_made_before_its_bands():
    graph = drawn("attention", _attention, (30,), 1, DType.F32)
    banded, _ = BandSearch().in_bands(graph, Live(graph).peak // 4)
    assert Live(banded).peak <= Live(graph).peak // 4
    _same(graph, banded)


def test_volumes_run_in_bands_of_their_depth():
    graph = _network("volumes", 20, DType.F32)
    quarter = Live(graph).peak // 4
    banded, _ = BandSearch().in_bands(graph, quarter)
    assert Live(banded).peak <= quarter
    _same(graph, banded)


def test_means_that_no_band_divides_stay_whole():
    graph = _network("gated_residual", 24, DType.I8)
    after, origin = BandSearch().in_bands_again(graph, Live(graph).peak)
    assert after.nodes == graph.nodes and not origin


def _normalized(b: Builder, x: str, groups: int) -> list[str]:
    """A convolution, normalized in groups of channels or (0) as one image, and a smaller one."""
    x = b.add(ops.Transpose((0, 3, 1, 2)), b.conv(x, 16, linear=True))
    shape = b.shape(x)
    if groups:
        rows = b.add(ops.Reshape((1, groups, 16 // groups * shape[2] * shape[3])), x)
        x = b.add(ops.Reshape(shape), b.add(ops.LayerNorm(), rows))
    else:
        terms = (b.weights(*shape[1:]) for _ in range(2))
        x = b.add(ops.LayerNorm(3), x, *terms)
    return [b.classes(b.conv(b.add(ops.Transpose((0, 2, 3, 1)), x), 8, 3, 2))]


@pytest.mark.slow
@pytest.mark.parametrize("groups", [0, 4])
def test_half_of_the_memory_is_enough_for_a_normalized_image(groups):
    graph = drawn("norm", lambda b, x: _normalized(b, x, groups), (16,), 1, DType.F32)
    half = Live(graph).peak // 2
    assert Live(BandSearch().in_bands(graph, half)[0]).peak > half
    after, origin = BandSearch().in_bands_again(graph, half)
    assert Live(after).peak <= half
    assert {*origin.values()} <= {node.name for node in graph.nodes}
    _same(graph, after)


def test_a_normalized_image_that_no_band_divides_stays_whole():
    graph = drawn("norm", lambda b, x: _normalized(b, x, 4), (16,), 1, DType.F32)
    after, origin = BandSearch().in_bands_again(graph, Live(graph).peak * 2)
    assert after.nodes == graph.nodes and not origin


def test_the_work_of_a_search_is_bounded():
    graph = _network("ds_cnn", 48, DType.F32)
    limit = Live(graph).peak // 4
    peaks = [Live(BandSearch(work).in_bands(graph, limit)[0]).peak for work in (0, 1, 10_000)]
    assert peaks[0] == Live(graph).peak
    assert peaks == sorted(peaks, reverse=True) and peaks[2] < peaks[0]


def _branches(b: Builder, x: str) -> list[str]:
    """Both wide images before either is reduced: not the order of least memory."""
    wide = [b.conv(x, 32), b.conv(x, 32)]
    return [b.conv(each, 4) for each in wide]


def test_an_order_that_fits_needs_no_split():
    graph, board = drawn("branches", _branches, (24,), 1, DType.F32), load_board("rpi4")
    one = 24 * 24 * 32 * 4
    assert Live(graph).peak >= 2 * one
    made = prepare_graph(graph, board, CompileOptions(memory_limit=3 * one // 2))
    assert not made.origin and Live(made.graph).peak < 3 * one // 2


@pytest.mark.slow
@pytest.mark.exhaustive
def test_kernels_of_a_network_computed_twice_equal_the_unsplit_one(tmp_path):
    """The plan fits, its cost is noted, and quantized values are equal."""
    graph, board = _network("gated_residual", 24, DType.I8), load_board("local")
    whole = plan_of(prepare_graph(graph, board).graph, board, CompileOptions())[1]
    options = CompileOptions(memory_limit=whole.memory.arena_bytes // 2)
    made = prepare_graph(graph, board, options)
    _, plan = plan_of(made.graph, board, options)
    assert plan.memory.arena_bytes <= whole.memory.arena_bytes // 2
    assert any(isinstance(node.op, ops.QuantizedSum) for node in made.graph.nodes)
    assert "multiply-adds" in made.notes[0]
    inputs = inputs_of(graph)
    check(graph, run_here(build(made.graph, board, tmp_path), inputs), inputs)
