"""Transposes of complete matrices: channels-first images and back."""

from __future__ import annotations

import math

from edgekit.device.runtime.kernel_facts import TRANSPOSE_TILE
from edgekit.host.compiler.ir.ops import Transpose
from edgekit.host.compiler.ir.types import Node, Shape
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value
from edgekit.kb.targets.board import caches_of

_FEW = 4  # rows or columns: fewer are a single task
_TASK = 4096  # values: the minimum work per thread
_LINE = 16  # values per cache line


def matrix_transpose(ctx: Context, node: Node) -> list[KernelCall] | None:
    """The call for a transpose that swaps two adjacent blocks of axes; None for any other.

    Leading axes may stay in place. Supports values of 1, 2 and 4 bytes.
    """
    op = node.op
    assert isinstance(op, Transpose)
    x = ctx.tensor(node.inputs[0])
    found = _as_matrices(x.shape, op.permutation)
    size = x.dtype.bytes
    if size not in (1, 2, 4) or found is None:
        return None
    matrices, rows, columns = found
    narrow = size == 4 and min(rows, columns) < _FEW
    down, across = (1 if narrow else math.ceil(n / TRANSPOSE_TILE) for n in (rows, columns))
    fields: dict[str, Field] = {
        "rows": rows,
        "columns": columns,
        "x": Value(x.name),
        "y": Value(node.outputs[0]),
        "down": down,
        "across": across,
        "along": _rows_per_tile(ctx, columns * size),
    }
    source = "layout/transpose.c" if size == 4 else "layout/transpose_narrow.c"
    defines = {} if size == 4 else {"ELEM": f"uint{8 * size}_t"}
    header = "layout/transpose.h"
    kernel = ctx.kernel(f"transpose{size}", source, header, "ek_transpose_args", **defines)
    grain = max(1, _TASK * down * across // (rows * columns))
    return [KernelCall(kernel, fields, matrices * down * across, grain)]


def _rows_per_tile(ctx: Context, row: int) -> int:
    """Rows of `row` bytes per tile column, limited to half of L1, since only a few columns are read
    at a time. On x86-64, smaller tiles were never timed, so the default is kept."""
    if ctx.board.arch == "x86_64":
        return TRANSPOSE_TILE
    held = caches_of(ctx.board).l1 // 2 // row // _LINE * _LINE
    return min(max(held, _LINE), TRANSPOSE_TILE)


def _as_matrices(shape: Shape, permutation: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(matrices, rows, columns) of x if y is a batch of matrix transposes, else None."""
    long = [p for p in permutation if shape[p] != 1]
    kept = 0
    order = sorted(long)
    while kept < len(long) and long[kept] == order[kept]:
        kept += 1
    moved, still = long[kept:], order[kept:]
    if not moved:
        return None
    cut = still.index(moved[0])
    if moved != still[cut:] + still[:cut]:
        return None
    sizes = [math.prod(shape[a] for a in axes) for axes in (long[:kept], still[:cut], still[cut:])]
    return sizes[0], sizes[1], sizes[2]
