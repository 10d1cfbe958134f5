"""MatMulNBits keeps its weights in few bits where the model lets activations be bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Graph
from tests.support.onnx_models import model, node, save, value

_K, _N = 256, 24


def _imported(tmp_path: Path, bits: int, size: int, zero: object, level: int = 4) -> Graph:
    rng, blocks = np.random.default_rng(bits), _K // size
    given = {
        "w": rng.integers(0, 256, (_N, blocks, size * bits // 8), dtype=np.uint8),
        "s": rng.uniform(0.01, 0.02, _N * blocks).astype(np.float32),
        "b": rng.uniform(-1, 1, _N).astype(np.float32),
    }
    if zero is not None:
        given["z"] = np.full((_N, blocks), zero, np.float32)
    made = node(
        "MatMulNBits", ["x", "w", "s", "z" if zero is not None else "", "", "b"], ["y"],
        domain="com.microsoft", K=_K, N=_N, bits=bits, block_size=size, accuracy_level=level,
    )  # fmt: skip
    proto = model([made], [value("x", (2, 3, _K))], ["y"], given)
    return import_model(save(proto, tmp_path))


@pytest.mark.parametrize("zero", [None, 1.0, 7.5])
@pytest.mark.parametrize(("bits", "size"), [(2, 32), (4, 32), (4, 256), (8, 64)])
def test_products_are_those_of_the_floats(
    tmp_path: Path, bits: int, size: int, zero: float | None
) -> None:
    few, floats = (_imported(tmp_path, bits, size, zero, level) for level in (4, 0))
    (product,) = (n for n in few.nodes if isinstance(n.op, ops.OutlierFullyConnected))
    weights = few.tensors[product.inputs[1] or ""].data
    assert weights is not None and weights.min() >= -(1 << bits - 1)
    assert weights.max() < 1 << bits - 1
    assert not any(isinstance(n.op, ops.OutlierFullyConnected) for n in floats.nodes)
    x = np.random.default_rng(9).standard_normal((2, 3, _K)).astype(np.float32)
    x[..., 5] = 20  # an outlier
    made, wanted = (
        next(iter(evaluate(graph, {"x": x}).outputs.values())) for graph in (few, floats)
    )
    assert made.shape == (2, 3, _N)
    assert np.abs(made - wanted).max() < 0.02 * np.abs(wanted).max()
