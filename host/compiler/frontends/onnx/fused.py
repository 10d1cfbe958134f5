"""Decomposes operators that ONNX Runtime's optimizer fuses (domain com.microsoft)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from edgekit.host.compiler.frontends.common.emitter import need_rank
from edgekit.host.compiler.frontends.onnx import math as onnx_math
from edgekit.host.compiler.frontends.onnx import product, reduce, volume
from edgekit.host.compiler.frontends.onnx.activations import activation, defaults_of
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.few_bits import matmul_nbits
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Tensor


def _apply_activation(call: OnnxCall, y: Tensor, values: tuple[float, ...]) -> Tensor:
    name = call.text("activation", "").lower()
    if not name:
        return y
    if name == "clip":
        return call.emit(ops.Clip(*(values if len(values) == 2 else (-math.inf, math.inf))), y)
    return activation(call, name, values or defaults_of(name))(y)


def fused_conv(call: OnnxCall) -> Tensor:
    """act(Conv(x, w, b) + z)"""
    y = volume.conv(replace(call, values=call.values[:3]))
    z = call.maybe(3)
    y = y if z is None else call.emit(ops.Add(), y, z)
    return _apply_activation(call, y, call.floats("activation_params"))


def fused_gemm(call: OnnxCall) -> Tensor:
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    values = tuple(call.number(name) for name in names if call.has(name))
    return _apply_activation(call, product.gemm(call), values)


def fused_matmul(call: OnnxCall) -> Tensor:
    """alpha · A' · B', where A' and B' may be transposed: with transBatch the first axis goes
    behind the batches, with trans the last two change places after that."""
    a, b = call.x(0), call.x(1)
    a = _batches_first(call, a) if call.integer("transBatchA", 0) else a
    b = _batches_first(call, b) if call.integer("transBatchB", 0) else b
    a = _swap_last_axes(call, a) if call.integer("transA", 0) else a
    b = _swap_last_axes(call, b) if call.integer("transB", 0) else b
    return scaled(call, product.product(call, a, b), call.number("alpha", 1.0))


def _batches_first(call: OnnxCall, x: Tensor) -> Tensor:
    rank = len(x.shape)
    return x if rank < 3 else call.transpose(x, (*range(1, rank - 1), 0, rank - 1))


def _swap_last_axes(call: OnnxCall, x: Tensor) -> Tensor:
    rank = len(x.shape)
    return x if rank < 2 else call.transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def scaled(call: OnnxCall, x: Tensor, factor: float) -> Tensor:
    return x if factor == 1 else call.emit(ops.Mul(), x, call.builder.floats(factor))


def biased(call: OnnxCall, x: Tensor, index: int) -> Tensor:
    bias = call.maybe(index)
    return x if bias is None else call.emit(ops.Add(), x, bias)


def gelu(call: OnnxCall) -> Tensor:
    """Gelu and BiasGelu"""
    return call.emit(ops.Gelu(), biased(call, call.x(0), 1))


def fast_gelu(call: OnnxCall) -> Tensor:
    return onnx_math.gelu(call.given(biased(call, call.x(0), 1), approximate="tanh"))


def quick_gelu(call: OnnxCall) -> Tensor:
    """x · sigmoid(alpha · x)"""
    x = call.x(0)
    gate = call.emit(ops.Logistic(), scaled(call, x, call.number("alpha", 1.702)))
    return call.emit(ops.Mul(), x, gate)


def simplified_layer_norm(call: OnnxCall) -> Tensor:
    """x / √(mean of squares + epsilon) · scale; the other outputs are only used in training."""
    return reduce.rms_normalization(call)


def skip_layer_norm(call: OnnxCall) -> list[Tensor | None]:
    """[LayerNorm(input + skip + bias), mean, 1 / deviation, the sum]"""
    total = biased(call, _sum_of_two(call), 4)
    return [*_layer_norm(call, total, 2), total]


def skip_simplified_layer_norm(call: OnnxCall) -> list[Tensor | None]:
    total = biased(call, _sum_of_two(call), 3)
    epsilon = call.number("epsilon", 1e-12)
    y = reduce.rms_normalization(call.given(total, call.x(2), epsilon=epsilon))
    return [y, None, None, total]


def _sum_of_two(call: OnnxCall) -> Tensor:
    """The sum of input and skip, [batch, rows, size]; skip may have a batch of 1."""
    return call.emit(ops.Add(), call.x(0), call.x(1))


def _layer_norm(call: OnnxCall, x: Tensor, gamma: int) -> list[Tensor]:
    """LayerNorm over the last axis; gamma is input `gamma`, beta the one after it."""
    values = (x, call.x(gamma), call.maybe(gamma + 1))
    return reduce.layer_normalization(call.given(*values, epsilon=call.number("epsilon", 1e-12)))


def embed_layer_norm(call: OnnxCall) -> list[Tensor | None]:
    """[LayerNorm of the sum of embeddings, token count of each row, the sum]"""
    ids = call.x(0)
    need_rank(ids, 2)
    batch, length = ids.shape
    total = call.emit(ops.Gather(0), call.x(2), ids)
    positions = call.maybe(8)
    if positions is None:
        positions = call.counting((1, length), np.int32)
    total = call.emit(ops.Add(), total, call.emit(ops.Gather(0), call.x(3), positions))
    segments = call.maybe(1)
    if segments is not None and call.maybe(4) is not None:
        total = call.emit(ops.Add(), total, call.emit(ops.Gather(0), call.x(4), segments))
    counts, mask = call.filled((batch,), 0, np.int32), call.maybe(7)
    if mask is not None and call.integer("mask_index_type", 1) == 1:
        counts = call.emit(ops.ReduceSum((1,)), call.convert(mask, DType.I32))
    return [_layer_norm(call, total, 5)[0], counts, total]


FUSED: dict[str, Callable[[OnnxCall], Tensor | list[Tensor] | list[Tensor | None]]] = {
    "BiasGelu": gelu,
    "EmbedLayerNormalization": embed_layer_norm,
    "FastGelu": fast_gelu,
    "FusedConv": fused_conv,
    "FusedGemm": fused_gemm,
    "FusedMatMul": fused_matmul,
    "Gelu": gelu,
    "MatMulNBits": matmul_nbits,
    "QuickGelu": quick_gelu,
    "SkipLayerNormalization": skip_layer_norm,
    "SkipSimplifiedLayerNormalization": skip_simplified_layer_norm,
    "TransposeMatMul": fused_matmul,
}
