"""Checks shared by the operators' shape rules; all raise `ShapeError`."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.host.compiler.ir.types import DType, ShapeError, Tensor

_DIMENSION_LIMIT = 2**31


def operand(ins: Sequence[Tensor | None], index: int, name: str) -> Tensor:
    """Return the required input `index`."""
    found = optional(ins, index)
    if found is None:
        raise ShapeError(f"expected input {index} ({name}), found none")
    return found


def optional(ins: Sequence[Tensor | None], index: int) -> Tensor | None:
    return ins[index] if index < len(ins) else None


def present(ins: Sequence[Tensor | None]) -> list[Tensor]:
    """Return all inputs; requires at least one, and all to be present."""
    if not ins:
        raise ShapeError("expected at least one input, found none")
    return [operand(ins, i, "operand") for i in range(len(ins))]


def need_rank(t: Tensor, rank: int, name: str) -> None:
    if len(t.shape) != rank:
        raise ShapeError(f"expected {name} of rank {rank}, found shape {list(t.shape)}")


def need_shape(t: Tensor, shape: tuple[int, ...], name: str) -> None:
    if t.shape != shape:
        raise ShapeError(f"expected {name} of shape {list(shape)}, found {list(t.shape)}")


def need_dtype(t: Tensor, dtypes: tuple[DType, ...], name: str) -> None:
    if t.dtype not in dtypes:
        wanted = " or ".join(d.value for d in dtypes)
        raise ShapeError(f"expected {name} of type {wanted}, found {t.dtype.value}")


def need_positive(values: tuple[int, ...], name: str) -> None:
    if any(not 1 <= v < _DIMENSION_LIMIT for v in values):
        raise ShapeError(f"expected {name} of at least 1, found {list(values)}")


def need_axis(axis: int, rank: int) -> None:
    if not 0 <= axis < rank:
        raise ShapeError(f"expected an axis from 0 to {rank - 1}, found {axis}")


def need_scale(t: Tensor, name: str) -> None:
    """Require a per-tensor scale of 8- or 16-bit activations."""
    coded = t.dtype.is_quantized or t.dtype is DType.I16
    if coded and (t.quant is None or t.quant.per_channel):
        raise ShapeError(f"expected one scale for {name}, which is {t.dtype.value}, found another")


ARITHMETIC = (DType.F32, DType.I8, DType.U8)
IMAGES = (*ARITHMETIC, DType.I16)
FLOATS = (DType.F32, DType.F16)
SIGNED = (DType.I8, DType.I16, DType.I32, DType.I64)
UNSIGNED = (DType.U8, DType.U16, DType.U32, DType.U64)
INTEGERS = (*SIGNED, *UNSIGNED)
