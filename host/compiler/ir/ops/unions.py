"""Operators that share fields, as one type each."""

from __future__ import annotations

from edgekit.host.compiler.ir.ops.conv import Conv2D, DepthwiseConv2D, TransposeConv2D
from edgekit.host.compiler.ir.ops.dense import FullyConnected
from edgekit.host.compiler.ir.ops.dynamic import DynamicConv2D, DynamicFullyConnected
from edgekit.host.compiler.ir.ops.elementwise import Add, Mul
from edgekit.host.compiler.ir.ops.pool import AveragePool2D, MaxPool2D

__all__ = ["Activated", "Weighted"]

# Products with weights, a bias and room for an epilogue.
Weighted = Conv2D | DepthwiseConv2D | TransposeConv2D | FullyConnected
# Operators whose kernels for f32 can clamp their results.
Activated = Weighted | Add | AveragePool2D | DynamicConv2D | DynamicFullyConnected | MaxPool2D | Mul
