"""The most multiply-adds that a core completes in a cycle, from its timing model."""

from __future__ import annotations

from edgekit.kb.targets.board import BoardProfile
from edgekit.kb.targets.clusters import timed_core
from edgekit.kb.targets.core import ELEMENTS, WIDTHS, Core, operation_table
from edgekit.kb.targets.isa import ByteProduct

_Product = tuple[str, int, int, int]  # class, width, element, and multiply-adds of an instruction

_SCALAR: dict[str, _Product] = {"f32": ("f_fma", 64, 32, 1), "s8": ("mul", 64, 32, 1)}
_FLOAT: dict[str, _Product] = {"f32": ("v_fma", 128, 32, 4), "f16": ("v_fma", 128, 16, 8)}
_DOT: _Product = ("v_dot", 128, 32, 16)
_MATRIX: _Product = ("v_mmla", 128, 32, 32)
_LONG: _Product = ("v_mla_long", 128, 16, 8)


def peak_products(board: BoardProfile, dtype: str) -> float | None:
    """Multiply-adds per cycle of the board's `timed_core` in f32, f16 or s8; None if it has no
    model, or no such instructions."""
    core = timed_core(board)
    if core is None or (dtype == "f16" and not board.computes_half):
        return None
    if board.arch == "riscv64" and not board.vlen_bits:
        product = _SCALAR.get(dtype)
    elif dtype == "s8":
        kind = board.isa.i8
        product = _MATRIX if kind is ByteProduct.MMLA else _DOT if kind.is_signed_dot else _LONG
    else:
        product = _FLOAT.get(dtype)
    return _rate(core, product) if product else None


def _rate(core: Core, product: _Product) -> float:
    name, width, element, count = product
    row = operation_table(core)[name, WIDTHS.index(width), ELEMENTS.index(element)]
    ports = len(core.units[row.unit or ""].ports)
    busy = (row.uops or 1) * (row.takes or 1) * (row.cycles or 1)
    return count * min(ports / busy, core.issue.width)
