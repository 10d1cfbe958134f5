"""Normalization of channels and of groups of them, over rows that data may count.

PyTorch writes a normalization of groups as one of "channels" between two Reshapes. Rows behind the
channels do not stay rows in that shape, so the three become one operator on the image.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from edgekit.host.compiler.frontends.onnx import reduce
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.file import FileNode, OnnxFile, names_read
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, ShapeError, Tensor

GROUPED = "edgekit:GroupedNormalization"  # internal: (image, scale and bias of each group)


def fuse_groups(model: OnnxFile) -> OnnxFile:
    """The model with each normalization of groups as one operator, which leaves the shape."""
    makers = {name: n for n in model.nodes for name in n.outputs}
    readers = Counter(name for n in model.nodes for name in set(names_read(n)))
    fused, dropped = dict[int, FileNode](), set[int]()
    for node in model.nodes:
        if node.op != "InstanceNormalization" or {*node.outputs} & {*model.outputs}:
            continue
        first = makers.get(node.inputs[0])
        shape = None if first is None else _constant(model, makers, first, "Reshape")
        after = [n for n in model.nodes if node.outputs[0] in names_read(n)]
        if (
            first is None
            or shape is None
            or shape.size != 3
            or not all(_keeps_elements(model, makers, n, node.outputs[0]) for n in after)
        ):
            continue
        batch, groups, rest = (int(v) for v in shape.reshape(-1))
        alone = readers[first.outputs[0]] == 1 and first.outputs[0] not in model.outputs
        if alone and batch in (0, 1) and groups > 0 and rest == -1:
            given = {**node.attributes, "batch": batch, "groups": groups}
            inputs = (first.inputs[0], *node.inputs[1:])
            fused[node.index] = replace(node, op=GROUPED, inputs=inputs, attributes=given)
            dropped.add(first.index)
    nodes = tuple(fused.get(n.index, n) for n in model.nodes if n.index not in dropped)
    return replace(model, nodes=nodes) if fused else model


def _constant(
    model: OnnxFile, makers: dict[str, FileNode], node: FileNode, op: str
) -> Array | None:
    """The constant shape that a node `op` gives its operand."""
    if node.op != op or len(node.inputs) != 2:
        return None
    maker = makers.get(node.inputs[1])
    found = maker.attributes.get("value") if maker is not None and maker.op == "Constant" else None
    value = model.constants.get(node.inputs[1], found)
    return value if isinstance(value, np.ndarray) else None


def _keeps_elements(
    model: OnnxFile, makers: dict[str, FileNode], node: FileNode, name: str
) -> bool:
    """Whether a node is a Reshape of `name` to a shape that does not depend on its old one."""
    if node.op != "Reshape" or node.inputs[0] != name or len(node.inputs) != 2:
        return False
    shape = _constant(model, makers, node, "Reshape")
    return shape is None or not np.any(shape == 0)


def grouped_normalization(call: OnnxCall) -> Tensor:
    """An image [b, c, ...] normalized in groups of channels, as [b, groups, rest] is."""
    x, groups = call.x(0), call.integer("groups")
    batch = call.integer("batch") or x.shape[0]
    if call.bounded.axes(x):
        if batch != x.shape[0]:
            raise ShapeError(f"expected one image with a data-dependent size, found {batch}")
        return _over_rows(call, groups)
    if x.elements % (batch * groups):
        raise ShapeError(f"expected {groups} groups of elements, found {list(x.shape)}")
    flat = call.reshape(x, (batch, groups, x.elements // (batch * groups)))
    inner = replace(call, values=[flat, *call.values[1:]])
    return call.reshape(reduce.instance_normalization(inner), x.shape)


def instance_normalization(call: OnnxCall) -> Tensor:
    if call.bounded.axes(call.x(0)):
        return _over_rows(call, call.x(1).elements)
    return reduce.instance_normalization(call)


def group_normalization(call: OnnxCall) -> Tensor:
    if call.bounded.axes(call.x(0)):
        return _over_rows(call, call.integer("num_groups"))
    return reduce.group_normalization(call)


def _over_rows(call: OnnxCall, groups: int) -> Tensor:
    """Mean and variance are those of valid rows."""
    x = call.x(0)
    (at, *more), valid = call.bounded.axes(x), call.bounded.valid(x)
    if more or at < 2 or valid is None or groups < 1 or x.shape[1] % groups:
        raise ShapeError(
            "expected a data-dependent number of rows behind channels in groups, found "
            f"{groups} groups of {list(x.shape)} along axis {at}"
        )
    shape = (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    along = call.reshape(valid, (x.shape[at], *(1,) * (len(x.shape) - 1 - at)))
    count = call.emit(ops.ReduceSum((0,), True), call.emit(ops.Where(), valid, *_one_zero(call)))
    per_row = math.prod(shape[2:]) // x.shape[at]
    count = call.emit(ops.Mul(), count, call.builder.floats(float(per_row)))
    count = call.emit(ops.Maximum(), count, call.builder.floats(1.0))
    axes = tuple(range(2, len(shape)))

    def mean(t: Tensor) -> Tensor:
        return call.emit(ops.Div(), call.emit(ops.ReduceSum(axes, True), t), count)

    def kept(t: Tensor) -> Tensor:
        return call.emit(ops.Where(), along, t, call.scalar(0, t))

    image = call.reshape(x, shape)
    centered = kept(call.emit(ops.Sub(), image, mean(kept(image))))
    variance = mean(call.emit(ops.Mul(), centered, centered))
    shifted = call.emit(ops.Add(), variance, call.builder.floats(call.number("epsilon", 1e-5)))
    y = call.emit(ops.Div(), centered, call.emit(ops.Sqrt(), shifted))
    per_channel = _scale_of_channels(call, x.shape[1], groups)
    scaled = call.emit(ops.Mul(), call.reshape(y, x.shape), per_channel(call.x(1)))
    y = call.emit(ops.Add(), scaled, per_channel(call.x(2)))
    call.bounded.add_like(y, x)
    return y


def _one_zero(call: OnnxCall) -> tuple[Tensor, Tensor]:
    return call.builder.floats(1.0), call.builder.floats(0.0)


def _scale_of_channels(call: OnnxCall, channels: int, groups: int) -> Callable[[Tensor], Tensor]:
    """Makes numbers of channels or groups [n] those of channels [channels, 1, ...]."""
    behind = (1,) * (len(call.x(0).shape) - 2)

    def made(t: Tensor) -> Tensor:
        if t.elements != channels:
            call.builder.need_room((channels,), np.int64)
            times = call.constant(np.repeat(np.arange(groups), channels // groups))
            t = call.emit(ops.Gather(0), t, times)
        return call.reshape(t, (channels, *behind))

    return made
