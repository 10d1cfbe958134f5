"""Small float networks covering everything that quantization handles, and sample inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edgekit.host.compiler.ir.types import Array
from tests.support.onnx_models import model, node, save, value

SIZE, CHANNELS, CLASSES = 13, 7, 5


def classifier(folder: Path, name: str = "net.onnx") -> Path:
    """x [1,3,13,13] → convolution, depthwise and pointwise ones around an addition, pool, dense,
    softmax [1,5]. Channel ranges differ widely."""
    rng = np.random.default_rng(3)
    wide = np.geomspace(1, 30, CHANNELS).astype(np.float32)

    def weights(*shape: int) -> Array:
        return (rng.standard_normal(shape) / np.prod(shape[1:]) ** 0.5).astype(np.float32)

    constants = {
        "w0": weights(CHANNELS, 3, 3, 3) * wide[:, None, None, None],
        "b0": rng.standard_normal(CHANNELS).astype(np.float32),
        "w1": weights(CHANNELS, 1, 3, 3) / wide[:, None, None, None],
        "w2": weights(CHANNELS, CHANNELS, 1, 1),
        "b2": rng.standard_normal(CHANNELS).astype(np.float32) / 10,
        "w3": weights(CHANNELS, CLASSES) * 4,
        "b3": np.zeros(CLASSES, np.float32),
    }
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1]),
        node("Relu", ["c0"], ["r0"]),
        node("Conv", ["r0", "w1"], ["c1"], pads=[1, 1, 1, 1], group=CHANNELS),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2", "b2"], ["c2"]),
        node("Add", ["r1", "c2"], ["a"]),
        node("GlobalAveragePool", ["a"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "w3", "b3"], ["g"]),
        node("Softmax", ["g"], ["y"], axis=-1),
    ]
    return save(model(nodes, [value("x", [1, 3, SIZE, SIZE])], ["y"], constants), folder, name)


def samples(count: int, seed: int = 0) -> Array:
    """Smooth random images [count, 3, 13, 13], all different."""
    rng = np.random.default_rng(seed)
    coarse = rng.standard_normal((count, 3, 4, 4)).repeat(4, axis=2).repeat(4, axis=3)
    fine = 0.2 * rng.standard_normal((count, 3, SIZE, SIZE))
    return np.asarray(coarse[:, :, :SIZE, :SIZE] + fine, np.float32)


def save_samples(folder: Path, count: int = 32, **arrays: Any) -> Path:
    """Write an .npz of samples for `classifier`, or of other arrays."""
    path = folder / "samples.npz"
    np.savez(path, **(arrays or {"x": samples(count)}))
    return path
