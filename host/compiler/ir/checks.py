"""Checks shared by the operators' shape rules; all raise `ShapeError`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgekit.host.compiler.ir.types import DType, Shape, ShapeError, Tensor

_DIMENSION_LIMIT = 2**31
_ELEMENTS_LIMIT = 2**31 - 1  # per tensor: some kernel loops count in int


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
    if any(v < 1 for v in values):
        raise ShapeError(f"expected {name} of at least 1, found {list(values)}")
    if any(v >= _DIMENSION_LIMIT for v in values):
        raise ShapeError(f"expected {name} below {_DIMENSION_LIMIT}, found {list(values)}")


def need_pairs(name: str, *pairs: tuple[int, ...]) -> None:
    """Require sizes of at least 1 for height and width."""
    for pair in pairs:
        if len(pair) != 2:
            raise ShapeError(f"expected two sizes as {name}, found {list(pair)}")
        need_positive(pair, name)


def need_elements(shape: Shape) -> None:
    """Limit the size of a tensor."""
    if math.prod(shape) > _ELEMENTS_LIMIT:
        raise ShapeError(
            f"expected tensors of at most {_ELEMENTS_LIMIT} elements, found {list(shape)}"
        )


def need_axis(axis: int, rank: int) -> None:
    if not 0 <= axis < rank:
        raise ShapeError(f"expected an axis from 0 to {rank - 1}, found {axis}")


def need_scale(t: Tensor, name: str) -> None:
    """Require a per-tensor scale of 8- or 16-bit activations."""
    quantized = t.dtype.is_quantized or t.dtype is DType.I16
    if quantized and (t.quant is None or t.quant.per_channel):
        raise ShapeError(
            f"expected one scale for {name}, which is {t.dtype.value}, found "
            f"{0 if t.quant is None else t.quant.scale.size}"
        )


def need_scales_of_rows(w: Tensor) -> None:
    """Require of weights one scale, or one per element of axis 0."""
    size = 0 if w.quant is None else w.quant.scale.size
    if size != 1 and (w.quant is None or size != w.shape[0] or w.quant.axis):
        raise ShapeError(
            f"expected weights with one scale or {w.shape[0]} along axis 0, found {size}"
        )


def need_known_scales(tensors: Sequence[Tensor], name: str) -> None:
    """Require of values of 8 or 16 bits that all have one scale, or that none has any."""
    small = [t for t in tensors if t.dtype.is_quantized or t.dtype is DType.I16]
    if any(t.quant is not None for t in small):
        for t in small:
            need_scale(t, name)


def equal_quantization(a: Tensor, b: Tensor) -> bool:
    """Whether equal stored values are equal real ones."""
    if a.quant is None or b.quant is None:
        return a.quant is b.quant
    pairs = ((a.quant.scale, b.quant.scale), (a.quant.zero_point, b.quant.zero_point))
    return all(np.array_equal(x, y) for x, y in pairs)


ARITHMETIC = (DType.F32, DType.I8, DType.U8)
IMAGES = (*ARITHMETIC, DType.I16)
FLOATS = (DType.F32, DType.F16)
SIGNED = (DType.I8, DType.I16, DType.I32, DType.I64)
UNSIGNED = (DType.U8, DType.U16, DType.U32, DType.U64)
INTEGERS = (*SIGNED, *UNSIGNED)
