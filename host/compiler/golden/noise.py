"""Adds noise to the reference's arithmetic to find how far outputs move with different rounding.

Kernels add in a different order than the reference, in f32 where it uses f64, and approximate
functions within some units in the last place. So every float operator's result gets relative noise
of a few such units. Sums, where terms may cancel, also get it on their operands, growing with the
square root of their length. Part of the noise is common to all elements or to a channel:
approximations have the same error for similar arguments, and weights multiplied by a pass are
rounded once for all pixels, so averaging does not cancel these errors. The spread between noisy
runs is the spread to expect between healthy kernels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import run_node
from edgekit.host.compiler.ir.traits import Arithmetic
from edgekit.host.compiler.ir.types import Array, DType, Node, Tensor

_UNITS = 8  # in 2^-24, f32's unit roundoff; observed kernels stay below one
_HALF_UNITS = 0.4  # in 2^-11, f16's unit roundoff: the reference adds in the kernels' order
_HALF_WHOLE = 64  # beyond this, f16 values may be integers merely for lack of digits
_HYBRID_STEPS = 1 / 16  # of a quantization step: changes the rounding of one activation in 32
_CODES = 127
_FLOATS = (DType.F32, DType.F16)
_OF_SUMS = (Arithmetic.SUMMED, Arithmetic.QUANTIZED)


class Noise:
    """Runs nodes like `run_node`, with noise that is determined by `seed`."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def run_node(
        self, node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Array]
    ) -> list[Array]:
        if isinstance(node.op, ops.Loop):
            ins = [None if name is None else values[name] for name in node.inputs]
            return node.op.computed(ins, self.run_node)
        if node.op.arithmetic is Arithmetic.EXACT or not _is_float(node, tensors):
            return run_node(node, tensors, values)
        units = _roundoff_units(node, tensors) * terms_of(node, tensors) ** 0.5
        if isinstance(node.op, ops.Recurrent):  # rounding errors propagate to the next step
            operands = {**values, **self._add_operand_noise(node, tensors, values, units)}
            ins = [None if name is None else operands[name] for name in node.inputs]
            return node.op.computed(ins, lambda y: self._add_noise(y, units))
        if node.op.arithmetic in _OF_SUMS:
            values = {**values, **self._add_operand_noise(node, tensors, values, units)}
        made = [self._add_noise(y, units) for y in run_node(node, tensors, values)]
        if node.op.arithmetic is Arithmetic.CANCELING:
            x = next(values[name] for name in node.inputs if name is not None)
            made = [y + (self._add_noise(x, units) - x) for y in made]
        return made

    def _add_operand_noise(
        self, node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Array], units: float
    ) -> dict[str, Array]:
        """Add noise to the operands of sums, including weights, which passes may have scaled."""
        hybrid = _is_hybrid(node, tensors)
        noisy = {}
        for name in dict.fromkeys(node.inputs):
            if name is None or name not in values:
                continue
            x = values[name]
            codes = hybrid and x.dtype == np.float32 and tensors[name].data is None
            noisy[name] = self._between_codes(x) if codes else self._add_noise(x, units)
        return noisy

    def _add_noise(self, x: Array, units: float) -> Array:
        """Add noise, except to integers: sums and products of these are exact."""
        if x.dtype not in (np.float32, np.float16) or not x.size:
            return x
        half = x.dtype == np.float16
        unit = np.finfo(x.dtype).eps / 2
        with np.errstate(all="ignore"):
            # f16 sums are rounded at each step, so their errors have no common part.
            noise = self._uniform(x.shape) if half else self._sample_noise(x.shape)
            off = x * (noise * np.float32(units * unit))
            exact = x == np.rint(x)
            if half:
                exact &= np.abs(x) <= _HALF_WHOLE
            return np.where(exact, x, x + off).astype(x.dtype)

    def _between_codes(self, x: Array) -> Array:
        """Add noise to values about to be quantized, so that some round the other way."""
        finite = np.abs(x[np.isfinite(x)])
        step = float(finite.max(initial=0.0)) / _CODES
        return x + self._uniform(x.shape) * np.float32(_HYBRID_STEPS * step)

    def _sample_noise(self, shape: tuple[int, ...]) -> Array:
        """Sum of noise per element, per index of the last axis, and common to all; each in
        [-1, 1)."""
        total = self._uniform(shape)
        total += self._uniform(shape[-1:])
        total += self._uniform(())
        return total

    def _uniform(self, shape: tuple[int, ...]) -> Array:
        """Uniform random numbers in [-1, 1)."""
        return np.asarray(self._rng.random(shape, np.float32) * np.float32(2) - np.float32(1))


def _is_float(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether all outputs are floats: noise before a comparison would separate equal values."""
    return all(tensors[name].dtype in _FLOATS for name in node.outputs)


def _roundoff_units(node: Node, tensors: Mapping[str, Tensor]) -> float:
    """Noise for results of `node`, in units of its dtype's roundoff."""
    half = any(tensors[name].dtype is DType.F16 for name in node.outputs)
    return _HALF_UNITS if half else _UNITS


def _is_hybrid(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether the operator quantizes its f32 input at run time."""
    if node.op.arithmetic is Arithmetic.QUANTIZED:
        return True
    dtypes = [None if name is None else tensors[name].dtype for name in node.inputs[:2]]
    return dtypes == [DType.F32, DType.I8]


def terms_of(node: Node, tensors: Mapping[str, Tensor]) -> int:
    """Approximate number of values that contribute to one output value of `node`."""
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
