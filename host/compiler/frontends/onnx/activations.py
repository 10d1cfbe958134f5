"""Activation functions that ONNX's recurrent operators select by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, Operator, ShapeError, Tensor

Activate = Callable[[Tensor], Tensor]
# Functions with an operator of their own; its parameters are alpha and beta.
_CLASSES: list[type[Operator]] = [
    *(operator for operator in ops.every() if operator.recurrent and operator.onnx),
    ops.LeakyRelu,
    ops.Softplus,
]
_OPERATORS: dict[str, type[Operator]] = {operator.onnx.lower(): operator for operator in _CLASSES}
# Default alpha and beta of each function that has them.
_DEFAULTS: dict[str, tuple[float, ...]] = {
    "affine": (1.0, 0.0),
    "elu": (1.0,),
    "scaledtanh": (1.0, 1.0),
    "thresholdedrelu": (1.0,),
} | {name: tuple(vars(operator()).values()) for name, operator in _OPERATORS.items()}


@dataclass(frozen=True)
class Chosen:
    """A function by lower-case name, its alpha and beta, and the clip bound of its operand."""

    name: str
    values: tuple[float, ...]
    clip: float

    @property
    def operator(self) -> Operator | None:
        """The equivalent single operator, ignoring the clip, if one exists."""
        if self.name == "affine" and self.values == (1.0, 0.0):
            return ops.Clamp(Activation.NONE)
        if self.name == "relu":
            return ops.Clamp(Activation.RELU)
        return _OPERATORS[self.name](*self.values) if self.name in _OPERATORS else None

    def emit(self, call: OnnxCall, x: Tensor) -> Tensor:
        if self.clip < math.inf:
            x = call.emit(ops.Clip(-self.clip, self.clip), x)
        return activation(call, self.name, self.values)(x)


def chosen(call: OnnxCall, default: Sequence[str], ways: int) -> list[list[Chosen]]:
    """The functions of each direction, in order. `clip` bounds their operands, except that of an
    LSTM's third function, which reads the cell state unclipped (as in ONNX Runtime)."""
    names = call.texts("activations", (*default,) * ways)
    if len(names) != len(default) * ways:
        raise ShapeError(f"expected {len(default) * ways} activations, found {len(names)}")
    alphas, betas = iter(call.floats("activation_alpha")), iter(call.floats("activation_beta"))
    clip = call.number("clip") if call.has("clip") else math.inf
    if call.has("clip") and not 0 < clip < math.inf:
        raise ShapeError(f"expected a positive clip, found {clip}")
    found = [
        Chosen(
            name, _next_alpha_beta(name, alphas, betas), clip if i % len(default) < 2 else math.inf
        )
        for i, name in enumerate(map(str.lower, names))
    ]
    return [found[i * len(default) : (i + 1) * len(default)] for i in range(ways)]


def _next_alpha_beta(
    name: str, alphas: Iterator[float], betas: Iterator[float]
) -> tuple[float, ...]:
    """The next alpha and beta of the attributes, consumed only by functions that have them."""
    return tuple(
        next(given, default)
        for given, default in zip((alphas, betas), defaults_of(name), strict=False)
    )


def defaults_of(name: str) -> tuple[float, ...]:
    """Default alpha and beta of a function, as many as it has."""
    return _DEFAULTS.get(name, ())


def activation(call: OnnxCall, name: str, values: Sequence[float]) -> Activate:
    """The function with this lower-case name; `values` are its alpha and beta."""

    def scaled(x: Tensor, factor: float) -> Tensor:
        return call.emit(ops.Mul(), x, call.builder.floats(factor))

    def softsign(x: Tensor) -> Tensor:
        below = call.emit(ops.Add(), call.emit(ops.Abs(), x), call.builder.floats(1.0))
        return call.emit(ops.Div(), x, below)

    def thresholded(x: Tensor) -> Tensor:
        above = call.emit(ops.Less(), call.builder.floats(values[0]), x)
        return call.emit(ops.Where(), above, x, call.builder.floats(0.0))

    composed: dict[str, Activate] = {
        "affine": lambda x: call.emit(
            ops.Add(), scaled(x, values[0]), call.builder.floats(values[1])
        ),
        "elu": lambda x: call.emit(ops.Elu(values[0]), x),
        "relu": lambda x: call.emit(ops.Clamp(Activation.RELU), x),
        "scaledtanh": lambda x: scaled(call.emit(ops.Tanh(), scaled(x, values[1])), values[0]),
        "softsign": softsign,
        "thresholdedrelu": thresholded,
    }
    if name in _OPERATORS:
        return lambda x: call.emit(_OPERATORS[name](*values), x)
    if name not in composed:
        known = ", ".join(sorted({*_OPERATORS, *composed}))
        raise ShapeError(f"expected activations of {known}, found {name:.40}")
    return composed[name]
