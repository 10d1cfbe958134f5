"""Image resizing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edgekit.host.graph.types import Operator


@dataclass(frozen=True)
class ResizeBilinear(Operator):
    kind: ClassVar[str] = "resize_bilinear"
    size: tuple[int, int] = (1, 1)
    align_corners: bool = False
    half_pixel_centers: bool = False
