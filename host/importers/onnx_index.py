"""ONNX operators that pick and place elements by index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.host.graph import ops
from edgekit.host.graph.types import Array, DType, Operator, ShapeError, Tensor
from edgekit.host.importers.onnx_call import Call

_DEPTH_LIMIT = 1 << 26
_ROUNDS = 256  # updates of one position
_JOINS: dict[str, Operator] = {
    "add": ops.Add(),
    "mul": ops.Mul(),
    "max": ops.Maximum(),
    "min": ops.Minimum(),
}


def gather(call: Call) -> Tensor:
    x, indices = call.x(0), call.x(1)
    axis = call.axis(call.integer("axis", 0), len(x.shape))
    if indices.data is not None:
        size = x.shape[axis]
        found = indices.data.reshape(-1)
        if found.size and not (-size <= found.min() and found.max() < size):
            raise ShapeError(f"expected indices from {-size} to {size - 1}, found others")
        if indices.data.ndim == 0 and x.data is None:
            return _one(call, x, axis, int(indices.data) % size)
    return call.emit(ops.Gather(axis), x, indices)


def _one(call: Call, x: Tensor, axis: int, index: int) -> Tensor:
    """x[..., index, ...] as a slice, which passes can push around."""
    begin, extent = [0] * len(x.shape), list(x.shape)
    begin[axis], extent[axis] = index, 1
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    ones = (1,) * len(x.shape)
    return call.emit(ops.StridedSlice(tuple(begin), ones, tuple(extent), shape), x)


def gather_elements(call: Call) -> Tensor:
    """With constant indices: the flat positions are known."""
    x = call.x(0)
    axis = call.axis(call.integer("axis", 0), len(x.shape))
    indices = call.value(1, "indices").astype(np.int64)
    return _picked(call, x, _flat(x, _along_axis(x, axis, indices)))


def gather_nd(call: Call) -> Tensor:
    """With constant indices."""
    x = call.x(0)
    indices = call.value(1, "indices").astype(np.int64)
    return _picked(call, x, _flat(x, _tuples(x, indices, call.integer("batch_dims", 0))))


def scatter_elements(call: Call) -> Tensor:
    """With constant indices."""
    x = call.x(0)
    axis = call.axis(call.integer("axis", 0), len(x.shape))
    indices = call.value(1, "indices").astype(np.int64)
    return _placed(call, x, _flat(x, _along_axis(x, axis, indices)))


def scatter_nd(call: Call) -> Tensor:
    """With constant indices."""
    x = call.x(0)
    indices = call.value(1, "indices").astype(np.int64)
    return _placed(call, x, _flat(x, _tuples(x, indices, 0)))


def _along_axis(x: Tensor, axis: int, indices: Array) -> list[Array]:
    """Coordinates in x of each element of `indices`, which count along `axis`."""
    if indices.ndim != len(x.shape):
        raise ShapeError(f"expected indices of rank {len(x.shape)}, found {indices.ndim}")
    at: list[Array] = list(np.indices(indices.shape))
    at[axis] = np.where(indices < 0, indices + x.shape[axis], indices)
    return at


def _tuples(x: Tensor, indices: Array, batch: int) -> list[Array]:
    """Coordinates in x of what index tuples (the last axis of `indices`) name."""
    depth = indices.shape[-1] if indices.ndim else 0
    if not 0 < depth + batch <= len(x.shape) or not 0 <= batch < indices.ndim:
        raise ShapeError(f"expected indices into {list(x.shape)}, found {list(indices.shape)}")
    tail, lead = x.shape[batch + depth :], indices.shape[:-1]
    grid = np.indices((*lead, *tail))
    at: list[Array] = [grid[i] for i in range(batch)]
    for i in range(depth):
        part = indices[..., i].reshape(*lead, *(1,) * len(tail))
        part = np.where(part < 0, part + x.shape[batch + i], part)
        at.append(np.broadcast_to(part, (*lead, *tail)))
    at += [grid[len(lead) + i] for i in range(len(tail))]
    return at


def _flat(x: Tensor, at: Sequence[Array]) -> Array:
    """Coordinates as positions in x laid out flat."""
    try:
        return np.asarray(np.ravel_multi_index([np.asarray(a) for a in at], x.shape))
    except ValueError:
        raise ShapeError(f"expected indices within {list(x.shape)}, found others") from None


def _picked(call: Call, x: Tensor, positions: Array) -> Tensor:
    return call.emit(ops.Gather(0), call.reshape(x, (x.elements,)), call.constant(positions))


def _placed(call: Call, x: Tensor, positions: Array) -> Tensor:
    """x with the updates (input 2) at `positions`, or joined with what is there."""
    updates, kind = call.x(2), call.text("reduction", "none")
    if updates.elements != positions.size:
        raise ShapeError(f"expected {positions.size} updates, found {updates.elements}")
    flat, at = call.reshape(x, (x.elements,)), positions.reshape(-1)
    new = call.reshape(updates, (updates.elements,))
    if kind == "none":
        return call.reshape(_put(call, flat, at, new), x.shape)
    if kind not in _JOINS:
        raise ShapeError(f"expected reduction none, {', '.join(_JOINS)}, found {kind}")
    for once in _rounds(at):
        part = call.emit(ops.Gather(0), new, call.constant(once))
        there = call.emit(ops.Gather(0), flat, call.constant(at[once]))
        flat = _put(call, flat, at[once], call.emit(_JOINS[kind], there, part))
    return call.reshape(flat, x.shape)


def _put(call: Call, x: Tensor, at: Array, new: Tensor) -> Tensor:
    """Each element of the result is picked from one of both."""
    source = np.arange(x.elements)
    source[at] = x.elements + np.arange(at.size)
    both = call.emit(ops.Concat(0), x, new)
    return call.emit(ops.Gather(0), both, call.constant(source))


def _rounds(at: Array) -> list[Array]:
    """The numbers of the updates in groups that name each position once."""
    seen: dict[int, int] = {}
    rounds: list[list[int]] = []
    for number, position in enumerate(at.tolist()):
        turn = seen[position] = seen.get(position, -1) + 1
        if turn == len(rounds):
            rounds.append([])
        rounds[turn].append(number)
    if len(rounds) > _ROUNDS:
        raise ShapeError(f"expected each position at most {_ROUNDS} times, found {len(rounds)}")
    return [np.array(r, np.int64) for r in rounds]


def one_hot(call: Call) -> Tensor:
    indices, depth = call.x(0), int(call.numbers(1, "depth")[0])
    values = call.value(2, "values").reshape(-1)
    rank = len(indices.shape)
    axis = call.axis(call.integer("axis", -1), rank + 1)
    if not 1 <= depth <= _DEPTH_LIMIT:
        raise ShapeError(f"expected a depth of at least 1, found {depth}")
    whole = call.convert(indices, DType.I64)
    positive = call.emit(ops.Modulo(), whole, call.constant(np.array(depth, np.int64)))
    inside = call.emit(
        ops.And(),
        call.emit(ops.LessOrEqual(), call.constant(np.array(-depth, np.int64)), whole),
        call.emit(ops.Less(), whole, call.constant(np.array(depth, np.int64))),
    )
    shape = (*indices.shape[:axis], 1, *indices.shape[axis:])
    steps = np.arange(depth, dtype=np.int64).reshape(depth, *(1,) * (rank - axis))
    hit = call.emit(ops.Equal(), call.reshape(positive, shape), call.constant(steps))
    hit = call.emit(ops.And(), hit, call.reshape(inside, shape))
    off, on = (call.constant(np.array(v)) for v in values[:2])
    return call.emit(ops.Where(), hit, on, off)
