"""Pruned convolutions with windows: channels-first where measurements show that to be faster."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.costs.layout_table import (
    KERNELS,
    WINDOWS,
    KernelWork,
    LayoutCase,
    LayoutTable,
)
from edgekit.host.compiler.golden.vectors import random_input
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Activation, DType, Graph, Node, Padding, Tensor
from edgekit.host.compiler.lowering.channels_first.regions import choose_channels_first
from edgekit.host.compiler.lowering.common.window import Window
from edgekit.host.compiler.lowering.sparse.sparse_window import bands_of
from edgekit.host.compiler.tables.layouts import layout_table_of
from edgekit.kb.targets.board import load_board, load_profile
from tests.support.kernel_runs import build, run_here


def _table(**rates: float) -> LayoutTable:
    """A product costs 1, scaled by `rates`; the table covers windows only if `rates` are given."""
    works = [KernelWork(1 << n, 1 << n - 4) for n in (12, 15, 18)]
    kernels = KERNELS if not rates else (*KERNELS, *WINDOWS)
    cases = [
        LayoutCase(k, w, rates.get(k, 1.0) * (w.products or 1)) for k in kernels for w in works
    ]
    return LayoutTable("test", "nanoseconds", tuple(cases))


def _blocks(density: float, side: int = 13, channels: int = 19) -> Graph:
    """A stem, a block with a residual, and a strided window padded only at the end."""
    rng = np.random.default_rng(7)
    tensors = {"x": Tensor("x", (1, side, side, 3), DType.F32)}
    nodes: list[Node] = []

    def conv(name: str, x: str, oc: int, op: ops.Conv2D, *more: str) -> str:
        weights = rng.standard_normal((oc, 3, 3, tensors[x].shape[3])).astype(np.float32)
        weights[rng.random(weights.shape) >= density] = 0
        ins = (tensors[x], Tensor(f"{name}.w", weights.shape, DType.F32, None, weights))
        ((shape, dtype),) = op.infer((*ins, None))
        tensors.update({ins[1].name: ins[1], name: Tensor(name, shape, dtype)})
        nodes.append(Node(name, op, (x, ins[1].name, None, *more), (name,)))
        return name

    relu, same = Activation.RELU, Padding(1, 1, 1, 1)
    stem = conv("stem", "x", channels, ops.Conv2D(padding=same, activation=relu))
    inner = conv("inner", stem, channels, ops.Conv2D(padding=same, activation=relu))
    joined = conv("joined", inner, channels, ops.Conv2D(padding=same, activation=relu), stem)
    conv("y", joined, 2 * channels, ops.Conv2D((2, 2), padding=Padding(0, 1, 0, 1)))
    return Graph("windows", tensors, tuple(nodes), ("x",), ("y",))


def _channels_first(graph: Graph) -> list[str]:
    return [n.name for n in graph.nodes if isinstance(n.op, ops.ChannelsFirstConv2D)]


def test_pruned_windows_run_channels_first_where_they_are_cheaper():
    graph = _blocks(0.1)
    cheap = _table(sparse_window=2.0, dense_window=1.0)
    assert _channels_first(choose_channels_first(graph, cheap, 4)) == [
        "stem",
        "inner",
        "joined",
        "y",
    ]


@pytest.mark.parametrize(
    ("density", "table"),
    [
        (0.1, _table(sparse_window=30.0, dense_window=1.0)),
        (0.9, _table(sparse_window=2.0, dense_window=1.0)),
        (1.0, _table(sparse_window=0.1, dense_window=1.0)),
        (0.1, _table()),
    ],
)
def test_windows_stay_where_dense_is_cheaper_or_nothing_was_measured(density, table):
    graph = _blocks(density)
    assert choose_channels_first(graph, table, 4) is graph


@pytest.mark.parametrize("density", [0.05, 0.4])
def test_the_outputs_stay(tmp_path, density):
    graph = _blocks(density)
    inputs = {"x": random_input(graph.tensors["x"], np.random.default_rng(0))}
    expected = evaluate(graph, inputs).outputs["y"]
    after = choose_channels_first(graph, _table(sparse_window=0.1, dense_window=1.0), 16)
    assert len(_channels_first(after)) == 4
    made = run_here(build(after, load_board("local"), tmp_path), inputs, threads=2)
    np.testing.assert_allclose(made["y"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("board", ["rpi3", "rpi4", "rpi5", "bpi-f3", "rk3566"])
def test_boards_take_windows_of_few_weights_and_leave_others(monkeypatch, tmp_path, board):
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    profile = load_profile(board)
    table, vl = layout_table_of(profile), profile.isa.vl
    few = choose_channels_first(_blocks(0.05, 32, 64), table, vl)
    assert {"inner", "joined"} <= set(_channels_first(few))
    many = _blocks(0.7, 32, 64)
    assert choose_channels_first(many, table, vl) is many


def test_images_too_wide_for_scratch_have_no_bands():
    assert bands_of(Window((1, 8, 640, 3), (1, 8, 640, 64), (3, 3))) is None
    found = bands_of(Window((1, 8, 8, 512), (1, 8, 8, 512), (3, 3), padding=Padding(1, 1, 1, 1)))
    assert found is not None and found.panels > 1
