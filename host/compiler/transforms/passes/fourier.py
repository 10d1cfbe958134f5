"""Recognizes spectra that exporters write as convolutions with windowed sines.

Models of speech (Silero VAD, torchlibrosa, nnAudio) compute their STFT so, because older formats
have no operator for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.types import (
    Activation,
    Array,
    DType,
    Graph,
    Node,
    Operator,
    Tensor,
)

_LEAST = 32  # points: shorter transforms gain little
_ROUNDING = 1e-6  # of the largest weight: they are rounded to f32


@dataclass(frozen=True, eq=False)
class _Spectrum:
    """The transform that weights [channels, samples] compute: real parts before imaginary ones, or
    only `part` of these. `conjugate`: imaginary parts have the other sign."""

    points: int
    window: Array
    part: int | None
    conjugate: bool = False


def fuse_fourier(graph: Graph) -> Graph:
    """Replace convolutions along one axis whose weights are cosines, sines or both, times a window,
    by Fourier transforms."""
    found = {node.name: made for node in graph.nodes if (made := _spectrum_of(graph, node))}
    return _Rewrite(graph).run(found) if found else graph


def _spectrum_of(graph: Graph, node: Node) -> _Spectrum | None:
    op = node.op
    if type(op) is not ops.Conv2D or op.activation is not Activation.NONE:
        return None
    x, weights, *more = (None if name is None else graph.tensors[name] for name in node.inputs)
    assert x is not None and weights is not None
    if any(t is not None and (t.data is None or np.any(t.data)) for t in more):
        return None
    if weights.data is None or weights.dtype is not DType.F32 or x.dtype is not DType.F32:
        return None
    axis = _axis_of(weights)
    if axis is None or weights.shape[3] != 1 or x.shape[3 - axis] != 1 or op.dilation != (1, 1):
        return None
    if any(_sides(op, 3 - axis)):
        return None
    return _fitted(weights.data.reshape(len(weights.data), -1).astype(np.float64))


def _axis_of(weights: Tensor) -> int | None:
    """The axis of the image along which the window is long."""
    return next((axis for axis in (1, 2) if weights.shape[3 - axis] == 1), None)


def _sides(op: ops.Conv2D, axis: int) -> tuple[int, int]:
    padding = op.padding
    vertical, horizontal = (padding.top, padding.bottom), (padding.left, padding.right)
    return vertical if axis == 1 else horizontal


def _fitted(weights: Array) -> _Spectrum | None:
    channels, length = weights.shape
    limit = _ROUNDING * float(np.abs(weights).max(initial=0))
    for parts, points in ((2, channels - 2), (1, 2 * channels - 2)):
        if points < max(length, _LEAST) or points % 2 or not limit:
            continue
        groups = weights.reshape(parts, -1, length)
        # Of cosines the last one is the first with alternating signs, and of sines these are 0.
        alternate = groups[:, 0] - groups[:, -1] * (-1.0) ** np.arange(length)
        if np.abs(alternate).max() > limit or (parts == 2 and np.abs(groups[1, 0]).max() > limit):
            continue
        turns = np.outer(np.arange(points // 2 + 1), np.arange(length)) % points
        angles = 2 * np.pi * turns / points
        waves = np.stack([np.cos(angles), -np.sin(angles)])
        forms: list[tuple[int | None, Array]] = [(None, waves), (None, waves * [[[1]], [[-1]]])]
        if parts == 1:
            forms = [(0, waves[:1]), (1, waves[1:])]
        for part, wave in forms:
            total = np.square(wave).sum(axis=(0, 1))
            product = (groups * wave).sum(axis=(0, 1))
            window = np.divide(product, total, out=np.zeros(length), where=total > 0.5)
            if np.abs(groups - wave * window).max() <= limit:
                conjugate = part is None and wave is not waves
                return _Spectrum(points, window.astype(np.float32), part, conjugate)
    return None


class _Rewrite:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._tensors = dict(graph.tensors)
        self._names = {*graph.tensors, *(node.name for node in graph.nodes)}
        self._nodes: list[Node] = []

    def run(self, found: dict[str, _Spectrum]) -> Graph:
        for node in self._graph.nodes:
            if node.name in found:
                self._add_transform(node, found[node.name])
            else:
                self._nodes.append(node)
        return replace(self._graph, tensors=self._tensors, nodes=tuple(self._nodes))

    def _add_transform(self, node: Node, form: _Spectrum) -> None:
        op, x, y = node.op, node.inputs[0] or "", self._tensors[node.outputs[0]]
        axis = _axis_of(self._tensors[node.inputs[1] or ""])
        assert isinstance(op, ops.Conv2D) and axis is not None
        count, samples = self._tensors[x].shape[0], self._tensors[x].shape[axis]
        x = self._emit(node, ops.Reshape((count, samples, 1)), x)
        sides = _sides(op, axis)
        if any(sides):
            x = self._emit(node, ops.Pad((0, sides[0], 0), (0, sides[1], 0)), x)
        length, step = form.window.size, op.stride[axis - 1]
        window = self._constant(node, form.window)
        transform = ops.Fourier(form.points, length, step, onesided=True, planar=True)
        made = self._emit(node, transform, x, window)
        if form.part is not None:
            shape = (count, y.shape[axis], 1, transform.shown)
            cut = ops.StridedSlice((0, 0, form.part, 0), (1, 1, 1, 1), shape, shape)
            made = self._emit(node, cut, made)
        reshape = ops.Reshape(y.shape)
        if form.conjugate:
            signs = np.repeat(np.array([1, -1], np.float32), transform.shown)
            made, sign = self._emit(node, reshape, made), self._constant(node, signs)
            self._nodes.append(Node(node.name, ops.Mul(), (made, sign), node.outputs))
        else:
            self._nodes.append(Node(node.name, reshape, (made,), node.outputs))

    def _constant(self, node: Node, data: Array) -> str:
        name = fresh_name(f"{node.name}.constant", self._names)
        self._tensors[name] = Tensor(name, data.shape, DType.F32, None, data)
        return name

    def _emit(self, node: Node, op: Operator, *inputs: str) -> str:
        name = fresh_name(f"{node.name}.{op.kind}", self._names)
        ((shape, dtype),) = op.infer([self._tensors[t] for t in inputs])
        self._tensors[name] = Tensor(name, shape, dtype)
        self._nodes.append(Node(name, op, inputs, (name,)))
        return name
