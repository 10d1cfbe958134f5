"""A small float network of pointwise layers, and images of lower rank than their channel count."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgekit.host.compiler.ir.types import Array
from tests.support.onnx_models import model, node, save, value

SIZE, CHANNELS, WIDE, OUTPUTS = 9, 16, 24, 5
_CAUSES = 6


def pointwise_net(folder: Path, name: str = "net.onnx", channels: int = CHANNELS) -> Path:
    """x [1,c,9,9] → 1x1 and ReLU, depthwise 3x3, 3x3 convolution, 1x1 without bias, pool, dense: y
    [1,5]."""
    rng = np.random.default_rng(5)

    def weights(*shape: int) -> Array:
        return (rng.standard_normal(shape) / np.prod(shape[1:]) ** 0.5).astype(np.float32)

    constants = {
        "w0": weights(WIDE, channels, 1, 1),
        "b0": weights(WIDE, 1)[:, 0],
        "w1": weights(WIDE, 1, 3, 3),
        "w2": weights(WIDE, WIDE, 3, 3),
        "b2": weights(WIDE, 1)[:, 0],
        "w3": weights(WIDE - 1, WIDE, 1, 1),
        "w4": weights(WIDE - 1, OUTPUTS),
        "b4": weights(OUTPUTS, 1)[:, 0],
    }
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"]),
        node("Relu", ["c0"], ["r0"]),
        node("Conv", ["r0", "w1"], ["c1"], pads=[1, 1, 1, 1], group=WIDE),
        node("Conv", ["c1", "w2", "b2"], ["c2"], pads=[1, 1, 1, 1]),
        node("Relu", ["c2"], ["r2"]),
        node("Conv", ["r2", "w3"], ["c3"]),
        node("GlobalAveragePool", ["c3"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "w4", "b4"], ["y"]),
    ]
    inputs = [value("x", [1, channels, SIZE, SIZE])]
    return save(model(nodes, inputs, ["y"], constants), folder, name)


def two_branches(folder: Path, factor: float) -> Path:
    """x [1,16,9,9] → y, the sum of two 16-channel 1x1 convolutions with equally many weights; the
    second one's weights are scaled by `factor`."""
    rng = np.random.default_rng(8)
    shape = (CHANNELS, CHANNELS, 1, 1)
    constants = {
        "w0": rng.standard_normal(shape).astype(np.float32),
        "w1": (factor * rng.standard_normal(shape)).astype(np.float32),
    }
    nodes = [
        node("Conv", ["x", "w0"], ["a"]),
        node("Conv", ["x", "w1"], ["b"]),
        node("Add", ["a", "b"], ["y"]),
    ]
    inputs = [value("x", [1, CHANNELS, SIZE, SIZE])]
    return save(model(nodes, inputs, ["y"], constants), folder, "branches.onnx")


def images(count: int, seed: int = 0, channels: int = CHANNELS) -> Array:
    """[count, c, 9, 9]: channels are mixtures of a few shared causes, plus a little noise."""
    mixing = np.random.default_rng(1).standard_normal((channels, _CAUSES))
    rng = np.random.default_rng(seed)
    causes = rng.standard_normal((count, _CAUSES, SIZE, SIZE))
    own = rng.standard_normal((count, channels, SIZE, SIZE))
    mixed = np.einsum("ck,nkhw->nchw", mixing, causes)
    return np.asarray(mixed + 0.1 * own, np.float32)
