"""How ONNX operators treat rows of data-dependent count; rules for `common/bounded.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.host.compiler.frontends.common.bounded import Rules

RULES = Rules(
    across_rows=frozenset({
        "ArgMax", "ArgMin", "Attention", "AveragePool", "Compress", "Conv", "ConvInteger",
        "ConvTranspose", "CumProd", "CumSum", "DFT", "Einsum", "GRU", "Gemm", "GlobalAveragePool",
        "GlobalMaxPool", "GroupNormalization", "Hardmax", "InstanceNormalization", "LRN", "LSTM",
        "LayerNormalization", "LogSoftmax", "LpNormalization", "MatMul", "MatMulInteger",
        "MaxPool", "MeanVarianceNormalization", "NonMaxSuppression", "NonZero", "QLinearConv",
        "QLinearMatMul", "RMSNormalization", "RNN", "ReduceL1", "ReduceL2", "ReduceLogSum",
        "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
        "ReduceSumSquare", "Resize", "STFT", "Scan", "ScatterElements", "ScatterND", "Softmax",
        "SplitToSequence", "TopK", "Unique", "com.microsoft:DynamicQuantizeMatMul",
        "edgekit:DynamicConv",
    }),
    counts=frozenset({"Shape", "Size"}),
    sized_by={"ConstantOfShape": 0, "Expand": 1, "Reshape": 1, "Slice": 2},
    picks=frozenset({
        "Cast", "Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze",
        "Unsqueeze",
    }),
    computing=frozenset({"If", "Loop", "Range", "Scan"}),
    cuts=frozenset({"Slice"}),
    along=frozenset({
        "ArgMax", "ArgMin", "Hardmax", "LayerNormalization", "LogSoftmax", "LpNormalization",
        "RMSNormalization", "Softmax", "TopK",
    }),
    reductions=frozenset({
        "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
        "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
    }),
    products=frozenset({"MatMul"}),
)  # fmt: skip


def axis_of(op: str, attributes: Mapping[str, Any], opset: int) -> int:
    """The first axis that an operator works along."""
    given = attributes.get("axis")
    if isinstance(given, int):
        return given
    if op in ("ArgMax", "ArgMin"):
        return 0
    return 1 if opset < 13 and op in ("Hardmax", "LogSoftmax", "Softmax") else -1
