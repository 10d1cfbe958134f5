"""Models that make a vector of a picture: alike pictures have alike vectors."""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import Ends

_LEAST = 8  # numbers of a vector
_TINY = 1e-12


def vector_of(ends: Ends) -> Tensor | None:
    """The only output that is a vector, whose other axes are 1 long. [1, n, 1] is a value for each
    of n items, such as the scores of a detector's boxes."""
    found = [
        tensor
        for tensor in ends.outputs
        if _LEAST <= max(tensor.shape, default=0) == math.prod(tensor.shape)
        and not (len(tensor.shape) == 3 and tensor.shape[-1] == 1)
    ]
    return found[0] if len(found) == 1 else None


def unit_vector(to: Appender, tensor: Tensor) -> str:
    """Appends what gives the vector length 1: f32 [1, n]."""
    x = to.add(ops.Reshape((1, math.prod(tensor.shape))), to.floats(tensor.name))
    squares = to.add(ops.ReduceSum((1,)), to.add(ops.Mul(), x, x))
    length = to.add(ops.Sqrt(), to.add(ops.Reshape((1, 1)), squares))
    length = to.add(ops.Maximum(), length, to.constant(np.full((1, 1), _TINY)))
    return to.add(ops.Div(), x, length)
