"""Contenders for multiplying float activations by 8-bit weights.

Ours; the same computation expressed in framework operators; dynamic int8; floats; bitsandbytes.
"""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.device.runtime.arrays.find import find_library
from edgekit.device.runtime.arrays.gemm import gemm
from edgekit.device.runtime.arrays.gemm_library import GemmLibrary, Operand, Product
from edgekit.device.runtime.arrays.outlier import THRESHOLD, OutlierWeights, outlier_matmul
from edgekit.host.lab.bench.gemm_contenders import Runner, UnavailableError

Array = NDArray[Any]
OURS = "edgekit"
INT8 = ("edgekit int8", "torch int8")
FLOATS = ("edgekit f32", "torch f32")
OPERATORS = ("torch operators", "numpy operators")
BITSANDBYTES = "bitsandbytes"
BYTES_ALONE = "bytes alone"


@dataclass(frozen=True)
class OutlierLayer:
    """Activations [m, k], weights as int8 [k, n] with a scale per column, and as floats."""

    x: NDArray[np.float32]
    values: NDArray[np.int8]
    scale: NDArray[np.float32]

    @property
    def weights(self) -> NDArray[np.float32]:
        return self.values.astype(np.float32) * self.scale


Prepare = Callable[[OutlierLayer, int], Callable[[], Array]]  # threads -> one product, its result


@dataclass(frozen=True)
class OutlierPeers:
    """The peers by name, versions of their libraries, and why some are missing."""

    prepare: dict[str, Prepare]
    versions: dict[str, str]
    missing: dict[str, str]


def our_contenders() -> dict[str, Prepare]:
    """Our contenders by name: the measured one, and its baselines when there are no peers."""
    return {
        OURS: lambda layer, threads: _outlier_call(layer, threads, "auto"),
        INT8[0]: lambda layer, threads: _outlier_call(layer, threads, "int8"),
        FLOATS[0]: _our_floats,
    }


def peer_contenders() -> OutlierPeers:
    """The installed peers."""
    found: dict[str, Prepare] = {OPERATORS[1]: _numpy_operators}
    versions: dict[str, str] = {"numpy": np.__version__}
    missing: dict[str, str] = {}
    try:
        versions["torch"] = str(importlib.import_module("torch").__version__)
        found |= {
            OPERATORS[0]: _torch_operators,
            INT8[1]: _torch_int8,
            FLOATS[1]: _torch_floats,
        }
    except ImportError as error:
        missing["torch"] = f"{error}; install it: pip install torch"
    try:
        versions[BITSANDBYTES] = str(importlib.import_module(BITSANDBYTES).__version__)
        found[BITSANDBYTES] = _bitsandbytes_call
    except ImportError as error:
        missing[BITSANDBYTES] = f"{error}; install it: pip install bitsandbytes"
    return OutlierPeers(found, versions, missing)


def runner_of(call: Callable[[], Array]) -> Runner:
    """A runner returning the nanoseconds of a number of consecutive calls."""

    def run(count: int) -> float:
        start = time.perf_counter_ns()
        for _ in range(count):
            call()
        return time.perf_counter_ns() - start

    return run


def _outlier_call(layer: OutlierLayer, threads: int, path: str) -> Callable[[], Array]:
    weights = OutlierWeights.from_int8(layer.values, layer.scale)
    return lambda: outlier_matmul(layer.x, weights, threads=threads, path=path)


@functools.cache
def _gemm_library() -> GemmLibrary:
    return GemmLibrary(*find_library())


def bytes_alone(layer: OutlierLayer, threads: int) -> Runner:
    """Our bare int8 product: a lower bound for every split."""
    (m, k), n = layer.x.shape, layer.values.shape[1]
    library = _gemm_library()
    how, _ = library.lookup("u8", m, n, k, threads, "b")
    values = Operand(layer.values.ctypes.data, n, 1)
    packed = library.pack("u8", "b", n, k, how, values)
    quantized = np.random.default_rng(0).integers(0, 256, (m, k), dtype=np.uint8)
    sums = np.empty((m, n), np.int32)
    product = Product(
        *("u8", m, n, k, Operand(quantized.ctypes.data, k, 1)),
        *(Operand(packed.address, n, 1, packed=True), Operand(sums.ctypes.data, n, 1)),
    )
    return library.timer(product, how, threads, keep=(quantized, packed, sums))


def _our_floats(layer: OutlierLayer, threads: int) -> Callable[[], Array]:
    weights = layer.weights
    return lambda: gemm(layer.x, weights, threads)


def _numpy_operators(layer: OutlierLayer, threads: int) -> Callable[[], Array]:
    """NumPy lacks a fast int8 matmul: float32 holds the sums exactly up to 2^24, which they do not
    reach in practice; the weights are converted ahead."""
    del threads
    x, values, scale = layer.x, layer.values, layer.scale
    as_floats = values.astype(np.float32)

    def multiply() -> Array:
        channels = np.flatnonzero((np.abs(x) > THRESHOLD).any(axis=0))
        inliers = x.copy()
        inliers[:, channels] = 0
        rows = np.abs(inliers).max(axis=1, keepdims=True) / np.float32(127)
        quantized = np.rint(inliers / rows).astype(np.int8)
        sums = quantized.astype(np.float32) @ as_floats
        whole = values[channels].astype(np.float32) * scale
        return np.asarray(sums * rows * scale + x[:, channels] @ whole)

    return multiply


def _torch_layer(layer: OutlierLayer, threads: int) -> tuple[Any, Any, Any, Any]:
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    tensors = (torch.from_numpy(a) for a in (layer.x, layer.values, layer.scale))
    return (torch, *tensors)


def _torch_operators(layer: OutlierLayer, threads: int) -> Callable[[], Array]:
    torch, x, values, scale = _torch_layer(layer, threads)

    def multiply() -> Array:
        channels = torch.unique((x.abs() > THRESHOLD).nonzero()[:, 1])
        inliers = x.clone()
        inliers[:, channels] = 0
        rows = inliers.abs().amax(1, keepdim=True) / 127
        quantized = torch.round(inliers / rows).to(torch.int8)
        sums = torch._int_mm(quantized, values).float() * rows * scale
        return np.asarray(sums + x[:, channels] @ (values[channels].float() * scale))

    return multiply


def _torch_int8(layer: OutlierLayer, threads: int) -> Callable[[], Array]:
    torch, x, values, scale = _torch_layer(layer, threads)

    def multiply() -> Array:
        rows = x.abs().amax(1, keepdim=True) / 127
        quantized = torch.round(x / rows).to(torch.int8)
        return np.asarray(torch._int_mm(quantized, values).float() * rows * scale)

    return multiply


def _torch_floats(layer: OutlierLayer, threads: int) -> Callable[[], Array]:
    torch, x, _, _ = _torch_layer(layer, threads)
    weights = torch.from_numpy(layer.weights)
    return lambda: np.asarray(torch.mm(x, weights))


def _bitsandbytes_call(layer: OutlierLayer, threads: int) -> Callable[[], Array]:
    torch, x, _, _ = _torch_layer(layer, threads)
    nn: Any = importlib.import_module("bitsandbytes.nn")
    k, n = layer.values.shape
    linear = nn.Linear8bitLt(k, n, bias=False, has_fp16_weights=False, threshold=THRESHOLD)
    weights = torch.from_numpy(np.ascontiguousarray(layer.weights.T))
    linear.weight = nn.Int8Params(weights, requires_grad=False, has_fp16_weights=False)
    linear = linear.to("cpu")
    try:
        linear(x)
    except (RuntimeError, ValueError, NotImplementedError) as error:
        raise UnavailableError(f"cannot multiply on this CPU: {error}") from None
    return lambda: np.asarray(linear(x))
