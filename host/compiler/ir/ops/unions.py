"""Union types of operators with common fields."""

from __future__ import annotations

from edgekit.host.compiler.ir.ops.conv import Conv2D, DepthwiseConv2D, TransposeConv2D
from edgekit.host.compiler.ir.ops.dense import FullyConnected
from edgekit.host.compiler.ir.ops.dynamic import DynamicConv2D, DynamicFullyConnected
from edgekit.host.compiler.ir.ops.elementwise import Add, Mul
from edgekit.host.compiler.ir.ops.pool import AveragePool2D, MaxPool2D

__all__ = ["Activated", "Weighted"]

# Products with weights and a bias that can have an epilogue.
Weighted = Conv2D | DepthwiseConv2D | TransposeConv2D | FullyConnected
# Operators whose f32 kernels can clamp results.
Activated = Weighted | Add | AveragePool2D | DynamicConv2D | DynamicFullyConnected | MaxPool2D | Mul
