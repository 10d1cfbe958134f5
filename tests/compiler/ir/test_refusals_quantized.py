"""What shape inference refuses: stored values that one formula does not fit, and attributes of
wrong length, count or size."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Padding, ShapeError, Tensor


def zeros(dtype, *shape):
    return np.broadcast_to(dtype(0), shape)


def body(inputs, outputs, dtype=DType.F32):
    """A loop's body that computes nothing, of one vector `a` of two values and one flag `f`."""
    found = {"a": Tensor("a", (2,), dtype), "f": Tensor("f", (1,), DType.BOOL)}
    return Graph("body", found, (), tuple(inputs), tuple(outputs))


f32, flags = partial(zeros, np.float32), partial(zeros, np.bool_)
s8, s16, s32 = (partial(zeros, dtype) for dtype in (np.int8, np.int16, np.int32))
PLAIN, ONE, OTHER = s8(2, 3), (s8(2, 3), 0.1), (s8(2, 3), 0.2)
ROWS = (s8(2, 3), [0.1, 0.2])
WIDE, TAPS = (s16(1, 3, 3, 4), 0.1), s8(4, 2, 2, 4)
IMAGE = f32(1, 2, 2, 1)
FOUR = ((1, 0),) * 4
LSTM = (s8(2, 1, 5), s8(12, 5), s8(12, 3), s32(2, 12), s8(1, 3), s16(1, 3))

QUANTIZED = [
    *((op, pair, "one scale")
      for op in (ops.Sub(), ops.Equal(), ops.Less(), ops.Maximum(), ops.FloorDiv())
      for pair in ((PLAIN, ONE), (ONE, PLAIN), (ROWS, ONE), (ONE, ROWS))),
    *((op, (ONE, OTHER), "same scale and zero point")
      for op in (ops.Maximum(), ops.Minimum(), ops.FloorDiv(), ops.Modulo())),
    *((op, (ROWS,), "one scale")
      for op in (ops.ReduceSum((0,)), ops.ReduceProduct((1,)), ops.ReduceMax((0,)))),
    (ops.Concat(0), (ROWS, ROWS), "one scale"),
    (ops.Concat(0), (ONE, PLAIN), "one scale"),
    (ops.DynamicFullyConnected(), (f32(2, 3), (s8(3, 3), [0.1] * 3, 0, 1)), "along axis 0"),
    (ops.DynamicConv2D(), (f32(1, 3, 3, 4), (TAPS, [0.1] * 4, 0, 3)), "along axis 0"),
    (ops.DynamicConv2D(), (f32(1, 3, 3, 4), (s8(), 0.1)), "weights of rank 4"),
    (ops.Conv2D16x8(), (WIDE, (TAPS, [0.1] * 3)), "one scale or 4"),
    (ops.Conv2D16x8(), (WIDE, (TAPS, [0.1] * 4, 0, 1)), "along axis 0"),
    (ops.Conv2D16x8(), (WIDE, TAPS), "one scale or 4"),
]  # fmt: skip

SIZES = [
    (ops.Conv2D16x8(stride=(1,)), (WIDE, (TAPS, 0.1)), "two sizes as stride"),
    (ops.Conv2D16x8(dilation=(1, 1, 1)), (WIDE, (TAPS, 0.1)), "two sizes as stride and dil"),
    (ops.Conv2D(stride=()), (IMAGE, f32(1, 1, 1, 1)), "two sizes as stride"),
    (ops.DepthwiseConv2D(dilation=(1,)), (IMAGE, f32(1, 1, 1, 1)), "two sizes as stride"),
    (ops.TransposeConv2D(out_size=(2,)), (IMAGE, f32(1, 1, 1, 1)), "two sizes as stride"),
    (ops.SpaceToBatch((1,)), (IMAGE,), "two sizes as block"),
    (ops.BatchToSpace((1, 1, 1)), (IMAGE,), "two sizes as block"),
    (ops.MaxPool2D((1,)), (IMAGE,), "two sizes as window and stride"),
    (ops.OutlierFullyConnected(1e39), (f32(2, 6), s8(3, 6), f32(1, 3)), "threshold above 0 in"),
    (ops.BroadcastTo((-1,)), (f32(1),), "broadcasts to"),
    (ops.StridedSlice((0,), (1,), (2,), (-2, -1)), (f32(2),), "slice size of at least 1"),
    (ops.Softmax(), (f32(2, 0),), "rows of at least 1"),
    (ops.Fourier(4, 4), (s16(1, 4, 1),), "signal of type f32"),
    (ops.Fourier(4, 4), (f32(4),), "signal of rank 3"),
    (ops.Fourier(4, 4), (f32(0, 4, 1),), "signal shape"),
    (ops.Fourier(0), (f32(1, 4, 1),), "1 to 1048576 points"),
    (ops.Fourier(2**20 + 1), (f32(1, 4, 1),), "1 to 1048576 points"),
    (ops.Fourier(4, 4), (f32(1, 3, 1),), "frames of 1 to 3 values"),
    (ops.Fourier(4, 5), (f32(1, 8, 1),), "frames of 1 to 4 values"),
    (ops.Fourier(4, 4, 0), (f32(1, 8, 1),), "positive step"),
    (ops.Fourier(4, 2, onesided=True, inverse=True), (f32(1, 8, 2),), "frames of 3 to 3 values"),
    (ops.Fourier(4, 4), (f32(1, 4, 3),), "1 or 2 parts"),
    (ops.Fourier(4, 4, onesided=True), (f32(1, 4, 2),), "1 parts"),
    (ops.Fourier(4, 4, inverse=True), (f32(1, 4, 1),), "2 parts"),
    (ops.Fourier(4, 4), (f32(1, 4, 1), s16(4)), "window of type f32"),
    (ops.Fourier(4, 4), (f32(1, 4, 1), f32(3)), "window"),
    (ops.Fourier(4, 4, inverse=True), (f32(1, 4, 2), f32(4)), "no window"),
    (ops.FixedFourier(2), (s16(2),), "power of two from 4"),
    (ops.FixedFourier(6), (s16(4),), "power of two from 4"),
    (ops.FixedFourier(-4), (s16(4),), "power of two from 4"),
    (ops.FixedFourier(2**16), (s16(4),), "power of two from 4 to 32768"),
    (ops.FixedFourier(4), (s16(5),), "rows of 1 to 4 values"),
    (ops.FixedFourier(4), (s16(2, 0),), "rows of 1 to 4 values"),
    (ops.FixedFourier(4), (s16(),), "rows of 1 to 4 values"),
    (ops.FixedFourier(4, inverse=True), (s16(5),), "rows of 6 values"),
    (ops.FixedFourier(4), (s16(0, 4),), "numbers of rows"),
    (ops.DepthToSpace(2**31), (f32(1, 1, 1, 4),), "block below 2147483648, found"),
    (ops.SelectBoxes(limit=2**30), (f32(1, 5, 4), s32(1, 2, 5), f32(1, 2, 5)), "at most 2147"),
    (ops.Pad((2**16, 2**15), (0, 0)), (f32(1, 1),), "at most 2147483647 elements"),
    (ops.QuantizedLSTM(), LSTM, "3 or 4 gates, found 0"),
    (ops.QuantizedLSTM(FOUR), LSTM, "4 factors of the state"),
    (ops.QuantizedLSTM(FOUR, FOUR), (*LSTM, s16(3, 3)), "3 of peepholes"),
    (ops.QuantizedLSTM(FOUR, FOUR), (*LSTM, None, s8(3, 3)), "bias of the projection"),
    (ops.QuantizedLSTM(FOUR, FOUR), (*LSTM, *[None] * 3, s16(4, 3)), "bias of the normaliz"),
    (ops.QuantizedLSTM(FOUR, FOUR), (*LSTM, *[None] * 4, s32(4, 3)), "bias of the normaliz"),
    (ops.Loop(1, 2, body=body("a", "aa")), (f32(2),), "inputs for 2 states and 0 rows"),
    (ops.Loop(1, 1, 1, body=body("a", "a")), (f32(2),), "inputs for 1 states and 1 rows"),
    (ops.Loop(1, -1, body=body("a", "a")), (f32(2),), "inputs for -1 states"),
    (ops.Loop(1, 0, -1, body=body("a", "a")), (f32(2),), "0 states and -1 rows"),
    (ops.Loop(1, 1, body=body("a", "")), (f32(2),), "1 outputs or more, found 0"),
    (ops.Loop(1, 0, 0, True, body("a", "")), (flags(1), f32(2)), "1 outputs or more"),
    (ops.Loop(1, 1, body=body("b", "a")), (f32(2),), "among the tensors, found b"),
    (ops.Loop(1, 1, body=body("a", "b")), (f32(2),), "among the tensors, found b"),
    (ops.Loop(1, 0, 0, True, body("a", "f")), (f32(1), f32(2)), "one bool as cond.* f32"),
    (ops.Loop(1, 0, 0, True, body("a", "a")), (flags(1), f32(2)), "one bool as cond.* f32"),
]


def with_quantized(quantized, operands):
    return [quantized(*o) if isinstance(o, tuple) else o for o in operands]


@pytest.mark.parametrize(("op", "operands", "message"), [*QUANTIZED, *SIZES])
def test_misfits_are_refused(infer, quantized, op, operands, message):
    with pytest.raises(ShapeError, match=message):
        infer(op, *with_quantized(quantized, operands))


@pytest.mark.parametrize(
    ("op", "operands", "shape"),
    [
        (ops.Maximum(), (ONE, ONE), (2, 3)),
        (ops.Maximum(), (PLAIN, PLAIN), (2, 3)),
        (ops.Sub(), (ONE, OTHER), (2, 3)),
        (ops.Concat(0), (ONE, OTHER), (4, 3)),
        (ops.ReduceSum((0,)), (ONE,), (3,)),
        (ops.Pad((2**15, 2**14), (2**15 - 1, 2**14 - 2)), (f32(1, 1),), (2**16, 2**15 - 1)),
        (ops.Conv2D(padding=Padding(1, 1)), (IMAGE, f32(1, 1, 1, 1)), (1, 4, 2, 1)),
        (ops.OutlierFullyConnected(3e38), (f32(2, 6), s8(3, 6), f32(1, 3)), (2, 3)),
        (ops.Loop(1, 0, 0, True, body("a", "f")), (flags(1), f32(2)), (1,)),
    ],
)  # fmt: skip
def test_what_fits_is_allowed(infer, quantized, op, operands, shape):
    assert infer(op, *with_quantized(quantized, operands))[0][0] == shape
