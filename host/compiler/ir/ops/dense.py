"""Matrix products with constant weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
from edgekit.host.compiler.ir import sums
from edgekit.host.compiler.ir.checks import (
    ARITHMETIC,
    need_dtype,
    need_positive,
    need_rank,
    need_scale,
    need_shape,
    operand,
    optional,
)
from edgekit.host.compiler.ir.quantization import dense_multiplier
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import (
    Activation,
    Array,
    DType,
    MisfitError,
    Operator,
    Shape,
    Tensor,
)

__all__ = ["FullyConnected", "PrunedFullyConnected"]

_STRIPS = BlockSettings(16)
_BIAS: Mapping[DType, DType] = MappingProxyType({DType.F32: DType.F32, DType.F16: DType.F16})


@dataclass(frozen=True)
class FullyConnected(Operator):
    """ins: x [..., k] (flattened to [m,k]), weights [n,k], bias [n] or None.

    The output has shape [m,n], or x's leading dimensions and n with `keep_dims`.
    f32 x with s8 weights (dynamic range): each row of x is quantized to symmetric s8.
    `epilogue` as in Conv2D, with its operand as fifth input.
    """

    kind: ClassVar[str] = "fully_connected"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "matrix"
    on_quantized = OnQuantized.SUMS
    half = Half.YES
    multiplies = True
    weight_axis = 0
    on_nna = True
    takes_epilogue = True
    takes_table = True
    keep_dims: bool = False
    activation: Activation = Activation.NONE
    epilogue: Operator | None = None

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, w, bias = operand(ins, 0, "input"), operand(ins, 1, "weights"), optional(ins, 2)
        need_rank(w, 2, "weights")
        need_dtype(x, (*ARITHMETIC, DType.F16), "input")
        need_scale(x, "input")
        need_dtype(w, (DType.F32, DType.I8) if x.dtype is DType.F32 else (x.dtype,), "weights")
        need_positive((*x.shape, *w.shape), "input and weights")
        n, k = w.shape
        if x.elements % k or (self.keep_dims and x.shape[-1:] != (k,)):
            raise MisfitError(f"expected rows of {k} values, found input {list(x.shape)}")
        if bias is not None:
            need_shape(bias, (n,), "bias")
            need_dtype(bias, (_BIAS.get(x.dtype, DType.I32),), "bias")
        shape = (*x.shape[:-1], n) if self.keep_dims else (x.elements // k, n)
        return [(shape, x.dtype)]

    def works_by_rows(self) -> bool:
        return self.keep_dims

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        weights = sums.required(x, 1)
        rows = sums.required(x, 0).reshape(-1, weights.shape[1])
        pair = sums.operands([rows, weights], ins)
        out = outs[0]
        total = sums.product(pair.x, pair.weights.T, out.dtype)
        if out.dtype.is_float:
            y = sums.finish_float(total, pair.scale, x[2:3], out.dtype)
            y = sums.clamp_float(y, self.activation)
        else:
            factor = dense_multiplier(operand(ins, 0, "input"), operand(ins, 1, "weights"), out)
            bias = sums.optional(x, 2)
            rescale = factor.apply_rounding_once
            y = sums.finish_quantized(total, bias, rescale, out, self.activation)
        return [sums.apply_epilogue(self.epilogue, y.reshape(out.shape), x, ins, out)]


@dataclass(frozen=True)
class PrunedFullyConnected(FullyConnected):
    """Sparse FullyConnected, in f32 or 8-bit quantized; `how` the f32 weights are stored, and
    `rule`, the reason for choosing it."""

    kind: ClassVar[str] = "pruned_fully_connected"
    skips_zeros = True
    takes_epilogue = False
    takes_table = False
    how: BlockSettings = _STRIPS
    rule: str = ""

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "input")
        need_dtype(x, (DType.F32, DType.I8, DType.U8), "input")
        need_dtype(operand(ins, 1, "weights"), (x.dtype,), "weights")
        return super().infer(ins)
