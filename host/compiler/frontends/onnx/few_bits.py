"""MatMulNBits of ONNX Runtime: weights of 2, 4 or 8 bits, with one scale per block of a column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.frontends.onnx import product
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, ShapeError, Tensor

_LIMIT = 1 << 28  # weights to unpack
_BYTES = 4  # accuracy_level from which activations may be quantized to bytes
_DEEPEST = 128  # values along k that share a scale in kernels of few bits


@dataclass(frozen=True, eq=False)
class _Weights:
    """(codes - zero) * scale: codes u8 [n, blocks, size]; scale and zero f32 [n, blocks]. The last
    block is padded."""

    codes: Array
    scale: Array
    zero: Array
    bits: int


def matmul_nbits(call: OnnxCall) -> Tensor:
    """[..., N]. If the model says that activations may be quantized to bytes, weights keep their
    bits; otherwise they become f32."""
    x, k = call.x(0), call.integer("K")
    weights = _read(call, call.integer("N"), k)
    found = weights.codes.shape
    fits = found[1] * found[2] == k and x.dtype is DType.F32 and x.shape and x.shape[-1] == k
    if fits and call.integer("accuracy_level", 0) >= _BYTES:
        return _quantized(call, x, weights)
    real = (weights.codes.astype(np.float32) - weights.zero[:, :, None]) * weights.scale[:, :, None]
    real = np.ascontiguousarray(real.reshape(len(real), -1)[:, :k])
    y, bias = product.product(call, x, call.constant(real.T)), call.maybe(5)
    return y if bias is None else call.emit(ops.Add(), y, bias)


def _quantized(call: OnnxCall, x: Tensor, weights: _Weights) -> Tensor:
    (n, blocks, size), middle = weights.codes.shape, 1 << (weights.bits - 1)
    values = weights.codes.astype(np.float32) - weights.zero[:, :, None]
    whole = np.array_equal(values, np.rint(values)) and np.abs(values + 0.5).max() < middle
    more = None if whole else _offsets(call, x, weights.scale * (middle - weights.zero), size)
    values = values if whole else weights.codes.astype(np.float32) - middle
    repeats = size // _DEEPEST if size > _DEEPEST and size % _DEEPEST == 0 else 1
    scale = np.repeat(weights.scale.T, repeats, axis=0)
    operands = (
        call.constant(values.reshape(n, blocks * size).astype(np.int8)),
        call.constant(np.ascontiguousarray(scale)),
    )
    bias = call.maybe(5)
    apart = bias if bias is not None and bias.data is None else None
    op = ops.OutlierFullyConnected(keep_dims=True, share=ops.FEW_OUTLIERS)
    y = call.emit(op, x, *operands, None if apart is not None else bias, more)
    return y if apart is None else call.emit(ops.Add(), y, apart)


def _offsets(call: OnnxCall, x: Tensor, offset: Array, size: int) -> Tensor:
    """Sums of x over each block, times what its weights differ by from their codes."""
    parts = call.reshape(x, (*x.shape[:-1], x.shape[-1] // size, size))
    sums = call.emit(ops.ReduceSum((len(x.shape),)), parts)
    return call.emit(ops.FullyConnected(True), sums, call.constant(offset), None)


def _read(call: OnnxCall, n: int, k: int) -> _Weights:
    size, bits = call.integer("block_size"), call.integer("bits", 4)
    if bits not in (2, 4, 8) or min(n, k, size) < 1 or n * k > _LIMIT:
        raise ShapeError(f"expected weights of 2, 4 or 8 bits, found {bits} of {n} x {k}")
    if call.maybe(4) is not None:
        raise ShapeError("expected no g_idx, found one")
    blocks = -(-k // size)
    codes = _unpacked(call.value(1, "weights"), bits).reshape(-1)
    scale = call.value(2, "scales").astype(np.float32).reshape(-1)
    if codes.size != n * blocks * size or scale.size != n * blocks:
        raise ShapeError(f"expected {n * blocks} blocks of {size} weights, found {codes.size}")
    zero: Array = np.full((n, blocks), 1 << (bits - 1), np.float32)
    if call.maybe(3) is not None:
        given = call.value(3, "zero points")
        plain = given if given.dtype.kind == "f" else _unpacked(given.reshape(n, -1), bits)
        zero = plain.reshape(n, -1)[:, :blocks].astype(np.float32)
    return _Weights(codes.reshape(n, blocks, size), scale.reshape(n, blocks), zero, bits)


def _unpacked(packed: Array, bits: int) -> Array:
    """Unpacks bytes along the last axis, lowest bits first."""
    if packed.dtype != np.uint8:
        raise ShapeError(f"expected packed bytes, found {packed.dtype}")
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts: Array = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], -1)
