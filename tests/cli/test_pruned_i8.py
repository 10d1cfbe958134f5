"""`prune`, `quantize`, then `compile`: pruned quantized layers run sparse, bit-exact."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from tests.support.onnx_models import model, node, save, value

_WIDTHS = (400, 900, 320, 10)  # weights exceed the L2 cache of an A53


def _network(folder: Path) -> Path:
    """Fully connected layers with ReLUs between them."""
    rng = np.random.default_rng(3)
    nodes, constants, x = [], {}, "x"
    for i, (k, n) in enumerate(itertools.pairwise(_WIDTHS)):
        constants[f"w{i}"] = (rng.standard_normal((k, n)) / k**0.5).astype(np.float32)
        last = i == len(_WIDTHS) - 2
        nodes.append(node("MatMul", [x, f"w{i}"], ["y" if last else f"h{i}"]))
        if not last:
            nodes.append(node("Relu", [f"h{i}"], [f"r{i}"]))
            x = f"r{i}"
    return save(model(nodes, [value("x", [1, _WIDTHS[0]])], ["y"], constants), folder)


def _samples(folder: Path, count: int = 32) -> Path:
    rng = np.random.default_rng(4)
    causes = rng.standard_normal((12, _WIDTHS[0]))
    rows = rng.standard_normal((count, 12)) @ causes + rng.standard_normal((count, _WIDTHS[0]))
    np.savez(folder / "samples.npz", x=rows[:, None].astype(np.float32))
    return folder / "samples.npz"


@pytest.mark.exhaustive
def test_a_pruned_and_quantized_network_runs_sparse(edgekit: Any, home: Path) -> None:
    path, data = _network(home), _samples(home)
    options = ("--samples", data, "--all-layers", "--sparsity", "0.85")
    done = edgekit("prune", path, *options, "-o", "pruned.onnx")
    assert done.code == 0, done.err
    done = edgekit("quantize", "pruned.onnx", "--samples", data, "-o", "stored.tflite")
    assert done.code == 0, done.err
    done = edgekit("compile", "stored.tflite", "--board", "rpi3", "--explain", "why.json")
    assert done.code == 0, done.err
    operators = json.loads((home / "why.json").read_text())["operators"]
    found = [(o["op"], o["kernel"]) for o in operators if o["constant_bytes"] > 16384]
    assert [op for op, _ in found] == ["pruned_fully_connected"] * 2
    assert all(kernel.startswith("ek_sparse_s8_dense_") for _, kernel in found)
    assert all("estimated for cortex-a53" in o["why"] for o in operators if "pruned" in o["op"])
    graph = import_model(home / "stored.tflite")
    with np.load(data) as found:
        x = found["x"][0]
    np.savez(home / "x.npz", x=x)
    assert edgekit("run", "stored.tflite", "--input", "x.npz", "--output", "y.npz").code == 0
    with np.load(home / "y.npz") as made:
        np.testing.assert_array_equal(made["y"], evaluate(graph, {graph.inputs[0]: x}).outputs["y"])
