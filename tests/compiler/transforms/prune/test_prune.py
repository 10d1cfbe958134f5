"""Pruned graphs: patterns hold, and the remaining weights compensate for the dropped ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Array, Graph, Node, State
from edgekit.host.compiler.transforms.prune import pattern_of, prune
from edgekit.host.compiler.transforms.quantize.prepare import float_form
from edgekit.host.errors import InputError
from tests.support.prune_models import (
    CHANNELS,
    OUTPUTS,
    WIDE,
    images,
    pointwise_net,
    two_branches,
)


def _samples(count: int, seed: int = 0) -> list[dict[str, Array]]:
    return [{"x": x[None]} for x in images(count, seed)]


def _weights(graph: Graph) -> dict[str, Array]:
    """The weights of convolutions and dense layers as [n, k], by output name."""
    found = {}
    for node in graph.nodes:
        data = graph.tensors[node.inputs[1] or ""].data if len(node.inputs) > 1 else None
        if isinstance(node.op, ops.Conv2D | ops.FullyConnected) and data is not None:
            found[node.name] = data.reshape(len(data), -1)
    return found


def _zeros(weights: Array) -> float:
    return 1 - np.count_nonzero(weights) / weights.size


def _by_magnitude(graph: Graph, made: Graph) -> Graph:
    """`graph` with as many zeros per layer as `made`, at the smallest weights."""
    tensors = dict(graph.tensors)
    for node in graph.nodes:
        name = node.inputs[1] if len(node.inputs) > 1 else None
        data = None if name is None else tensors[name].data
        after = None if name is None else made.tensors[name].data
        if name is None or data is None or after is None or after.all():
            continue
        count = after.size - np.count_nonzero(after)
        new = data.copy().reshape(-1)
        new[np.abs(new).argsort(kind="stable")[:count]] = 0
        tensors[name] = replace(tensors[name], data=new.reshape(data.shape))
    return replace(graph, tensors=tensors)


def _noise(graph: Graph, other: Graph, samples: list[dict[str, Array]]) -> float:
    """Mean squared error of `other`, relative to the mean square of the outputs."""
    a, b = (np.stack([evaluate(g, s).outputs["y"] for s in samples]) for g in (graph, other))
    return float(((a - b) ** 2).sum() / (a**2).sum())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "sparsity"), [("free", 0.5), ("free", 0.8), ("block", 0.7), ("2:4", None)]
)
def test_fitted_weights_beat_the_largest_ones(tmp_path: Path, pattern: str, sparsity: Any) -> None:
    graph = import_model(pointwise_net(tmp_path))
    plain = float_form(graph)
    made = prune(graph, _samples(24), pattern_of(pattern, sparsity)).graph
    unseen = _samples(12, seed=9)
    magnitude = _by_magnitude(plain, made)
    assert [_zeros(w) for w in _weights(magnitude).values()] == pytest.approx(
        [_zeros(w) for w in _weights(made).values()]
    )
    assert _noise(graph, made, unseen) < 0.5 * _noise(graph, magnitude, unseen)


def test_the_whole_gets_its_sparsity(tmp_path: Path) -> None:
    graph = import_model(pointwise_net(tmp_path))
    report = prune(graph, _samples(16), pattern_of("free", 0.7)).report
    assert [layer.dense == "" for layer in report.layers] == [True, False, False, True, True]
    zeros = sum(layer.sparsity * layer.inputs * layer.outputs for layer in report.pruned)
    assert zeros / sum(layer.inputs * layer.outputs for layer in report.pruned) == pytest.approx(
        0.7, abs=0.01
    )
    assert report.sparsity == pytest.approx(0.7, abs=0.01)
    assert (report.seen, report.unseen) == (12, 4)


def test_layers_that_count_keep_their_weights(tmp_path: Path) -> None:
    graph = import_model(two_branches(tmp_path, 0.02))
    report = prune(graph, _samples(24), pattern_of("free", 0.5)).report
    zeros = {layer.name: layer.sparsity for layer in report.layers}
    strong, weak = (zeros[name] for name in zeros)
    assert weak > 0.85
    assert strong < 0.15
    assert report.sparsity == pytest.approx(0.5, abs=0.01)


def test_dense_layers_make_up_for_what_was_lost(tmp_path: Path) -> None:
    plain = float_form(import_model(pointwise_net(tmp_path)))
    made = prune(plain, _samples(24), pattern_of("free", 0.8))
    tensors = dict(made.graph.tensors)
    dense = {layer.name for layer in made.report.layers if layer.dense}
    for node in (n for n in plain.nodes if n.name in dense):
        tensors |= {name: plain.tensors[name] for name in node.inputs[1:] if name}
    without = replace(made.graph, tensors=tensors)
    unseen = _samples(12, seed=9)
    assert _noise(plain, made.graph, unseen) < _noise(plain, without, unseen)


def test_n_of_m_holds_exactly(tmp_path: Path) -> None:
    graph = import_model(pointwise_net(tmp_path))
    made = prune(graph, _samples(16), pattern_of("1:4", None))
    shapes = []
    for layer in made.report.layers:
        if layer.dense:
            continue
        rows = _weights(made.graph)[layer.name]
        groups = rows.reshape(len(rows), -1, 4)
        assert (np.count_nonzero(groups, axis=2) == 1).all()
        shapes.append(rows.shape)
    assert shapes == [(WIDE, CHANNELS), (WIDE - 1, WIDE)]
    assert made.report.layers[-1].dense == "23 inputs do not divide by 4"


def test_blocks_are_of_two_outputs(tmp_path: Path) -> None:
    graph = import_model(pointwise_net(tmp_path))
    made = prune(graph, _samples(16), pattern_of("block", 0.6))
    for layer in made.report.pruned:
        rows = _weights(made.graph)[layer.name] != 0
        pairs = len(rows) // 2
        np.testing.assert_array_equal(rows[: 2 * pairs : 2], rows[1 : 2 * pairs : 2])
        assert not rows.all()


def test_all_prunes_windows_too(tmp_path: Path) -> None:
    graph = import_model(pointwise_net(tmp_path))
    default = prune(graph, _samples(16), pattern_of("free", 0.8))
    every = prune(graph, _samples(16), pattern_of("free", 0.8), every=True)
    assert default.report.layers[2].dense == "3x3: sparse saves less there (--all-layers)"
    assert every.report.layers[2].sparsity > 0.5
    assert every.report.sparsity == pytest.approx(0.8, abs=0.01)
    assert every.report.layers[1].dense == "no sparse kernel for its kind"


def test_inputs_that_are_always_zero_go_first(tmp_path: Path) -> None:
    graph = import_model(pointwise_net(tmp_path))
    samples = _samples(16)
    for each in samples:
        each["x"][:, ::2] = 0
    made = prune(graph, samples, pattern_of("2:4", None))
    first = _weights(made.graph)[made.report.layers[0].name]
    assert not first[:, ::2].any()
    assert first[:, 1::2].all()


def test_states_are_refused(tmp_path: Path) -> None:
    graph = import_model(pointwise_net(tmp_path))
    write = Node("write", ops.WriteState("memory"), ("y",), ())
    memory = State("memory", np.zeros((1, OUTPUTS), np.float32))
    graph = replace(graph, nodes=(*graph.nodes, write), states={"memory": memory})
    with pytest.raises(InputError, match="expected a model without states, found 1"):
        prune(graph, _samples(8), pattern_of("free", 0.5))
