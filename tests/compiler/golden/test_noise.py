"""Noise that stands for the rounding of other orders of operations."""

from __future__ import annotations

from collections import Counter

import numpy as np

from edgekit.host.compiler.golden import noise
from tests.support.loop_graphs import accumulate
from tests.support.op_graphs import graph_of, inputs_of


def test_weights_in_a_loop_are_moved_once(monkeypatch):
    """Drawing noise for the weights at every step took minutes for a network of three layers."""
    graph = graph_of([next(c for c in map(accumulate, _rngs()) if c.op.steps == 17)])
    weights = next(t for t in graph.nodes[0].op.body.tensors.values() if t.data is not None)
    drawn = Counter()
    sample = noise._Source._sample_noise

    def counted(source, shape):
        drawn[shape] += 1
        return sample(source, shape)

    monkeypatch.setattr(noise._Source, "_sample_noise", counted)
    runs = noise.noisy_runs(graph, inputs_of(graph), 3)
    assert drawn[weights.shape] == 3
    assert any(run.noisy for run in runs.values())


def _rngs():
    return (np.random.default_rng(seed) for seed in range(99))
