"""Benchmarks pruned weights times pixels on this machine against our own dense product."""

from __future__ import annotations

import functools
import math
import statistics
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.device.runtime.agent.interleave import Timer, interleave, pinned, summary
from edgekit.device.runtime.arrays.find import find_library
from edgekit.device.runtime.arrays.gemm import gemm
from edgekit.device.runtime.arrays.gemm_library import GemmLibrary, Operand, Product
from edgekit.device.runtime.arrays.sparse_weights import SparseWeights
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.ops import Conv2D
from edgekit.host.compiler.ir.types import DType
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.errors import InputError
from edgekit.host.lab.bench.operands import empty

_STANDARD = ((32, 32), (64, 32), (64, 64), (128, 128), (384, 96), (96, 384))
_DENSITY = 0.3
_AGREE = 1e-3


@dataclass(frozen=True)
class Layer:
    """Weights [outputs, inputs] of a 1x1 convolution; `pixels` if the model determines them."""

    name: str
    weights: np.ndarray[Any, Any]
    pixels: int | None = None


@dataclass(frozen=True)
class SpmmResult:
    """One layer on `pixels` pixels: microseconds, and the ratio of the dense time to ours."""

    name: str
    outputs: int
    inputs: int
    pixels: int
    density: float
    median_us: float
    dense_us: float
    ratio: float

    @property
    def effective(self) -> float:
        """GFLOP/s, counting zero weights as work."""
        return 2e-3 * self.outputs * self.inputs * self.pixels / self.median_us


def layers_of(path: Path | None) -> list[Layer]:
    """The pruned 1x1 convolutions of a model or the arrays of an .npz, one layer per shape;
    without a path, standard layers at density 0.3.

    Raises InputError for a file without weights.
    """
    if path is None:
        rng = np.random.default_rng(0)
        made = []
        for shape in _STANDARD:
            values = rng.standard_normal(shape).astype(np.float32)
            made.append(Layer(f"{shape[0]} x {shape[1]}", _prune_random(rng, values)))
        return made
    if path.suffix.lower() != ".npz":
        return _of_model(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except OSError as error:
        found = error.strerror or error
        raise InputError(f"{path}: expected an .npz of weights, found: {found}") from None
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: expected an .npz of weights, found: {error}") from None
    layers: dict[tuple[int, ...], Layer] = {}
    for name, array in arrays.items():
        if array.ndim >= 2 and array.size and array.dtype.kind == "f":
            flat = array.reshape(array.shape[0], -1).astype(np.float32)
            layers.setdefault(flat.shape, Layer(name, flat))
    if not layers:
        raise InputError(f"{path}: expected weights of 2 dimensions or more, found none")
    return list(layers.values())


def _of_model(path: Path) -> list[Layer]:
    """Layers with zeros, one per shape and number of pixels."""
    graph, _ = run_passes(import_model(path))
    layers: dict[tuple[int, ...], Layer] = {}
    for node in graph.nodes:
        if not isinstance(node.op, Conv2D):
            continue
        w, y = (graph.tensors[str(name)] for name in (node.inputs[1], node.outputs[0]))
        if w.data is None or w.shape[1:3] != (1, 1) or w.dtype is not DType.F32:
            continue
        flat = w.data.reshape(w.shape[0], -1)
        pixels = y.elements // y.shape[3]
        if np.count_nonzero(flat) < flat.size:
            layers.setdefault((*flat.shape, pixels), Layer(node.name, flat, pixels))
    if not layers:
        raise InputError(f"{path}: expected pruned 1x1 convolutions of f32, found none")
    return list(layers.values())


def bench_layer(
    layer: Layer, pixels: int, threads: int, seconds: float, storage: str = "f32"
) -> SpmmResult:
    """Times the sparse product and the float32 dense one in turns; the dense weights are packed
    ahead or not, whichever is faster."""
    weights = SparseWeights.from_dense(layer.weights, storage)
    kept = weights.matmul(np.eye(layer.weights.shape[1], dtype=np.float32))
    outputs, inputs = layer.weights.shape
    x, y = (empty((rows, pixels), np.float32) for rows in (inputs, outputs))
    x[:] = np.random.default_rng(1).standard_normal(x.shape)
    if not np.allclose(weights.matmul(x), gemm(kept, x), rtol=_AGREE, atol=_AGREE):
        raise InputError(f"{layer.name}: expected equal products, found others; report this")
    timers: list[Timer] = [weights.timer(x, y, threads)]
    timers += [_dense_timer(layer.weights, x, y, threads, side) for side in (None, "a")]
    with pinned(threads):
        sparse, *others = interleave(timers, seconds, cutoff=math.inf)
    dense = min(others, key=statistics.median)
    ratio = statistics.median(d / s for d, s in zip(dense, sparse, strict=True))
    ours, theirs = (summary(found)["median_us"] for found in (sparse, dense))
    sizes = (outputs, inputs, pixels)
    return SpmmResult(layer.name, *sizes, weights.density, ours, theirs, ratio)


@functools.cache
def _gemm_library() -> GemmLibrary:
    return GemmLibrary(*find_library())


def _dense_timer(
    w: np.ndarray[Any, Any], x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], threads: int,
    side: str | None,
) -> Timer:  # fmt: skip
    (m, k), n = w.shape, x.shape[1]
    how, _ = _gemm_library().lookup("f32", m, n, k, threads, side)
    a = Operand(w.ctypes.data, k, 1)
    packed = _gemm_library().pack("f32", "a", m, k, how, a) if side else None
    if packed:
        a = Operand(packed.address, k, 1, packed=True)
    b, c = Operand(x.ctypes.data, n, 1), Operand(y.ctypes.data, n, 1)
    return _gemm_library().timer(
        Product("f32", m, n, k, a, b, c), how, threads, keep=(packed, w, x, y)
    )


def mean_ratio(results: Sequence[SpmmResult]) -> float:
    """The geometric mean of the ratios."""
    return math.exp(sum(math.log(r.ratio) for r in results) / max(len(results), 1))


def _prune_random(rng: np.random.Generator, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    values[rng.random(values.shape) >= _DENSITY] = 0
    return values
