"""How operators of ONNX treat rows whose number depends on data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.host.compiler.frontends.common.rows import Cut, Rules
from edgekit.host.compiler.frontends.onnx.groups import GROUPED
from edgekit.host.compiler.ir.types import Tensor


def _cut_of(ins: Sequence[Any], axis: int, x: Tensor, _y: Tensor) -> Cut | None:
    """The slice of an axis by the operands of Slice, if they are constants that are good for any
    number of rows."""
    given = [t.data.reshape(-1) if isinstance(t, Tensor) and t.data is not None else None
             for t in ins[1:]]  # fmt: skip
    starts, ends, axes, steps = (*given, *[None] * 4)[:4]
    if any(t is not None and d is None for t, d in zip(ins[1:], given, strict=True)):
        return None
    assert starts is not None and ends is not None
    order = list(range(len(starts))) if axes is None else [int(a) % len(x.shape) for a in axes]
    if axis not in order:
        return Cut(0, None, 1)
    at = order.index(axis)
    step = 1 if steps is None else int(steps[at])
    found = Cut(int(starts[at]), int(ends[at]), step)
    return found if step > 0 and found.start >= 0 else None


RULES = Rules(
    across_rows=frozenset({
        "ArgMax", "ArgMin", "Attention", "AveragePool", "Compress", "Conv", "ConvInteger",
        "ConvTranspose", "CumProd", "CumSum", "DFT", "Einsum", "GRU", "Gemm", "GlobalAveragePool",
        "GlobalMaxPool", "GroupNormalization", "Hardmax", "InstanceNormalization", "LRN", "LSTM",
        "LayerNormalization", "LogSoftmax", "LpNormalization", "MatMul", "MatMulInteger",
        "MaxPool", "MeanVarianceNormalization", "QLinearConv", "QLinearMatMul",
        "RMSNormalization", "RNN", "ReduceL1", "ReduceL2", "ReduceLogSum",
        "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
        "ReduceSumSquare", "Resize", "STFT", "Scan", "ScatterElements", "ScatterND", "Softmax",
        "SplitToSequence", "TopK", "Unique", "com.microsoft:DynamicQuantizeMatMul",
        "edgekit:DynamicConv", GROUPED,
    }),
    counts=frozenset({"Shape", "Size"}),
    sized_by={"ConstantOfShape": 0, "Expand": 1, "Reshape": 1, "Slice": 2},
    picks=frozenset({
        "Cast", "Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze",
        "Unsqueeze",
    }),
    unrelated=frozenset({"NonMaxSuppression", "NonZero"}),  # never select filler
    pads=frozenset({"Pad"}),
    computing=frozenset({"If", "Loop", "Range", "Scan"}),
    cuts=frozenset({"Slice"}),
    cut_of=_cut_of,
    handled=frozenset({"Concat", "GroupNormalization", "InstanceNormalization", GROUPED}),
    sorts=frozenset({"TopK"}),
    joins=frozenset({"CenterCropPad", "Concat", "Pad", "Split", "Tile"}),
    along=frozenset({
        "ArgMax", "ArgMin", "CumProd", "CumSum", "Hardmax", "LayerNormalization", "LogSoftmax",
        "LpNormalization", "RMSNormalization", "Softmax", "TopK",
    }),
    reductions=frozenset({
        "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
        "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
    }),
    gathers=frozenset({"Gather", "GatherElements"}),
    neutral={
        "ReduceL1": 0, "ReduceL2": 0, "ReduceLogSum": 0, "ReduceLogSumExp": -math.inf,
        "ReduceMax": -math.inf, "ReduceMean": 0, "ReduceMin": math.inf, "ReduceProd": 1,
        "ReduceSum": 0, "ReduceSumSquare": 0, "GlobalAveragePool": 0, "GlobalMaxPool": -math.inf,
    },
    means=frozenset({"ReduceMean", "GlobalAveragePool"}),
    spatial=frozenset({"GlobalAveragePool", "GlobalMaxPool"}),
    ranked={
        "CumProd": 1, "CumSum": 0, "Hardmax": -math.inf, "LogSoftmax": -math.inf,
        "Softmax": -math.inf,
    },
    reshapes=frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"}),
    tuples=frozenset({"GatherND", "ScatterND"}),
    elementwise=frozenset({"ScatterElements"}),
    scatters=frozenset({"ScatterElements", "ScatterND"}),
    windows={
        "AveragePool": 0, "Conv": 0, "ConvTranspose": 0, "MaxPool": -math.inf, "Resize": None,
    },
    pointwise=frozenset({
        "Abs", "Add", "And", "Cast", "Clip", "Cos", "Div", "Dropout", "Equal", "Erf", "Exp",
        "Gelu", "Greater", "GreaterOrEqual", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Less",
        "LessOrEqual", "Log", "Max", "Min", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal", "Relu",
        "Sigmoid", "Sin", "Sqrt", "Sub", "Tanh", "Transpose", "Where", "Xor",
    }),
)  # fmt: skip


def axis_of(op: str, attributes: Mapping[str, Any], opset: int, ins: Sequence[Any]) -> int:
    """The first axis that an operator works along; 0 if it is computed. That of Pad is 0 if it pads
    with one value."""
    if op == "Pad":
        return 0 if attributes.get("mode", "constant") == "constant" else -1
    given = attributes.get("axis")
    if isinstance(given, int):
        return given
    if op in ("CumProd", "CumSum"):
        data = getattr(ins[1], "data", None) if len(ins) > 1 else None
        return int(data.flat[0]) if data is not None and data.size == 1 else 0
    if op in ("ArgMax", "ArgMin", "Gather", "GatherElements", "ScatterElements", "ScatterND"):
        return 0
    return 1 if opset < 13 and op in ("Hardmax", "LogSoftmax", "Softmax") else -1
