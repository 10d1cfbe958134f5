"""The activation functions that ONNX's recurrent operators name in attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from edgekit.host.compiler.frontends.onnx.call import Call
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, Operator, ShapeError, Tensor

Activate = Callable[[Tensor], Tensor]
# Functions without parameters.
_PLAIN: dict[str, Operator] = {
    "relu": ops.Clamp(Activation.RELU),
    "sigmoid": ops.Logistic(),
    "softplus": ops.Softplus(),
    "tanh": ops.Tanh(),
}
# The defaults of alpha and beta, as far as a function has them.
_DEFAULTS: dict[str, tuple[float, ...]] = {
    "affine": (1.0, 0.0),
    "elu": (1.0,),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01,),
    "scaledtanh": (1.0, 1.0),
    "thresholdedrelu": (1.0,),
}


@dataclass(frozen=True)
class Chosen:
    """A function by its name in lower case, its alpha and beta, and what bounds its operand."""

    name: str
    values: tuple[float, ...]
    clip: float

    @property
    def operator(self) -> Operator | None:
        """The one operator that does it without the clip, if there is one."""
        if self.name == "hardsigmoid":
            return ops.HardSigmoid(*self.values)
        if self.name == "affine" and self.values == (1.0, 0.0):
            return ops.Clamp(Activation.NONE)
        return _PLAIN.get(self.name)

    def emit(self, call: Call, x: Tensor) -> Tensor:
        if self.clip < math.inf:
            x = call.emit(ops.Clip(-self.clip, self.clip), x)
        return activation(call, self.name, self.values)(x)


def chosen(call: Call, default: Sequence[str], ways: int) -> list[list[Chosen]]:
    """The functions of each direction in order; `clip` bounds what each of them gets, but for the
    third of an LSTM, which takes the cell's state as it is (as in ONNX Runtime)."""
    names = call.texts("activations", (*default,) * ways)
    if len(names) != len(default) * ways:
        raise ShapeError(f"expected {len(default) * ways} activations, found {len(names)}")
    alphas, betas = iter(call.floats("activation_alpha")), iter(call.floats("activation_beta"))
    clip = call.number("clip") if call.has("clip") else math.inf
    if call.has("clip") and not 0 < clip < math.inf:
        raise ShapeError(f"expected a positive clip, found {clip}")
    found = [
        Chosen(name, _values(name, alphas, betas), clip if i % len(default) < 2 else math.inf)
        for i, name in enumerate(map(str.lower, names))
    ]
    return [found[i * len(default) : (i + 1) * len(default)] for i in range(ways)]


def _values(name: str, alphas: Iterator[float], betas: Iterator[float]) -> tuple[float, ...]:
    """Functions take alphas and betas from the attributes in turn, those that have any."""
    return tuple(
        next(given, default)
        for given, default in zip((alphas, betas), _DEFAULTS.get(name, ()), strict=False)
    )


def activation(call: Call, name: str, values: Sequence[float]) -> Activate:
    """The function of this name in lower case; `values` are its alpha and beta."""

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
        "hardsigmoid": lambda x: call.emit(ops.HardSigmoid(*values), x),
        "leakyrelu": lambda x: call.emit(ops.LeakyRelu(values[0]), x),
        "scaledtanh": lambda x: scaled(call.emit(ops.Tanh(), scaled(x, values[1])), values[0]),
        "softsign": softsign,
        "thresholdedrelu": thresholded,
    }
    if name in _PLAIN:
        return lambda x: call.emit(_PLAIN[name], x)
    if name not in composed:
        raise ShapeError(
            f"expected activations of {', '.join(sorted({*_PLAIN, *composed}))}, found {name:.40}"
        )
    return composed[name]
