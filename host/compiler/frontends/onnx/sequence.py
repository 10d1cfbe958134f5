"""ONNX sequences and optionals; their structure is resolved at import time."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.frontends.common.emitter import need_parts
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.index import one_of
from edgekit.host.compiler.frontends.onnx.types import TensorList, Value
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import ShapeError, Tensor


def construct(call: OnnxCall) -> TensorList:
    return TensorList(tuple(call.all()))


def length(call: OnnxCall) -> Tensor:
    return call.constant(np.array(len(call.sequence(0)), np.int64))


def at(call: OnnxCall) -> Tensor:
    items = call.sequence(0)
    return items[_read_position(call, 1, len(items))]


def insert(call: OnnxCall) -> TensorList:
    items = list(call.sequence(0))
    position = len(items)
    if call.maybe(2) is not None:
        position = _read_position(call, 2, len(items) + 1)
    items.insert(position, call.x(1))
    return TensorList(tuple(items))


def erase(call: OnnxCall) -> TensorList:
    items = list(call.sequence(0))
    del items[_read_position(call, 1, len(items)) if call.maybe(1) is not None else -1]
    return TensorList(tuple(items))


def _read_position(call: OnnxCall, index: int, count: int) -> int:
    if not count:
        raise ShapeError("expected a sequence with elements, found an empty one")
    return call.axis(call.integers(index, "position")[0], count)


def split(call: OnnxCall) -> TensorList:
    x = call.x(0)
    axis = call.axis(call.integer("axis", 0), len(x.shape))
    size, split_axis = x.shape[axis], call.maybe(1)
    if split_axis is None:
        need_parts(size)
        kept = bool(call.integer("keepdims", 1))
        ones = call.builder.emit_all(ops.Split(axis, (1,) * size), [x]) if size > 1 else [x]
        return TensorList(tuple(ones if kept else (one_of(call, t, axis, 0) for t in ones)))
    sizes = call.integers(1, "sizes")
    if not split_axis.shape:
        part = sizes[0]
        if part < 1:
            raise ShapeError(f"expected parts of at least 1, found {part}")
        need_parts(-(-size // part))
        sizes = tuple(min(part, size - i) for i in range(0, size, part))
    return TensorList(tuple(call.split(x, axis, sizes) if len(sizes) > 1 else [x]))


def concat(call: OnnxCall) -> Tensor:
    items = call.sequence(0)
    if not items:
        raise ShapeError("expected a sequence with elements, found an empty one")
    new = call.integer("new_axis", 0)
    axis = call.axis(call.integer("axis"), len(items[0].shape) + new)
    if new:
        items = tuple(call.reshape(t, (*t.shape[:axis], 1, *t.shape[axis:])) for t in items)
    return items[0] if len(items) == 1 else call.emit(ops.Concat(axis), *items)


def sequence_map(call: OnnxCall) -> list[Value | None]:
    """Imports the body once per element; tensor inputs are shared."""
    body, count = call.graph("body"), len(call.sequence(0))
    made: list[list[Tensor]] = []
    for i in range(count):
        own: list[Value | None] = []
        for given in call.values:
            if isinstance(given, TensorList):
                if len(given.items) != count:
                    raise ShapeError(f"expected sequences of {count}, found {len(given.items)}")
                own.append(given.items[i])
            else:
                own.append(given)
        made.append([v for v in call.run(body, own) if isinstance(v, Tensor)])
    if any(len(row) != len(body.outputs) for row in made):
        raise ShapeError("expected a body whose outputs are tensors, found sequences")
    return [TensorList(tuple(row[k] for row in made)) for k in range(len(body.outputs))]


def _optional_value(call: OnnxCall) -> Value | None:
    return call.values[0] if call.values else None


def optional(call: OnnxCall) -> list[Value | None]:
    return [_optional_value(call)]


def has_element(call: OnnxCall) -> Tensor:
    return call.constant(np.array(_optional_value(call) is not None))


def get_element(call: OnnxCall) -> Value:
    found = _optional_value(call)
    if found is None:
        raise ShapeError("expected an optional value that is present, found none")
    return found
