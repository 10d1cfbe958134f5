"""Quantized operators as ONNX defines them: real values in f32, rounded once, halves to even.

The order and precision of operations are ONNX Runtime's on x86, so that stored values are equal
even where scales make ties. On ARM it adds in fixed point and rounds halves away from zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.ir.quantization import (
    activation_range,
    dequantize,
    nearest_stored,
    quantized_range,
    scale_of,
    zero_point_of,
)
from edgekit.host.compiler.ir.types import Activation, Array, Tensor

_U8_MIDDLE = 128


def rounds_once(out: Tensor) -> bool:
    """Whether `out` is quantized to 8 bits by ONNX's rules."""
    return out.quant is not None and out.quant.rounds_once and out.dtype.bytes == 1


def reals(x: Array, source: Tensor) -> Array:
    """Dequantized values (f32)."""
    assert source.quant is not None
    return dequantize(x, source.quant)


def nearest(formula: Callable[..., Array], out: Tensor, *operands: tuple[Array, Tensor]) -> Array:
    """Quantized formula(real values); `operands` are stored values with their tensors."""
    with np.errstate(all="ignore"):
        y = formula(*(reals(x, t).astype(np.float64) for x, t in operands))
        return nearest_stored(np.asarray(y).astype(np.float32), out)


@dataclass(frozen=True)
class SumForm:
    """a · a_scale + (b · b_scale + addend) in two fused multiply-adds, of the file's values.

    The file's values are the stored ones plus `shift`.
    """

    a_scale: np.float32
    b_scale: np.float32
    addend: np.float32
    shift: int


@dataclass(frozen=True)
class ProductForm:
    """(a − its zero point) · (b − its zero point) · scale, then + addend: three roundings.

    The result less `shift` is the stored value.
    """

    scale: np.float32
    addend: np.float32
    shift: int


def sum_form(a: Tensor, b: Tensor, y: Tensor, activation: Activation) -> SumForm | None:
    """ONNX Runtime's kernel for a sum; None where it adds real values instead."""
    if not _is_one_step(a, b, y, activation):
        return None
    shift = shift_of(y)
    with np.errstate(over="ignore"):
        a_scale, b_scale = (np.float32(scale_of(t)) / np.float32(scale_of(y)) for t in (a, b))
        zeros = [np.float32(zero_point_of(t) + shift) for t in (a, b, y)]
        addend = zeros[2] - (a_scale * zeros[0] + b_scale * zeros[1])
    return SumForm(a_scale, b_scale, addend, shift)


def product_form(a: Tensor, b: Tensor, y: Tensor, activation: Activation) -> ProductForm | None:
    """ONNX Runtime's kernel for a product; None where it multiplies real values instead."""
    if not _is_one_step(a, b, y, activation):
        return None
    shift = shift_of(y)
    with np.errstate(over="ignore"):
        scale = np.float32(scale_of(a)) * np.float32(scale_of(b)) / np.float32(scale_of(y))
    return ProductForm(scale, np.float32(zero_point_of(y) + shift), shift)


def total(a: Array, b: Array, ends: tuple[Tensor, Tensor, Tensor], activation: Activation) -> Array:
    """Stored values of a + b; `ends` are the tensors of a, b and the sum."""
    left, right, out = ends
    form = sum_form(left, right, out, activation)
    if form is None:
        return _of_reals(np.add, a, b, ends, activation)
    wide = [x.astype(np.float64) + form.shift for x in (a, b)]
    inner = (wide[1] * form.b_scale + form.addend).astype(np.float32)
    y = (wide[0] * form.a_scale + inner).astype(np.float32)
    return _stored(y, form.shift, out)


def product(
    a: Array, b: Array, ends: tuple[Tensor, Tensor, Tensor], activation: Activation
) -> Array:
    """Stored values of a · b; `ends` are the tensors of a, b and the product."""
    left, right, out = ends
    form = product_form(left, right, out, activation)
    if form is None:
        return _of_reals(np.multiply, a, b, ends, activation)
    whole = (a.astype(np.int32) - zero_point_of(left)) * (b.astype(np.int32) - zero_point_of(right))
    y = whole.astype(np.float32) * form.scale + form.addend
    return _stored(y, form.shift, out)


def _is_one_step(a: Tensor, b: Tensor, y: Tensor, activation: Activation) -> bool:
    """Whether ONNX Runtime has one quantized operator for this: all values have one type, and the
    activation is what the type does anyway."""
    types = {t.quant.from_u8 for t in (a, b, y) if t.quant is not None}
    return len(types) == 1 and activation_range(activation, y) == quantized_range(y.dtype)


def shift_of(y: Tensor) -> int:
    """The file's values less the stored ones."""
    assert y.quant is not None
    return _U8_MIDDLE if y.quant.from_u8 else 0


def _stored(y: Array, shift: int, out: Tensor) -> Array:
    low, high = quantized_range(out.dtype)
    quantized: Array = np.clip(np.rint(y) - shift, low, high).astype(out.dtype.numpy)
    return quantized


def _of_reals(
    add: np.ufunc, a: Array, b: Array, ends: tuple[Tensor, Tensor, Tensor], activation: Activation
) -> Array:
    y = add(reals(a, ends[0]), reals(b, ends[1]))
    low, high = (np.float32(bound) for bound in activation.bounds)
    return nearest_stored(np.clip(y, low, high), ends[2])
