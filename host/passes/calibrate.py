"""Weights in few bits by samples: what layers are given decides on scales, roundings, the bias, and
the threshold beyond which a channel is an outlier."""

from __future__ import annotations

import dataclasses
from collections import ChainMap
from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.host.errors import InputError
from edgekit.host.graph import ops
from edgekit.host.graph.evaluate import run_node
from edgekit.host.graph.names import fresh_name
from edgekit.host.graph.types import Activation, Array, DType, Graph, Node, Tensor
from edgekit.host.options import WeightBits
from edgekit.host.passes.codes import MOST, compensated, scales_of
from edgekit.host.passes.compress import matrix_of

Sample = Mapping[str, Array]

_COUNTS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)  # of outliers, tried
_MOST_SHARE = 4  # of the channels: with more than one in so many, a split saves little
_TARGET: Mapping[WeightBits, float] = {"int8": 0.004, "int4": 0.01}
_TRIED = 4  # samples that thresholds are tried on
_MOST_ROWS = 1 << 13  # that moments are made of


def calibrate(floats: Graph, coded: Graph, bits: WeightBits, samples: Sequence[Sample]) -> Graph:
    """`coded`, which compress_weights made of `floats`, with constants and thresholds fitted layer
    by layer to what the layers before, fitted already, make of `samples`.

    InputError for a model with states, which samples of one run do not tell.
    """
    if floats.states:
        raise InputError(
            f"{floats.name}: expected a model without states to fit to samples, found "
            f"{len(floats.states)}; leave --samples out"
        )
    fit = _Fit(floats, coded, bits, samples)
    nodes = tuple(fit.step(*pair) for pair in zip(floats.nodes, coded.nodes, strict=True))
    used = {t for n in nodes for t in (*n.inputs, *n.outputs) if t is not None}
    used |= {*coded.inputs, *coded.outputs}
    tensors = {name: t for name, t in fit.tensors.items() if name in used}
    return dataclasses.replace(coded, tensors=tensors, nodes=nodes)


class _Fit:
    """Runs both graphs side by side on all samples."""

    def __init__(
        self, floats: Graph, coded: Graph, bits: WeightBits, samples: Sequence[Sample]
    ) -> None:
        self._floats, self._bits = floats, bits
        self.tensors = dict(coded.tensors)
        self._names = set(coded.tensors)
        self._constants = {n: t.data for n, t in floats.tensors.items() if t.data is not None}
        self._constants |= {n: t.data for n, t in coded.tensors.items() if t.data is not None}
        self._exact = [ChainMap(dict(each), self._constants) for each in samples]
        self._made = [ChainMap(dict(each), self._constants) for each in samples]
        self._last = {name: i for i, n in enumerate(floats.nodes) for name in n.inputs}
        self._done = 0

    def step(self, plain: Node, node: Node) -> Node:
        """`node` as it is fitted; both are run."""
        if isinstance(node.op, ops.OutlierFullyConnected):
            node = self._fitted(plain, node)
        for values, run, tensors in (
            *((v, plain, self._floats.tensors) for v in self._exact),
            *((v, node, self.tensors) for v in self._made),
        ):
            values.update(zip(run.outputs, run_node(run, tensors, values), strict=True))
            for name in plain.inputs:
                if name is not None and self._last[name] == self._done:
                    values.maps[0].pop(name, None)
        self._done += 1
        return node

    def _fitted(self, plain: Node, node: Node) -> Node:
        weights = matrix_of(self._floats, plain)
        assert weights is not None and isinstance(node.op, ops.OutlierFullyConnected)
        x, k = node.inputs[0] or "", weights.shape[1]
        given = [values[x].reshape(-1, k) for values in self._made]
        rows = np.concatenate(given).astype(np.float64)
        some = rows[:: -(-len(rows) // _MOST_ROWS)]
        moment, most = some.T @ some / len(some), MOST[self._bits]
        slices = self.tensors[node.inputs[2] or ""].shape[0]
        scale = scales_of(weights, k // slices, most, np.diagonal(moment))
        codes = compensated(weights, scale, most, moment)
        op = dataclasses.replace(
            node.op, threshold=_threshold(given[:_TRIED], weights, _TARGET[self._bits])
        )
        stored = self._constant(f"{node.name}.codes", DType.I8, codes)
        scales = self._constant(f"{node.name}.scales", DType.F32, np.ascontiguousarray(scale.T))
        named = (x, stored, scales)
        bias = self._bias(plain, Node(node.name, op, named, node.outputs), weights)
        name = self._constant(f"{node.name}.shifted", DType.F32, bias)
        return Node(node.name, op, (*named, name, *node.inputs[4:]), node.outputs)

    def _bias(self, plain: Node, node: Node, weights: Array) -> Array:
        """The bias [n] by which the mean of all sums is that of floats."""
        name = plain.inputs[2] if len(plain.inputs) > 2 else None
        own = 0.0 if name is None else self._constants[name]
        x, k = node.inputs[0] or "", weights.shape[1]
        assert isinstance(node.op, ops.OutlierFullyConnected)
        op = dataclasses.replace(node.op, activation=Activation.NONE)
        alone = Node(node.name, op, node.inputs[:3], node.outputs)
        count, missing = 0, np.zeros(len(weights))
        for exact, made in zip(self._exact, self._made, strict=True):
            rows = exact[x].reshape(-1, k).astype(np.float64)
            [sums] = run_node(alone, self.tensors, made)
            missing += weights @ rows.sum(axis=0) - sums.reshape(-1, len(weights)).sum(axis=0)
            count += len(rows)
        return np.asarray(own + missing / count, np.float32)

    def _constant(self, name: str, dtype: DType, data: Array) -> str:
        own = fresh_name(name, self._names)
        self.tensors[own] = Tensor(own, data.shape, dtype, None, data)
        self._constants[own] = data
        return own


def _threshold(samples: Sequence[Array], weights: Array, target: float) -> float:
    """The largest threshold, and so the cheapest, whose relative error (Frobenius) on the samples
    [rows, k] is at most `target`; else that of the least error."""
    right = [x @ weights.T for x in samples]
    size = sum(float(np.square(y, dtype=np.float64).sum()) for y in right)
    best, least = _thresholds(samples)[0], np.inf
    for each in _thresholds(samples):
        wrong = sum(
            float(np.square(_coded(x, each) @ weights.T - y, dtype=np.float64).sum())
            for x, y in zip(samples, right, strict=True)
        )
        error = (wrong / size) ** 0.5 if size else 0.0
        if error < least:
            best, least = each, error
        if error <= target:
            break
    return best


def _thresholds(samples: Sequence[Array]) -> list[float]:
    """Between two channels each, in the falling order of their largest values."""
    falling = np.sort(np.max([np.abs(x).max(axis=0) for x in samples], axis=0))[::-1]
    found = [float(2 * falling[0] + 1)]
    for count in _COUNTS[1:]:
        if count * _MOST_SHARE > len(falling):
            break
        if 0 < falling[count] < falling[count - 1]:
            found.append(float(falling[count - 1] + falling[count]) / 2)
    return found


def _coded(x: Array, threshold: float) -> Array:
    """x [rows, k] as the operator sees it: outliers, and steps of each row."""
    out = np.abs(x).max(axis=0) > threshold
    inside = np.where(out, np.float32(0), x)
    step = np.abs(inside).max(axis=1, keepdims=True) / np.float32(127)
    step = np.maximum(step, np.finfo(np.float32).tiny)
    return np.where(out, x, np.rint(inside / step) * step).astype(np.float32)
