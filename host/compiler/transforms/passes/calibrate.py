"""Fits scales, roundings, biases and outlier thresholds of quantized weights to samples."""

from __future__ import annotations

import dataclasses
import math
from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import run_node
from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.types import Activation, Array, DType, Graph, Node, Shape, Tensor
from edgekit.host.compiler.options import WeightBits
from edgekit.host.compiler.transforms.passes.compress import matrix_of
from edgekit.host.compiler.transforms.passes.thresholds import FittedSplit, choose
from edgekit.host.compiler.transforms.passes.weight_scales import MOST, compensated, scales_of
from edgekit.host.errors import InputError

Sample = Mapping[str, Array]
Cost = Callable[[Mapping[str, Tensor], Node], float]  # microseconds
_Values = ChainMap[str, Array]

_TRIED = 4  # samples that thresholds are tried on
_MOST_ROWS = 1 << 13  # maximum number of rows that moments are computed from
_WIDE = 1024  # from this k on, a row is divided into parts with separate scales, each of at most:
_PART = 384


def calibrate(
    floats: Graph,
    compressed: Graph,
    bits: WeightBits,
    samples: Sequence[Sample],
    cost: Cost,
    eight: Collection[str] = (),
    *,
    accurate: bool = False,
) -> tuple[Graph, dict[str, FittedSplit]]:
    """Fit constants and thresholds of `compressed`, the result of compress_weights(`floats`), layer
    by layer to activations computed from `samples` by the layers fitted before.

    Returns the graph and the outlier splits of its products by name. Splits are chosen by their
    `cost` on a board, with `accurate` only among those with nearly the least error. Weights have
    `bits`, or 8 if the operator's name is in `eight`.

    Raises InputError for a model with states, since single-run samples do not determine them.
    """
    if floats.states:
        raise InputError(
            f"{floats.name}: expected a model without states to fit to samples, found "
            f"{len(floats.states)}; leave --samples out"
        )
    fit = _Fit(floats, compressed, samples, cost, accurate)
    return _fitted(fit, floats, compressed, bits, eight), fit.splits


def repeated(floats: Graph, compressed: Graph, bits: WeightBits, fitted: Graph) -> Graph:
    """`compressed`, with constants and thresholds that calibrate() found in `fitted`, a graph of
    the same products in the same order. Raises InputError if it has others."""
    fit = _Fit(floats, compressed, (), lambda *_: 0.0, False)
    fit.known = iter([n for n in fitted.nodes if isinstance(n.op, ops.OutlierFullyConnected)])
    fit.source = fitted
    made = _fitted(fit, floats, compressed, bits, ())
    if next(fit.known, None) is not None:
        raise _misfit(floats)
    return made


def _misfit(graph: Graph) -> InputError:
    return InputError(
        f"{graph.name}: expected the same layers for one token and for several, found others; "
        "leave --samples out"
    )


def _fitted(
    fit: _Fit, floats: Graph, compressed: Graph, bits: WeightBits, eight: Collection[str]
) -> Graph:
    pairs = zip(floats.nodes, compressed.nodes, strict=True)
    nodes = tuple(
        node
        for plain, each in pairs
        for node in fit.step(plain, each, "int8" if each.name in eight else bits)
    )
    used = {t for n in nodes for t in (*n.inputs, *n.outputs) if t is not None}
    used |= {*compressed.inputs, *compressed.outputs}
    tensors = {name: t for name, t in fit.tensors.items() if name in used}
    return dataclasses.replace(compressed, tensors=tensors, nodes=nodes)


class _Fit:
    """Runs the float and the fitted graph in lockstep on all samples."""

    def __init__(
        self,
        floats: Graph,
        compressed: Graph,
        samples: Sequence[Sample],
        cost: Cost,
        accurate: bool,
    ) -> None:
        self._floats, self._cost, self._accurate = floats, cost, accurate
        self.splits = dict[str, FittedSplit]()
        self.tensors = dict(compressed.tensors)
        self._names = set(compressed.tensors)
        self._constants = {n: t.data for n, t in floats.tensors.items() if t.data is not None}
        self._constants |= {n: t.data for n, t in compressed.tensors.items() if t.data is not None}
        self._exact = [ChainMap(dict(each), self._constants) for each in samples]
        self._made = [ChainMap(dict(each), self._constants) for each in samples]
        self._last = {name: i for i, n in enumerate(floats.nodes) for name in n.inputs}
        self._done = 0
        self.known: Iterator[Node] | None = None  # products that were fitted in the graph `source`
        self.source = compressed

    def step(self, plain: Node, node: Node, bits: WeightBits) -> list[Node]:
        """Fit `node`, possibly dividing it into parts, and run both graphs' versions."""
        if isinstance(node.op, ops.OutlierFullyConnected):
            nodes = self._fit_parts(plain, node, bits)
        else:
            nodes = [node]
            self._run_samples(node, self.tensors, self._made)
        self._run_samples(plain, self._floats.tensors, self._exact)
        kept = {*plain.outputs, *(n for n in plain.inputs if n and self._last[n] > self._done)}
        own = {t for n in (plain, *nodes) for t in (*n.inputs, *n.outputs) if t is not None}
        for values in (*self._exact, *self._made):
            for name in own - kept:
                values.maps[0].pop(name, None)
        self._done += 1
        return nodes

    def _run_samples(
        self, node: Node, tensors: Mapping[str, Tensor], samples: Sequence[_Values]
    ) -> None:
        for values in samples:
            values.update(zip(node.outputs, run_node(node, tensors, values), strict=True))

    def _fit_parts(self, plain: Node, node: Node, bits: WeightBits) -> list[Node]:
        """Divide the product along k, each part adding to the previous partial sums, so that a row
        has an activation scale per part."""
        weights = matrix_of(self._floats, plain)
        assert weights is not None and isinstance(node.op, ops.OutlierFullyConnected)
        x, y = self.tensors[node.inputs[0] or ""], self.tensors[node.outputs[0]]
        slices = self.tensors[node.inputs[2] or ""].shape[0]
        count = _count_parts(weights.shape[1], slices) if x.shape[-1] == weights.shape[1] else 1
        made, given, sums = list[Node](), [x.name], node.inputs[4] if node.inputs[4:] else None
        if count > 1:
            size = x.shape[-1] // count
            given = [self._new_tensor(f"{x.name}.{i}", (*x.shape[:-1], size)) for i in range(count)]
            cut = ops.Split(len(x.shape) - 1, (size,) * count)
            made.append(Node(f"{node.name}.parts", cut, (x.name,), tuple(given)))
            for samples in (self._exact, self._made):
                self._run_samples(made[0], self.tensors, samples)
        own = plain.inputs[2] if len(plain.inputs) > 2 else None
        for i, (part, matrix) in enumerate(
            zip(given, np.split(weights, count, axis=1), strict=True)
        ):
            last = i + 1 == count
            op = node.op if last else dataclasses.replace(node.op, activation=Activation.NONE)
            out = y.name if last else self._new_tensor(f"{y.name}.{i}", y.shape)
            name = f"{node.name}.{i}" if count > 1 else node.name
            more = () if sums is None else (sums,)
            bare = Node(name, op, (part, None, None, own if last else None, *more), (out,))
            made.append(self._fit_product(bare, matrix, max(slices // count, 1), bits))
            self._run_samples(made[-1], self.tensors, self._made)
            sums = out
        return made

    def _fit_product(self, node: Node, weights: Array, slices: int, bits: WeightBits) -> Node:
        """Complete `node` (inputs: x, optional float bias and residual) with fitted weights,
        scales, threshold and bias [n]."""
        if self.known is not None:
            return self._repeat(node, weights, next(self.known, None))
        x, k = node.inputs[0] or "", weights.shape[1]
        given = [values[x].reshape(-1, k) for values in self._made]
        rows = np.concatenate(given).astype(np.float64)
        some = rows[:: -(-len(rows) // _MOST_ROWS)]
        moment, most = some.T @ some / len(some), MOST[bits]
        scale = scales_of(weights, k // slices, most, np.diagonal(moment))
        quantized = compensated(weights, scale, most, moment)
        stored = self._add_constant(f"{node.name}.quantized", DType.I8, quantized)
        scales = self._add_constant(f"{node.name}.scales", DType.F32, np.ascontiguousarray(scale.T))
        named = dataclasses.replace(node, inputs=(x, stored, scales, *node.inputs[3:]))
        fitted = choose(
            given[:_TRIED],
            weights,
            _floats_of(quantized, scale),
            lambda count: self._cost(self.tensors, _with_threshold(named, math.inf, count)),
            self._accurate,
        )
        self.splits[node.name] = fitted
        named = _with_threshold(named, fitted.chosen.threshold, fitted.chosen.outliers)
        bias = self._add_constant(
            f"{node.name}.shifted", DType.F32, self._corrected_bias(named, weights)
        )
        return dataclasses.replace(named, inputs=(x, stored, scales, bias, *node.inputs[4:]))

    def _repeat(self, node: Node, weights: Array, fitted: Node | None) -> Node:
        """`node` with the constants and the threshold of a product of the same weights."""
        given = [] if fitted is None else [self.source.tensors[n or ""] for n in fitted.inputs[1:4]]
        if fitted is None or given[0].shape != weights.shape:
            raise _misfit(self._floats)
        kinds = ("quantized", "scales", "shifted")
        stored, scales, bias = (
            self._add_constant(f"{node.name}.{kind}", t.dtype, np.asarray(t.data))
            for kind, t in zip(kinds, given, strict=True)
        )
        assert isinstance(fitted.op, ops.OutlierFullyConnected)
        made = _with_threshold(node, fitted.op.threshold, fitted.op.outliers)
        inputs = (node.inputs[0], stored, scales, bias, *node.inputs[4:])
        return dataclasses.replace(made, inputs=inputs)

    def _new_tensor(self, name: str, shape: Shape) -> str:
        own = fresh_name(name, self._names)
        self.tensors[own] = Tensor(own, shape, DType.F32)
        return own

    def _corrected_bias(self, node: Node, weights: Array) -> Array:
        """The node's bias plus a correction [n] that makes the mean of all sums equal to float."""
        own, x, k = node.inputs[3], node.inputs[0] or "", weights.shape[1]
        assert isinstance(node.op, ops.OutlierFullyConnected)
        op = dataclasses.replace(node.op, activation=Activation.NONE)
        alone = dataclasses.replace(node, op=op, inputs=node.inputs[:3])
        count, missing = 0, np.zeros(len(weights))
        for exact, made in zip(self._exact, self._made, strict=True):
            rows = exact[x].reshape(-1, k).astype(np.float64)
            [sums] = run_node(alone, self.tensors, made)
            missing += weights @ rows.sum(axis=0) - sums.reshape(-1, len(weights)).sum(axis=0)
            count += len(rows)
        start = 0.0 if own is None else self._constants[own]
        return np.asarray(start + missing / count, np.float32)

    def _add_constant(self, name: str, dtype: DType, data: Array) -> str:
        own = fresh_name(name, self._names)
        self.tensors[own] = Tensor(own, data.shape, dtype, None, data)
        self._constants[own] = data
        return own


def _floats_of(quantized: Array, scale: Array) -> Array:
    """Dequantize weights [n, k] with scales [n, slices]."""
    depth = quantized.shape[1] // scale.shape[1]
    return np.asarray(quantized * np.repeat(scale, depth, axis=1), np.float32)


def _with_threshold(node: Node, threshold: float, outliers: int) -> Node:
    assert isinstance(node.op, ops.OutlierFullyConnected)
    share = ops.OutlierFullyConnected.share  # samples show how many outliers pay
    op = dataclasses.replace(node.op, threshold=threshold, outliers=outliers, share=share)
    return dataclasses.replace(node, op=op)


def _count_parts(k: int, slices: int) -> int:
    """Number of parts to divide k into; slices that share a weight scale are not divided."""
    if k < _WIDE:
        return 1
    fits = (n for n in range(2, k) if k % n == 0 and (slices == 1 or slices % n == 0))
    return next((n for n in fits if k // n <= _PART), 1)
