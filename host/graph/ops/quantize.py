"""Changes of element type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edgekit.host.graph.types import DType, Operator


@dataclass(frozen=True)
class Quantize(Operator):
    """f32 or quantized → quantized, by the output tensor's scale and zero point."""

    kind: ClassVar[str] = "quantize"
    to: DType = DType.I8


@dataclass(frozen=True)
class Cast(Operator):
    """Plain conversion to f32 (f16 → f32), or dequantization where the input has a scale."""

    kind: ClassVar[str] = "cast"
    to: DType = DType.F32
