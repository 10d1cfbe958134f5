"""Every operator of the graph: one file per family with attributes, shape rule, reference.

Adding an operator: its class here, its importer row, its lowering, its kernel, its test.
"""

from edgekit.host.graph.ops.conv import Conv2D, DepthwiseConv2D, TransposeConv2D
from edgekit.host.graph.ops.dense import FullyConnected
from edgekit.host.graph.ops.elementwise import Add, Clamp, HardSwish, Logistic, Mul
from edgekit.host.graph.ops.layout import (
    BatchToSpace,
    Concat,
    DepthToSpace,
    Pack,
    Pad,
    Reshape,
    ShapeOf,
    SpaceToBatch,
    Split,
    StridedSlice,
    Transpose,
)
from edgekit.host.graph.ops.pool import AveragePool2D, MaxPool2D
from edgekit.host.graph.ops.quantize import Cast, Quantize
from edgekit.host.graph.ops.reduce import Mean, Softmax
from edgekit.host.graph.ops.resize import ResizeBilinear
from edgekit.host.graph.ops.state import ReadState, WriteState

__all__ = [
    "Add", "AveragePool2D", "BatchToSpace", "Cast", "Clamp", "Concat", "Conv2D",
    "DepthToSpace", "DepthwiseConv2D", "FullyConnected", "HardSwish", "Logistic", "MaxPool2D",
    "Mean", "Mul", "Pack", "Pad", "Quantize", "ReadState", "Reshape", "ResizeBilinear",
    "ShapeOf", "Softmax", "SpaceToBatch", "Split", "StridedSlice", "Transpose",
    "TransposeConv2D", "WriteState",
]  # fmt: skip
