"""Adds noise to the reference's arithmetic to find how far outputs move with different rounding.

Kernels add in a different order than the reference, in f32 where it uses f64, and approximate
functions within some units in the last place. So every float operator's result gets relative noise
of a few such units. Sums, where terms may cancel, also get it on their operands, growing with the
square root of their length. Part of the noise is common to all elements or to a channel:
approximations have the same error for similar arguments, and weights multiplied by a pass are
rounded once for all pixels, so averaging does not cancel these errors. The spread between noisy
runs is the spread to expect between healthy kernels. Results that no kernel rounds get no noise.

Products in f16 are summed in f32 here: rounding each step as kernels do takes ten times as long,
and noise on operands has the size of these errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.golden.steps import Runs, operands_of_runs
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import Runner, run_node, run_nodes
from edgekit.host.compiler.ir.exact import sums_are_exact
from edgekit.host.compiler.ir.traits import Arithmetic
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node, Operator, Tensor

_UNITS = 8  # in 2^-24, f32's unit roundoff; observed kernels stay below one
_HALF_UNITS = 0.4  # in 2^-11, f16's unit roundoff: the reference adds in the kernels' order
_F32_UNITS = 2**13  # in a unit roundoff of f16
_WINOGRAD_UNITS = 6  # in 2^-11, of a sum: direct sums and tiles at other places round differently
# Beyond these, values may be integers merely for lack of digits; f16 sums are rounded at each step.
_WHOLE = {np.dtype(np.float32): 1 << 23, np.dtype(np.float16): 64}
_HYBRID_STEPS = 1 / 16  # of a quantization step: changes the rounding of one activation in 32
_MOST = 127
_FLOATS = (DType.F32, DType.F16)
_OF_SUMS = (Arithmetic.SUMMED, Arithmetic.QUANTIZED)

Mask = NDArray[np.bool_]


def noisy_runs(graph: Graph, inputs: Mapping[str, Array], count: int) -> dict[str, Runs]:
    """Run a graph without and `count` times with noise, all at once; returns the outputs.

    Sums of f16 products are rounded once in all runs.
    """
    values = {name: Runs(t.data) for name, t in graph.tensors.items() if t.data is not None}
    values |= {name: Runs(x) for name, x in inputs.items()}
    memory = {name: Runs(state.initial) for name, state in graph.states.items()}
    run_nodes(graph, values, memory, NoisyRun(count).run_node)
    return {name: values[name] for name in graph.outputs}


def noisy_runner() -> Runner[Array]:
    """Runs nodes like `run_node`, with noise; likewise."""
    return _Source(0).run_node


class NoisyRun:
    """Runs nodes like `run_node`, once without and `count` times with noise."""

    def __init__(self, count: int) -> None:
        self._sources = [_Source(seed) for seed in range(count)]

    def run_node(
        self, node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Runs]
    ) -> list[Runs]:
        used = {name: values[name] for name in node.inputs if name is not None and name in values}
        plain = {name: runs.exact for name, runs in used.items()}
        exact = _run_fast(node, tensors, plain)
        calm = not any(runs.noisy for runs in used.values())
        if calm and (_is_kept(node, tensors) or not _rounds(node, tensors, plain)):
            return [Runs(y) for y in exact]
        operands = operands_of_runs(node, tensors, used, len(self._sources))
        found = [
            source.run_node(node, tensors, run)
            for source, run in zip(self._sources, operands, strict=True)
        ]
        return [Runs.of(y, others) for y, *others in zip(exact, *found, strict=True)]


class _Source:
    """Runs nodes like `run_node`, with noise that is determined by `seed`."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        # With noise, by identity: of the loop that runs, for all of its steps.
        self._constants: dict[tuple[int, float], tuple[Array, Array]] | None = None

    def run_node(
        self, node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Array]
    ) -> list[Array]:
        if isinstance(node.op, ops.Loop):
            ins = [None if name is None else values[name] for name in node.inputs]
            outer, self._constants = self._constants, {}
            made = node.op.computed(ins, self.run_node)
            self._constants = outer
            return made
        if not _rounds(node, tensors, values):
            return _run_fast(node, tensors, values)
        units = _roundoff_units(node, tensors) * terms_of(node, tensors) ** 0.5
        if isinstance(node.op, ops.Recurrent):  # rounding errors propagate to the next step
            operands = {**values, **self._add_operand_noise(node, tensors, values, units)}
            ins = [None if name is None else operands[name] for name in node.inputs]
            half = tensors[node.outputs[0]].dtype is DType.F16
            units *= _F32_UNITS if half else 1  # its sums are f16 values in f32
            return node.op.computed(ins, lambda y: self._add_noise(y, units, _are_whole(y)))
        if node.op.arithmetic in _OF_SUMS:
            values = {**values, **self._add_operand_noise(node, tensors, values, units)}
        made = [
            self._add_noise(y, units, _are_whole(y) | _are_exact(node, values, y))
            for y in _run_fast(node, tensors, values)
        ]
        if node.op.arithmetic is Arithmetic.CANCELING:
            x = next(values[name] for name in node.inputs if name is not None)
            made = [y + (self._add_noise(x, units, _are_whole(x)) - x) for y in made]
        return made

    def _add_operand_noise(
        self, node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Array], units: float
    ) -> dict[str, Array]:
        """Add noise to the operands of sums, including weights, which passes may have scaled."""
        hybrid = _is_hybrid(node, tensors)
        named = [name for name in dict.fromkeys(node.inputs) if name is not None and name in values]
        # Sums of integers that are too large to be exact move, too.
        large = all(bool(np.all(_are_whole(values[name]))) for name in named[:2])
        noisy = {}
        for name in named:
            x = values[name]
            quantized = hybrid and x.dtype == np.float32 and tensors[name].data is None
            if quantized:
                noisy[name] = self._between_steps(x)
            elif tensors[name].data is not None:
                noisy[name] = self._move_constant(x, units, large)
            else:
                noisy[name] = self._move_operand(x, units, large)
        return noisy

    def _move_constant(self, x: Array, units: float, large: bool) -> Array:
        """The same for all steps of a loop, as passes scale a constant once."""
        if self._constants is None:
            return self._move_operand(x, units, large)
        key = id(x), units
        if key not in self._constants:
            self._constants[key] = x, self._move_operand(x, units, large)
        return self._constants[key][1]

    def _move_operand(self, x: Array, units: float, large: bool) -> Array:
        kept = np.zeros(x.shape, np.bool_) if large else _are_whole(x)
        return self._add_noise(x, units, kept)

    def _add_noise(self, x: Array, units: float, kept: Mask) -> Array:
        """Add noise to floats, except to those `kept`."""
        if x.dtype not in _WHOLE or not x.size:
            return x
        unit = np.finfo(x.dtype).eps / 2
        wide = x.astype(np.float32, copy=False)
        # f16 sums are rounded at each step, so their errors have no common part.
        noise = self._uniform(x.shape) if wide is not x else self._sample_noise(x.shape)
        with np.errstate(all="ignore"):
            moved = np.asarray(noise * np.float32(units * unit))
            moved *= wide
            moved += wide
            np.copyto(moved, wide, where=kept)
            return np.asarray(moved.astype(x.dtype, copy=False))

    def _between_steps(self, x: Array) -> Array:
        """Add noise to values about to be quantized, so that some round the other way."""
        finite = np.abs(x[np.isfinite(x)])
        step = float(finite.max(initial=0.0)) / _MOST
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
        made = np.asarray(self._rng.random(shape, np.float32))
        made *= np.float32(2)
        made -= np.float32(1)
        return made


def _run_fast(
    node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Array]
) -> list[Array]:
    """Like `run_node`, but sums of f16 products are rounded once."""
    if not isinstance(node.op, ops.Weighted | ops.MatMul):
        return run_node(node, tensors, values)
    used = {name: values[name] for name in node.inputs if name is not None}
    if any(x.dtype != np.float16 for x in used.values()):
        return run_node(node, tensors, values)
    op = replace(node.op, winograd=False) if isinstance(node.op, ops.Conv2D) else node.op
    wide = {
        name: replace(tensors[name], dtype=DType.F32, data=None) for name in (*used, *node.outputs)
    }
    x = {name: value.astype(np.float32) for name, value in used.items()}
    return [y.astype(np.float16) for y in run_node(replace(node, op=op), wide, x)]


def _rounds(node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Array]) -> bool:
    """Whether kernels may round results differently. Only floats: noise before a comparison would
    separate equal values."""
    if node.op.arithmetic is Arithmetic.EXACT:
        return False
    if not all(tensors[name].dtype in _FLOATS for name in node.outputs):
        return False
    return node.op.arithmetic is not Arithmetic.SUMMED or not sums_are_exact(node, tensors, values)


def _is_kept(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether all kernels round equal operands equally, and no pass replaces the operator: passes
    fold constants into sums, but not into exact ones."""
    constant = any(name is not None and tensors[name].data is not None for name in node.inputs)
    return constant and isinstance(node.op, ops.Add | ops.Sub | ops.Mul)


def _are_whole(x: Array) -> Mask:
    """Integers: sums and products of these are exact."""
    if x.dtype not in _WHOLE:
        return np.ones(x.shape, np.bool_)
    most, x = _WHOLE[x.dtype], x.astype(np.float32, copy=False)  # NumPy is slow in f16
    with np.errstate(all="ignore"):
        return np.asarray((x == np.rint(x)) & (np.abs(x) <= most))


def _are_exact(node: Node, values: Mapping[str, Array], y: Array) -> Mask:
    """Results of f32 arithmetic that had to round nothing."""
    wide = _WIDE.get(type(node.op))
    if wide is None or y.dtype != np.float32:
        return np.zeros(y.shape, np.bool_)
    a, b = (values[name].astype(np.float64) for name in node.inputs[:2] if name is not None)
    with np.errstate(all="ignore"):
        return np.asarray(wide(a, b, y.astype(np.float64)))


_WIDE: Mapping[type[Operator], Callable[[Array, Array, Array], Array]] = {
    ops.Add: lambda a, b, y: a + b == y,
    ops.Sub: lambda a, b, y: a - b == y,
    ops.Mul: lambda a, b, y: a * b == y,
    ops.Div: lambda a, b, y: y * b == a,
}


def _roundoff_units(node: Node, tensors: Mapping[str, Tensor]) -> float:
    """Noise for results of `node`, in units of its dtype's roundoff."""
    half = any(tensors[name].dtype is DType.F16 for name in node.outputs)
    if isinstance(node.op, ops.Conv2D) and node.op.winograd:
        return max(_HALF_UNITS, _WINOGRAD_UNITS / math.sqrt(terms_of(node, tensors)))
    return _HALF_UNITS if half else _UNITS


def _is_hybrid(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether the operator quantizes its f32 input at run time."""
    if node.op.arithmetic is Arithmetic.QUANTIZED:
        return True
    if isinstance(node.op, ops.CachedAttention):  # computes in floats from cached bytes
        return False
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
