"""Several consecutive convolutions as one operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Quant, Shape, Tensor

__all__ = ["ImageStem", "RowChain"]

_OPERANDS = 4  # operands per member besides the image, each possibly None: see Conv2D


@dataclass(frozen=True)
class RowChain(Operator):
    """ins: x, then weights, bias, residual and epilogue operand of each member; each member reads
    the previous one's output, and the last one's is the output. Created only by the compiler.

    `members` are a DepthwiseConv2D and a pointwise Conv2D before or after it, or both. `between`:
    quantization of all intermediate images. `names`: original operators, for reports.
    """

    kind: ClassVar[str] = "row_chain"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "matrix"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    members: tuple[Operator, ...] = ()
    between: tuple[Quant | None, ...] = ()
    names: tuple[str, ...] = ()

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        last = self.images(ins)[-1]
        return [(last.shape, last.dtype)]

    def images(self, ins: Sequence[Tensor | None]) -> list[Tensor]:
        """Output of each member; the last one has no quantization of its own (the output's)."""
        image, made = ins[0], []
        for i, op in enumerate(self.members):
            shape, dtype = op.infer([image, *ins[self.operands(i)]])[0]
            quant = self.between[i] if i < len(self.between) else None
            image = Tensor(f"{i}", shape, dtype, quant)
            made.append(image)
        return made

    def operands(self, member: int) -> slice:
        """Slice of the inputs that belong to a member."""
        return slice(1 + _OPERANDS * member, 1 + _OPERANDS * (member + 1))

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        image, values = ins[0], [x[0]]
        images = [*self.images(ins)[:-1], outs[0]]
        for i, (op, out) in enumerate(zip(self.members, images, strict=True)):
            own = self.operands(i)
            values = list(op.reference([values[0], *x[own]], [image, *ins[own]], [out]))
            image = out
        return [v for v in values if v is not None]


@dataclass(frozen=True)
class ImageStem(RowChain):
    """`members` are a Conv2D, optionally followed by a MaxPool2D and preceded by a Transpose of a
    channels-first image, or of a slice of its rows, with or without a Convert to f16."""

    kind: ClassVar[str] = "image_stem"
