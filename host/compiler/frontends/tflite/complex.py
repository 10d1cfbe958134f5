"""Import of TensorFlow Lite's Fourier transforms; complex tensors are pairs of f32 tensors."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.frontends.common.emitter import Emitter
from edgekit.host.compiler.frontends.common.fourier import LONGEST, waves
from edgekit.host.compiler.frontends.tflite.schema import FileOperator
from edgekit.host.compiler.frontends.tflite.scope import Complex, TfliteScope
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Tensor
from edgekit.host.errors import InputError

# Operators that apply to both parts of a complex tensor (input 0) independently.
MOVES = {
    "EXPAND_DIMS", "GATHER", "RESHAPE", "REVERSE_V2", "SLICE", "SQUEEZE", "STRIDED_SLICE",
    "TRANSPOSE",
}  # fmt: skip


def rfft2d(scope: TfliteScope, operator: FileOperator) -> list[Tensor]:
    """[..., h, w] → complex [..., fh, fw / 2 + 1]; inputs are zero-padded or cropped to the
    transform size."""
    _check_arity(operator, 2)
    x, lengths = (scope.tensors.get(i) for i in operator.inputs)
    if lengths.data is None or lengths.elements != 2 or x.dtype is not DType.F32:
        raise InputError(
            f"expected an f32 input and two constant lengths, found {x.dtype.value} and "
            f"{'computed' if lengths.data is None else lengths.elements} lengths"
        )
    rows, columns = (int(n) for n in lengths.data.reshape(-1))
    if len(x.shape) < 2 or not (1 <= rows <= LONGEST and 1 <= columns <= LONGEST):
        raise InputError(f"expected transforms of 1 to {LONGEST} points, found {rows}x{columns}")
    call = _Pieces(scope)
    extent = (*x.shape[:-2], min(rows, x.shape[-2]), min(columns, x.shape[-1]))
    if extent != x.shape:
        rank = len(extent)
        x = call.emit(ops.StridedSlice((0,) * rank, (1,) * rank, extent, extent), x)
    scope.complexes[operator.outputs[0]] = _transform_columns(
        call, _transform_rows(call, x, columns), rows
    )
    return []


class _Pieces(Emitter):
    def __init__(self, scope: TfliteScope) -> None:
        self.builder = scope.builder


def _transform_rows(call: Emitter, x: Tensor, points: int) -> Complex:
    """Transforms each row to the first half of its frequencies."""
    shown = points // 2 + 1
    cosine, sine = waves(points, x.shape[-1], shown)
    weights = np.concatenate([cosine, -sine]).astype(np.float32)
    both = call.emit(ops.FullyConnected(True), x, call.constant(weights), None)
    split = ops.Split(len(x.shape) - 1, (shown, shown))
    real, imaginary = call.builder.emit_all(split, [both])
    return real, imaginary


def _transform_columns(call: Emitter, x: Complex, points: int) -> Complex:
    """Transforms each column."""
    length, axis = x[0].shape[-2], len(x[0].shape) - 2
    if points == 1:
        return x
    cosine, sine = waves(points, length, points)
    turn = np.block([[cosine, sine], [-sine, cosine]]).astype(np.float32)
    both = call.emit(ops.MatMul(), call.constant(turn), call.emit(ops.Concat(axis), *x))
    real, imaginary = call.builder.emit_all(ops.Split(axis, (points, points)), [both])
    return real, imaginary


def real(scope: TfliteScope, operator: FileOperator) -> list[Tensor]:
    """REAL, or CAST to f32, which drops the imaginary part."""
    return [_complex_operand(scope, operator)[0]]


def imaginary(scope: TfliteScope, operator: FileOperator) -> list[Tensor]:
    return [_complex_operand(scope, operator)[1]]


def magnitude(scope: TfliteScope, operator: FileOperator) -> list[Tensor]:
    emit = scope.builder.emit
    squares = [emit(ops.Mul(), part, part) for part in _complex_operand(scope, operator)]
    return [emit(ops.Sqrt(), emit(ops.Add(), *squares))]


def _complex_operand(scope: TfliteScope, operator: FileOperator) -> Complex:
    _check_arity(operator, 1)
    found = scope.complexes.get(operator.inputs[0])
    if found is None:
        raise InputError(
            f"expected a complex tensor, found {scope.tensors.shown(operator.inputs[0])}"
        )
    return found


def _check_arity(operator: FileOperator, inputs: int) -> None:
    if (len(operator.inputs), len(operator.outputs)) != (inputs, 1):
        raise InputError(
            f"expected {inputs} inputs and one output, "
            f"found {len(operator.inputs)} and {len(operator.outputs)}"
        )
