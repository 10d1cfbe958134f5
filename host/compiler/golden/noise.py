"""The reference with noise in its arithmetic: how far outputs move when roundings fall otherwise.

Kernels add in another order than the reference, in f32 where it adds in f64, and approximate
functions within some units in the last place. So every float operator gets relative noise of a
few such units on what it makes, and sums also on what they add, where terms cancel: more for long
sums, whose roundings grow with the root of their length. Part of the noise is the same for all
elements, or for all of a channel: an approximation is off the same way wherever its argument is
alike, and weights that a pass multiplied are rounded once for all pixels, which means do not
average out. What differs between such runs is what may differ between healthy kernels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import run_node
from edgekit.host.compiler.ir.traits import Arithmetic
from edgekit.host.compiler.ir.types import Array, DType, Node, Tensor

_UNITS = 8  # of 2^-24, f32's unit roundoff; kernels were seen to make less than one of these
_HALF_UNITS = 0.4  # of 2^-11, f16's: the reference adds as kernels do
_HALF_WHOLE = 64  # up to here f16 that are whole numbers are so not only for want of digits
_HYBRID_STEPS = 1 / 16  # of a step between codes: moves one activation of 32 to the next code
_CODES = 127
_FLOATS = (DType.F32, DType.F16)
_OF_SUMS = (Arithmetic.SUMMED, Arithmetic.QUANTIZED)


class Noise:
    """Runs nodes as `run_node` does, with noise; the same for the same `seed`."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def run_node(
        self, node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Array]
    ) -> list[Array]:
        if isinstance(node.op, ops.Repeat):
            ins = [None if name is None else values[name] for name in node.inputs]
            return node.op.computed(ins, self.run_node)
        if node.op.arithmetic is Arithmetic.EXACT or not _is_float(node, tensors):
            return run_node(node, tensors, values)
        units = _units(node, tensors) * terms_of(node, tensors) ** 0.5
        if isinstance(node.op, ops.Recurrent):  # whose roundings go on to the next step
            operands = {**values, **self._operands(node, tensors, values, units)}
            ins = [None if name is None else operands[name] for name in node.inputs]
            return node.op.computed(ins, lambda y: self._rounded(y, units))
        if node.op.arithmetic in _OF_SUMS:
            values = {**values, **self._operands(node, tensors, values, units)}
        made = [self._rounded(y, units) for y in run_node(node, tensors, values)]
        if node.op.arithmetic is Arithmetic.CANCELING:
            x = next(values[name] for name in node.inputs if name is not None)
            made = [y + (self._rounded(x, units) - x) for y in made]
        return made

    def _operands(
        self, node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Array], units: float
    ) -> dict[str, Array]:
        """What sums are made of; weights too, which passes may have multiplied."""
        hybrid = _is_hybrid(node, tensors)
        noisy = {}
        for name in dict.fromkeys(node.inputs):
            if name is None or name not in values:
                continue
            x = values[name]
            codes = hybrid and x.dtype == np.float32 and tensors[name].data is None
            noisy[name] = self._between_codes(x) if codes else self._rounded(x, units)
        return noisy

    def _rounded(self, x: Array, units: float) -> Array:
        """Whole numbers stay: sums and products of them are exact."""
        if x.dtype not in (np.float32, np.float16) or not x.size:
            return x
        half = x.dtype == np.float16
        unit = np.finfo(x.dtype).eps / 2
        with np.errstate(all="ignore"):
            # A sum of f16 is rounded at each step, otherwise for each element.
            noise = self._uniform(x.shape) if half else self._noise(x.shape)
            off = x * (noise * np.float32(units * unit))
            exact = x == np.rint(x)
            if half:
                exact &= np.abs(x) <= _HALF_WHOLE
            return np.where(exact, x, x + off).astype(x.dtype)

    def _between_codes(self, x: Array) -> Array:
        """What an operator is about to quantize: some values on the edge fall the other way."""
        finite = np.abs(x[np.isfinite(x)])
        step = float(finite.max(initial=0.0)) / _CODES
        return x + self._uniform(x.shape) * np.float32(_HYBRID_STEPS * step)

    def _noise(self, shape: tuple[int, ...]) -> Array:
        """Noise of each element, of each index of the last axis, and of all: each part in [-1,
        1)."""
        total = self._uniform(shape)
        total += self._uniform(shape[-1:])
        total += self._uniform(())
        return total

    def _uniform(self, shape: tuple[int, ...]) -> Array:
        """Numbers in [-1, 1)."""
        return np.asarray(self._rng.random(shape, np.float32) * np.float32(2) - np.float32(1))


def _is_float(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether all that the node makes is: noise before a comparison would part what is equal."""
    return all(tensors[name].dtype in _FLOATS for name in node.outputs)


def _units(node: Node, tensors: Mapping[str, Tensor]) -> float:
    """The units in the last place of what `node` makes that are noise."""
    half = any(tensors[name].dtype is DType.F16 for name in node.outputs)
    return _HALF_UNITS if half else _UNITS


def _is_hybrid(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """The operator quantizes its f32 input as it runs."""
    if node.op.arithmetic is Arithmetic.QUANTIZED:
        return True
    dtypes = [None if name is None else tensors[name].dtype for name in node.inputs[:2]]
    return dtypes == [DType.F32, DType.I8]


def terms_of(node: Node, tensors: Mapping[str, Tensor]) -> int:
    """How many values go into one that comes out of `node`, about."""
    ins = [tensors[name] for name in node.inputs if name is not None]
    if node.op.elementwise or node.op.arithmetic is Arithmetic.ROUNDED:
        return 1
    if isinstance(node.op, ops.MatMul | ops.LayerNorm):
        return ins[0].shape[-1]
    if isinstance(node.op, ops.Recurrent):
        return ins[1].shape[1]
    if isinstance(node.op, ops.DepthwiseConv2D):
        return max(ins[1].elements // max(ins[1].shape[-1], 1), 1)
    made = max((tensors[name].elements for name in node.outputs), default=1)
    weights = max((math.prod(t.shape[1:]) for t in ins if t.data is not None), default=1)
    return max(max((t.elements for t in ins), default=1) // max(made, 1), weights, 1)
