"""Matrix products with constant weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edgekit.host.graph.types import Activation, Operator


@dataclass(frozen=True)
class FullyConnected(Operator):
    """ins: x [..., k] (flattened to [m,k]), weights [n,k], bias [n] or None.

    The output has shape [m,n], or x's leading dimensions and n with `keep_dims`.
    """

    kind: ClassVar[str] = "fully_connected"
    keep_dims: bool = False
    activation: Activation = Activation.NONE
