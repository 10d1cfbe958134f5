"""Import of attention as fused by ONNX Runtime's optimizer (domain com.microsoft)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.frontends.common.emitter import need_rank
from edgekit.host.compiler.frontends.onnx import quant
from edgekit.host.compiler.frontends.onnx.attention import (
    attend,
    check_heads,
    join_heads,
    split_heads,
)
from edgekit.host.compiler.frontends.onnx.cache import rotary_embedding, tensor_scatter
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.product import product
from edgekit.host.compiler.frontends.onnx.sample import grid_sample
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, ShapeError, Tensor

_FILTERED = -10000.0  # ONNX Runtime's bias for masked keys


@dataclass(frozen=True, eq=False)
class _Masks:
    """The key mask as given, an additive bias, and the position of row 0 (`before`)."""

    keys: Tensor | None
    added: Tensor | None
    before: int


def attention(call: OnnxCall) -> list[Tensor]:
    """[output, past and present keys and values]; the weights hold query, key and value columns
    side by side."""
    if call.integer("do_rotary", 0) or call.maybe(6) is not None:
        raise ShapeError("expected no do_rotary and no shared past-present buffer, found one")
    made = product(call, call.x(0), call.x(1))
    need_rank(made, 3)
    if call.maybe(2) is not None:
        made = call.emit(ops.Add(), made, call.x(2))
    sizes = call.list("qkv_hidden_sizes", ()) or (made.shape[2] // 3,) * 3
    if len(sizes) != 3 or min(sizes) < 1 or sum(sizes) != made.shape[2]:
        raise ShapeError(f"expected 3 parts of {made.shape[2]} columns, found {list(sizes)}")
    heads = call.integer("num_heads")
    parts = call.builder.emit_all(ops.Split(2, sizes), [made])
    q, k, v = (split_heads(call, part, heads) for part in parts)
    before = 0
    if call.maybe(4) is not None:
        need_rank(call.x(4), 5)
        before = call.x(4).shape[3]
        pasts = call.builder.emit_all(ops.Split(0, (1, 1)), [call.x(4)])
        k, v = (
            call.emit(ops.Concat(2), call.reshape(past, past.shape[1:]), now)
            for past, now in zip(pasts, (k, v), strict=True)
        )
    y = _masked_attention(call, q, k, v, _Masks(call.maybe(3), call.maybe(5), before))
    if len(call.node.outputs) < 2:
        return [y]
    both = [call.reshape(t, (1, *t.shape)) for t in (k, v)]
    return [y, call.emit(ops.Concat(0), *both)]


def multi_head_attention(call: OnnxCall) -> list[Tensor]:
    """[output, all keys, all values] from separate queries, keys and values."""
    if len(call.x(0).shape) != 3 or call.maybe(1) is None or call.maybe(2) is None:
        raise ShapeError("expected separate queries, keys and values, found packed ones")
    if call.maybe(8) is not None or call.maybe(9) is not None:
        raise ShapeError("expected no shared past-present buffer, found one")
    heads, parts = call.integer("num_heads"), [call.x(0), call.x(1), call.x(2)]
    if call.maybe(3) is not None:
        widths = [t.shape[2] if len(t.shape) == 3 else t.shape[1] * t.shape[3] for t in parts]
        biases = call.builder.emit_all(ops.Split(0, tuple(widths)), [call.x(3)])
        parts = [
            call.emit(ops.Add(), t, b) if len(t.shape) == 3 else t
            for t, b in zip(parts, biases, strict=True)
        ]
    q, k, v = (split_heads(call, t, heads) if len(t.shape) == 3 else t for t in parts)
    before = 0
    if call.maybe(6) is not None:
        need_rank(call.x(6), 4)
        before = call.x(6).shape[2]
        k, v = call.emit(ops.Concat(2), call.x(6), k), call.emit(ops.Concat(2), call.x(7), v)
    return [_masked_attention(call, q, k, v, _Masks(call.maybe(4), call.maybe(5), before)), k, v]


def quantized_attention(call: OnnxCall) -> list[Tensor]:
    """QAttention: `attention` on quantized operands."""
    x = quant.dequantize_linear(call.given(call.x(0), call.x(3), call.maybe(6)))
    w = quant.dequantize_linear(call.given(call.x(1), call.x(4), call.maybe(7), axis=1))
    values = [x, w, call.maybe(2), call.maybe(5), call.maybe(8)]
    return attention(call.given(*values, **call.attributes))


def rotary(call: OnnxCall) -> Tensor:
    """Input 1 has the position of each row, or of the first row only."""
    x, at, cosine = call.x(0), call.x(1), call.x(2)
    need_rank(x, 3, 4)
    need_rank(cosine, 2)
    attributes = dict(call.attributes)
    if call.integer("is_packed_batching", 0):
        raise ShapeError("expected is_packed_batching 0, found 1")
    if (scale := call.number("scale", 1.0)) != 1:
        raise ShapeError(f"expected a scale of 1, found {scale:g}")
    if len(x.shape) == 3 and not call.integer("num_heads", 0):
        attributes["num_heads"] = x.shape[2] // max(2 * cosine.shape[-1], 1)
    rows = x.shape[1 if len(x.shape) == 3 else 2]
    if at.elements == 1:
        call.builder.need_room((x.shape[0], rows), np.int64)
        steps = call.constant(np.tile(np.arange(rows, dtype=np.int64), (x.shape[0], 1)))
        at = call.emit(ops.Add(), steps, call.reshape(call.convert(at, DType.I64), (1, 1)))
    return rotary_embedding(call.given(x, cosine, call.x(3), at, **attributes))


def _masked_attention(call: OnnxCall, q: Tensor, k: Tensor, v: Tensor, masks: _Masks) -> Tensor:
    check_heads(q, k, v)
    scale = call.number("scale", 0.0) or q.shape[3] ** -0.5
    bias = masks.added
    if masks.keys is not None:
        seen = _visible_columns(call, masks.keys, q.shape[0], k.shape[2])
        filtered = call.scalar(call.number("mask_filter_value", _FILTERED), q)
        keys = call.emit(ops.Where(), seen, call.scalar(0, q), filtered)
        bias = keys if bias is None else call.emit(ops.Add(), bias, keys)
    if call.integer("unidirectional", 0):
        call.builder.need_room((q.shape[2], k.shape[2]), np.bool_)
        rows, columns = np.arange(q.shape[2])[:, None], np.arange(k.shape[2])
        later = call.constant(columns > rows + masks.before)
        rest = call.scalar(0, q) if bias is None else bias
        bias = call.emit(ops.Where(), later, call.scalar(-math.inf, q), rest)
    return join_heads(call, attend(call, q, k, v, scale, bias, 0.0).y)


def _visible_columns(call: OnnxCall, keys: Tensor, batch: int, columns: int) -> Tensor:
    """A mask of visible columns, bool [b, 1, rows or 1, columns]. `keys` has a mask or, per
    sequence, an end or an end and a start."""
    at = call.counting((columns,))
    if keys.shape in ((batch,), (2 * batch,)):
        ends = call.reshape(call.convert(keys, DType.I64), (keys.elements // batch, batch))
        parts = call.builder.emit_all(ops.Split(0, (1,) * ends.shape[0]), [ends])
        parts = [call.reshape(t, (batch, 1, 1, 1)) for t in parts]
        seen = call.emit(ops.Less(), at, parts[0])
        if len(parts) > 1:
            seen = call.emit(ops.And(), seen, call.emit(ops.LessOrEqual(), parts[1], at))
        return seen
    if len(keys.shape) not in (2, 3) or keys.shape[0] != batch or keys.shape[-1] != columns:
        raise ShapeError(f"expected a mask of {columns} columns, found {list(keys.shape)}")
    shape = (batch, 1, 1 if len(keys.shape) == 2 else keys.shape[1], columns)
    return call.convert(call.reshape(keys, shape), DType.BOOL)


@dataclass(frozen=True, eq=False)
class _Cache:
    """The cache of grouped-query attention: new rows, total rows including the past, capacity of
    the buffer; and per sequence, [b, 1, 1, 1], the rows before and including this call."""

    rows: int
    total: int
    room: int
    before: Tensor
    now: Tensor


def group_query_attention(call: OnnxCall) -> list[Tensor]:
    """[output, all keys, all values]. Each group of query heads shares one key-value head; new keys
    and values are appended to the past, and unused rows are 0."""
    if call.integer("smooth_softmax", 0) > 0 or call.maybe(11) is not None:
        raise ShapeError("expected a plain softmax, found a smooth one")
    if len(call.values) > 12 or call.text("k_quant_type", "NONE") != "NONE":
        raise ShapeError("expected unquantized keys and values, found quantized ones")
    heads, shared = call.integer("num_heads"), call.integer("kv_num_heads")
    parts = _queries_keys_values(call, heads, shared)
    cache = _kv_cache(call, parts[0])
    if call.integer("do_rotary", 0):
        at = call.maybe(9)
        if at is None:
            first = call.reshape(cache.before, (parts[0].shape[0], 1))
            steps = call.counting((1, cache.rows))
            at = call.emit(ops.Add(), first, steps)
        parts[:2] = [
            rotary_embedding(
                call.given(
                    x, call.x(7), call.x(8), at, num_heads=count, rotary_embedding_dim=0,
                    interleaved=call.integer("rotary_interleaved", 0),
                )
            )
            for x, count in zip(parts[:2], (heads, shared), strict=True)
        ]  # fmt: skip
    q, new_k, new_v = (
        split_heads(call, x, n) for x, n in zip(parts, (heads, shared, shared), strict=True)
    )
    k, v = _append_to_cache(call, new_k, 3, cache), _append_to_cache(call, new_v, 4, cache)
    check_heads(q, k, v)
    scale = call.number("scale", 0.0) or q.shape[3] ** -0.5
    bias = _causal_bias(call, q, cache)
    return [
        join_heads(call, attend(call, q, k, v, scale, bias, call.number("softcap", 0.0)).y),
        k,
        v,
    ]


def _queries_keys_values(call: OnnxCall, heads: int, shared: int) -> list[Tensor]:
    """Queries, keys and values [b, rows, heads · size]; one packed tensor is split."""
    need_rank(call.x(0), 3)
    if call.maybe(1) is not None:
        return [call.x(0), call.x(1), call.x(2)]
    width = call.x(0).shape[2]
    if min(heads, shared) < 1 or width % (heads + 2 * shared):
        raise ShapeError(f"expected {heads} + 2 · {shared} heads, found {width} values")
    size = width // (heads + 2 * shared)
    sizes = (heads * size, shared * size, shared * size)
    return call.builder.emit_all(ops.Split(2, sizes), [call.x(0)])


def _kv_cache(call: OnnxCall, q: Tensor) -> _Cache:
    """The cache of a node; if all rows are new, no sequence has a past."""
    batch, rows = q.shape[:2]
    total = call.single(6, "total_sequence_length")
    past = call.maybe(3)
    room = max(total, 0 if past is None else past.shape[2] if len(past.shape) == 4 else 0)
    ends = call.x(5)
    if ends.elements != batch or total < rows:
        raise ShapeError(
            f"expected {batch} lengths and at least {rows} rows in total, found "
            f"{ends.elements} and {total}"
        )
    ends = call.reshape(call.convert(ends, DType.I64), (batch, 1, 1, 1))
    now = call.emit(ops.Add(), ends, call.scalar(1, ends))
    before = call.emit(ops.Sub(), now, call.scalar(rows, now))
    if rows == total:
        before = call.filled((batch, 1, 1, 1), 0, np.int64)
    return _Cache(rows, total, room, before, now)


def _append_to_cache(call: OnnxCall, new: Tensor, index: int, cache: _Cache) -> Tensor:
    """Keys or values [b, heads, room, size]: the valid past rows followed by the new ones."""
    batch, heads, rows, size = new.shape
    past = call.maybe(index)
    if past is not None and (
        len(past.shape) != 4 or (*past.shape[:2], past.shape[3]) != (batch, heads, size)
    ):
        raise ShapeError(f"expected a past of shape [{batch}, {heads}, n, {size}], found "
                         f"{list(past.shape)}")  # fmt: skip
    if past is None or not past.elements or rows == cache.total:
        behind = (0, 0, cache.room - rows, 0)
        return call.emit(ops.Pad((0,) * 4, behind), new) if cache.room > rows else new
    known = cache.before.data
    if known is not None and bool(np.all(known == past.shape[2])):
        return call.emit(ops.Concat(2), past, new)
    if past.shape[2] < cache.room:
        past = call.emit(ops.Pad((0,) * 4, (0, 0, cache.room - past.shape[2], 0)), past)
    at = call.counting((1, 1, cache.room, 1))
    old = call.emit(ops.Less(), at, cache.before)
    past = call.emit(ops.Where(), old, past, call.scalar(0, past))
    return tensor_scatter(call.given(past, new, call.reshape(cache.before, (batch,)), axis=2))


def _causal_bias(call: OnnxCall, q: Tensor, cache: _Cache) -> Tensor:
    """The additive bias: -inf for rows that are later, or before the local window."""
    column, row = call.counting((cache.room,)), call.counting((cache.rows, 1))
    at = call.emit(ops.Add(), row, cache.before)
    seen = call.emit(ops.LessOrEqual(), column, at)
    seen = call.emit(ops.And(), seen, call.emit(ops.Less(), column, cache.now))
    window = call.integer("local_window_size", -1)
    if window >= 0:
        first = call.emit(ops.Sub(), at, call.scalar(window, at))
        seen = call.emit(ops.And(), seen, call.emit(ops.Less(), first, column))
    added = call.maybe(10)
    if added is None:
        added = call.scalar(0, q)
    elif added.shape[-1] < cache.room:
        missing = (0,) * (len(added.shape) - 1) + (cache.room - added.shape[-1],)
        added = call.emit(ops.Pad((0,) * len(added.shape), missing), added)
    return call.emit(ops.Where(), seen, added, call.scalar(-math.inf, q))


ATTENTION: dict[str, Callable[[OnnxCall], Tensor | list[Tensor]]] = {
    "Attention": attention,
    "GridSample": grid_sample,
    "GroupQueryAttention": group_query_attention,
    "MultiHeadAttention": multi_head_attention,
    "QAttention": quantized_attention,
    "RotaryEmbedding": rotary,
}
