"""How far operators are from a reference, and which of them bring the loss in.

Values are compared as real numbers. What an operator brings in is found by taking its rounding
away: it computes in floats, with the reference's weights where the reference has the operator, and
the operators after it as before.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate, run_node
from edgekit.host.compiler.ir.ops.state import ReadState
from edgekit.host.compiler.ir.quantization import quantized_range
from edgekit.host.compiler.ir.similarity import cosine
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node, Quant, State, Tensor

MOST_DB = 200.0  # reported for equal values
_NONE = 1e-30
_LARGEST_HALF = float(np.finfo(np.float16).max)
_SAME_ORDER = 0.99  # cosine from which no other order of axes is tried
_LIKE = 0.9  # cosine of values from which tensors of other names are the same one
_SPREAD, _GAIN_DB = 1.25, 6.0  # of channels' factors; of what they explain
_FEWEST = 16  # values of a channel that give its factor


@dataclass(frozen=True)
class TensorError:
    """Of an operator's result against the reference: signal to quantization noise in dB, cosine,
    the largest absolute difference, and the fraction of values that the type's range cuts off."""

    sqnr_db: float
    cosine: float
    largest: float
    saturated: float


@dataclass(frozen=True)
class LayerError:
    """One operator: `tensor` is its result's name in the model, `inputs` are the operators that
    feed it. `board`: of the board's kernels against the reference; `quantized`: of the same graph
    in NumPy; None: the reference has no such tensor. `steps`: the largest difference between these
    two, in steps of the tensor's scale or, for floats, relative to its largest value."""

    name: str
    kind: str
    tensor: str
    inputs: tuple[str, ...]
    quantized: TensorError | None
    board: TensorError | None
    steps: float


def real(stored: Array, tensor: Tensor) -> Array:
    """The real numbers that stored values stand for."""
    if tensor.quant is None or stored.dtype.kind == "f":
        return stored.astype(np.float64)
    return _dequantized(stored, tensor.quant)


def _dequantized(stored: Array, quant: Quant) -> Array:
    scale, zero = quant.scale.astype(np.float64), quant.zero_point
    if quant.per_channel:
        shape = [-1 if i == quant.axis else 1 for i in range(stored.ndim)]
        scale, zero = scale.reshape(shape), np.broadcast_to(zero, quant.scale.shape).reshape(shape)
    made: Array = (stored.astype(np.float64) - zero) * scale
    return made


def error_of(want: Array, found: Array, saturated: float) -> TensorError:
    """Compares real values of the same shape."""
    want, found = want.astype(np.float64), found.astype(np.float64)
    finite = np.isfinite(want) & np.isfinite(found)
    same = (want == found) | (np.isnan(want) & np.isnan(found))
    if same.all():
        return TensorError(MOST_DB, 1.0, 0.0, saturated)
    if not (finite | same).all():
        return TensorError(-MOST_DB, cosine(want, found), math.inf, saturated)
    off = np.where(finite, want - found, 0.0)
    signal, noise = float(np.sum(np.where(finite, want, 0.0) ** 2)), float(np.sum(off**2))
    ratio = 10 * math.log10(max(signal, _NONE) / noise)
    return TensorError(
        max(min(ratio, MOST_DB), -MOST_DB),
        cosine(np.where(finite, want, 0.0), np.where(finite, found, 0.0)),
        float(np.abs(off).max()),
        saturated,
    )


def saturation(stored: Array, tensor: Tensor, want: Array) -> float:
    """The fraction of values that the type's range cut off: of quantized values, those at an end
    where the reference is beyond it, of f16 values those that are infinite where it is not."""
    if not stored.size:
        return 0.0
    if tensor.dtype is DType.F16:
        cut = ~np.isfinite(stored.astype(np.float32)) & (np.abs(want) > _LARGEST_HALF)
        return float(np.mean(cut))
    if not tensor.is_quantized or tensor.quant is None:
        return 0.0
    low, high = quantized_range(tensor.dtype)
    scale, zero = float(tensor.quant.scale.flat[0]), int(tensor.quant.zero_point.flat[0])
    exact = want / scale + zero
    cut = ((stored == low) & (exact < low - 0.5)) | ((stored == high) & (exact > high + 0.5))
    return float(np.mean(cut))


class References:
    """The tensors of the reference, found by name or, `by_value`, by what they hold. `names`: of
    the reference's tensors, by those of the other graph, where they differ.

    By value, the channels of tensors other than `outputs` are scaled as those they are compared
    with if quantization has equalized these; `equalized` has their names.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[str, Array],
        names: Mapping[str, str],
        by_value: bool,
        in_floats: bool,
        outputs: Collection[str] = (),
    ) -> None:
        runner = run_in_floats if in_floats else None
        made = evaluate(graph, inputs, keep_tensors=True, runner=runner).tensors
        self._names, self._by_value, self._outputs = names, by_value, outputs
        self.equalized: set[str] = set()
        computed = {t for n in graph.nodes for t in n.outputs}
        self._nodes = {n.outputs[0]: n for n in graph.nodes if len(n.outputs) == 1}
        self.graph = graph
        self.values = {t: real(made[t], graph.tensors[t]) for t in made if t in computed}
        self._by_sizes: dict[tuple[int, ...], list[str]] = {}
        for name, value in self.values.items():
            self._by_sizes.setdefault(tuple(sorted(s for s in value.shape if s > 1)), []).append(
                name
            )

    def node_of(self, name: str) -> Node | None:
        """The operator of the reference that computes the tensor of this name."""
        return self._nodes.get(name) or self._nodes.get(self._names.get(name, name))

    def like(self, name: str, found: Array) -> Array | None:
        """The reference of a tensor, in the layout of `found`; None if nothing is like it."""
        want = self._laid(name, found)
        if want is None or not self._by_value or name in self._outputs:
            return want
        made = equalized(want, found)
        if made is not want:
            self.equalized.add(name)
        return made

    def _laid(self, name: str, found: Array) -> Array | None:
        for known in (name, self._names.get(name, name)):
            if known in self.values and (made := in_layout(self.values[known], found)) is not None:
                return made
        if not self._by_value:
            return None
        sizes = tuple(sorted(s for s in found.shape if s > 1))
        tried = (in_layout(self.values[n], found) for n in self._by_sizes.get(sizes, ()))
        best = max(
            ((cosine(t, found), t) for t in tried if t is not None),
            key=lambda pair: pair[0],
            default=(0.0, None),
        )
        return best[1] if best[0] >= _LIKE else None


def equalized(want: Array, found: Array) -> Array:
    """`want` with each channel multiplied by a positive factor as in `found`, if the factors differ
    and explain most of the difference; else `want`."""
    if want.ndim != 4:
        return want
    best, db = want, error_of(want, found, 0.0).sqnr_db + _GAIN_DB
    for axis in (1, 3):
        others = tuple({0, 1, 2, 3} - {axis})
        common = np.sum(want * found, axis=others, keepdims=True)
        live = common != 0
        if want.size < _FEWEST * common.size or not live.any() or common.min() < 0:
            continue
        factors = common[live] / np.sum(want**2, axis=others, keepdims=True)[live]
        if factors.max() < _SPREAD * factors.min():
            continue
        scales = np.ones_like(common)
        scales[live] = factors
        if (explained := error_of(want * scales, found, 0.0).sqnr_db) > db:
            best, db = want * scales, explained
    return best


def in_layout(value: Array, found: Array) -> Array | None:
    """`value` with the axes of `found`: as it is, or, where that fits better, in another order,
    such as a picture with channels first; None if it has other sizes. Several orders have the same
    shape if sizes are equal."""
    if value.shape == found.shape and cosine(value, found) > _SAME_ORDER:
        return value
    sizes = [s for s in found.shape if s > 1]
    plain = value.reshape([s for s in value.shape if s > 1])
    if sorted(plain.shape) != sorted(sizes) or plain.ndim > 4:
        return None
    orders = [
        plain.transpose(order).reshape(found.shape)
        for order in itertools.permutations(range(plain.ndim))
        if [plain.shape[i] for i in order] == sizes
    ]
    return max(orders, key=lambda each: cosine(each, found))  # the order in the file, if equal


def float_twin(graph: Graph) -> Graph:
    """The graph with real numbers instead of stored ones: the reference of a model that has none,
    which has its rounded weights but rounds nothing else."""
    tensors = {
        name: Tensor(
            name,
            t.shape,
            DType.F32,
            data=None if t.data is None else real(t.data, t).astype(np.float32),
        )
        if t.quant is not None
        else t
        for name, t in graph.tensors.items()
    }
    read = {n.op.state: n.outputs[0] for n in graph.nodes if isinstance(n.op, ReadState)}
    states = {
        name: State(name, real(state.initial, graph.tensors[read[name]]).astype(np.float32))
        if name in read and graph.tensors[read[name]].quant is not None
        else state
        for name, state in graph.states.items()
    }
    return replace(graph, tensors=tensors, states=states)


def run_in_floats(
    node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Array]
) -> list[Array]:
    """Runs a node of a `float_twin`, where conversions between types do nothing."""
    if isinstance(node.op, ops.Quantize | ops.Cast | ops.FakeQuantize):
        return [values[node.inputs[0] or ""].astype(np.float32)]
    return run_node(node, tensors, values)


class Removal:
    """Runs a quantized graph with the rounding of single operators taken away."""

    def __init__(self, graph: Graph, inputs: Mapping[str, Array], reference: References) -> None:
        self._graph, self._reference = graph, reference
        self._twin = float_twin(graph)
        self._stored = evaluate(graph, inputs, keep_tensors=True).tensors
        self._noise = self._noise_of({})

    def rounds(self, node: Node) -> bool:
        """Whether the node rounds its results or its weights."""
        if node.op.on_quantized.keeps_scale:
            return False
        names = (*node.outputs, *(n for n in node.inputs if n and self._is_weight(n)))
        return any(self._graph.tensors[n].quant is not None for n in names)

    def _is_weight(self, name: str) -> bool:
        return self._graph.tensors[name].data is not None

    def drop_db(self, node: Node) -> float:
        """By how many dB the results have more noise than the least of its inputs."""
        ins = [self._sqnr(n) for n in node.inputs if n and not self._is_weight(n)]
        return min([x for x in ins if x is not None], default=MOST_DB) - (
            self._sqnr(node.outputs[0]) or 0.0
        )

    def _sqnr(self, name: str) -> float | None:
        now = real(self._stored[name], self._graph.tensors[name])
        want = self._reference.like(name, now)
        return None if want is None else error_of(want, now, 0.0).sqnr_db

    def brought_db(self, node: Node) -> float | None:
        """By how many dB the outputs' noise falls if `node` does not round; None if it cannot be
        computed in floats."""
        try:
            made = self._without_rounding(node)
        except (ValueError, TypeError, ArithmeticError, KeyError, NotImplementedError):
            return None
        noise = self._noise_of(made)
        if self._noise <= 0 or noise is None:
            return None
        return 10 * math.log10(self._noise / max(noise, self._noise * 1e-10))

    def _without_rounding(self, node: Node) -> dict[str, Array]:
        """The real values of all tensors that change."""
        found: dict[str, Array] = {}
        exact = {*node.outputs}
        found.update(zip(node.outputs, self._in_floats(node, found, own=True), strict=True))
        start = self._graph.nodes.index(node)
        for each in self._graph.nodes[start + 1 :]:
            changed = [name for name in each.inputs if name in found]
            if not changed or not each.outputs:
                continue
            values = self._in_floats(each, found, own=False)
            if each.op.on_quantized.keeps_scale and exact & {*changed}:
                exact |= {*each.outputs}
            else:
                values = [self._rounded(y, t) for y, t in zip(values, each.outputs, strict=True)]
            found.update(zip(each.outputs, values, strict=True))
        return found

    def _in_floats(self, node: Node, found: Mapping[str, Array], own: bool) -> list[Array]:
        """The node's results as real numbers; with the reference's operator if it is the `own`."""
        tensors = dict(self._twin.tensors)
        values: dict[str, Array] = {}
        for name in node.inputs:
            if name is None:
                continue
            data = tensors[name].data
            now = found[name] if name in found else self._stored.get(name)
            if name not in found and data is not None:
                now = data
            elif name not in found and now is not None and tensors[name].dtype is DType.F32:
                now = real(now, self._graph.tensors[name]).astype(np.float32)
            if now is not None:
                kind = tensors[name].dtype.numpy
                values[name] = now.astype(kind)
        is_scaled = any(n in self._reference.equalized for n in (*node.inputs, *node.outputs))
        exact = self._reference.node_of(node.outputs[0]) if own and not is_scaled else None
        if exact is not None and type(exact.op) is type(node.op):
            self._take_weights(node, exact, tensors, values)
        return run_in_floats(node, tensors, values)

    def _take_weights(
        self, node: Node, exact: Node, tensors: dict[str, Tensor], values: dict[str, Array]
    ) -> None:
        """Replaces rounded weights by those of the reference where they have the same shape."""
        for name, source in zip(node.inputs, exact.inputs, strict=False):
            if name is None or source is None or tensors[name].data is None:
                continue
            data = self._reference.graph.tensors[source].data
            if data is not None and data.dtype.kind == "f" and data.shape == tensors[name].shape:
                values[name] = data.astype(np.float32)

    def _rounded(self, value: Array, name: str) -> Array:
        tensor = self._graph.tensors[name]
        if not tensor.is_quantized or tensor.quant is None:
            return value
        low, high = quantized_range(tensor.dtype)
        scale, zero = float(tensor.quant.scale.flat[0]), int(tensor.quant.zero_point.flat[0])
        stored = np.clip(np.rint(value.astype(np.float64) / scale) + zero, low, high)
        rounded: Array = ((stored - zero) * scale).astype(np.float32)
        return rounded

    def _noise_of(self, found: Mapping[str, Array]) -> float:
        """The noise of all outputs relative to the reference's, as a sum of fractions."""
        total = 0.0
        for name in self._graph.outputs:
            tensor = self._graph.tensors[name]
            now = found[name] if name in found else real(self._stored[name], tensor)
            want = self._reference.like(name, now)
            if want is None or tensor.dtype in (DType.BOOL,):
                continue
            off = np.asarray(want, np.float64) - now
            total += float(np.sum(off**2)) / max(float(np.sum(want**2)), _NONE)
        return total
