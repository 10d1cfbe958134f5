"""Dynamic quantization as ONNX Runtime's tools write it, as one operator.

    x ─ DynamicQuantizeLinear ─ MatMulInteger ─ Cast ─ Mul ─ [Add]     Mul(scale of x, of weights)

becomes the DynamicQuantizeMatMul that ONNX Runtime makes of it as well, and that a fully connected
layer of bytes, where the weights are a constant matrix of bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from edgekit.host.graph import ops
from edgekit.host.graph.types import Array, DType, Quant, Tensor
from edgekit.host.importers.onnx_call import Call
from edgekit.host.importers.onnx_file import FileGraph, FileModel, FileNode

FUSED = "com.microsoft:DynamicQuantizeMatMul"
_FLOAT = 1  # what ONNX calls f32
_BYTES = (np.dtype(np.int8), np.dtype(np.uint8))


def fuse_dynamic(model: FileModel) -> FileModel:
    """The model with products of dynamically quantized activations as one operator each."""
    if FUSED in model.functions or not any(n.op == "MatMulInteger" for n in model.nodes):
        return model
    finder = _Finder(model)
    fused: dict[int, FileNode | None] = {}
    for node in model.nodes:
        if node.op == "MatMulInteger":
            fused |= finder.fused(node)
    nodes = [fused.get(n.index, n) for n in model.nodes]
    return replace(model, nodes=tuple(n for n in nodes if n is not None))


class _Finder:
    """Who makes and who reads what, outside of graphs in nodes."""

    def __init__(self, model: FileModel) -> None:
        self._constants = model.constants
        self._maker = {name: n for n in model.nodes for name in n.outputs if name}
        self._users: dict[str, list[FileNode]] = {}
        for node in model.nodes:
            for name in node.inputs:
                self._users.setdefault(name, []).append(node)
        self._kept = {*model.outputs, *_names_inside(model.nodes)}

    def fused(self, product: FileNode) -> dict[int, FileNode | None]:
        """What takes the place of nodes, by their index: None for those that are no more; nothing
        where the pattern is another."""
        x = self._quantized(product)
        cast = self._only_user(product, "Cast")
        if x is None or cast is None or cast.attributes.get("to") != _FLOAT:
            return {}
        last = self._only_user(cast, "Mul")
        scale = None if last is None else self._scale(x, _other(last, cast.outputs[0]))
        columns = self._constants[product.inputs[1]].shape[1]
        if last is None or scale is None or self._constants[scale].size not in (1, columns):
            return {}
        gone: dict[int, FileNode | None] = {n.index: None for n in (product, cast, last)}
        bias = ""
        add = self._only_user(last, "Add")
        if add is not None:
            other = _other(add, last.outputs[0])
            if other in self._constants and self._constants[other].shape == (columns,):
                bias, last = other, add
        zero = product.inputs[3] if len(product.inputs) > 3 else ""
        inputs = (x.inputs[0], product.inputs[1], scale, zero, bias)
        return {**gone, last.index: replace(last, op=FUSED, inputs=inputs, attributes={})}

    def _quantized(self, product: FileNode) -> FileNode | None:
        """The node that quantizes the first operand, if the second is a constant matrix."""
        made = self._maker.get(product.inputs[0])
        if made is None or made.op != "DynamicQuantizeLinear" or len(made.outputs) != 3:
            return None
        if (product.inputs[0], product.inputs[2:3]) != (made.outputs[0], made.outputs[2:]):
            return None
        return made if self._fits(product) else None

    def _fits(self, product: FileNode) -> bool:
        """Whether the second operand is constant codes that the operator takes."""
        weights = self._constants.get(product.inputs[1])
        if weights is None or weights.ndim != 2 or weights.dtype not in _BYTES or not weights.size:
            return False
        zero = product.inputs[3] if len(product.inputs) > 3 else ""
        points = self._constants.get(zero) if zero else np.zeros(1, np.int64)
        return points is not None and points.ndim < 2 and points.size in (1, weights.shape[1])

    def _scale(self, x: FileNode, factor: str) -> str | None:
        """The constant factor of weights in that of a product."""
        made = self._maker.get(factor)
        if made is None or made.op != "Mul" or x.outputs[1] not in made.inputs:
            return None
        scale = _other(made, x.outputs[1])
        found = self._constants.get(scale)
        return None if found is None or found.ndim > 1 or found.dtype != np.float32 else scale

    def _only_user(self, node: FileNode, op: str) -> FileNode | None:
        users = self._users.get(node.outputs[0], [])
        if len(users) != 1 or users[0].op != op or node.outputs[0] in self._kept:
            return None
        return users[0]


def _other(node: FileNode, name: str) -> str:
    """The other one of two operands."""
    return node.inputs[1] if node.inputs[0] == name else node.inputs[0]


def _names_inside(nodes: Sequence[FileNode]) -> Iterator[str]:
    """What graphs in nodes read."""
    for node in nodes:
        for value in node.attributes.values():
            if isinstance(value, FileGraph):
                yield from itertools.chain(
                    value.outputs, *(n.inputs for n in value.nodes), _names_inside(value.nodes)
                )


def dynamic_layer(
    call: Call, x: Tensor, w: Tensor, scale: Tensor, zero: Tensor | None, bias: Tensor | None
) -> Tensor | None:
    """x of f32 times w [k, n] as a layer of bytes; None where the operator does not exist."""
    weights = _weights(call, w, scale, zero)
    if weights is None or x.dtype is not DType.F32 or not x.shape or x.elements == 0:
        return None
    fits = bias is not None and bias.data is not None and bias.shape == (w.shape[1],)
    rows = call.reshape(x, (1, *x.shape)) if len(x.shape) == 1 else x
    y = call.emit(ops.DynamicFullyConnected(), rows, weights, bias if fits else None)
    y = call.reshape(y, (*x.shape[:-1], w.shape[1]))
    return y if bias is None or fits else call.emit(ops.Add(), y, bias)


def _weights(call: Call, w: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor | None:
    """w as [n, k] of bytes with its scales and zero points."""
    if w.data is None or len(w.shape) != 2 or w.dtype not in (DType.I8, DType.U8) or not w.elements:
        return None
    n, factors = w.shape[1], scale.data
    if factors is None or factors.size not in (1, n) or not np.isfinite(factors).all():
        return None
    points = np.zeros(1, np.int64)
    if zero is not None:
        if zero.data is None or zero.data.size not in (1, n):
            return None
        points = zero.data.reshape(-1).astype(np.int64)
    if (factors <= 0).any():
        return None
    codes, points = _in_bytes(w.data.T, points)
    count = max(factors.size, points.size)
    scales = np.broadcast_to(factors.reshape(-1).astype(np.float32), (count,))
    quant = Quant(scales, np.broadcast_to(points, (count,)))
    names = ("dynamic", w.name, scale.name, None if zero is None else zero.name)
    return call.builder.once(names, lambda: [call.builder.with_quant(call.constant(codes), quant)])[
        0
    ]


def _in_bytes(codes: Array, points: Array) -> tuple[Array, Array]:
    """Codes [n, k] of bytes around their zero points: s8 around 0 where all fit."""
    real = codes.astype(np.int64) - points[:, None]
    if real.min() >= -128 and real.max() <= 127:
        return real.astype(np.int8), np.zeros(1, np.int64)
    return codes, points
