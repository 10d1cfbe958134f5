"""Import of TensorFlow Lite's Fourier transforms; complex tensors are pairs of f32 tensors."""

from __future__ import annotations

from edgekit.host.compiler.frontends.common.emitter import Emitter
from edgekit.host.compiler.frontends.common.fourier import transform
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
    longest = ops.Fourier.LONGEST
    if len(x.shape) < 2 or not (1 <= rows <= longest and 1 <= columns <= longest):
        raise InputError(f"expected transforms of 1 to {longest} points, found {rows}x{columns}")
    call = _Pieces(scope)
    x = call.part(x, len(x.shape) - 2, 0, min(rows, x.shape[-2]))
    spectra = transform(call, call.reshape(x, (*x.shape, 1)), columns, onesided=True, planar=True)
    pair = _pair_of(call, spectra)
    if rows > 1:
        pair = _transform_columns(call, pair, rows)
    scope.complexes[operator.outputs[0]] = pair
    return []


class _Pieces(Emitter):
    def __init__(self, scope: TfliteScope) -> None:
        self.builder = scope.builder


def _transform_columns(call: Emitter, x: Complex, points: int) -> Complex:
    rank = len(x[0].shape)
    swap = [*range(rank - 2), rank - 1, rank - 2]
    columns = [call.transpose(part, swap) for part in x]
    columns = [call.reshape(part, (*part.shape, 1)) for part in columns]
    made = transform(call, call.emit(ops.Concat(rank), *columns), points, planar=True)
    real, imaginary = (call.transpose(part, swap) for part in _pair_of(call, made))
    return real, imaginary


def _pair_of(call: Emitter, planar: Tensor) -> Complex:
    """[..., 2, n] → two tensors [..., n]."""
    parts = call.split(planar, len(planar.shape) - 2, (1, 1))
    shape = (*planar.shape[:-2], planar.shape[-1])
    real, imaginary = (call.reshape(part, shape) for part in parts)
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
