"""Products of one row prefetch weights that come from memory, as far as a core has lines for; one
of several threads prefetches those of the next convolutions."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.lowering.plan import KernelCall, Weights, calls_of
from edgekit.kb.targets.board import last_cache, load_profile
from edgekit.kb.targets.core import load_core
from tests.support.op_cases import Case, constant, quant, tensor
from tests.support.op_graphs import graph_of
from tests.support.read_ahead import read_ahead_graph

_K, _N = 64, 80


def _dense(rows: int) -> Case:
    quantized = np.random.default_rng(1).integers(-127, 128, (_N, _K))
    x = tensor((rows, _K), DType.I8, quant(0.1))
    weights = constant(quantized, DType.I8, quant(0.01))
    return Case(ops.FullyConnected(), (x, weights), quant(0.2))


def _layer(rows: int = 1) -> Graph:
    return graph_of([_dense(rows)])


def _split_layer(bits: int, groups: int) -> Graph:
    quantized = np.random.default_rng(1).integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, (_N, _K))
    scales = np.full((groups, _N), 0.01)
    operands = tensor((1, _K)), constant(quantized, DType.I8), constant(scales)
    return graph_of([Case(ops.OutlierFullyConnected(6.0), operands)])


def _soon(graph: Graph, name: str, cache: int, threads: int = 1) -> str | None:
    """How far ahead the product prefetches, on a board whose last cache has so many bytes."""
    board = dataclasses.replace(load_profile(name), l2_bytes=cache, l3_bytes=0)
    assert last_cache(board) == cache
    steps = lower(graph, board, threads=threads).lowered.steps
    products = ("conv/i8_conv.c", "outlier/grouped_row.c")
    (call,) = (c for s in steps for c in s.calls if c.kernel.source in products)
    return dict(call.kernel.macros).get("I8_PREFETCH_DISTANCE")


@pytest.mark.parametrize("board", ["rpi3", "rpi4", "rpi5", "rk3566", "rk3588", "a76"])
def test_a_row_has_as_many_lines_on_their_way_as_its_core_can(board):
    misses = load_core({"rpi3": "a53", "rpi4": "a72", "rk3566": "a55"}.get(board, "a76")).misses
    assert _soon(_layer(), board, _K * _N // 2) == str(64 * misses)


@pytest.mark.parametrize(("bits", "groups"), [(8, 1), (8, 2), (4, 1), (4, 2)])
def test_layers_whose_activations_are_split_do_as_well(bits, groups):
    assert _soon(_split_layer(bits, groups), "rpi5", _K * _N // 2) == "1280"


@pytest.mark.parametrize(("bits", "ahead"), [(8, "1280"), (4, None), (2, None)])
def test_packed_weights_that_fit_the_cache_are_cached(bits, ahead):
    assert _soon(_split_layer(bits, 2), "rpi5", _K * _N * 3 // 4) == ahead


@pytest.mark.parametrize(
    ("graph", "board", "cache", "threads"),
    [
        (_layer(), "rpi5", 2 * _K * _N, 1),
        (_layer(2), "rpi5", _K * _N // 2, 1),
        (_layer(), "rk3566", _K * _N // 2, 2),
        (_layer(), "rv64gcv-zvl512b", _K * _N // 2, 1),
        (_layer(), "orangepi-pc", _K * _N // 2, 1),
        (_layer(), "bpi-f3", _K * _N // 2, 1),
        (_layer(), "x86-64-v3", _K * _N // 2, 1),
    ],
    ids=["cached", "rows", "threads", "no-model", "armv7", "riscv", "x86"],
)
def test_others_do_what_the_kernel_does_by_itself(graph, board, cache, threads):
    assert _soon(graph, board, cache, threads) is None


@pytest.mark.parametrize(("board", "threads", "alone"), [("rpi4", 4, True), ("rpi3", 4, False)])
def test_one_thread_reads_the_weights_where_all_together_are_slower(board, threads, alone):
    profile = dataclasses.replace(load_profile(board), l2_bytes=_K * _N // 2)
    steps = lower(_layer(), profile, threads=threads).lowered.steps
    (call,) = (c for s in steps for c in s.calls if c.kernel.source == "conv/i8_conv.c")
    assert call.tasks is not None and call.tasks > 1
    assert call.grain == (call.tasks if alone else 1)
    assert ("I8_PREFETCH_DISTANCE" in dict(call.kernel.macros)) == alone


@pytest.mark.parametrize(
    ("board", "bits", "alone"),
    [
        ("rpi3", 4, False),
        ("rpi3", 2, False),
        ("rk3566", 4, True),
        ("rk3566", 2, False),
        ("rpi4", 2, True),
    ],
)
def test_one_core_in_order_reads_weights_that_it_unpacks_fast_enough(board, bits, alone):
    """Else they read in turn: four threads of an A53 take 0.97 of the time of one with 4 bits, of
    an A55 1.04."""
    profile = dataclasses.replace(load_profile(board), l2_bytes=_K * _N // 8, l3_bytes=0)
    steps = lower(_split_layer(bits, 1), profile, threads=4).lowered.steps
    (call,) = (c for s in steps for c in s.calls if c.kernel.source == "outlier/grouped_row.c")
    assert call.tasks is not None and call.tasks > 1
    assert call.grain == (call.tasks if alone else 1)


def test_tables_of_which_rows_are_read_do_not_count():
    table = np.zeros((1000, _K), np.float32)
    picked = Case(ops.Gather(), (constant(table), tensor((1,), DType.I32)))
    assert _soon(graph_of([picked, _dense(1)]), "rpi5", 2 * _K * _N) is None


@pytest.mark.parametrize(
    ("board", "megabytes", "threads", "alone"),
    [
        ("rpi5", 1, 4, True),
        ("rpi4", 1, 2, True),
        ("rpi5", 1, 1, False),
        ("rpi5", 16, 4, False),
        ("rk3566", 1, 4, False),
        ("jetson-nano", 1, 4, False),
        ("orangepi-pc", 1, 4, False),
        ("x86-64-v3", 1, 4, False),
    ],
    ids=["A76", "A72", "one", "cached", "in-order", "more-for-all", "armv7", "x86"],
)
def test_one_core_reads_from_memory_where_all_get_no_more(board, megabytes, threads, alone):
    """A fully connected layer of one row, and a row's product with a matrix that is read once."""
    weights = constant(np.ones((1024, 512), np.float32))
    graph = graph_of(
        [
            Case(ops.FullyConnected(), (tensor((1, 512)), weights, None)),
            Case(ops.MatMul(), (tensor((9, 1, 64)), tensor((9, 64, 256)))),
        ]
    )
    profile = dataclasses.replace(load_profile(board), l2_bytes=megabytes << 20, l3_bytes=0)
    steps = lower(graph, profile, threads=threads).lowered.steps
    calls = [call for step in steps for call in step.calls if isinstance(call, KernelCall)]
    assert all((call.tasks or 0) > 1 and call.grain == 1 for call in calls) != alone
    assert all(call.tasks in (1, call.grain) for call in calls) == alone


@pytest.mark.parametrize(
    ("board", "kilobytes", "threads", "dtype", "reads"),
    [
        ("rpi5", 128, 4, DType.F32, True),
        ("rpi5", 128, 1, DType.F32, False),
        ("rpi5", 512, 4, DType.F32, False),
        ("rpi4", 128, 4, DType.F32, False),
        ("rk3566", 128, 4, DType.F32, False),
        ("x86-64-v3", 128, 4, DType.F32, False),
        ("rpi4", 32, 4, DType.I8, True),
        ("rpi4", 32, 1, DType.I8, False),
        ("rpi3", 32, 4, DType.I8, False),
        ("rpi5", 32, 4, DType.I8, False),
    ],
    ids=[
        *("A76", "one", "cached", "A72", "in-order", "x86"),
        *("bytes", "bytes-one", "bytes-in-order", "bytes-of-dots"),
    ],
)
def test_convolutions_of_many_pixels_prefetch_for_those_of_few(
    board, kilobytes, threads, dtype, reads
):
    profile = dataclasses.replace(load_profile(board), l2_bytes=kilobytes << 10, l3_bytes=0)
    lowered = lower(read_ahead_graph(dtype=dtype), profile, threads=threads).lowered
    large, *small = calls_of(call for step in lowered.steps for call in step.calls)
    assert not any("ahead" in call.fields for call in small)
    assert ("ahead" in large.fields) == reads
    if reads:
        first, size = large.fields["ahead"], large.fields["ahead_bytes"]
        own, other = large.fields["weights"], small[0].fields["weights"]
        assert isinstance(first, Weights) and isinstance(size, int)
        assert isinstance(own, Weights) and isinstance(other, Weights)
        assert own.offset < first.offset <= other.offset < first.offset + size
        assert first.offset + size <= len(lowered.weights)
        assert size <= kilobytes << 8


def test_no_convolution_prefetches_near_the_start_of_the_file():
    """Kernels load what is 2 KiB before the weights that they prefetch; these have 1.1."""
    profile = dataclasses.replace(load_profile("rpi5"), l2_bytes=1 << 17, l3_bytes=0)
    steps = lower(read_ahead_graph(4, 8), profile, threads=4).lowered.steps
    first, *_ = calls_of(call for step in steps for call in step.calls)
    assert "READ_AHEAD" in dict(first.kernel.macros)
    assert "ahead" not in first.fields
