"""What shape inference refuses: operands that do not fit, and attributes beyond their limits.

Operands are views of one zero, so that limits cost no memory. A pair is an integer array with its
scale(s).
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Padding, ShapeError, Tensor


def zeros(dtype, *shape):
    return np.broadcast_to(dtype(0), shape)


def replaced(operands, **others):
    """`operands` with others at some positions (named i0, i1, …); positions between are None."""
    found = dict(enumerate(operands)) | {int(name[1:]): x for name, x in others.items()}
    return tuple(found.get(i) for i in range(max(found) + 1))


def body(inputs, outputs, **tensors):
    """A loop's body that computes nothing, of vectors of given lengths."""
    found = {name: Tensor(name, (length,), DType.F32) for name, length in tensors.items()}
    return Graph("body", found, (), tuple(inputs), tuple(outputs))


f16, f32, f64 = (partial(zeros, dtype) for dtype in (np.float16, np.float32, np.float64))
s8, s16, s32, s64 = (partial(zeros, dtype) for dtype in (np.int8, np.int16, np.int32, np.int64))
u8, u32, flags = (partial(zeros, dtype) for dtype in (np.uint8, np.uint32, np.bool_))

X = f32(2, 3, 4)
BOXES, ORDER, SCORES = f32(1, 5, 4), s32(1, 2, 5), f32(1, 2, 5)
HEAT, SHORT, MID = f32(1, 2, 3, 17), f32(1, 2, 3, 34), f32(1, 2, 3, 64)
WIDE, TAPS = (s16(1, 3, 3, 4), 0.1), (s8(4, 2, 2, 4), 0.1)
ROWS, Q8 = f32(2, 6), s8(3, 6)
FOUR = ((1, 0),) * 4
LSTM4 = ops.QuantizedLSTM(FOUR, FOUR)  # 3 cells, an input of 5 values
LSTM = (s8(2, 1, 5), s8(12, 5), s8(12, 3), s32(2, 12), s8(1, 3), s16(1, 3))
LSTM_OF_2 = replaced(LSTM, i2=s8(12, 2), i4=s8(1, 2))  # the state has 2 values
SVDF = (s8(1, 2), s8(4, 2), s32(4), s16(4, 3), s32(2), s16(1, 12))  # 2 units of rank 2
RNN = (f32(2, 1, 3), f32(3, 3), None, f32(1, 3))
LONG = (f32(2, 1, 12), f32(12, 3), None, f32(1, 3), f32(1, 3))
GRU = (f32(2, 1, 9), f32(9, 3), None, f32(1, 3))
GAIN = (u32(3), u32(3), s16(125))
STATE, SWAP = body("a", "a", a=2), body("a", "b", a=2, b=3)

BOXES_AND_POSES = [
    (ops.SelectBoxes(), (BOXES, ORDER), r"input 2 \(scores\)"),
    (ops.SelectBoxes(), (f64(1, 5, 4), ORDER, SCORES), "boxes of type f32"),
    (ops.SelectBoxes(), (BOXES, SCORES, SCORES), "order of type"),
    (ops.SelectBoxes(), (BOXES, ORDER, ORDER), "scores of type"),
    (ops.SelectBoxes(limit=0), (BOXES, ORDER, SCORES), "sizes of at least 1"),
    (ops.SelectBoxes(limit=2**31), (BOXES, ORDER, SCORES), "sizes"),
    (ops.SelectBoxes(), (BOXES, s32(1, 0, 5), f32(1, 0, 5)), "sizes"),
    (ops.SelectBoxes(), (BOXES[0], ORDER, SCORES), "boxes .b, n, 4."),
    (ops.SelectBoxes(), (f32(1, 5, 5), ORDER, SCORES), "boxes .b, n, 4."),
    (ops.SelectBoxes(), (BOXES, ORDER[0], SCORES[0]), "boxes .b, n, 4."),
    (ops.SelectBoxes(), (BOXES, s32(1, 2, 4), f32(1, 2, 4)), "boxes .b, n, 4."),
    (ops.SelectBoxes(), (BOXES, s32(2, 2, 5), f32(2, 2, 5)), "boxes .b, n, 4."),
    (ops.SelectBoxes(), (BOXES, ORDER, f32(1, 3, 5)), "boxes .b, n, 4."),
    (ops.DetectionOutput(), (f32(1, 5, 4), SCORES), "boxes of rank 4"),
    (ops.DetectionOutput(), (f32(1, 5, 1, 4), SCORES[0]), "scores of rank 3"),
    (ops.DetectionOutput(), (f64(1, 5, 1, 4), SCORES), "boxes of type"),
    (ops.DetectionOutput(), (f32(1, 5, 1, 4), f64(1, 2, 5)), "scores of type"),
    (ops.DetectionOutput(), (f32(1, 0, 1, 4), f32(1, 2, 0)), "boxes of at least 1"),
    (ops.DetectionOutput(), (f32(1, 5, 1, 4), f32(1, 0, 5)), "scores of at least 1"),
    (ops.DetectionOutput(), (f32(1, 5, 3, 4), SCORES), "1 or 2, 4"),
    (ops.DetectionOutput(), (f32(1, 5, 2, 5), SCORES), "1 or 2, 4"),
    (ops.DetectionOutput(), (f32(1, 4, 1, 4), SCORES), "1 or 2, 4"),
    (ops.DetectionOutput(keep=0), (f32(1, 5, 1, 4), SCORES), "numbers of boxes"),
    (ops.DetectionOutput(top_k=0), (f32(1, 5, 1, 4), SCORES), "numbers of boxes"),
    (ops.DetectionOutput(across=True), (f32(1, 5, 1, 4), SCORES), "a box with one class"),
    (ops.DetectionOutput(2**24 + 1), (f32(1, 5, 1, 4), SCORES), "at most 16777216 detections"),
    (ops.DetectionOutput(2**23 + 1), (f32(2, 5, 1, 4), f32(2, 2, 5)), "at most 16777216"),
    (ops.DetectionOutput(), (f32(1, 2**24, 1, 4), f32(1, 1, 2**24)), "at most 16777216 detections"),
    (ops.DecodePoses(), (HEAT, SHORT), r"input 2 \(mid offsets\)"),
    (ops.DecodePoses(), (HEAT[0], SHORT, MID), "heatmaps .1, h, w, 17."),
    (ops.DecodePoses(), (f32(2, 2, 3, 17), SHORT, MID), "heatmaps .1, h, w, 17."),
    (ops.DecodePoses(), (f32(1, 2, 3, 16), SHORT, MID), "heatmaps .1, h, w, 17."),
    (ops.DecodePoses(), (f32(1, 0, 3, 17), SHORT, MID), "heatmaps of at least 1"),
    (ops.DecodePoses(), (HEAT, MID, MID), "short offsets of shape"),
    (ops.DecodePoses(), (HEAT, SHORT, SHORT), "mid offsets of shape"),
    (ops.DecodePoses(), (HEAT, SHORT, f64(1, 2, 3, 64)), "mid offsets of type"),
    (ops.DecodePoses(keep=0), (HEAT, SHORT, MID), "numbers of poses and pixels"),
    (ops.DecodePoses(stride=0), (HEAT, SHORT, MID), "numbers of poses and pixels"),
    (ops.DecodePoses(keep=2**10 + 1), (HEAT, SHORT, MID), "at most 1024 poses"),
    (ops.DecodePoses(), tuple(f32(1, 1, 2**20 + 1, c) for c in (17, 34, 64)), "in 1048576 cells"),
]

PRODUCTS = [
    (ops.Conv2D16x8(), (WIDE,), r"input 1 \(weights\)"),
    (ops.Conv2D16x8(), ((s16(3, 3, 4), 0.1), TAPS), "image of rank 4"),
    (ops.Conv2D16x8(), (WIDE, (s8(2, 2, 4), 0.1)), "weights of rank 4"),
    (ops.Conv2D16x8(), ((s8(1, 3, 3, 4), 0.1), TAPS), "image of type s16"),
    (ops.Conv2D16x8(), (WIDE, (u8(4, 2, 2, 4), 0.1)), "weights of type s8"),
    (ops.Conv2D16x8(), (s16(1, 3, 3, 4), TAPS), "one scale for image"),
    (ops.Conv2D16x8(), ((s16(1, 3, 3, 4), [0.1, 0.2]), TAPS), "one scale for image"),
    (ops.Conv2D16x8(), ((s16(0, 3, 3, 4), 0.1), TAPS), "image and weights of at least 1"),
    (ops.Conv2D16x8(stride=(1, 0)), (WIDE, TAPS), "stride and dilation"),
    (ops.Conv2D16x8(dilation=(-1, 1)), (WIDE, TAPS), "stride and dilation"),
    (ops.Conv2D16x8(groups=0), (WIDE, TAPS), "groups of at least 1"),
    (ops.Conv2D16x8(groups=2), (WIDE, TAPS), "weights for 2 groups of 4"),
    (ops.Conv2D16x8(groups=2), (WIDE, (s8(3, 2, 2, 2), 0.1)), "weights for 2 groups of 4"),
    (ops.Conv2D16x8(), (WIDE, TAPS, s64(3)), "bias of shape .4."),
    (ops.Conv2D16x8(), (WIDE, TAPS, s16(4)), "bias of type s64 or s32"),
    (ops.Conv2D16x8(dilation=(3, 1)), (WIDE, TAPS), "one window of 4x2"),
    (ops.Conv2D16x8(padding=Padding(left=2**16 + 1)), (WIDE, TAPS), "padding from 0 to 65536"),
    (ops.Conv2D16x8(padding=Padding(right=-1)), (WIDE, TAPS), "padding from 0 to 65536"),
    (ops.GroupedConv2D(groups=2), (f32(1, 3, 3, 4), f32(4, 2, 2, 4)), "weights for 2 groups of 4"),
    (ops.GroupedConv2D(groups=2), (f32(1, 3, 3, 4), f32(3, 2, 2, 2)), "weights for 2 groups of 4"),
    (ops.GroupedConv2D(groups=0), (f32(1, 3, 3, 4), f32(4, 2, 2, 4)), "groups of at least 1"),
    (ops.GroupedConv2D(groups=2), (f32(1, 3, 3, 4), f32(4, 2, 2, 2), f32(2)), "bias of shape .4."),
    (ops.DynamicFullyConnected(), (f64(2, 6), (Q8, 0.1)), "input of type f32"),
    (ops.DynamicFullyConnected(), (ROWS, (s16(3, 6), 0.1)), "weights of type s8 or u8"),
    (ops.DynamicFullyConnected(), (ROWS, (s8(6), 0.1)), "weights of rank 2"),
    (ops.DynamicFullyConnected(), (f32(0, 6), (Q8, 0.1)), "input and weights of at least 1"),
    (ops.DynamicFullyConnected(), (f32(2, 5), (Q8, 0.1)), "rows of 6"),
    (ops.DynamicFullyConnected(), (f32(), (Q8, 0.1)), "rows of 6"),
    (ops.DynamicFullyConnected(), (ROWS, Q8), "one scale or 3"),
    (ops.DynamicFullyConnected(), (ROWS, (Q8, [0.1, 0.2])), "one scale or 3"),
    (ops.DynamicFullyConnected(), (ROWS, (Q8, 0.1), f32(2)), "bias of shape .3."),
    (ops.DynamicFullyConnected(), (ROWS, (Q8, 0.1), s32(3)), "bias of type f32"),
    (ops.DynamicConv2D(), (f16(1, 3, 3, 4), TAPS), "input of type f32"),
    (ops.DynamicConv2D(), (f32(1, 3, 3, 4), WIDE), "weights of type s8 or u8"),
    (ops.DynamicConv2D(), (f32(1, 0, 3, 4), TAPS), "input and weights of at least 1"),
    (ops.DynamicConv2D(), (f32(1, 3, 3, 4), TAPS[0]), "one scale or 4"),
    (ops.DynamicConv2D(), (f32(1, 3, 3, 4), (TAPS[0], [0.1] * 3)), "one scale or 4"),
    (ops.DynamicConv2D(), (f32(3, 3, 4), TAPS), "image of rank 4"),
    (ops.DynamicConv2D(), (f32(1, 3, 3, 3), TAPS), "weights of shape"),
    (ops.DynamicConv2D(), (f32(1, 1, 3, 4), TAPS), "one window of 2x2"),
    (ops.DynamicConv2D(), (f32(1, 3, 3, 4), TAPS, f32(3)), "bias of shape"),
    (ops.OutlierFullyConnected(), (ROWS, Q8), r"input 2 \(scales\)"),
    (ops.OutlierFullyConnected(), (f16(2, 6), Q8, f32(1, 3)), "input of type f32"),
    (ops.OutlierFullyConnected(), (ROWS, u8(3, 6), f32(1, 3)), "weights of type s8"),
    (ops.OutlierFullyConnected(), (ROWS, Q8, f64(1, 3)), "scales of type f32"),
    (ops.OutlierFullyConnected(), (ROWS, s8(6), f32(1, 3)), "weights of rank 2"),
    (ops.OutlierFullyConnected(), (ROWS, Q8, f32(3)), "scales of rank 2"),
    (ops.OutlierFullyConnected(), (ROWS, Q8, f32(0, 3)), "input, weights and scales"),
    (ops.OutlierFullyConnected(0.0), (ROWS, Q8, f32(1, 3)), "threshold above 0"),
    (ops.OutlierFullyConnected(1e-46), (ROWS, Q8, f32(1, 3)), "threshold above 0"),
    (ops.OutlierFullyConnected(math.nan), (ROWS, Q8, f32(1, 3)), "threshold above 0"),
    (ops.OutlierFullyConnected(), (ROWS, Q8, f32(1, 2)), "scales of shape"),
    (ops.OutlierFullyConnected(), (ROWS, Q8, f32(4, 3)), "slices that divide 6"),
    (ops.OutlierFullyConnected(), (f32(2, 5), Q8, f32(1, 3)), "rows of 6"),
    (ops.OutlierFullyConnected(keep_dims=True), (f32(3, 4), Q8, f32(1, 3)), "rows of 6"),
    (ops.OutlierFullyConnected(), (ROWS, Q8, f32(1, 3), f32(6)), "bias of shape"),
    (ops.OutlierFullyConnected(), (ROWS, Q8, f32(1, 3), s32(3)), "bias of type"),
    (ops.OutlierFullyConnected(), (ROWS, Q8, f32(1, 3), None, f32(3, 2)), "residual of shape"),
    (ops.OutlierFullyConnected(), (ROWS, Q8, f32(1, 3), None, s32(2, 3)), "residual of type"),
    (ops.MatMul(), (X,), r"input 1 \(second matrix\)"),
    (ops.MatMul(), (f64(2, 3), f64(3, 2)), "first matrix of type"),
    (ops.MatMul(), (f32(2, 3), f16(3, 2)), "second matrix of type f32"),
    (ops.MatMul(), (s8(2, 3), (s8(3, 2), 0.1)), "one scale for first matrix"),
    (ops.MatMul(), ((s16(2, 3), 0.1), (s16(3, 2), [0.1, 0.2])), "one scale for second matrix"),
    (ops.MatMul(), (f32(2, 0), f32(0, 2)), "sizes of matrices"),
    (ops.MatMul(), (f32(3), f32(3, 2)), "can be multiplied"),
    (ops.MatMul(), (f32(2, 3), f32(3)), "can be multiplied"),
    (ops.MatMul(), (f32(2, 3), f32(2, 3)), "can be multiplied"),
    (ops.MatMul(), (f32(2, 2, 3), f32(3, 3, 2)), "operands that broadcast"),
]

MOVES = [
    (ops.Gather(3), (X, s32(2)), "axis from 0 to 2"),
    (ops.Gather(-1), (X, s32(2)), "axis from 0 to 2"),
    (ops.Gather(), (f32(), s32(2)), "axis from 0 to -1"),
    (ops.Gather(), (X, f32(2)), "indices of type"),
    (ops.Gather(1), (f32(2, 0), s32(2)), "size of the gathered axis"),
    (ops.GatherQuantized(), (u8(2, 6), s32(1), f32(2, 2)), "table of type s8"),
    (ops.GatherQuantized(), (s8(2, 6), f32(1), f32(2, 2)), "indices of type"),
    (ops.GatherQuantized(), (s8(2, 6), s32(1), f16(2, 2)), "scales of type"),
    (ops.GatherQuantized(), (s8(6), s32(1), f32(2, 2)), "table of rank 2"),
    (ops.GatherQuantized(), (s8(2, 6), s32(1), f32(2)), "scales of rank 2"),
    (ops.GatherQuantized(), (s8(2, 6), s32(1), f32(2, 0)), "table and scales of at least 1"),
    (ops.GatherQuantized(), (s8(2, 6), s32(1), f32(3, 2)), "scales for 2 rows"),
    (ops.GatherQuantized(), (s8(2, 6), s32(1), f32(2, 4)), "groups that divide 6"),
    (ops.BroadcastTo((3, 4)), (X,), "broadcasts to"),
    (ops.BroadcastTo((2, 3, 5)), (X,), "broadcasts to"),
    (ops.BitCast(DType.I16), (X,), "4 bytes that is not bool"),
    (ops.BitCast(DType.BOOL), (s8(2),), "1 bytes that is not bool"),
    (ops.Pad((0, 0), (0, 0, 0)), (X,), "padding for 3 dimensions"),
    (ops.Pad((0, 0, 2**24 + 1), (0, 0, 0)), (X,), "padding from 0 to 16777216"),
    (ops.Pad((0, 0, 0), (-1, 0, 0)), (X,), "padding from 0 to 16777216"),
    (ops.Concat(-1), (X, X), "axis from 0 to 2"),
    (ops.Concat(0), (X, f16(2, 3, 4)), "operand of type f32"),
    (ops.Concat(0), (X, None), r"input 1 \(operand\)"),
    (ops.Split(3, (4,)), (X,), "axis from 0 to 2"),
    (ops.Split(1, ()), (X,), "add up to 3"),
    (ops.Split(1, (3, 0)), (X,), "part sizes"),
    (ops.StridedSlice((0,), (1,), (0,), (0,)), (f32(2),), "slice size of at least 1"),
    (ops.StridedSlice((2,), (1,), (1,), (1,)), (f32(2),), "within 2"),
    (ops.StridedSlice((-1,), (1,), (1,), (1,)), (f32(2),), "within 2"),
    (ops.StridedSlice((0,), (-1,), (2,), (2,)), (f32(2),), "within 2"),
    (ops.StridedSlice((0,), (1,), (2,), (3,)), (f32(2),), "a slice of .3."),
    (ops.DepthToSpace(2**31), (f32(1, 1, 1, 4),), "block"),
    (ops.SpaceToBatch(), (X,), "image of rank 4"),
    (ops.SpaceToBatch(padding=(0, 0, 0)), (f32(1, 2, 2, 1),), "four sizes .* as padding"),
    (ops.SpaceToBatch(padding=(0, -1, 0, 0)), (f32(1, 2, 2, 1),), "four sizes .* as padding"),
    (ops.SpaceToBatch(padding=(0, 0, 0, 2**24 + 1)), (f32(1, 2, 2, 1),), "from 0 to 16777216"),
    (ops.BatchToSpace(), (X,), "image of rank 4"),
    (ops.BatchToSpace((1, 0)), (f32(1, 2, 2, 1),), "block"),
    (ops.BatchToSpace(crop=(0, 0, 0, 0, 0)), (f32(1, 2, 2, 1),), "four sizes .* as crop"),
    (ops.BatchToSpace(crop=(-1, 0, 0, 0)), (f32(1, 2, 2, 1),), "four sizes .* as crop"),
]

ROWS_AND_PAIRS = [
    (ops.LayerNorm(), (f64(2, 3),), "input of type"),
    (ops.LayerNorm(), (f32(0, 3),), "input shape"),
    (ops.LayerNorm(0), (X,), "1 to 3 axes"),
    (ops.LayerNorm(4), (X,), "1 to 3 axes"),
    (ops.LayerNorm(epsilon=-1e-9), (X,), "epsilon of at least 0"),
    (ops.LayerNorm(epsilon=math.nan), (X,), "epsilon of at least 0"),
    (ops.LayerNorm(2), (X, f32(4)), "factor of 12 values"),
    (ops.LayerNorm(), (X, None, f32(3)), "shift of 4 values"),
    (ops.LayerNorm(), (X, f16(4)), "factor of type f32"),
    (ops.SoftmaxMean((1, 2, 3)), (s32(2, 3),), "input of type"),
    (ops.SoftmaxMean((1, 2)), (f32(2, 3),), "rows of 2"),
    (ops.SoftmaxMean((1, 2, 3), 0.0), (f32(2, 3),), "positive beta"),
    (ops.QuantizedSum((1,)), (f32(2, 3),), "input of type"),
    (ops.QuantizedSum((2,)), ((s8(2, 3), 0.1),), "axis"),
    (ops.MeanOfSums((1,)), (f32(2, 3),), "input of type"),
    (ops.MeanOfSums((2,)), (s32(2, 3),), "axis"),
    (ops.UnitLength(), ((s16(2, 3), 0.1),), "input of type"),
    (ops.UnitLength(), (s8(2, 3),), "one scale"),
    (ops.UnitLength(), ((s8(), 0.1),), "input shape"),
    (ops.UnitLength(), ((s8(2, 0), 0.1),), "input shape"),
    (ops.UnitLength(), ((s8(1, 2**15 + 1), 0.1),), "rows of at most 32768"),
    (ops.Sub(), (f64(3), f64(3)), "first operand of type"),
    (ops.Div(), (f32(3), f16(3)), "second operand of type f32"),
    (ops.FloorDiv(), (f16(3), f16(3)), "first operand of type"),
    (ops.Pow(), (s8(3), s8(3)), "first operand of type f32 or s32 or s64"),
    (ops.Maximum(), (flags(3), flags(3)), "first operand of type"),
    (ops.PRelu(), (s8(3), s8(3)), "first operand of type f32 or f16"),
    (ops.PRelu(), ((s8(3), 0.1), (u8(3), 0.1)), "second operand of type s8"),
    (ops.Less(), (flags(3), flags(3)), "first operand of type"),
    (ops.Equal(), (flags(3), flags(4)), "broadcast"),
    (ops.And(), (s8(3), s8(3)), "first operand of type bool"),
    (ops.Where(), (u8(3), f32(3), f32(3)), "condition of type bool"),
    (ops.Where(), (flags(3), f32(3), f16(3)), "second value of type f32"),
    (ops.Where(), (flags(3), f32(3)), r"input 2 \(second value\)"),
    (ops.Where(), (flags(2), f32(1), f32(3)), "broadcast"),
    (ops.Convert(DType.F16, True), (f32(3),), "to whole numbers"),
    (ops.Convert(DType.I8, True), (f64(3),), "to whole numbers"),
    (ops.Mean((0,)), (s32(2, 3),), "input of type"),
    (ops.Mean((0,)), (s8(2, 3),), "one scale"),
    (ops.Mean((0,)), (f32(2, 0),), "input shape"),
    (ops.Mean((-1,)), (f32(2, 3),), "axis from 0 to 1"),
    (ops.Softmax(), (s32(2, 3),), "input of type"),
    (ops.Softmax(), (u8(2, 3),), "one scale"),
    (ops.Softmax(), (f32(),), "rank 1 or more"),
    (ops.Softmax(), ((s16(1, 2**16 + 1), 0.1),), "rows of at most 65536"),
    (ops.Softmax(0.0), (X,), "positive beta"),
    (ops.Softmax(math.inf), (X,), "positive beta"),
    (ops.ReduceSum((0,)), (flags(3),), "input of type"),
    (ops.ReduceSum((3,)), (X,), "axis from 0 to 2"),
    (ops.ReduceSum((1, 1)), (X,), "distinct axes"),
    (ops.ReduceProduct((0,)), ((s8(0, 2), 0.1),), "input shape"),
    (ops.ReduceMax((0,)), (f16(3),), "input of type"),
    (ops.ArgExtreme(3), (X,), "axis from 0 to 2"),
    (ops.ArgExtreme(), (f32(0),), "input shape"),
    (ops.ArgExtreme(), (f16(3),), "input of type"),
    (ops.AutoScale(), (s32(3),), "samples of type s16"),
    (ops.AutoScale(), (s16(1, 3),), "samples of rank 1"),
    (ops.FixedFourier(), (f32(4),), "rows of type s16 or s32"),
    (ops.AutomaticGain(), replaced(GAIN, i0=u32(1, 3)), "x of rank 1"),
    (ops.AutomaticGain(), replaced(GAIN, i0=s32(3)), "x of type u32"),
    (ops.AutomaticGain(), replaced(GAIN, i1=s32(3)), "noise of type u32"),
    (ops.AutomaticGain(), replaced(GAIN, i1=u32(4)), "noise of shape"),
    (ops.AutomaticGain(), replaced(GAIN, i2=s16(1, 125)), "table of rank 1"),
    (ops.AutomaticGain(), replaced(GAIN, i2=s32(125)), "table of type s16"),
    (ops.AutomaticGain(), replaced(GAIN, i2=s16(124)), "table of 125"),
    (ops.AutomaticGain(64), GAIN, "shift of 0 to 63"),
    (ops.AutomaticGain(-1), GAIN, "shift of 0 to 63"),
    (ops.FixedLog(), (s32(3),), "input of type u32"),
    (ops.FixedLog(-1), (u32(3),), "0 to 31 bits, found -1"),
    (ops.FixedLog(2**31), (u32(3),), "scale from 0"),
    (ops.FixedLog(bits=32), (u32(3),), "0 to 31 bits"),
    (ops.FixedLog(bits=-1), (u32(3),), "0 to 31 bits"),
]

STEPS = [
    (LSTM4, LSTM[:5], r"input 5 \(c\)"),
    (LSTM4, replaced(LSTM, i0=s8(1, 5)), "input of rank 3"),
    (LSTM4, replaced(LSTM, i0=s8(0, 1, 5)), "input and weights of at least 1"),
    (LSTM4, replaced(LSTM, i2=s8(12)), "weights of the state of rank 2"),
    (LSTM4, replaced(LSTM, i0=u8(2, 1, 5)), "input of type s8"),
    (LSTM4, replaced(LSTM, i1=s8(12, 4)), "weights of shape .12, 5."),
    (LSTM4, replaced(LSTM, i2=s8(13, 3)), "weights of the state of shape .12, 3."),
    (LSTM4, replaced(LSTM, i3=s32(12)), "bias of shape .2, 12."),
    (LSTM4, replaced(LSTM, i4=s8(2, 3)), "hidden state of shape"),
    (LSTM4, replaced(LSTM, i5=s8(1, 3)), "cell state of type s16"),
    (LSTM4, replaced(LSTM, i6=s16(4, 3)), "peepholes of shape .3, 3."),
    (LSTM4, replaced(LSTM, i7=s8(3, 2)), "projection of shape"),
    (LSTM4, replaced(LSTM, i8=s32(2)), "bias of the projection of shape"),
    (LSTM4, replaced(LSTM, i9=s16(3, 3)), "weights of normalized gates of shape .4, 3."),
    (LSTM4, replaced(LSTM, i10=s16(4, 3)), "bias of normalized gates of type s32"),
    (LSTM4, LSTM_OF_2, "state of 3 values, found 2"),
    (ops.QuantizedLSTM(FOUR, FOUR, cell_bits=7), LSTM, "0 to 6 integer bits"),
    (ops.QuantizedLSTM(FOUR, FOUR, cell_bits=-1), LSTM, "0 to 6 integer bits"),
    (ops.QuantizedSVDF(2), SVDF[:3], r"input 3 \(times\)"),
    (ops.QuantizedSVDF(2), replaced(SVDF, i3=s16(4)), "weights of time of rank 2"),
    (ops.QuantizedSVDF(2), replaced(SVDF, i3=s16(4, 0)), "weights of time of at least 1"),
    (ops.QuantizedSVDF(0), SVDF, "filters of rank 0"),
    (ops.QuantizedSVDF(3), SVDF, "filters of rank 3"),
    (ops.QuantizedSVDF(2), replaced(SVDF, i0=u8(1, 2)), "input of type s8"),
    (ops.QuantizedSVDF(2), replaced(SVDF, i1=s8(4, 3)), "weights of shape .4, 2."),
    (ops.QuantizedSVDF(2), replaced(SVDF, i2=s32(3)), "bias of weights of shape"),
    (ops.QuantizedSVDF(2), replaced(SVDF, i4=s32(4)), "bias of shape .2."),
    (ops.QuantizedSVDF(2), replaced(SVDF, i5=s16(1, 11)), "state of shape .1, 12."),
    (ops.Rnn(), RNN[:3], r"input 3 \(state\)"),
    (ops.Rnn(), replaced(RNN, i0=f32(1, 3)), "gates of inputs of rank 3"),
    (ops.Rnn(), replaced(RNN, i0=f32(0, 1, 3)), "gates of inputs of at least 1"),
    (ops.Rnn(), replaced(RNN, i1=f32(3, 2)), "weights of the state of shape"),
    (ops.Rnn(), replaced(RNN, i2=s32(2)), "lengths of sequences of shape .1."),
    (ops.Rnn(), replaced(RNN, i2=s64(1)), "lengths of sequences of type s32"),
    (ops.Rnn(), replaced(RNN, i3=f32(1, 4)), "state of shape"),
    (ops.Rnn(), replaced(RNN, i3=f16(1, 3)), "operands of type f32"),
    (ops.Rnn(squash=ops.Softmax()), RNN, "activations that recurrent layers support"),
    (ops.Rnn(clip=0.0), RNN, "positive clip, found 0"),
    (ops.Rnn(clip=math.nan), RNN, "positive clip"),
    (ops.Lstm(), replaced(LONG, i0=f32(2, 1, 13)), "gates of inputs of shape .2, 1, 12."),
    (
        ops.Lstm(),
        replaced(LONG, i0=f32(2, 1, 3), i1=f32(0, 0)),
        "gates of inputs of shape .2, 1, 0",
    ),
    (ops.Lstm(), LONG[:4], r"input 4 \(state\)"),
    (ops.Lstm(), (*LONG, f32(4, 3)), "peepholes of shape .3, 3."),
    (ops.Lstm(cell_clip=0.0), LONG, "positive clip, found 0"),
    (ops.Gru(), (*GRU, f32(3)), "no bias after the reset gate"),
    (ops.Gru(linear_before_reset=True), (*GRU, f32(9)), "bias of the state of shape .3."),
    (ops.Loop(0, 1, body=STATE), (f32(2),), "operands"),
    (ops.Loop(1, 1, body=STATE), (), "1 operands, found 0"),
    (ops.Loop(1, 1, body=STATE), (f32(2), f32(2)), "1 operands, found 2"),
    (ops.Loop(1, 0, 0, True, STATE), (flags(2), f32(2)), "one bool as condition"),
    (ops.Loop(1, 0, 0, True, STATE), (None, f32(2)), r"input 0 \(condition\)"),
    (ops.Loop(1, 1, body=STATE), (f32(3),), "operand of a loop of shape .2."),
    (ops.Loop(1, 1, body=STATE), (f16(2),), "operand of a loop of type f32"),
    (ops.Loop(3, 0, 1, body=STATE), (f32(2, 2),), "operand of a loop of shape .3, 2."),
    (ops.Loop(1, 1, body=SWAP), (f32(2),), "state of a loop of shape .2."),
]


def with_quantized(quantized, operands):
    return [quantized(*o) if isinstance(o, tuple) else o for o in operands]


@pytest.mark.parametrize(
    ("op", "operands", "message"), [*BOXES_AND_POSES, *PRODUCTS, *MOVES, *ROWS_AND_PAIRS, *STEPS]
)
def test_misfits_are_refused(infer, quantized, op, operands, message):
    with pytest.raises(ShapeError, match=message):
        infer(op, *with_quantized(quantized, operands))


@pytest.mark.parametrize(
    ("op", "operands", "shape"),
    [
        (ops.SelectBoxes(limit=2**30 - 1), (BOXES, ORDER, SCORES), (1, 2, 2**30 - 1)),
        (ops.DetectionOutput(2**24), (f32(1, 5, 1, 4), SCORES), (1, 1, 2**24, 7)),
        (ops.DetectionOutput(), (f32(1, 2**24 - 1, 1, 4), f32(1, 1, 2**24 - 1)), (1, 1, 1, 7)),
        (ops.DecodePoses(keep=2**10), (HEAT, SHORT, MID), (1, 2**10, 17, 2)),
        (ops.DecodePoses(), [f32(1, 2**10, 2**10, c) for c in (17, 34, 64)], (1, 1, 17, 2)),
        (ops.Conv2D16x8(padding=Padding(left=2**16)), (WIDE, TAPS), (1, 2, 2**16 + 2, 4)),
        (ops.Conv2D16x8(dilation=(2, 2)), (WIDE, TAPS, s32(4)), (1, 1, 1, 4)),
        (ops.Conv2D16x8(groups=2), (WIDE, (s8(4, 2, 2, 2), [0.1] * 4)), (1, 2, 2, 4)),
        (ops.DynamicFullyConnected(), (ROWS, (Q8, [0.1] * 3), f32(3)), (2, 3)),
        (ops.OutlierFullyConnected(1e-45), (f32(3, 4), Q8, f32(6, 3)), (2, 3)),
        (ops.GatherQuantized(), (s8(2, 6), s32(), f32(2, 6)), (6,)),
        (ops.BroadcastTo((5, 2, 3, 4)), (X,), (5, 2, 3, 4)),
        (ops.Pad((0, 0, 2**24), (0, 0, 0)), (X,), (2, 3, 2**24 + 4)),
        (ops.SpaceToBatch(padding=(0, 0, 0, 2**24)), (f32(1, 2, 2, 1),), (1, 2, 2**24 + 2, 1)),
        (ops.StridedSlice((1,), (-1,), (2,), (1, 2)), (f32(2),), (1, 2)),
        (ops.LayerNorm(3, 0.0), (X, f32(24)), (2, 3, 4)),
        (ops.UnitLength(), ((s8(1, 2**15), 0.1),), (1, 2**15)),
        (ops.Softmax(), ((s16(1, 2**16), 0.1),), (1, 2**16)),
        (ops.FixedFourier(2**15), (s16(1),), (2**15 + 2,)),
        (ops.FixedFourier(4, inverse=True), (s32(2, 6),), (2, 4)),
        (ops.Fourier(2**20, 1), (f32(1, 1, 1),), (1, 1, 2**20, 2)),
        (ops.Fourier(4, 3, onesided=True, inverse=True), (f32(2, 9, 2),), (2, 7, 4, 1)),
        (ops.Fourier(4, 4, onesided=True, planar=True), (f32(2, 4, 1), f32(4)), (2, 1, 2, 3)),
        (ops.AutomaticGain(63), GAIN, (3,)),
        (ops.FixedLog(2**31 - 1, 31), (u32(3),), (3,)),
        (LSTM4, replaced(LSTM_OF_2, i7=s8(2, 3), i8=s32(2)), (2, 1, 2)),
        (ops.QuantizedLSTM(FOUR, FOUR, cell_bits=6), LSTM, (2, 1, 3)),
        (ops.QuantizedSVDF(4), replaced(SVDF, i4=s32(1)), (1, 1)),
        (ops.Lstm(), (*LONG, f32(3, 3)), (2, 1, 3)),
        (ops.Gru(linear_before_reset=True), (*GRU, f32(3)), (2, 1, 3)),
        (ops.Loop(3, 0, 1, body=STATE), (f32(3, 2),), (3, 2)),
    ],
)
def test_limits_are_allowed(infer, quantized, op, operands, shape):
    assert infer(op, *with_quantized(quantized, operands))[0][0] == shape
