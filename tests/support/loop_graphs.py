"""Random loops, for `op_graphs`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Operator, Tensor
from tests.support.op_cases import Case, Rng, constant, pick, tensor


class _Body:
    """A loop body under construction; keyword names are its inputs."""

    def __init__(self, **inputs: Tensor) -> None:
        self._tensors = {n: _named(t, n) for n, t in inputs.items()}
        self._inputs = tuple(inputs)
        self._nodes: list[Node] = []

    def fixed(self, name: str, value: Tensor) -> str:
        self._tensors[name] = _named(value, name)
        return name

    def emit(self, name: str, op: Operator, *ins: str) -> str:
        ((shape, dtype),) = op.infer([self._tensors[n] for n in ins])
        self._tensors[name] = Tensor(name, shape, dtype)
        self._nodes.append(Node(name, op, ins, (name,)))
        return name

    def graph(self, *outputs: str) -> Graph:
        return Graph("body", self._tensors, tuple(self._nodes), self._inputs, outputs)


def _named(t: Tensor, name: str) -> Tensor:
    return Tensor(name, t.shape, t.dtype, None, t.data)


def accumulate(rng: Rng) -> Case:
    """state' = tanh((state + row) · W + b). Each step outputs state' and the row times a loop
    invariant, which alternates with a state."""
    steps, n, m = pick(rng, (1, 2, 17)), pick(rng, (1, 3, 16)), pick(rng, (1, 5, 33))
    state, other, row = tensor((n, m)), tensor((m,)), tensor((n, m))
    body = _Body(state=state, other=other, row=row, factor=other)
    w = body.fixed("w", constant(rng.uniform(-1, 1, (m, m)) / m**0.5))
    body.emit("sum", ops.Add(), "state", "row")
    body.emit("product", ops.FullyConnected(True), "sum", w)
    body.emit("new", ops.Tanh(), "product")
    body.emit("kept", ops.Mul(), "row", "factor")
    body.emit("joined", ops.Concat(1), "new", "kept")
    op = ops.Loop(steps, 2, 1, False, body.graph("new", "factor", "joined", "other"))
    return Case(op, (state, other, tensor((steps, n, m)), tensor((m,))))


def swapped(rng: Rng) -> Case:
    """Integers: two states swap places, and one is offset by the row index."""
    steps, m = pick(rng, (1, 4, 40)), pick(rng, (1, 7, 64))
    state = tensor((m,), DType.I64)
    body = _Body(a=state, b=state, t=tensor((), DType.I64))
    body.emit("sum", ops.Add(), "b", "t")
    op = ops.Loop(steps, 2, 1, False, body.graph("sum", "a", "t"))
    numbers = constant(np.arange(steps), DType.I64)
    return Case(op, (state, state, numbers))


def ending(rng: Rng) -> Case:
    """Loop while the state's maximum is below a limit, which may not hold at the start."""
    steps, m = pick(rng, (1, 6, 30)), pick(rng, (1, 9))
    body = _Body(state=tensor((m,)), row=tensor((m,)))
    limit = body.fixed("limit", constant(np.array(rng.uniform(0, 20))))
    body.emit("square", ops.Mul(), "row", "row")
    body.emit("new", ops.Add(), "state", "square")
    body.emit("most", ops.ReduceMax((0,), False), "new")
    body.emit("going", ops.Less(), "most", limit)
    op = ops.Loop(steps, 1, 1, True, body.graph("going", "new", "new"))
    start = constant(np.array(rng.random() < 0.8), DType.BOOL)
    return Case(op, (start, tensor((m,)), tensor((steps, m))))


def nested(rng: Rng) -> Case:
    """A loop inside each step of a loop."""
    steps, m = pick(rng, (1, 3)), pick(rng, (4, 17))
    inner = _Body(x=tensor((m,)), factor=tensor((m,)))
    inner.emit("y", ops.Mul(), "x", "factor")
    op = ops.Loop(3, 1, 0, False, inner.graph("y"))
    body = _Body(state=tensor((m,)), row=tensor((m,)))
    body.emit("powers", op, "state", "row")
    body.emit("bounded", ops.Tanh(), "powers")
    return Case(
        ops.Loop(steps, 1, 1, False, body.graph("bounded", "powers")),
        (tensor((m,)), tensor((steps, m))),
    )


def loop(rng: Rng) -> Case:
    makers: list[Callable[[Rng], Case]] = [accumulate, swapped, ending, nested]
    return makers[int(rng.integers(len(makers)))](rng)


FAMILIES = {"loop": (loop, (None,))}
