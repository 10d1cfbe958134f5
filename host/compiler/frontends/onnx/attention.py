"""Import of ONNX Attention: matrix products with a softmax in between and positional masks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.frontends.common.emitter import Emitter, need_rank
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.conv import surround
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Shape, ShapeError, Tensor


@dataclass(frozen=True, eq=False)
class Attended:
    """The output [b, heads, rows, value size], and the query-key products at each stage: raw,
    capped, with bias, after softmax."""

    y: Tensor
    steps: tuple[Tensor, Tensor, Tensor, Tensor]


def attention(call: OnnxCall) -> list[Tensor]:
    """[output, all keys, all values, products at the stage given by `qk_matmul_output_mode`]; each
    group of query heads shares one key-value head."""
    q, k, v = call.x(0), call.x(1), call.x(2)
    flat = len(q.shape) == 3
    if flat:
        heads, shared = call.integer("q_num_heads"), call.integer("kv_num_heads")
        q = split_heads(call, q, heads)
        k, v = split_heads(call, k, shared), split_heads(call, v, shared)
    past = 0
    if call.maybe(4) is not None:
        past = call.x(4).shape[2] if len(call.x(4).shape) == 4 else 0
        k = call.emit(ops.Concat(2), call.x(4), k)
        v = call.emit(ops.Concat(2), call.x(5), v)
    check_heads(q, k, v)
    found = attend(
        call, q, k, v, _attention_scale(call, q), _attention_bias(call, q, k, past), _softcap(call)
    )
    mode = call.integer("qk_matmul_output_mode", 0)
    if not 0 <= mode < len(found.steps):
        raise ShapeError(f"expected a qk_matmul_output_mode of 0 to 3, found {mode}")
    return [join_heads(call, found.y) if flat else found.y, k, v, found.steps[mode]]


def split_heads(call: Emitter, x: Tensor, heads: int) -> Tensor:
    """[b, rows, heads · size] → [b, heads, rows, size]"""
    need_rank(x, 3)
    if heads < 1 or x.shape[2] % heads:
        raise ShapeError(f"expected rows of {heads} heads, found {x.shape[2]} values")
    shape = (*x.shape[:2], heads, x.shape[2] // heads)
    return call.transpose(call.reshape(x, shape), (0, 2, 1, 3))


def join_heads(call: Emitter, x: Tensor) -> Tensor:
    """[b, heads, rows, size] → [b, rows, heads · size]"""
    b, heads, rows, size = x.shape
    return call.reshape(call.transpose(x, (0, 2, 1, 3)), (b, rows, heads * size))


def check_heads(q: Tensor, k: Tensor, v: Tensor) -> None:
    for x in (q, k, v):
        need_rank(x, 4)
    shared = k.shape[1]
    if (
        k.shape[:3] != v.shape[:3]
        or q.shape[0] != k.shape[0]
        or q.shape[3] != k.shape[3]
        or min((*q.shape, *k.shape, *v.shape)) < 1
        or q.shape[1] % shared
    ):
        raise ShapeError(
            "expected matching queries, keys and values, found "
            f"{list(q.shape)}, {list(k.shape)} and {list(v.shape)}"
        )


def attend(
    call: Emitter, q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None, cap: float
) -> Attended:
    """softmax(cap(scale · q kᵀ) + bias) v; rows whose bias is -inf throughout become 0.

    The heads of a group are stacked as rows of one product.
    """
    b, heads, rows, size = q.shape
    shared = k.shape[1]
    grouped = (b, shared, heads // shared * rows)
    q = call.reshape(call.emit(ops.Mul(), q, call.scalar(scale, q)), (*grouped, size))
    products = call.emit(ops.MatMul(), q, call.transpose(k, (0, 1, 3, 2)))
    products = call.reshape(products, (b, heads, rows, k.shape[2]))
    capped = products
    if cap:
        part = call.emit(ops.Mul(), products, call.scalar(1 / cap, products))
        capped = call.emit(ops.Mul(), call.emit(ops.Tanh(), part), call.scalar(cap, products))
    if bias is not None and not _broadcasts_to(bias.shape, capped.shape):
        raise ShapeError(f"expected a mask or bias that broadcasts to {list(capped.shape)}, "
                         f"found {list(bias.shape)}")  # fmt: skip
    biased = capped if bias is None else call.emit(ops.Add(), capped, bias)
    shares = call.emit(ops.Softmax(1.0), biased)
    mixed = call.emit(ops.MatMul(), call.reshape(shares, (*grouped, k.shape[2])), v)
    y = call.reshape(mixed, (b, heads, rows, v.shape[3]))
    if bias is not None:
        y, shares = _without_masked(call, bias, y), _without_masked(call, bias, shares)
    return Attended(y, (products, capped, biased, shares))


def _broadcasts_to(shape: Shape, whole: Shape) -> bool:
    pairs = zip(reversed(shape), reversed(whole), strict=False)
    return len(shape) <= len(whole) and all(size in (1, full) for size, full in pairs)


def _without_masked(call: Emitter, bias: Tensor, x: Tensor) -> Tensor:
    """`x` with fully masked rows set to 0."""
    best = call.emit(ops.ReduceMax((len(bias.shape) - 1,), True), bias)
    masked = call.emit(ops.Equal(), best, call.scalar(-math.inf, best))
    if masked.data is not None and not np.any(masked.data):
        return x
    return call.emit(ops.Where(), masked, call.scalar(0, x), x)


def _attention_scale(call: OnnxCall, q: Tensor) -> float:
    return call.number("scale") if call.has("scale") else q.shape[3] ** -0.5


def _softcap(call: OnnxCall) -> float:
    return call.number("softcap", 0.0)


def _attention_bias(call: OnnxCall, q: Tensor, k: Tensor, past: int) -> Tensor | None:
    """The bias of the products: the mask, with -inf at forbidden positions."""
    mask, allowed = call.maybe(3), _position_mask(call, q, k, past)
    if mask is not None:
        missing = k.shape[2] - mask.shape[-1] if mask.shape else -1
        if missing < 0:
            raise ShapeError(f"expected a mask of {k.shape[2]} columns, found {list(mask.shape)}")
        before, after = (0,) * len(mask.shape), (0,) * (len(mask.shape) - 1) + (missing,)
        mask = surround(call, mask, before, after, 0 if mask.dtype is DType.BOOL else -math.inf)
        if mask.dtype is DType.BOOL:
            allowed = mask if allowed is None else call.emit(ops.And(), allowed, mask)
            mask = None
    if allowed is None:
        return mask
    seen = call.scalar(0, q) if mask is None else mask
    return call.emit(ops.Where(), allowed, seen, call.scalar(-math.inf, q))


def _position_mask(call: OnnxCall, q: Tensor, k: Tensor, past: int) -> Tensor | None:
    """A bool mask of the columns j that row i may attend to by position, broadcastable.

    Row 0 is at position `past`, or, with input 6 (valid columns), the rows are the last valid ones.
    """
    rows, columns = q.shape[2], k.shape[2]
    at, column = call.counting((rows, 1)), call.counting((1, columns))
    at = call.emit(ops.Add(), at, call.scalar(past, at))
    rules: list[Tensor] = []
    if call.maybe(6) is not None:
        count = call.reshape(call.convert(call.x(6), DType.I64), (q.shape[0], 1, 1, 1))
        at = call.emit(ops.Sub(), call.emit(ops.Add(), at, count), call.scalar(rows, at))
        rules.append(call.emit(ops.Less(), column, count))
    if call.integer("is_causal", 0):
        rules.append(call.emit(ops.LessOrEqual(), column, at))
    left, right = (call.integer(f"{side}_window_size", -1) for side in ("left", "right"))
    if left >= 0:
        first = call.emit(ops.Sub(), at, call.scalar(left, at))
        rules.append(call.emit(ops.LessOrEqual(), first, column))
    if right >= 0:
        last = call.emit(ops.Add(), at, call.scalar(right, at))
        rules.append(call.emit(ops.LessOrEqual(), column, last))
    if not rules:
        return None
    found = rules[0]
    for rule in rules[1:]:
        found = call.emit(ops.And(), found, rule)
    return found
