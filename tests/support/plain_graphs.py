"""Random operators on unquantized dtypes, for `op_graphs`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.checks import SIGNED, UNSIGNED
from edgekit.host.compiler.ir.types import Array, DType, Operator
from tests.support import row_graphs
from tests.support.op_cases import Case, Rng, constant, pick, quant, tensor

# Parameters for functions whose defaults hide a part of the formula.
_PARAMETERS: dict[type[Operator], tuple[float, ...]] = {
    ops.Clip: (-2, 3),
    ops.Elu: (0.7, 1.1),
    ops.HardSigmoid: (0.3, 0.4),
    ops.LeakyRelu: (0.2,),
    ops.Silu: (1.7,),
}


def functions(dtype: DType) -> tuple[Operator, ...]:
    """All functions of one operand of this type; `halves` has RoundBfloat16."""
    known = (c for c in ops.every() if issubclass(c, ops.Function) and dtype in c.dtypes)
    kinds = [c for c in known if c is not ops.RoundBfloat16]
    return tuple(kind(*_PARAMETERS.get(kind, ())) for kind in kinds)


_FUNCTIONS = functions(DType.F32)
_WHOLE_FUNCTIONS = functions(DType.I32)
_OPERANDS: tuple[Operator, ...] = (
    ops.Div(), ops.Equal(), ops.Less(), ops.LessOrEqual(), ops.Maximum(), ops.Minimum(),
    ops.Modulo(), ops.Modulo(True), ops.SquaredDifference(), ops.Sub(),
)  # fmt: skip
_OF_FLOATS: tuple[Operator, ...] = (ops.Pow(), ops.PRelu(), ops.Atan2())
_BITS: tuple[Operator, ...] = (ops.BitwiseAnd(), ops.BitwiseOr(), ops.LeftShift())


def _any(rng: Rng, options: tuple[Operator, ...]) -> Operator:
    return options[int(rng.integers(len(options)))]


def function(rng: Rng, dtype: DType) -> Case:
    """f32 as a constant over six times the range of random inputs; integers as inputs."""
    size = pick(rng, (1, 5, 4096, 4097, 9001))
    if dtype is DType.F32 and rng.random() < 0.7:
        op = _any(rng, _FUNCTIONS)
        return Case(op, (constant(rng.uniform(-6, 6, size)),))
    options = _FUNCTIONS if dtype is DType.F32 else _WHOLE_FUNCTIONS
    return Case(_any(rng, options), (tensor((size,), dtype),))


def attention(rng: Rng) -> Case:
    """More queries than a task takes, odd sizes, and tokens on both sides of a block's border."""
    shared, each = pick(rng, (1, 2, 3)), pick(rng, (1, 2, 3, 5))
    count, size = pick(rng, (1, 2, 7)), pick(rng, (1, 8, 16, 20, 64))
    context = pick(rng, (1, 5, 64, 65, 200))
    cache = (shared, context, size)
    position = rng.integers(-2, context + 2, 1).astype(np.int32)
    op = ops.CachedAttention(
        float(rng.uniform(0.2, 4)), pick(rng, (0, 0, 3)), pick(rng, (0, 0, 1, 30, 90))
    )
    queries, at = tensor((shared * each, count, size)), constant(position, DType.I32)
    if rng.random() < 0.5:
        return Case(op, (queries, tensor(cache), tensor(cache), at))
    scales = (constant(rng.uniform(0, 0.02, cache[:2])) for _ in range(2))
    return Case(op, (queries, tensor(cache, DType.I8), tensor(cache, DType.I8), at, *scales))


def every_function(rng: Rng) -> list[Case]:
    """Each function once, so that none depends on being drawn."""
    floats = constant(rng.uniform(-6, 6, 257))
    cases = [Case(op, (floats,)) for op in _FUNCTIONS]
    return cases + [Case(op, (tensor((65,), DType.I32),)) for op in _WHOLE_FUNCTIONS]


def every_operand(rng: Rng) -> list[Case]:
    """Each function of two operands once, of floats and of integers."""
    floats = (*_OPERANDS, *_OF_FLOATS)
    cases = [Case(op, (constant(rng.uniform(-6, 6, (5, 17))), tensor((17,)))) for op in floats]
    whole = (*_OPERANDS, *_BITS, ops.Add(), ops.Mul(), ops.Pow())
    pair = (tensor((5, 17), DType.I32), tensor((17,), DType.I32))
    return cases + [Case(op, pair) for op in whole]


def _pair(rng: Rng) -> tuple[list[int], list[int]]:
    """Two broadcastable shapes."""
    shape = [pick(rng, (1, 2, 3, 5, 17)) for _ in range(int(rng.integers(1, 6)))]
    other = list(shape[int(rng.integers(0, len(shape))) :] if rng.random() < 0.5 else shape)
    for i in range(len(other)):
        if rng.random() < 0.3:
            other[i] = 1
    return (shape, other) if rng.random() < 0.5 else (other, shape)


def operands(rng: Rng, dtype: DType) -> Case:
    a, b = (tensor(s, dtype) for s in _pair(rng))
    if dtype is DType.F32 and rng.random() < 0.3:
        return Case(_any(rng, _OF_FLOATS), (a, b))
    if dtype in (DType.I32, DType.I64) and rng.random() < 0.2:
        return Case(ops.Pow(), (a, b))
    if dtype is not DType.F32 and rng.random() < 0.3:
        return Case(ops.Add() if rng.random() < 0.5 else ops.Mul(), (a, b))
    if dtype is not DType.F32 and rng.random() < 0.3:
        return Case(_any(rng, _BITS), (a, b))
    return Case(_any(rng, _OPERANDS), (a, b))


def halves(rng: Rng) -> Case:
    """f16 and bfloat16 from f32 of every magnitude, and f32 from all f16 bit patterns."""
    if rng.random() < 0.2:
        return Case(ops.RoundBfloat16(), (constant(_around_bfloat16(rng)),))
    if rng.random() < 0.3:
        return Case(ops.Convert(DType.F16), (tensor((41,)),))
    if rng.random() < 0.5:
        patterns = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
        return Case(ops.Convert(DType.F32), (constant(patterns, DType.F16),))
    sizes = np.exp2(rng.uniform(-28, 18, 5000)) * rng.choice([-1, 1], 5000)
    ends = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = (ends[:-1] + ends[1:]) / 2  # ties, which round to even
    beyond = [np.inf, -np.inf, np.nan, 65519.0, 65520.0, 1e30]
    with np.errstate(over="ignore"):
        return Case(ops.Convert(DType.F16), (constant(np.concatenate([sizes, between, beyond])),))


def _around_bfloat16(rng: Rng) -> Array:
    """Random f32 bit patterns, including ties and their neighbors, infinities and NaNs."""
    upper = rng.integers(0, 1 << 16, 3000, np.uint32) << 16
    lower = rng.choice(np.uint32([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF]), 3000)
    beyond = np.float32([np.inf, -np.inf, np.nan, -np.nan, 3.4028e38, -3.4028e38, 0.0, -0.0])
    nan = np.uint32([0x7F800001, 0xFFFFFFFF]).view(np.float32)  # a carry must not alter them
    return np.concatenate([(upper | lower).view(np.float32), beyond, nan])


def saturated(rng: Rng) -> Case:
    """f32 of all magnitudes, converted to integers."""
    sizes = np.exp2(rng.uniform(-3, 70, 500)) * rng.choice([-1, 1], 500)
    ends = [2.0**bits for bits in (7, 8, 15, 16, 31, 32, 63, 64)]
    values = np.concatenate([sizes, ends, np.negative(ends), [np.inf, -np.inf, np.nan, -0.7]])
    kinds = (*SIGNED, *UNSIGNED)
    x = constant(values) if rng.random() < 0.7 else tensor((41,))
    return Case(ops.Convert(kinds[rng.integers(len(kinds))], True), (x,))


def logic(rng: Rng) -> Case:
    (a, b), kinds = _pair(rng), (DType.F32, DType.I32, DType.I64, DType.BOOL)
    kinds += (DType.F16, DType.F64, DType.I16, DType.U16, DType.U32, DType.U64)
    dtype, to = (kinds[int(i)] for i in rng.integers(0, len(kinds), 2))
    makers: tuple[Callable[[], Case], ...] = (
        lambda: Case(
            _any(rng, (ops.And(), ops.Or(), ops.Xor(), ops.Equal())),
            (tensor(a, DType.BOOL), tensor(b, DType.BOOL)),
        ),
        lambda: Case(ops.Not(), (tensor(a, DType.BOOL),)),
        lambda: Case(
            ops.Where(), (tensor(a, DType.BOOL), tensor(b, dtype), tensor((b[-1],), dtype))
        ),
        lambda: Case(ops.Convert(to), (tensor(a, dtype),)),
    )
    return makers[int(rng.integers(len(makers)))]()


def totals(rng: Rng, dtype: DType) -> Case:
    shape = [pick(rng, (1, 2, 7, 65, 129)) for _ in range(3)]
    axes = ((0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2), ())[int(rng.integers(7))]
    keep, x = bool(rng.random() < 0.5), tensor(shape, dtype)
    if rng.random() < 0.4:
        smallest, last = bool(rng.random() < 0.5), bool(rng.random() < 0.5)
        if rng.random() < 0.3:
            x = tensor((shape[0], 2500), dtype)
        axis = int(rng.integers(len(x.shape)))
        return Case(ops.ArgExtreme(axis, smallest, last), (x,))
    if dtype is DType.F32 and rng.random() < 0.3:
        return Case(ops.ReduceProduct((1,), keep), (tensor((3, 5, 4)),))
    kind = (ops.ReduceSum, ops.ReduceMax, ops.ReduceMin)[int(rng.integers(3))]
    if dtype is DType.I32 and rng.random() < 0.2:
        return Case(ops.ReduceProduct(axes, keep, saturates=bool(rng.random() < 0.7)), (x,))
    return Case(kind(axes, keep), (x,))


def detections(rng: Rng, dtype: DType) -> Case:
    """Boxes as constants, or as inputs, many of them inverted; scores contain many ties."""
    b, n, classes = pick(rng, (1, 2)), pick(rng, (1, 7, 70, 200)), pick(rng, (1, 2, 5))
    corners = rng.uniform(0, 1, (b, n, pick(rng, (1, classes)), 2, 2)).astype(np.float32)
    corners.sort(axis=3)
    boxes = corners.reshape(*corners.shape[:3], 4)
    scores = rng.integers(0, 12, (b, classes, n)).astype(np.float32) / 8
    op = ops.DetectionOutput(
        keep=pick(rng, (1, 5, 100)), top_k=pick(rng, (1, 9, 400)), threshold=0.25,
        overlap=float(rng.uniform(0, 1)), background=pick(rng, (-1, 0)),
        single=(rule := pick(rng, (0, 1, 2))) > 0, across=rule > 1 and boxes.shape[2] == 1,
    )  # fmt: skip
    if rng.random() < 0.5:
        return Case(op, (constant(boxes), tensor(scores.shape)))
    return Case(op, (tensor(boxes.shape), constant(scores)))


def area_boxes(rng: Rng) -> Case:
    """Maps with many areas and ties, or random ones, which have few."""
    h, w = pick(rng, (1, 3, 9, 20)), pick(rng, (1, 4, 17, 33))
    values = rng.integers(0, 5, (1, h // 2 + 1, w // 2 + 1)) / 4
    values = values.repeat(2, 1).repeat(2, 2)[:, :h, :w]
    if rng.random() < 0.3:  # stripes that rise or fall
        y, x = np.indices((1, h, w))[1:]
        values = 0.5 + 0.5 * np.sin(x * rng.uniform(-0.4, 0.4) + y * rng.uniform(0.2, 0.9))
    op = ops.AreaBoxes(
        keep=pick(rng, (1, 3, 50)), threshold=pick(rng, (0.3, 0.6)), sure=pick(rng, (0.4, 0.7)),
        least=pick(rng, (1, 3)), grow=float(rng.uniform(0, 3)),
    )  # fmt: skip
    return Case(op, (tensor(values.shape) if rng.random() < 0.2 else constant(values),))


def instance_masks(rng: Rng) -> Case:
    """Boxes that leave the map or are empty, and sums that exceed a byte."""
    maps, h, w, n = (
        pick(rng, (1, 3, 32)),
        pick(rng, (1, 9)),
        pick(rng, (1, 8, 70)),
        pick(rng, (1, 5)),
    )
    rows = rng.normal(0, 3, (1, 1, n, 7 + maps))
    rows[..., 1] = rng.integers(-1, 3, (1, 1, n))
    rows[..., 3:5], rows[..., 5:7] = (
        rng.uniform(-9, 40, (1, 1, n, 2)), rng.uniform(-3, 300, (1, 1, n, 2)),
    )  # fmt: skip
    op = ops.InstanceMasks(
        float(rng.uniform(1, 9)), float(rng.uniform(1, 9)), pick(rng, (1, 8)),
        least=pick(rng, (0.0, 0.5)),
    )  # fmt: skip
    given = constant(rows), tensor(rows.shape)
    return Case(op, (given[int(rng.random() < 0.3)], tensor((maps, h, w))))


def poses(rng: Rng) -> Case:
    """Heatmaps with many ties, as quantized ones have, and offsets that leave the image; random
    inputs have neither."""
    h, w, keep = pick(rng, (1, 2, 9)), pick(rng, (1, 5, 12)), pick(rng, (1, 4, 20))
    heat = rng.integers(-9, 3, (1, h, w, 17)) / 2
    short, mid = (rng.uniform(-30, 30, (1, h, w, n)) for n in (34, 64))
    op = ops.DecodePoses(keep, 0.25, -1.0, float(rng.uniform(0, 2)), pick(rng, (8, 16, 10)))
    ins = tuple(tensor(x.shape) if rng.random() < 0.3 else constant(x) for x in (heat, short, mid))
    return Case(op, ins)


def top_k(rng: Rng, dtype: DType) -> Case:
    """Constants contain many ties."""
    rows, n = pick(rng, (1, 3)), pick(rng, (1, 2, 7, 65, 300, 1001))
    k = min(n, pick(rng, (1, 2, 5, 64, 1001)))
    index = DType.I32 if rng.random() < 0.5 else DType.I64
    op = ops.TopK(k, bool(rng.random() < 0.5), index)
    stored = quant(0.5) if dtype.is_quantized else None
    if rng.random() < 0.5:
        return Case(op, (constant(rng.integers(-9, 9, (rows, n)), dtype, stored),), stored)
    return Case(op, (tensor((2, rows, n), dtype, stored),), stored)


def picking(rng: Rng, dtype: DType) -> Case:
    shape = tuple(pick(rng, (1, 2, 5, 17)) for _ in range(3))
    axis = int(rng.integers(3))
    if rng.random() < 0.3:
        wide = (4, *(d * 3 if d == 1 else d for d in shape))
        return Case(ops.BroadcastTo(wide), (tensor(shape, dtype),))
    kind = DType.I32 if rng.random() < 0.5 else DType.I64
    if rng.random() < 0.5:  # as an input: mostly out of range
        return Case(ops.Gather(axis), (tensor(shape, dtype), tensor((2, 3), kind)))
    indices = constant(rng.integers(-shape[axis], shape[axis], (7,)), kind)
    return Case(ops.Gather(axis), (tensor(shape, dtype), indices))


def scatter(rng: Rng, dtype: DType) -> Case:
    """Duplicate and out-of-range row indices."""
    n, m, run = pick(rng, (1, 2, 17, 70)), pick(rng, (1, 3, 40)), pick(rng, (1, 3, 33))
    join = ("none", "add", "mul", "max", "min")[int(rng.integers(5))]
    kind = DType.I32 if rng.random() < 0.5 else DType.I64
    at = constant(rng.integers(-n - 2, n + 2, (m,)), kind)
    replaced = join == "none"
    x = tensor((n, run), dtype) if replaced else constant(rng.integers(0, 9, (n, run)), dtype)
    updates = constant(rng.integers(0, 2 if join == "mul" else 9, (m, run)), dtype)
    return Case(ops.Scatter(join), (x, at, updates))


def select_boxes(rng: Rng) -> Case:
    """Overlapping boxes, some empty; sorted scores with ties."""
    batch, classes, n = pick(rng, (1, 2)), pick(rng, (1, 3)), pick(rng, (1, 7, 65))
    low = rng.integers(0, 8, (batch, n, 2)) / 8
    boxes = np.concatenate([low, low + rng.integers(0, 5, (batch, n, 2)) / 8], 2)
    scores = -np.sort(-rng.integers(0, 20, (batch, classes, n)) / 20)
    order = np.argsort(rng.random((batch, classes, n)))
    kind = DType.I32 if rng.random() < 0.5 else DType.I64
    op = ops.SelectBoxes(pick(rng, (1, 5, 80)), 0.4, 0.25, bool(rng.random() < 0.5))
    return Case(op, (constant(boxes), constant(order, kind), constant(scores)))


def select_rotated(rng: Rng) -> Case:
    """Boxes of a few sizes that overlap much or not at all, in classes; sorted scores."""
    n = pick(rng, (1, 7, 65))
    wide, high, angle = (rng.choice(some, n) for some in ((8, 20), (3, 8), (0, 0.4, 1.5)))
    cos, sin, a, b = np.cos(angle), np.sin(angle), wide**2 / 12, high**2 / 12
    covariance = a * cos**2 + b * sin**2, a * sin**2 + b * cos**2, (a - b) * cos * sin
    at = rng.choice([0, 0.5, 7, 30], (2, n))
    boxes = np.stack([rng.integers(0, 2, n), *at, *covariance], 1)
    scores = -np.sort(-rng.integers(0, 20, n) / 20)
    op = ops.SelectRotated(pick(rng, (1, 5, 80)), 0.41, 0.25)
    return Case(op, (constant(boxes), constant(scores)))


def _corners(rng: Rng, regions: int) -> Array:
    """Regions in, across and far outside of images, some of them empty or with swapped corners."""
    low = rng.uniform(-20, 20, (regions, 2))
    spread = rng.choice([0, 0.3, 4, 20, 500], (regions, 1)) * rng.uniform(-0.2, 1, (regions, 2))
    return np.concatenate([low, low + spread], 1).astype(np.float32)


def roi_align(rng: Rng) -> Case:
    regions, size = pick(rng, (1, 4)), (pick(rng, (1, 3)), pick(rng, (1, 2, 7)))
    half, largest = (bool(v) for v in rng.random(2) < 0.5)
    op = ops.RoiAlign(size, pick(rng, (0, 0, 2)), 0.5, half, largest)
    x = tensor((2, pick(rng, (1, 9)), pick(rng, (1, 12)), pick(rng, (1, 3, 17))))
    images = constant(rng.integers(0, 2, regions), DType.I32)
    return Case(op, (x, constant(_corners(rng, regions)), images))


def max_roi_pool(rng: Rng) -> Case:
    regions, size = pick(rng, (1, 4)), (pick(rng, (1, 3)), pick(rng, (1, 2, 7)))
    x = tensor((2, pick(rng, (1, 9)), pick(rng, (1, 12)), pick(rng, (1, 3, 17))))
    places = np.hstack([rng.integers(0, 2, (regions, 1)), _corners(rng, regions)])
    return Case(ops.MaxRoiPool(size, 0.5), (x, constant(places.astype(np.float32))))


def matmul(rng: Rng, dtype: DType) -> Case:
    m, k, n = (pick(rng, (1, 2, 3, 7, 15, 16, 17, 33, 49, 65, 100)) for _ in range(3))
    batch, other = [((), ()), ((3,), (3,)), ((2, 3), (3,)), ((2, 1), (1, 3))][rng.integers(4)]
    scales = [
        quant(s, 0 if dtype is DType.I16 else z) if dtype.bytes < 4 else None
        for s, z in ((0.1, -3), (0.07, 5), (9 if dtype is DType.I16 else 0.9, 4))
    ]
    a, b = tensor((*batch, m, k), dtype, scales[0]), tensor((*other, k, n), dtype, scales[1])
    return Case(ops.MatMul(), (a, b), scales[2])


def viewed_matmul(rng: Rng, dtype: DType) -> Case:
    """Attention heads: the head axis is transposed on input and output, or scores are scaled."""
    batch, heads = pick(rng, (1, 2)), pick(rng, (1, 3))
    m, k, n = (pick(rng, (1, 3, 8, 15, 33, 66, 131)) for _ in range(3))
    k = 300 if rng.random() < 0.2 else k
    none, apart, across, turned = (), (0, 2, 1, 3), (0, 2, 3, 1), (0, 1, 3, 2)
    a_axes, b_axes = [none, apart][rng.integers(2)], [none, apart, across, turned][rng.integers(4)]
    a = tensor(_stored((batch, heads, m, k), a_axes), dtype)
    b = tensor(_stored((batch, heads, k, n), b_axes), dtype)
    y_axes = [none, apart][rng.integers(2)]
    return Case(ops.ViewedMatMul(a_axes, b_axes, y_axes, 2.0 ** -pick(rng, (0, 3))), (a, b))


def _stored(seen: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(seen[axes.index(i)] for i in range(len(seen))) if axes else seen


def fake_quantize(rng: Rng, dtype: DType) -> Case:
    return Case(ops.FakeQuantize(), (tensor((3, pick(rng, (1, 5, 16, 33, 300))), dtype),))


_NUMBERS = (DType.F32, DType.I32, DType.I64)
_WHOLE = (DType.U32, DType.U8, DType.I16, DType.U64, DType.U16, DType.I8)
FAMILIES: dict[str, tuple[Callable[..., Case | list[Case]], tuple[DType | None, ...]]] = {
    "function": (function, _NUMBERS),
    "every_function": (every_function, ()),
    "attention": (attention, (None,)),
    "every_operand": (every_operand, ()),
    "operands": (operands, (*_NUMBERS, *_WHOLE)),
    "logic": (logic, (None,)),
    "halves": (halves, (None,)),
    "totals": (totals, (*_NUMBERS, *_WHOLE)),
    "detections": (detections, (DType.F32,)),
    "poses": (poses, (None,)),
    "area_boxes": (area_boxes, (None,)),
    "instance_masks": (instance_masks, (None,)),
    "top_k": (top_k, (*_NUMBERS, DType.I8, DType.U8)),
    "picking": (picking, (DType.F32, DType.U8, DType.I64)),
    "scatter": (scatter, (*_NUMBERS, *_WHOLE)),
    "fake_quantize": (fake_quantize, (DType.F32,)),
    "select_boxes": (select_boxes, (None,)),
    "select_rotated": (select_rotated, (None,)),
    "roi_align": (roi_align, (None,)),
    "max_roi_pool": (max_roi_pool, (None,)),
    "saturated": (saturated, (None,)),
    "matmul": (matmul, (DType.F32, DType.I32, DType.I64, DType.I8, DType.I16)),
    "viewed_matmul": (viewed_matmul, (DType.F32,)),
    **row_graphs.FAMILIES,
}
