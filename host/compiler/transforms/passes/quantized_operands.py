"""Finds or creates the quantized operands that replace an operator's dequantized inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.by_operator import ByOperator
from edgekit.host.compiler.ir.quantization import quantized_range, scale_of, zero_point_of
from edgekit.host.compiler.ir.types import Array, DType, Node, Operator, Quant, Tensor
from edgekit.host.compiler.transforms.passes.rewrite import Users

_I8, _I32 = np.iinfo(np.int8), np.iinfo(np.int32)


def tensor_of(users: Users, name: str | None) -> Tensor | None:
    if name is None:
        return None
    return users.made.get(name) or users.graph.tensors[name]


def quantized_source(users: Users, name: str | None) -> Tensor | None:
    """Return the s8 tensor that a dequantized tensor was computed from, or None."""
    made_by = users.producer.get(name) if name is not None else None
    if made_by is None or not isinstance(made_by.op, ops.Cast):
        return None
    quantized = users.graph.tensors[made_by.inputs[0] or ""]
    usable = (
        quantized.dtype is DType.I8
        and quantized.quant is not None
        and not quantized.quant.per_channel
    )
    return quantized if usable else None


def quantized_operands(users: Users, node: Node, out: Tensor) -> tuple[str | None, ...] | None:
    """Return the node's quantized inputs for outputs like `out`; None if one is not quantized."""
    x = quantized_source(users, node.inputs[0])
    if isinstance(node.op, ops.Weighted):
        return None if x is None or len(node.inputs) > 3 else _with_weights(users, node, x)
    if isinstance(node.op, ops.Gather):
        return None if x is None else (x.name, *node.inputs[1:])
    found = [quantized_source(users, name) for name in node.inputs]
    if all(t is None for t in found):
        return None
    room = _max_operand_error(node.op, [t for t in found if t is not None], out)
    names = [
        t.name if t else _quantize_constant(users, name, room)
        for t, name in zip(found, node.inputs, strict=True)
    ]
    return None if None in names else tuple(names)


_operand_errors = ByOperator[Callable[[list[Tensor], Tensor], float]]()


def _max_operand_error(op: Operator, quantized: list[Tensor], out: Tensor) -> float:
    """Maximum error of a constant operand: it may change the output by half a step. 0 if it is
    unknown how errors grow."""
    error = _operand_errors.of(type(op))
    return 0.0 if error is None else error(quantized, out)


@_operand_errors(ops.Add, ops.Sub, ops.Maximum, ops.Minimum)
def _error_of_term(_quantized: list[Tensor], out: Tensor) -> float:
    return scale_of(out) / 2


@_operand_errors(ops.Mul, ops.PRelu)
def _error_of_factor(quantized: list[Tensor], out: Tensor) -> float:
    low, high = quantized_range(DType.I8)
    zeros = [(scale_of(t), zero_point_of(t)) for t in quantized]
    return scale_of(out) / 2 / max(step * max(high - z, z - low) for step, z in zeros)


def _quantize_constant(users: Users, name: str | None, room: float) -> str | None:
    """Quantize a constant with the scale it was dequantized with, or a float constant if the error
    does not exceed `room`."""
    found = tensor_of(users, name)
    if found is None or found.data is None or found.dtype is not DType.F32 or not found.elements:
        return None
    data, quant = found.data, found.quant
    if quant is None:
        largest = float(np.abs(data).max())
        if not np.isfinite(largest) or largest / _I8.max / 2 > room:
            return None
        quant = Quant(np.array([(largest or 1) / _I8.max], np.float32), np.zeros(1, np.int64))
    quantized = np.rint(data / quant.scale).astype(np.int64)
    points = None if quant.per_channel else _zero_points(quantized.reshape(1, -1), 0)
    if points is None:
        return None
    like = replace(found, dtype=DType.I8)
    made = users.constant(f"{found.name}.quantized", like, (quantized + points).astype(np.int8))
    users.made[made] = replace(users.made[made], quant=Quant(quant.scale, points))
    return made


def _with_weights(users: Users, node: Node, x: Tensor) -> tuple[str | None, ...] | None:
    w = tensor_of(users, node.inputs[1])
    bias = tensor_of(users, node.inputs[2]) if len(node.inputs) > 2 else None
    if w is None or w.data is None or w.quant is None:
        return None
    if bias is not None and bias.data is None:
        return None
    axis = node.op.weight_axis or 0
    shape = [1] * len(w.shape)
    shape[axis] = w.quant.scale.size
    quantized = np.rint(w.data / w.quant.scale.reshape(shape)).astype(np.int64)
    points = _zero_points(quantized, axis)
    if points is None or (np.ptp(points) and isinstance(node.op, ops.DepthwiseConv2D)):
        return None
    shape[axis] = points.size
    stored = (quantized + points.reshape(shape)).astype(np.int8)
    count = max(points.size, w.quant.scale.size)
    scale, zero = (np.resize(v, count) for v in (w.quant.scale, points))
    name = users.constant(f"{w.name}.quantized", replace(w, dtype=DType.I8), stored)
    users.made[name] = replace(users.made[name], quant=Quant(scale, zero, axis))
    sums = None if bias is None else _quantize_bias(users, node, x, w.quant, bias.data)
    return (x.name, name, sums)


def _zero_points(quantized: Array, axis: int) -> Array | None:
    """Zero points with which `quantized` fit s8: if possible a single one (0 if that fits), else
    one per channel along `axis`; None if there are none."""
    if not quantized.size:
        return np.zeros(1, np.int64)
    rows = np.moveaxis(quantized, axis, 0).reshape(quantized.shape[axis], -1)
    low, high = -128 - rows.min(axis=1), 127 - rows.max(axis=1)
    if low.max() <= high.min():
        return np.clip(np.zeros(1, np.int64), low.max(), high.min())
    return np.clip(0, low, high) if (low <= high).all() else None


def _quantize_bias(users: Users, node: Node, x: Tensor, weights: Quant, bias: Array | None) -> str:
    assert bias is not None
    unit = scale_of(x) * weights.scale.astype(np.float64)
    quantized = np.clip(np.rint(bias / unit), _I32.min, _I32.max).astype(np.int32)
    name = users.constant(f"{node.name}.sums", Tensor("", quantized.shape, DType.I32), quantized)
    quant = Quant(unit.astype(np.float32), np.zeros(unit.size, np.int64))
    users.made[name] = replace(users.made[name], quant=quant)  # what the integers stand for
    return name
