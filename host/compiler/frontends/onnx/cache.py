"""Import of ONNX operators for language models: positions, caches and recurrent states."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.frontends.common import indexing
from edgekit.host.compiler.frontends.common.emitter import need_rank
from edgekit.host.compiler.frontends.onnx.attention import join_heads, split_heads
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.conv import Sliding, grouped
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.checks import need_shape
from edgekit.host.compiler.ir.types import DType, ShapeError, Tensor

_MODES = ("linear", "circular")
_STEPS = 512  # of a recurrence, which is unrolled


def rotary_embedding(call: OnnxCall) -> Tensor:
    """Rotates pairs of values of each head by the angles of their row."""
    x = call.x(0)
    flat = len(x.shape) == 3
    heads = split_heads(call, x, call.integer("num_heads")) if flat else x
    need_rank(heads, 4)
    b, _, rows, size = heads.shape
    rotated = call.integer("rotary_embedding_dim", 0) or size
    if not 0 < rotated <= size or rotated % 2:
        raise ShapeError(f"expected an even part of {size} values to rotate, found {rotated}")
    cosine, sine = (_rotary_angles(call, index, (b, rows, rotated // 2)) for index in (1, 2))
    moved, kept = heads, None
    if rotated < size:
        moved, kept = call.builder.emit_all(ops.Split(3, (rotated, size - rotated)), [heads])
    between = bool(call.integer("interleaved", 0))
    if between:
        moved = call.reshape(moved, (*heads.shape[:3], rotated // 2, 2))
    halves = call.builder.emit_all(
        ops.Split(4, (1, 1)) if between else ops.Split(3, (rotated // 2,) * 2), [moved]
    )
    a, c = (call.reshape(t, (*heads.shape[:3], rotated // 2)) for t in halves)
    mul = ops.Mul()
    real = call.emit(ops.Sub(), call.emit(mul, cosine, a), call.emit(mul, sine, c))
    imaginary = call.emit(ops.Add(), call.emit(mul, sine, a), call.emit(mul, cosine, c))
    if between:
        pairs = [call.reshape(t, (*t.shape, 1)) for t in (real, imaginary)]
        y = call.reshape(call.emit(ops.Concat(4), *pairs), (*heads.shape[:3], rotated))
    else:
        y = call.emit(ops.Concat(3), real, imaginary)
    if kept is not None:
        y = call.emit(ops.Concat(3), y, kept)
    return join_heads(call, y) if flat else y


def _rotary_angles(call: OnnxCall, index: int, shape: tuple[int, int, int]) -> Tensor:
    """Sines or cosines of each row, [b, 1, rows, half], gathered by position ids if given."""
    table = call.x(index)
    if call.maybe(3) is not None:
        table = indexing.gather(call, table, call.x(3), 0)
    if table.shape != shape:
        raise ShapeError(f"expected angles of shape {list(shape)}, found {list(table.shape)}")
    return call.reshape(table, (shape[0], 1, *shape[1:]))


def tensor_scatter(call: OnnxCall) -> Tensor:
    """A cache with rows written from a computed start on, linearly or as a ring buffer."""
    cache, update = call.x(0), call.x(1)
    rank = len(cache.shape)
    axis = call.axis(call.integer("axis", -2), rank)
    mode = call.text("mode", "linear")
    others = [update.shape[i : i + 1] == (n,) for i, n in enumerate(cache.shape) if i != axis]
    if axis < 1 or len(update.shape) != rank or not all(others) or mode not in _MODES:
        raise ShapeError(
            f"expected rows of {list(cache.shape)} behind the batch and a mode of "
            f"{' or '.join(_MODES)}, found {list(update.shape)} and {mode}"
        )
    length, ones = cache.shape[axis], (1,) * (axis - 1)
    at = call.counting((1, *ones, update.shape[axis]))
    if call.maybe(2) is not None:
        first = call.reshape(call.convert(call.x(2), DType.I64), (cache.shape[0], *ones, 1))
        at = call.emit(ops.Add(), at, first)
    if mode == "circular":
        at = call.emit(ops.Modulo(), at, call.scalar(length, at))
    starts = call.counting((*cache.shape[:axis], 1))
    starts = call.emit(ops.Mul(), starts, call.scalar(length, starts))
    rows = call.emit(ops.Add(), at, starts)
    return indexing.place(call, cache, rows, update, cache.shape[: axis + 1])


def causal_conv_with_state(call: OnnxCall) -> list[Tensor]:
    """[depthwise convolution of the state and x, the new state for the next run]"""
    x, w = call.x(0), call.value(1, "weights")
    need_rank(x, 3)
    n, channels, length = x.shape
    if w.ndim != 3 or w.shape[:2] != (channels, 1) or not w.size or not length:
        raise ShapeError(f"expected weights [{channels}, 1, k], found {list(w.shape)}")
    before = w.shape[2] - 1
    if call.maybe(3) is not None:
        x = call.emit(ops.Concat(2), call.x(3), x)
    elif before:
        x = call.emit(ops.Pad((0, 0, before), (0, 0, 0)), x)
    bias = None if call.maybe(2) is None else call.value(2, "bias").reshape(-1)
    image = call.nhwc(call.reshape(x, (n, channels, 1, x.shape[2])))
    s = Sliding((w.shape[2],), (1,), (1,), (0,), (0,))
    y = call.nchw(grouped(call, image, w[:, :, None, :], bias, channels, s))
    y = call.reshape(y, (n, channels, length))
    kind = call.text("activation", "none")
    if kind in ("silu", "swish"):
        y = call.emit(ops.Mul(), y, call.emit(ops.Logistic(), y))
    elif kind != "none":
        raise ShapeError(f"expected activation none, silu or swish, found {kind}")
    if not before:
        return [y, call.constant(np.zeros((n, channels, 0), np.float32))]
    extent = (n, channels, before)
    state = ops.StridedSlice((0, 0, x.shape[2] - before), (1, 1, 1), extent, extent)
    return [y, call.emit(state, x)]


def linear_attention(call: OnnxCall) -> list[Tensor]:
    """[b, rows, heads · size] and the state [b, heads, keys, values], updated by each row."""
    heads, shared = call.integer("q_num_heads"), call.integer("kv_num_heads")
    q = split_heads(call, call.x(0), heads)
    k, v = split_heads(call, call.x(1), shared), split_heads(call, call.x(2), shared)
    b, _, steps, size = k.shape
    if not 1 <= steps <= _STEPS or heads % shared:
        raise ShapeError(f"expected 1 to {_STEPS} rows and groups of heads, found {steps}, {heads}")
    rule = call.text("update_rule", "gated_delta")
    if q.shape[0] != b or q.shape[2:] != (steps, size) or v.shape[:3] != k.shape[:3]:
        raise ShapeError(f"expected matching queries, keys and values, found {list(q.shape)}, "
                         f"{list(k.shape)} and {list(v.shape)}")  # fmt: skip
    decay = _of_heads(call, 4, k) if "gated" in rule else None
    if decay is not None:
        decay = call.emit(ops.Exp(), decay)
    beta = _of_heads(call, 5, k) if "delta" in rule else None
    if call.maybe(3) is not None:
        state = call.x(3)
        need_shape(state, (b, shared, size, v.shape[3]), "a state")
    else:
        state = call.filled((b, shared, size, v.shape[3]), 0, np.float32)
    scale = call.number("scale", 0.0) or size**-0.5
    q = call.emit(ops.Mul(), q, call.scalar(scale, q))
    q = call.reshape(q, (b, shared, heads // shared, steps, size))
    rows = []
    for i in range(steps):
        if decay is not None:
            factor = _slice_row(call, decay, i)
            factor = call.reshape(factor, (*factor.shape[:2], factor.shape[3], 1))
            state = call.emit(ops.Mul(), state, factor)
        key, value = _slice_row(call, k, i), _slice_row(call, v, i)
        if beta is not None:
            known = call.emit(ops.MatMul(), key, state)
            value = call.emit(ops.Sub(), value, known)
            value = call.emit(ops.Mul(), value, _slice_row(call, beta, i))
        column = call.reshape(key, (b, shared, size, 1))
        state = call.emit(ops.Add(), state, call.emit(ops.Mul(), column, value))
        query = call.reshape(_slice_row(call, q, i), (b, shared, heads // shared, size))
        rows.append(call.reshape(call.emit(ops.MatMul(), query, state), (b, heads, 1, v.shape[3])))
    y = rows[0] if steps == 1 else call.emit(ops.Concat(2), *rows)
    return [join_heads(call, y), state]


def _of_heads(call: OnnxCall, index: int, keys: Tensor) -> Tensor:
    """[b, rows, heads · n], or one value shared by all heads, as [b, heads, rows, n]."""
    x, (batch, heads, rows, _) = call.x(index), keys.shape
    need_rank(x, 3)
    need_shape(x, (batch, rows, x.shape[2]), "a decay or beta")
    return split_heads(call, x, heads if x.shape[2] % heads == 0 else 1)


def _slice_row(call: OnnxCall, x: Tensor, i: int) -> Tensor:
    """Row i of the second-to-last axis, which is kept."""
    rank = len(x.shape)
    begin = (*(0,) * (rank - 2), i, 0)
    extent = (*x.shape[:-2], 1, x.shape[-1])
    return call.emit(ops.StridedSlice(begin, (1,) * rank, extent, extent), x)
