"""Import of TensorFlow Lite's 8-bit recurrent operators with 16-bit states."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgekit.host.compiler.frontends.tflite.call import TfliteCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.quantization import (
    quantize_multiplier,
    quantized_range,
    scale_of,
    zero_point_of,
)
from edgekit.host.compiler.ir.types import Array, DType, Quant, ShapeError, Tensor

_RELU, _TANH = 1, 4
_GATE_SCALE, _FRACTION, _ONE = np.float32(2**-12), np.float32(2**-15), np.float32(1)
_GATES = ("input", "forget", "cell", "output")
_FIRST_WEIGHTS, _FIRST_RECURRENT, _FIRST_PEEPHOLE, _FIRST_BIAS = 1, 5, 9, 12
_PROJECTION, _PROJECTION_BIAS, _HIDDEN, _CELL, _FIRST_NORM = 16, 17, 18, 19, 20
_INTERMEDIATES = 5
_NORM_SHIFT, _SHIFT_LIMIT = 12, 28
_LOW, _HIGH = quantized_range(DType.I8)


def lstm(call: TfliteCall, x: Tensor) -> Tensor:
    """The hidden states [time, batch, size] for all steps of x; writes back both states."""
    _need_plain(call)
    first = 1 if call.maybe(_FIRST_WEIGHTS) is None else 0
    gates = range(first, 4)
    hidden, cell = call.tensor(_HIDDEN, "hidden state"), call.tensor(_CELL, "cell state")
    _check_type(x, DType.I8, "input")
    _check_type(hidden, DType.I8, "hidden state")
    _check_type(cell, DType.I16, "cell state")
    between = call.intermediates[4]
    if between is None:
        raise ShapeError("expected a scale of the hidden values, found none")
    inner, inner_zero = _per_tensor_quant(between)
    if call.maybe(_PROJECTION) is not None:
        inner_zero = -inner_zero  # as in LiteRT; visible if hidden values saturate
    w = [_quantized_weights(call, _FIRST_WEIGHTS + g, f"{_GATES[g]} weights") for g in gates]
    r = [
        _quantized_weights(call, _FIRST_RECURRENT + g, f"recurrent {_GATES[g]} weights")
        for g in gates
    ]
    biases = [_read_bias(call, _FIRST_BIAS + g) for g in gates]
    scales, norms = _gate_scales(call, first), _norm_weights(call, first, len(biases[0]))
    added_to = [np.zeros_like(b) for b in biases] if norms else biases  # added after normalization
    bias = np.stack([
        np.concatenate([b + _zero_point_offset(x, t) for b, t in zip(added_to, w, strict=True)]),
        np.concatenate([_zero_point_offset(hidden, t) for t in r]),
    ])  # fmt: skip
    cell_scale = _power_of_two(cell)
    peepholes = _peepholes(call, first)
    projection, added = _projection_params(call, inner_zero)
    if peepholes and hidden.shape != cell.shape:
        raise ShapeError(  # LiteRT adds peepholes to as many values as the projection has
            "expected an 8-bit LSTM without peepholes, or without a projection to another size, "
            "found both"
        )
    to_output = (0, 0)
    if projection is not None:
        to_output = _ratio_multiplier(_scale_f32(projection), inner, over=_scale_f32(hidden))
    made = call.builder.emit_all(
        ops.QuantizedLSTM(
            of_input=_gate_multipliers(_scale_f32(x), w, scales),
            of_state=_gate_multipliers(_scale_f32(hidden), r, scales),
            of_cell=_gate_multipliers(_scale_f32(cell), peepholes, [*scales[:-2], scales[-1]]),
            of_norm=tuple(_of_norm(t) for t in norms),
            guards=tuple(max(1, int(np.float32(10000) * _scale_f32(t))) for t in norms),
            to_hidden=_ratio_multiplier(_FRACTION, over=inner, then=_FRACTION),
            hidden_zero=inner_zero,
            to_output=to_output,
            zero=zero_point_of(hidden),
            cell_bits=15 + cell_scale,
            cell_clip=_clip_limit(call, "CellClip", cell, 32767),
            clip=_clip_limit(call, "ProjClip", hidden, 127),
        ),
        [
            x, _stack_constants(call, w), _stack_constants(call, r), _i32_constant(call, bias),
            hidden, cell,
            _stack_constants(call, peepholes, True) if peepholes else None, projection, added,
            _stack_constants(call, norms, True) if norms else None,
            _i32_constant(call, np.stack(biases)) if norms else None,
        ],
        [call.outputs[0].quant, hidden.quant, cell.quant],
    )  # fmt: skip
    call.keep(_HIDDEN, made[1])
    call.keep(_CELL, made[2])
    return made[0]


def _need_plain(call: TfliteCall) -> None:
    if len(call.intermediates) != _INTERMEDIATES:
        raise ShapeError(
            f"expected an 8-bit LSTM with {_INTERMEDIATES} intermediate tensors, "
            f"found {len(call.intermediates)}"
        )
    if call.option("FusedActivationFunction") != _TANH:
        raise ShapeError("expected TANH as activation of an 8-bit LSTM, found another")


def _peepholes(call: TfliteCall, first: int) -> list[Tensor]:
    """The peephole weights of the input gate (if any), forget gate and output gate."""
    if call.maybe(_FIRST_PEEPHOLE + 1) is None:
        return []
    return [
        _quantized_weights(call, _FIRST_PEEPHOLE + i, "peephole weights", DType.I16)
        for i in range(first, 3)
    ]


def _gate_scales(call: TfliteCall, first: int) -> list[np.float32]:
    """The scales of the gates' function inputs, or of the inputs of their normalization."""
    if not _is_normalized(call):
        return [_GATE_SCALE] * (4 - first)
    found = [q for q in call.intermediates[first:4] if q is not None]
    if len(found) != 4 - first:
        raise ShapeError("expected scales of the gates before they are normalized, found none")
    return [_per_tensor_quant(quant)[0] for quant in found]


def _is_normalized(call: TfliteCall) -> bool:
    return call.maybe(_FIRST_NORM + 3) is not None


def _norm_weights(call: TfliteCall, first: int, cells: int) -> list[Tensor]:
    """The weights of gate normalization."""
    if not _is_normalized(call):
        return []
    found = [
        _quantized_weights(call, _FIRST_NORM + g, f"{_GATES[g]} normalization", DType.I16)
        for g in range(first, 4)
    ]
    if any(t.shape != (cells,) for t in found):
        raise ShapeError(f"expected normalizations of {cells} gates, found others")
    return found


def _of_norm(weights: Tensor) -> tuple[int, int]:
    """The multiplier from normalized gates to function inputs in Q3 format."""
    multiplier, shift = quantize_multiplier(float(_scale_f32(weights)))
    if shift + _NORM_SHIFT > _SHIFT_LIMIT:
        raise ShapeError(
            f"expected a scale of a normalization below 2^{_SHIFT_LIMIT - _NORM_SHIFT}, found "
            f"{_scale_f32(weights)}"
        )
    return multiplier, shift + _NORM_SHIFT


def _gate_multipliers(
    x: np.float32, weights: Sequence[Tensor], over: Sequence[np.float32]
) -> tuple[tuple[int, int], ...]:
    return tuple(
        _ratio_multiplier(x, _scale_f32(t), over=s) for t, s in zip(weights, over, strict=False)
    )


def _projection_params(call: TfliteCall, zero: int) -> tuple[Tensor | None, Tensor | None]:
    if call.maybe(_PROJECTION) is None:
        return None, None
    weights = _quantized_weights(call, _PROJECTION, "projection weights")
    total = -zero * _row_sums(weights)
    if call.maybe(_PROJECTION_BIAS) is not None:
        total = total + _read_bias(call, _PROJECTION_BIAS)
    return weights, _i32_constant(call, total)


def svdf(call: TfliteCall, x: Tensor) -> Tensor:
    weights = _quantized_weights(call, 1, "weights of features")
    times = _weights_of_time(call)
    state, rank = call.tensor(4, "state"), int(call.option("Rank"))
    _check_type(x, DType.I8, "input")
    _check_type(state, DType.I16, "state")
    if call.option("FusedActivationFunction") != _RELU:
        raise ShapeError("expected RELU as activation of an 8-bit SVDF, found another")
    if rank < 1 or times.shape[0] % rank:
        raise ShapeError(f"expected filters of rank {rank}, found {times.shape[0]}")
    quant = call.outputs[0].quant
    if quant is None:
        raise ShapeError("expected an output with a scale, found none")
    scale, zero = _per_tensor_quant(quant)
    bias = (
        np.zeros(times.shape[0] // rank, np.int64) if call.maybe(3) is None else _read_bias(call, 3)
    )
    op = ops.QuantizedSVDF(
        rank,
        _ratio_multiplier(_scale_f32(x), _scale_f32(weights), over=_scale_f32(state)),
        _ratio_multiplier(_scale_f32(state), _scale_f32(times), over=scale),
        zero,
    )
    ins = [
        x,
        weights,
        _i32_constant(call, _zero_point_offset(x, weights)),
        times,
        _i32_constant(call, bias),
        state,
    ]
    y, after = call.builder.emit_all(op, ins, [quant, state.quant])
    call.keep(4, after)
    return y


def _weights_of_time(call: TfliteCall) -> Tensor:
    """The weights over time; s8 ones are widened."""
    found = call.tensor(2, "weights of time")
    if found.dtype is not DType.I8:
        return _quantized_weights(call, 2, "weights of time", DType.I16)
    checked = _quantized_weights(call, 2, "weights of time")
    assert checked.data is not None
    return call.quantized(checked.data.astype(np.int16), checked.quant)


def _quantized_weights(call: TfliteCall, index: int, what: str, dtype: DType = DType.I8) -> Tensor:
    found = call.tensor(index, what)
    _check_type(found, dtype, what)
    if found.data is None or found.data.ndim not in (1, 2):
        raise ShapeError(f"expected constant {what} of one or two axes, found others")
    if zero_point_of(found):
        raise ShapeError(f"expected {what} with zero point 0, found {zero_point_of(found)}")
    return found


def _check_type(t: Tensor, dtype: DType, what: str) -> None:
    if t.dtype is not dtype or t.quant is None:
        raise ShapeError(
            f"expected {what} of type {dtype.value} with a scale, found {t.dtype.value}"
        )
    _per_tensor_quant(t.quant)


def _read_bias(call: TfliteCall, index: int) -> Array:
    found = call.tensor(index, "bias")
    if found.data is None or found.dtype is not DType.I32:
        raise ShapeError(f"expected a constant bias of type s32, found {found.dtype.value}")
    return found.data.astype(np.int64)


def _per_tensor_quant(quant: Quant) -> tuple[np.float32, int]:
    if quant.per_channel:
        raise ShapeError(f"expected one scale, found {quant.scale.size}")
    zero = int(quant.zero_point.flat[0])
    if not _LOW <= zero <= _HIGH:
        raise ShapeError(f"expected a zero point from {_LOW} to {_HIGH}, found {zero}")
    return np.float32(quant.scale.flat[0]), zero


def _scale_f32(t: Tensor) -> np.float32:
    return np.float32(scale_of(t))


def _ratio_multiplier(
    a: np.float32, b: np.float32 = _ONE, *, over: np.float32, then: np.float32 = _ONE
) -> tuple[int, int]:
    """a · b / over · then in f32, as in LiteRT."""
    with np.errstate(all="ignore"):
        value = float(a * b / over * then)
    if not math.isfinite(value):
        raise ShapeError("expected a ratio of scales that is finite, found an infinite one")
    return quantize_multiplier(value)


def _row_sums(weights: Tensor) -> Array:
    assert weights.data is not None
    sums: Array = weights.data.astype(np.int64).sum(axis=-1)
    return sums


def _zero_point_offset(x: Tensor, weights: Tensor) -> Array:
    """The contribution of the zero point of x to the sums."""
    return -zero_point_of(x) * _row_sums(weights)


def _i32_constant(call: TfliteCall, values: Array) -> Tensor:
    return call.quantized(values.astype(np.int32), None)


def _stack_constants(call: TfliteCall, parts: Sequence[Tensor], rows: bool = False) -> Tensor:
    """Constants concatenated along the first axis, or stacked as rows if `rows`."""
    values = [p.data for p in parts if p.data is not None]
    if any(v.shape != values[0].shape for v in values):
        raise ShapeError(
            f"expected weights of all gates of one shape, found {[v.shape for v in values]}"
        )
    return call.quantized(np.stack(values) if rows else np.concatenate(values), None)


def _power_of_two(cell: Tensor) -> int:
    """The exponent of the cell's power-of-two scale."""
    fraction, exponent = math.frexp(scale_of(cell))
    if fraction != 0.5:
        raise ShapeError(f"expected a power of 2 as the cell's scale, found {scale_of(cell)}")
    return exponent - 1


def _clip_limit(call: TfliteCall, option: str, of: Tensor, largest: int) -> int:
    limit = float(call.option(option))
    with np.errstate(all="ignore"):
        quantized = float(np.float32(limit) / _scale_f32(of))
    return int(min(quantized, largest)) if limit > 0 else 0
