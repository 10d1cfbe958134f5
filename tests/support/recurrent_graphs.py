"""Random recurrent layers, for `op_graphs`."""

from __future__ import annotations

from typing import Any

from op_cases import Case, Rng, constant, pick, tensor

from edgekit.host.graph import ops
from edgekit.host.graph.types import Activation, DType, Operator, Tensor

_FUNCTIONS: tuple[dict[str, Operator], ...] = (
    {},
    {"gate": ops.HardSigmoid(), "squash": ops.Clamp(Activation.NONE), "last": ops.Logistic()},
    {"gate": ops.Clamp(Activation.RELU_0_TO_1), "squash": ops.Logistic(), "last": ops.Tanh()},
)


def _functions(rng: Rng, *places: str) -> dict[str, Operator]:
    """The usual ones, as a rule."""
    chosen = _FUNCTIONS[pick(rng, (0, 0, 0, 1, 2))]
    return {place: function for place, function in chosen.items() if place in places}


def _layer(rng: Rng, gates: int) -> tuple[list[Tensor | None], dict[str, Any], int]:
    """Operands that all kinds have, attributes of all kinds, and h. Weights are such that states
    neither grow nor vanish."""
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


FAMILIES = {"recurrent": (recurrent, (None,))}
