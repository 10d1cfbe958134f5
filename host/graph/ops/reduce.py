"""Reductions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edgekit.host.graph.types import Operator


@dataclass(frozen=True)
class Mean(Operator):
    kind: ClassVar[str] = "mean"
    axes: tuple[int, ...] = ()
    keep_dims: bool = False


@dataclass(frozen=True)
class Softmax(Operator):
    """Over the last axis, of beta·x."""

    kind: ClassVar[str] = "softmax"
    beta: float = 1.0
