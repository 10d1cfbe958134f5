"""Fixtures that run one operator's shape inference and reference on arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.ir.types import DType, Operator, Quant, Tensor

_DTYPES = {d.numpy: d for d in DType}


@dataclass(frozen=True, eq=False)
class QuantizedOperand:
    """Stored integers with scale(s) and zero point(s)."""

    values: Any
    scale: Any
    zero: Any = 0
    axis: int = 0

    @property
    def quant(self) -> Quant:
        scale = np.atleast_1d(np.asarray(self.scale, np.float32))
        zero = np.broadcast_to(np.asarray(self.zero, np.int64), scale.shape)
        return Quant(scale, zero, self.axis)

    @property
    def real(self) -> Any:
        """Real values, in f64."""
        shape = [1] * self.values.ndim
        if np.ndim(self.scale):
            shape[self.axis] = -1
        scale = np.reshape(np.asarray(self.scale, np.float32), shape).astype(np.float64)
        return scale * (self.values.astype(np.float64) - np.reshape(self.zero, (1,) * len(shape)))


def as_tensor(operand: Any) -> Tensor | None:
    if operand is None:
        return None
    quant = operand.quant if isinstance(operand, QuantizedOperand) else None
    values = operand.values if isinstance(operand, QuantizedOperand) else operand
    return Tensor("t", values.shape, _DTYPES[values.dtype], quant)


@pytest.fixture(scope="session")
def quantized() -> type[QuantizedOperand]:
    return QuantizedOperand


@pytest.fixture(scope="session")
def infer() -> Callable[..., Any]:
    """(operator, operands…) → [(shape, dtype)], by shape inference."""

    def run(op: Operator, *operands: Any) -> Any:
        return op.infer([as_tensor(o) for o in operands])

    return run


@pytest.fixture(scope="session")
def apply(infer: Callable[..., Any]) -> Callable[..., Any]:
    """(operator, operands…, to=QuantizedOperand or None) → result(s), whose shapes match shape
    inference.

    `limits` are passed to the operator's reference.
    """

    def run(op: Operator, *operands: Any, to: QuantizedOperand | None = None, **limits: int) -> Any:
        quant = None if to is None else to.quant
        outs = [Tensor("y", shape, dtype, quant) for shape, dtype in infer(op, *operands)]
        values = [o.values if isinstance(o, QuantizedOperand) else o for o in operands]
        results = op.reference(values, [as_tensor(o) for o in operands], outs, **limits)
        for result, out in zip(results, outs, strict=True):
            assert result.shape == out.shape
            assert result.dtype == out.dtype.numpy
        return results[0] if len(results) == 1 else results

    return run


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
