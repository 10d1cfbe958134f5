"""Random recurrent layers, for `op_graphs`."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.quantization import quantize_multiplier
from edgekit.host.compiler.ir.types import Activation, DType, Operator, Tensor
from tests.support.op_cases import Case, Rng, constant, pick, quant, tensor

_FUNCTIONS: tuple[dict[str, Operator], ...] = (
    {},
    {"gate": ops.HardSigmoid(), "squash": ops.Clamp(Activation.NONE), "last": ops.Logistic()},
    {"gate": ops.Clamp(Activation.RELU_0_TO_1), "squash": ops.Logistic(), "last": ops.Tanh()},
)


def _functions(rng: Rng, *places: str) -> dict[str, Operator]:
    """Usually the default activation functions."""
    chosen = _FUNCTIONS[pick(rng, (0, 0, 0, 1, 2))]
    return {place: function for place, function in chosen.items() if place in places}


def _layer(rng: Rng, gates: int) -> tuple[list[Tensor | None], dict[str, Any], int]:
    """Operands and attributes common to all kinds, and the hidden size. Weights keep states from
    growing or vanishing."""
    time, batch = pick(rng, (1, 2, 5, 37)), pick(rng, (1, 1, 2, 3, 4, 9))
    hidden = pick(rng, (1, 3, 7, 16, 17, 33, 64, 65, 149))
    weights = rng.uniform(-1, 1, (gates * hidden, hidden)) * (0.7 / hidden**0.5)
    lengths = constant(rng.integers(0, time + 2, (batch,)), DType.I32)
    ins: list[Tensor | None] = [
        tensor((time, batch, gates * hidden)),
        constant(weights),
        lengths if rng.random() < 0.4 else None,
        tensor((batch, hidden)),
    ]
    fields: dict[str, Any] = {"backwards": bool(rng.random() < 0.5)}
    if rng.random() < 0.3:
        fields["clip"] = 0.4
    return ins, fields, hidden


def lstm(rng: Rng) -> Case:
    ins, fields, hidden = _layer(rng, 4)
    peepholes = constant(rng.uniform(-1, 1, (3, hidden))) if rng.random() < 0.4 else None
    fields |= {**_functions(rng, "gate", "squash", "last"), "cell_clip": pick(rng, (1, 3))}
    ins += [tensor(ins[3].shape), peepholes]
    return Case(ops.Lstm(**fields), tuple(ins))


def gru(rng: Rng) -> Case:
    ins, fields, hidden = _layer(rng, 3)
    linear = bool(rng.random() < 0.5)
    fields |= _functions(rng, "gate", "squash")
    bias = constant(rng.uniform(-1, 1, (hidden,))) if linear and rng.random() < 0.7 else None
    return Case(ops.Gru(**fields, linear_before_reset=linear), (*ins, bias))


def rnn(rng: Rng) -> Case:
    ins, fields, _ = _layer(rng, 1)
    return Case(ops.Rnn(**fields, **_functions(rng, "squash")), tuple(ins))


def recurrent(rng: Rng) -> Case:
    return (lstm, gru, rnn)[int(rng.integers(3))](rng)


def _factor(rng: Rng, products: int, largest: int) -> tuple[int, int]:
    """Multiplier from sums of 8-bit products to the full range up to `largest`."""
    return quantize_multiplier(largest * float(rng.uniform(0.5, 2)) / 5000 / products**0.5)


def _codes(rng: Rng, *shape: int, dtype: DType = DType.I8) -> Tensor:
    info = np.iinfo(dtype.numpy)
    return constant(rng.integers(info.min, info.max + 1, shape), dtype)


def _biases(rng: Rng, *shape: int) -> Tensor:
    return constant(rng.integers(-9999, 9999, shape), DType.I32)


def quantized_lstm(rng: Rng) -> Case:
    time, batch, size = pick(rng, (1, 2, 17)), pick(rng, (1, 1, 2, 5)), pick(rng, (1, 3, 40))
    cells, gates = pick(rng, (1, 7, 16, 33, 149)), pick(rng, (3, 4))
    out = pick(rng, (1, 5, 30)) if rng.random() < 0.4 else cells
    projected, peepholes, norms = out != cells, rng.random() < 0.4, rng.random() < 0.4
    zeros = (int(v) for v in rng.integers(-128, 128, 2))
    op = ops.QuantizedLSTM(
        of_input=tuple(_factor(rng, size, 9000) for _ in range(gates)),
        of_state=tuple(_factor(rng, out, 9000) for _ in range(gates)),
        of_cell=tuple(quantize_multiplier(1e-5) for _ in range(gates - 1)) if peepholes else (),
        of_norm=tuple(quantize_multiplier(2.0**-5) for _ in range(gates)) if norms else (),
        guards=tuple(int(v) for v in rng.integers(1, 99, gates)) if norms else (),
        to_hidden=quantize_multiplier(2.0**-22),
        hidden_zero=next(zeros) // 4,
        to_output=_factor(rng, cells, 60),
        zero=next(zeros) // 4,
        cell_bits=pick(rng, range(7)),
        cell_clip=pick(rng, (0, 9000)),
        clip=pick(rng, (0, 70)),
    )
    ins = (
        tensor((time, batch, size), DType.I8, quant(0.02)),
        _codes(rng, gates * cells, size),
        _codes(rng, gates * cells, out),
        _biases(rng, 2, gates * cells),
        _codes(rng, batch, out),
        _codes(rng, batch, cells, dtype=DType.I16),
        _codes(rng, gates - 1, cells, dtype=DType.I16) if peepholes else None,
        _codes(rng, out, cells) if projected else None,
        _biases(rng, out) if projected else None,
        _codes(rng, gates, cells, dtype=DType.I16) if norms else None,
        _biases(rng, gates, cells) if norms else None,
    )
    return Case(op, ins, quant(0.01))


def quantized_svdf(rng: Rng) -> Case:
    batch, size, units = pick(rng, (1, 3)), pick(rng, (1, 5, 77)), pick(rng, (1, 4, 35))
    rank, frames = pick(rng, (1, 2, 3)), pick(rng, (1, 2, 11))
    filters = units * rank
    zero = int(rng.integers(-128, 128))
    wide = quantize_multiplier(2.0**-22 / (rank * frames) ** 0.5)
    op = ops.QuantizedSVDF(rank, _factor(rng, size, 9000), wide, zero)
    ins = (
        tensor((batch, size), DType.I8, quant(0.02)),
        _codes(rng, filters, size),
        _biases(rng, filters),
        _codes(rng, filters, frames, dtype=DType.I16),
        _biases(rng, units),
        _codes(rng, batch, filters * frames, dtype=DType.I16),
    )
    return Case(op, ins, quant(0.01))


def recurrent_8bit(rng: Rng) -> Case:
    return (quantized_lstm, quantized_svdf)[int(rng.integers(2))](rng)


FAMILIES = {"recurrent": (recurrent, (None,)), "recurrent_8bit": (recurrent_8bit, (None,))}
