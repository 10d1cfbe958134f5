"""One operator with its operands, and the building blocks of test cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node, Operator, Quant, State, Tensor

Rng = np.random.Generator


@dataclass(frozen=True, eq=False)
class Case:
    """One operator; tensors without data become graph inputs. `after` consumes its result, along
    with separate operands."""

    op: Operator
    ins: tuple[Tensor | None, ...]
    quant: Quant | None = None
    after: Case | None = None


def quant(scale: float | Array, zero: int | Array = 0, axis: int = 0) -> Quant:
    scales = np.atleast_1d(np.asarray(scale, np.float32))
    return Quant(scales, np.full(scales.size, zero, np.int64), axis)


def tensor(shape: Sequence[int], dtype: DType = DType.F32, q: Quant | None = None) -> Tensor:
    return Tensor("", tuple(int(s) for s in shape), dtype, q)


def constant(data: Array, dtype: DType = DType.F32, q: Quant | None = None) -> Tensor:
    return Tensor("", data.shape, dtype, q, data.astype(dtype.numpy))


def pick(rng: Rng, values: Sequence[int]) -> int:
    return int(values[rng.integers(len(values))])


def stateful_graph() -> Graph:
    """y = x + s, then s = y: a running sum."""
    shape = (3, 5)
    names = ("x", "old", "y")
    return Graph(
        "sum",
        {n: Tensor(n, shape, DType.F32) for n in names},
        (
            Node("read", ops.ReadState("s"), (), ("old",)),
            Node("add", ops.Add(), ("x", "old"), ("y",)),
            Node("write", ops.WriteState("s"), ("y",), ()),
        ),
        ("x",),
        ("y",),
        {"s": State("s", np.full(shape, 0.5, np.float32))},
    )
