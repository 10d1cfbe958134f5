"""Pooling over NHWC images; padding never counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edgekit.host.graph.types import Activation, Operator, Padding


@dataclass(frozen=True)
class AveragePool2D(Operator):
    """Divides by the number of pixels that lie inside the image."""

    kind: ClassVar[str] = "average_pool2d"
    window: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: Padding = Padding()
    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class MaxPool2D(Operator):
    kind: ClassVar[str] = "max_pool2d"
    window: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: Padding = Padding()
    activation: Activation = Activation.NONE
