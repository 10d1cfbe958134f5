"""Sums of 8-bit tensors as one linear form in 16-bit multiplications, if that is exact.

TFLite's addition rounds four times (graph/ops/elementwise.py). Rounding once gives the same result
for nearly all pairs of 8-bit values; all 65536 pairs are tested, and the form is used only if none
differs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgekit.device.runtime.kernel_facts import (
    LINEAR_SUM_BITS,
    LINEAR_SUM_CHUNK,
    LINEAR_SUM_FRACTION,
    LINEAR_SUM_WIDENING,
)
from edgekit.host.compiler.ir.ops import Add
from edgekit.host.compiler.ir.quantization import activation_range, scale_of, zero_point_of
from edgekit.host.compiler.ir.types import Array, Node, Tensor
from edgekit.host.compiler.lowering.common.arguments import C_TYPES
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value

_MOST_SHIFT = 22  # of the upper part: leaves 8 bits for the value, one for the sum and a sign
_MOST = (1 << 15 + LINEAR_SUM_BITS) - 1  # of a factor: its upper part is an s16
# Offsets from one half, in fraction bits, to decide sums near the midpoint of two values.
_NUDGES = (24, 22, 20, 19, 18, 17)

# Kernels that add sixteen at once keep sums above 16 bits with the fraction in the lower part, so
# the shift is fixed and factors and addends must be multiples of a power of two.
_SIXTEEN_SHIFT = LINEAR_SUM_BITS + 16 + LINEAR_SUM_FRACTION
_SIXTEEN_MOST = 15  # of a real factor: two scaled values and a zero point fit into 16 bits
_SIXTEEN_NUDGES = (18, 17, 16)


@dataclass(frozen=True)
class LinearSum:
    """q = (a * a_factor + b * b_factor + addend) >> shift, clamped."""

    a_factor: int
    b_factor: int
    addend: int
    shift: int

    def quantized(self, a: Array, b: Array, low: int, high: int) -> Array:
        """Evaluates the form on int64 values."""
        total = a * self.a_factor + b * self.b_factor + self.addend
        quantized: Array = np.clip(total >> self.shift, low, high)
        return quantized


def linear_sum(
    op: Add, a: Tensor, b: Tensor, y: Tensor, low: int, high: int, sixteen: bool = False
) -> LinearSum | None:
    """Returns a form equal to `op` on all values, clamped to [low, high], or None.

    `sixteen` selects forms for kernels that add sixteen values at once.
    """
    info = np.iinfo(y.dtype.numpy)
    every = np.arange(info.min, info.max + 1, dtype=y.dtype.numpy)
    pairs = [np.repeat(every, every.size), np.tile(every, every.size)]
    expected = op.reference(pairs, [a, b], [y])[0]
    a_values, b_values = (pair.astype(np.int64) for pair in pairs)
    reals = (scale_of(a) / scale_of(y), scale_of(b) / scale_of(y))
    shift = min(math.floor(math.log2(_MOST / max(reals))), LINEAR_SUM_BITS + _MOST_SHIFT)
    widening, lower = 0, 0
    nudges: tuple[int, ...] = _NUDGES
    if sixteen:
        shift, widening, lower = _SIXTEEN_SHIFT, LINEAR_SUM_WIDENING, LINEAR_SUM_BITS
        nudges = _SIXTEEN_NUDGES
    if shift <= LINEAR_SUM_BITS or (sixteen and max(reals) >= _SIXTEEN_MOST):
        return None
    a_factor, b_factor = (round(math.ldexp(real, shift - widening)) << widening for real in reals)
    zeros = zero_point_of(a) * a_factor + zero_point_of(b) * b_factor
    addend = (zero_point_of(y) << shift) + (1 << shift - 1) - zeros
    addend = addend >> lower << lower
    sizes = [1 << max(shift - bits, 0) for bits in nudges]
    for nudge in (0, *(sign * size for size in sizes for sign in (1, -1))):
        form = LinearSum(a_factor, b_factor, addend + nudge, shift)
        if np.array_equal(form.quantized(a_values, b_values, low, high), expected):
            return form
    return None


def lower_linear_sum(ctx: Context, node: Node) -> list[KernelCall] | None:
    """Lowers an addition of two byte tensors of the same shape; None if no linear form applies."""
    a, b = ctx.tensor(node.inputs[0]), ctx.tensor(node.inputs[1])
    y, op = ctx.tensor(node.outputs[0]), node.op
    assert isinstance(op, Add)
    sixteen = ctx.isa.widens_eight
    if (
        not (ctx.isa.multiplies_pairs or sixteen)
        or a.shape != b.shape
        or a.data is not None
        or b.data is not None
    ):
        return None
    low, high = activation_range(op.activation, y)
    form = linear_sum(op, a, b, y, low, high, sixteen)
    if form is None:
        return None
    kernel = ctx.kernel(
        f"{y.dtype.value}_linear_sum",
        "elementwise/linear_sum.c",
        None,
        "ek_linear_sum_args",
        TX=C_TYPES[y.dtype],
    )
    below = (1 << LINEAR_SUM_BITS) - 1
    apart = ctx.pitch(y.name)
    n = y.elements if apart == y.shape[-1] else y.shape[-1]  # of a row
    rows, at_once = y.elements // n, max(LINEAR_SUM_CHUNK // n, 1)
    fields: dict[str, Field] = {"n": n, "rows": rows, "at_once": at_once, "pitch": apart}
    fields |= {"low": low, "high": high}
    fields |= {"a": Value(a.name), "b": Value(b.name), "y": Value(y.name)}
    widening = LINEAR_SUM_WIDENING if sixteen else 0
    parts = {"a": form.a_factor >> widening, "b": form.b_factor >> widening, "addend": form.addend}
    for name, value in parts.items():
        fields |= {f"{name}_high": value >> LINEAR_SUM_BITS, f"{name}_low": value & below}
    fields["shift"] = form.shift - LINEAR_SUM_BITS
    tasks = math.ceil(n / LINEAR_SUM_CHUNK) if rows == 1 else math.ceil(rows / at_once)
    return [KernelCall(kernel, fields, tasks)]
