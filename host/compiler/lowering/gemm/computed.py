"""Products of two computed float matrices: operand layout and method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from edgekit.device.runtime.kernel_facts import MATMUL_DIMS
from edgekit.host.compiler.costs.methods.operators import Form
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import strides_of
from edgekit.host.compiler.ir.types import DType, Node, Shape, Tensor
from edgekit.host.compiler.lowering.context import UnsupportedFormError
from edgekit.host.compiler.lowering.plan import Field
from edgekit.kb.features import GemmShape

Axes = tuple[int, ...]


@dataclass(frozen=True)
class GemmOperands:
    """y [m, n] = scale * a [m, k] . b [k, n] for each matrix of a stack.

    `a`, `b` and `y` hold the row and column strides in elements. `stack` lists, outermost first,
    each dim and its strides in a, b and y.
    """

    shape: GemmShape
    a: Axes
    b: Axes
    y: Axes
    stack: tuple[tuple[int, Axes], ...]
    scale: float

    @property
    def by_columns(self) -> bool:
        """True if the columns of b are contiguous."""
        return self.b[0] == 1

    @property
    def matrices(self) -> int:
        return math.prod(size for size, _ in self.stack)

    @property
    def fields(self) -> dict[str, Field]:
        """The argument fields common to all kernels."""
        return {
            "k": self.shape.k,
            "n": self.shape.n,
            "a_row": self.a[0],
            "y_row": self.y[0],
            "dim": tuple(size for size, _ in self.stack),
            "a_stride": tuple(steps[0] for _, steps in self.stack),
            "b_stride": tuple(steps[1] for _, steps in self.stack),
            "y_stride": tuple(steps[2] for _, steps in self.stack),
            "scale": self.scale,
        }


def operands_of(node: Node, a: Tensor, b: Tensor, y: Tensor) -> GemmOperands:
    """The operands of a `MatMul`; `a`, `b` and `y` are its tensors as stored."""
    viewed = node.op if isinstance(node.op, ops.ViewedMatMul) else ops.ViewedMatMul()
    a_shape, a_steps = _permuted_view(a.shape, viewed.a_axes)
    b_shape, b_steps = _permuted_view(b.shape, viewed.b_axes)
    y_shape, y_steps = _permuted_view(y.shape, _invert_permutation(viewed.y_axes))
    stack = _stack_dims((a_shape, b_shape, y_shape), (a_steps, b_steps, y_steps))
    if len(stack) > MATMUL_DIMS:
        found = f"a stack of {len(stack)} dimensions (at most {MATMUL_DIMS})"
        raise UnsupportedFormError(found)
    (m, k), n = a_shape[-2:], b_shape[-1]
    steps = a_steps[-2:], b_steps[-2:], y_steps[-2:]
    return GemmOperands(GemmShape(m, k, n), *steps, tuple(stack), viewed.scale)


def form_of_product(node: Node, operands: GemmOperands, dtype: DType) -> Form:
    order: Literal["", "_rows", "_columns"] = ""
    if isinstance(node.op, ops.ViewedMatMul):
        order = "_columns" if operands.by_columns else "_rows"
    return Form("product", operands.shape, dtype.value, order=order)


def _permuted_view(shape: Shape, axes: Axes) -> tuple[Shape, Axes]:
    """The shape and strides of a stored tensor after a permutation of its axes."""
    steps = strides_of(shape, 1)
    order = axes or tuple(range(len(shape)))
    return tuple(shape[a] for a in order), tuple(steps[a] for a in order)


def _invert_permutation(axes: Axes) -> Axes:
    return tuple(axes.index(i) for i in range(len(axes)))


def _stack_dims(shapes: Sequence[Shape], steps: Sequence[Axes]) -> list[tuple[int, Axes]]:
    """The dims of a stack of matrices, outermost first, with the strides of each operand.

    The last of `shapes` gives the dims; neighboring dims are merged where the strides allow it.
    """
    merged: list[tuple[int, Axes]] = []
    rank = len(shapes[-1])
    for axis in range(rank - 2):
        size, here = shapes[-1][axis], []
        for shape, step in zip(shapes, steps, strict=True):
            own = axis - rank + len(shape)
            here.append(0 if own < 0 or shape[own] == 1 else step[own])
        if size == 1:
            continue
        if merged and merged[-1][1] == tuple(size * s for s in here):
            merged[-1] = (merged[-1][0] * size, tuple(here))
        else:
            merged.append((size, tuple(here)))
    return [(1, (0,) * len(shapes))] * (MATMUL_DIMS - len(merged)) + merged
