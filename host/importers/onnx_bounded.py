"""What ONNX's operators do with rows whose number the data say: `bounded.py`."""

from __future__ import annotations

from edgekit.host.importers.bounded import Rules

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
        "SplitToSequence", "TopK", "Unique",
    }),
    counts=frozenset({"Shape", "Size"}),
    sized_by={"ConstantOfShape": 0, "Expand": 1, "Reshape": 1, "Slice": 2},
    picks=frozenset({
        "Cast", "Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze",
        "Unsqueeze",
    }),
    computing=frozenset({"If", "Loop", "Range", "Scan"}),
    cuts=frozenset({"Slice"}),
)  # fmt: skip
