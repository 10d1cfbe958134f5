"""Every operator of the graph: one file per family with attributes, shape rule, reference.

Adding an operator: its class here, its importer row, its lowering, its kernel, its test.
"""

from edgekit.host.graph.ops.bits import BitwiseAnd, BitwiseNot, BitwiseOr, LeftShift
from edgekit.host.graph.ops.chain import RowChain
from edgekit.host.graph.ops.conv import Conv2D, DepthwiseConv2D, TransposeConv2D
from edgekit.host.graph.ops.dense import FullyConnected, PrunedFullyConnected
from edgekit.host.graph.ops.elementwise import Add, Clamp, HardSwish, Logistic, Mul
from edgekit.host.graph.ops.functions import (
    Abs,
    Ceil,
    Clip,
    Cos,
    Elu,
    Erf,
    Exp,
    Floor,
    Function,
    Gelu,
    HardSigmoid,
    LeakyRelu,
    Log,
    Neg,
    Not,
    Reciprocal,
    RoundEven,
    Rsqrt,
    Sign,
    Sin,
    Softplus,
    Sqrt,
    Square,
    Tanh,
)
from edgekit.host.graph.ops.gather import BroadcastTo, Gather
from edgekit.host.graph.ops.layout import (
    BatchToSpace,
    Concat,
    DepthToSpace,
    Pad,
    Reshape,
    SpaceToBatch,
    Split,
    StridedSlice,
    Transpose,
)
from edgekit.host.graph.ops.matmul import MatMul
from edgekit.host.graph.ops.normalize import LayerNorm
from edgekit.host.graph.ops.operands import (
    And,
    Binary,
    BitwiseXor,
    Convert,
    Div,
    Equal,
    FloorDiv,
    Less,
    LessOrEqual,
    Maximum,
    Minimum,
    Modulo,
    Or,
    Pow,
    PRelu,
    RightShift,
    SquaredDifference,
    Sub,
    Where,
    Xor,
)
from edgekit.host.graph.ops.order import TopK
from edgekit.host.graph.ops.outlier import OutlierFullyConnected
from edgekit.host.graph.ops.planar import Planar, PlanarConv2D, PlanarDepthwiseConv2D
from edgekit.host.graph.ops.pool import AveragePool2D, MaxPool2D
from edgekit.host.graph.ops.quantize import Cast, Quantize
from edgekit.host.graph.ops.reduce import Mean, Softmax
from edgekit.host.graph.ops.resize import ResizeBilinear
from edgekit.host.graph.ops.state import ReadState, WriteState
from edgekit.host.graph.ops.totals import (
    ArgExtreme,
    ReduceMax,
    ReduceMin,
    ReduceProduct,
    ReduceSum,
    Total,
)
from edgekit.host.graph.ops.trigonometric import (
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    Cosh,
    Sinh,
    Tan,
)

__all__ = [
    "Abs", "Acos", "Acosh", "Add", "And", "ArgExtreme", "Asin", "Asinh", "Atan", "Atanh",
    "AveragePool2D", "BatchToSpace", "Binary", "BitwiseAnd", "BitwiseNot", "BitwiseOr",
    "BitwiseXor", "BroadcastTo", "Cast", "Ceil", "Clamp", "Clip", "Concat", "Conv2D", "Convert",
    "Cos", "Cosh", "DepthToSpace", "DepthwiseConv2D", "Div", "Elu", "Equal", "Erf", "Exp", "Floor",
    "FloorDiv", "FullyConnected", "Function", "Gather", "Gelu", "HardSigmoid", "HardSwish",
    "LayerNorm", "LeakyRelu", "LeftShift", "Less", "LessOrEqual", "Log", "Logistic", "MatMul",
    "MaxPool2D", "Maximum", "Mean", "Minimum", "Modulo", "Mul", "Neg", "Not", "Or",
    "OutlierFullyConnected", "PRelu", "Pad", "Planar", "PlanarConv2D", "PlanarDepthwiseConv2D",
    "Pow", "PrunedFullyConnected", "Quantize", "ReadState", "Reciprocal", "ReduceMax", "ReduceMin",
    "ReduceProduct", "ReduceSum", "Reshape", "ResizeBilinear", "RightShift", "RoundEven",
    "RowChain", "Rsqrt", "Sign", "Sin", "Sinh", "Softmax", "Softplus", "SpaceToBatch", "Split",
    "Sqrt", "Square", "SquaredDifference", "StridedSlice", "Sub", "Tan", "Tanh", "TopK", "Total",
    "Transpose", "TransposeConv2D", "Where", "WriteState", "Xor",
]  # fmt: skip
