"""Products of a few rows with a computed matrix, which is read once in place.

See device/kernels/product/streamed.c.
"""

from __future__ import annotations

import math

from edgekit.host.compiler.costs.methods.rule import LINE
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.types import Node
from edgekit.host.compiler.lowering.common.arguments import values_of
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.gemm.computed import GemmOperands
from edgekit.host.compiler.lowering.gemm.prefetch import lines_ahead, runs_alone
from edgekit.host.compiler.lowering.plan import Field, KernelCall
from edgekit.kb.targets.isa import Isa

_COLUMNS = LINE // 4  # threads share rows in units of cache lines, columns in the same number
_LONG = 1024  # bytes: minimum length of a long column or row


def lower_streamed(ctx: Context, node: Node, operands: GemmOperands) -> list[KernelCall]:
    """Lowers a streamed product; either operand may be constant."""
    m, n = operands.shape.m, operands.shape.n
    alone = runs_alone(ctx)
    width = _columns_per_task(n, operands.matrices, 1 if alone else ctx.threads)
    panels = math.ceil(n / width)
    by_columns = operands.by_columns
    step, length = (operands.b[1], operands.shape.k) if by_columns else (operands.b[0], width)
    side = _side_by_side(ctx.isa, m)
    soon = _prefetch_distance(lines_ahead(ctx), side, step, length)
    name = f"f32_streamed_{'columns' if by_columns else 'rows'}_{m}" + f"_{soon}" * (soon > 0)
    macros = {
        "MR": m,
        "SIDE": side,
        "PREFETCH_DISTANCE": soon,
        **({"BY_COLUMNS": 1} if by_columns else {}),
    }
    fields: dict[str, Field] = {
        **operands.fields,
        "panels": panels,
        "width": width,
        "b_step": step,
        **values_of(ctx, node),
    }
    source = "product/streamed"
    kernel = ctx.kernel(name, f"{source}.c", f"{source}.h", "ek_streamed_args", **macros)
    tasks = operands.matrices * panels
    return [KernelCall(kernel, fields, tasks, tasks if alone else 1)]


def _columns_per_task(n: int, matrices: int, threads: int) -> int:
    """Columns per task: the widest that minimizes the work of the busiest thread."""
    widths = range(round_up(n, _COLUMNS), 0, -_COLUMNS)
    return min(widths, key=lambda w: math.ceil(matrices * math.ceil(n / w) / threads) * min(w, n))


def _side_by_side(isa: Isa, m: int) -> int:
    """Columns or rows of b processed at once: as many as keep m sums of each in registers."""
    many = isa.vl == 1 or (isa.lanes and isa.registers >= 32)
    return (4 if many else 2) * (1 if m > 2 else 2)


def _prefetch_distance(lines: int, side: int, step: int, length: int) -> int:
    """The prefetch distance in bytes for `lines` lines; 0: none.

    In columns or rows of at least `_LONG` bytes, prefetches stay within the same one; otherwise
    they target later ones, `step` floats apart.
    """
    if not lines:
        return 0
    if 4 * length >= _LONG:
        return LINE * math.ceil(lines / side)
    return 4 * step * side * max(1, LINE * lines // (4 * length * side))
