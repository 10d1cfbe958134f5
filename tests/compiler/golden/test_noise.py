"""Noise that stands for the rounding of other orders of operations."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.golden import blas, noise
from edgekit.host.compiler.golden.vectors import golden_of
from edgekit.host.compiler.ir import ops, sums
from edgekit.host.compiler.ir.types import DType
from tests.support.loop_graphs import accumulate
from tests.support.observed_calls import observed_calls
from tests.support.op_cases import Case, constant, tensor
from tests.support.op_graphs import graph_of, inputs_of


def test_weights_in_a_loop_are_moved_once():
    """Drawing noise for the weights at every step took minutes for a network of three layers."""
    graph = graph_of([next(c for c in map(accumulate, _rngs()) if c.op.steps == 17)])
    weights = next(t for t in graph.nodes[0].op.body.tensors.values() if t.data is not None)
    with observed_calls(noise._Source._sample_noise) as drawn:
        runs = noise.noisy_runs(graph, inputs_of(graph), 3)
    assert [shape for _, shape in drawn].count(weights.shape) == 3
    assert any(run.noisy for run in runs.values())


def _rngs():
    return (np.random.default_rng(seed) for seed in range(99))


def test_sums_of_halves_are_rounded_at_each_step_in_one_run(tmp_path):
    """Rounding them in all four runs for each input took most of a compilation."""
    rng = np.random.default_rng(0)
    weights = constant(rng.standard_normal((8, 3, 3, 16)) / 12, DType.F16)
    graph = graph_of([Case(ops.Conv2D(), (tensor((1, 9, 9, 16), DType.F16), weights))])
    with observed_calls(sums.half_rows) as rounded:
        golden = golden_of(graph, tmp_path)
    assert len(rounded) == 1
    rows = sums.half_rows(*rounded[0])
    assert np.array_equal(golden.outputs[0].reshape(-1, 8), rows.astype(np.float16))
    assert golden.tolerances[0] > 0


def test_products_of_references_use_one_thread():
    functions = blas._openblas()
    if functions is None:
        pytest.skip("NumPy without OpenBLAS")
    threads, before = functions[0], functions[0]()
    with blas.one_thread():
        assert threads() == 1
    assert threads() == before
