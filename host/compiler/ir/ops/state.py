"""Variables that persist between runs; `state` names an entry of `Graph.states`.

Their values are external to the graph, so `evaluate` handles them and they have no reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from edgekit.host.compiler.ir.checks import operand
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import DType, Operator, Shape, Tensor

__all__ = ["ReadState", "WriteState"]


@dataclass(frozen=True)
class ReadState(Operator):
    """Reads a state: no inputs, one output with the state's shape and dtype."""

    kind: ClassVar[str] = "read_state"
    elementwise = False
    arithmetic = Arithmetic.EXACT
    cost_kind = "move"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    state: str = ""
    shape: Shape = ()
    dtype: DType = DType.F32

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        return [(self.shape, self.dtype)]


@dataclass(frozen=True)
class WriteState(Operator):
    """Writes a state. ins: the new value; no outputs."""

    kind: ClassVar[str] = "write_state"
    elementwise = False
    arithmetic = Arithmetic.EXACT
    cost_kind = "move"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    state: str = ""

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        operand(ins, 0, "value")
        return []
