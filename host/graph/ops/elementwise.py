"""Element-wise operators; binary ones broadcast like NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edgekit.host.graph.types import Activation, Operator


@dataclass(frozen=True)
class Add(Operator):
    kind: ClassVar[str] = "add"
    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class Mul(Operator):
    kind: ClassVar[str] = "mul"
    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class Clamp(Operator):
    """A stand-alone activation (RELU, RELU6, …) on any dtype."""

    kind: ClassVar[str] = "clamp"
    activation: Activation = Activation.RELU


@dataclass(frozen=True)
class Logistic(Operator):
    kind: ClassVar[str] = "logistic"


@dataclass(frozen=True)
class HardSwish(Operator):
    kind: ClassVar[str] = "hard_swish"
