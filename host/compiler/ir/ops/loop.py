"""Loops: a subgraph executed once per step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir.checks import need_dtype, need_shape, operand
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import (
    Array,
    DType,
    Graph,
    Node,
    Operator,
    Shape,
    ShapeError,
    Tensor,
)

__all__ = ["Loop"]

_EMPTY = Graph("body", {}, (), (), ())
Runner = Callable[[Node, Mapping[str, Tensor], Mapping[str, Array]], list[Array]]


@dataclass(frozen=True)
class Loop(Operator):
    """Executes `body` `steps` times or, if `conditional`, at most so often, while it requests it.

    ins: if conditional, a bool whether to execute the first step; `states` tensors; `rows` tensors
    [steps, ...]; then loop-invariant tensors. Inputs of the body: the states, row t of each of the
    rows, the invariant tensors. Outputs of the body: if conditional, whether to continue; the
    states; values to collect. Outputs: if conditional, the number of executed steps, [1] s64; the
    final states; the collected values [steps, ...], with zeros after the last step.
    """

    kind: ClassVar[str] = "loop"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    steps: int = 1
    states: int = 0
    rows: int = 0
    conditional: bool = False
    body: Graph = field(default=_EMPTY)

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        body, first = self.body, int(self.conditional)
        self._check_body()
        if self.steps < 1 or len(ins) != first + len(body.inputs):
            raise ShapeError(f"expected {first + len(body.inputs)} operands, found {len(ins)}")
        if self.conditional:
            _need_flag(operand(ins, 0, "condition"))
            _need_flag(body.tensors[body.outputs[0]])
        for i, name in enumerate(body.inputs):
            x, wanted = operand(ins, first + i, "operand"), body.tensors[name]
            lead = (self.steps,) if self.states <= i < self.states + self.rows else ()
            need_shape(x, (*lead, *wanted.shape), "operand of a loop")
            need_dtype(x, (wanted.dtype,), "operand of a loop")
        made = [body.tensors[name] for name in body.outputs]
        for i in range(self.states):
            need_shape(made[first + i], body.tensors[body.inputs[i]].shape, "state of a loop")
            need_dtype(made[first + i], (body.tensors[body.inputs[i]].dtype,), "state of a loop")
        kept = made[first + self.states :]
        return [
            *([((1,), DType.I64)] if self.conditional else []),
            *((t.shape, t.dtype) for t in made[first : first + self.states]),
            *(((self.steps, *t.shape), t.dtype) for t in kept),
        ]

    def _check_body(self) -> None:
        body = self.body
        inputs, outputs = len(body.inputs), len(body.outputs)
        if min(self.states, self.rows) < 0 or self.states + self.rows > inputs:
            raise ShapeError(
                f"expected a body with inputs for {self.states} states and {self.rows} rows, "
                f"found {inputs}"
            )
        if outputs < self.states + self.conditional:
            raise ShapeError(
                f"expected a body of {self.states + self.conditional} outputs or more, "
                f"found {outputs}"
            )
        unknown = [n for n in (*body.inputs, *body.outputs) if n not in body.tensors]
        if unknown:
            raise ShapeError(f"expected inputs and outputs among the tensors, found {unknown[0]}")

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        return self.computed(x, _run_reference)

    def computed(self, x: Sequence[Array | None], run: Runner) -> list[Array]:
        """Compute the outputs with `run` for each node of the body."""
        body, first = self.body, int(self.conditional)
        given = [v for v in x if v is not None]
        going = not self.conditional or bool(given[0].reshape(-1)[0])
        states, rest = given[first : first + self.states], given[first + self.states :]
        rows, fixed = rest[: self.rows], rest[self.rows :]
        constants = {n: t.data for n, t in body.tensors.items() if t.data is not None}
        outs = [body.tensors[n] for n in body.outputs[first + self.states :]]
        kept = [np.zeros((self.steps, *t.shape), t.dtype.numpy) for t in outs]
        done = 0
        while going and done < self.steps:
            operands = [*states, *(r[done] for r in rows), *fixed]
            values = constants | dict(zip(body.inputs, map(np.asarray, operands), strict=True))
            for node in body.nodes:
                values.update(zip(node.outputs, run(node, body.tensors, values), strict=True))
            made = [values[n] for n in body.outputs]
            going = not self.conditional or bool(made[0].reshape(-1)[0])
            states = made[first : first + self.states]
            for whole, part in zip(kept, made[first + self.states :], strict=True):
                whole[done] = part
            done += 1
        return [*([np.array([done], np.int64)] if self.conditional else []), *states, *kept]


def _need_flag(t: Tensor) -> None:
    if t.elements != 1 or t.dtype is not DType.BOOL:
        raise ShapeError(f"expected one bool as condition, found {t.dtype.value}{list(t.shape)}")


def _run_reference(
    node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Array]
) -> list[Array]:
    return node.op.reference(
        [None if n is None else values[n] for n in node.inputs],
        [None if n is None else tensors[n] for n in node.inputs],
        [tensors[n] for n in node.outputs],
    )
