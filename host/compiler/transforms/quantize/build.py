"""Builds the quantized graph from a float graph, scales and the set of nodes to quantize."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from edgekit.host.compiler.frontends.tflite.checks import check_quantized
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.quantization import (
    dequantize,
    quantized_range,
    round_half_away,
    scale_of,
    zero_point_of,
)
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node, Quant, ShapeError, Tensor
from edgekit.host.compiler.transforms.quantize.ranges import quant_of, range_quant
from edgekit.host.compiler.transforms.quantize.rounding import (
    MOST,
    WeightRounding,
    rounded,
    scales_by_power,
)

_BIAS_LIMIT = 2.0**30  # in units of the sums, leaving headroom for them in 32 bits
_TINIEST = 2.0**-20  # of the largest weight scale: all-zero channels need a nonzero scale too


class UnquantizableError(Exception):
    """`node` has no quantized form with these scales and must stay in float."""

    def __init__(self, node: str) -> None:
        super().__init__(node)
        self.node = node


@dataclass(frozen=True)
class QuantizedGraph:
    """A quantized graph, and its quantized tensors by the names of the float tensors."""

    graph: Graph
    tensors: Mapping[str, str]


def build(
    graph: Graph,
    quantized: Collection[str],
    scales: Mapping[str, Quant],
    weights: WeightRounding,
) -> QuantizedGraph:
    """Quantize the nodes named in `quantized` with these scales; inputs, outputs and node names do
    not change. Recurrent layers named in `quantized` only have their weights rounded. `weights`
    rounds those of this graph. Raises UnquantizableError."""
    builder = _Builder(graph, scales, weights)
    for node in graph.nodes:
        if node.name in quantized and isinstance(node.op, ops.Recurrent):
            builder.add_rounded(node)
        elif node.name in quantized:
            builder.add_quantized(node)
        else:
            builder.add_float(node)
    return builder.finished()


class _Builder:
    def __init__(self, graph: Graph, scales: Mapping[str, Quant], weights: WeightRounding) -> None:
        self._graph, self._scales, self._weights = graph, scales, weights
        self._tensors: dict[str, Tensor] = {name: graph.tensors[name] for name in graph.inputs}
        self._taken, self._nodes = {*graph.tensors}, list[Node]()
        self._node_names = {n.name for n in graph.nodes}
        self._quantized: dict[str, str] = {}
        self._constants: dict[str, str] = {}

    def add_float(self, node: Node) -> None:
        """Add the node unchanged, in float."""
        for name in node.inputs:
            if name is not None:
                self._need_float(name)
        self._tensors |= {name: self._graph.tensors[name] for name in node.outputs}
        self._nodes.append(node)

    def add_rounded(self, node: Node) -> None:
        """Add a recurrent layer whose float weights are rounded to 8 bits, one scale per row; the
        scales are kept with the weights."""
        name = node.inputs[1]
        assert name is not None
        weights = self._graph.tensors[name]
        assert weights.data is not None
        rows = weights.data.astype(np.float64)
        scale = _raise_scales(scales_by_power(rows, None), np.zeros(len(rows)), 1.0)
        quantized = rounded(rows, scale.astype(np.float64), None)
        quant = Quant(scale, np.zeros(scale.size, np.int64), 0)
        made = replace(
            weights, name=f"{name}.rounded", quant=quant, data=dequantize(quantized, quant)
        )
        inputs = (node.inputs[0], self._add_tensor(made), *node.inputs[2:])
        self.add_float(replace(node, inputs=inputs))

    def add_quantized(self, node: Node) -> None:
        """Add the node in quantized form."""
        if isinstance(node.op, ops.Weighted):
            inputs = self._product_inputs(node)
        else:
            same = self._scales[node.outputs[0]] if isinstance(node.op, ops.Concat) else None
            inputs = tuple(self._quantized_operand(name, same) for name in node.inputs)
        outs = [
            replace(
                self._graph.tensors[n], name=f"{n}.quantized", dtype=DType.I8, quant=self._scales[n]
            )
            for n in node.outputs
        ]
        ins = [None if name is None else self._tensors[name] for name in inputs]
        try:
            inferred = node.op.infer(ins)
            check_quantized(node.op, ins, outs)
        except ShapeError:
            raise UnquantizableError(node.name) from None
        if inferred != [(t.shape, t.dtype) for t in outs]:
            raise UnquantizableError(node.name)
        for name, out in zip(node.outputs, outs, strict=True):
            self._quantized[name] = self._add_tensor(out)
        made = tuple(self._quantized[name] for name in node.outputs)
        self._nodes.append(Node(node.name, node.op, inputs, made))

    def finished(self) -> QuantizedGraph:
        """Return the graph, with float outputs."""
        for name in self._graph.outputs:
            self._need_float(name)
        made = replace(self._graph, tensors=self._tensors, nodes=tuple(self._nodes))
        return QuantizedGraph(made, self._quantized)

    def _add_tensor(self, tensor: Tensor) -> str:
        """Add a tensor under its own name or, if that is taken, a similar one."""
        name = fresh_name(tensor.name, self._taken)
        self._tensors[name] = replace(tensor, name=name)
        return name

    def _add_node(self, name: str, op: ops.Quantize | ops.Cast, source: str, made: str) -> None:
        self._nodes.append(Node(fresh_name(name, self._node_names), op, (source,), (made,)))

    def _need_float(self, name: str) -> None:
        """Dequantize a tensor for a float reader."""
        if name in self._tensors:
            return
        tensor = self._graph.tensors[name]
        self._tensors[name] = tensor
        if name in self._quantized:
            self._add_node(f"{name}.dequantize", ops.Cast(), self._quantized[name], name)

    def _quantized_operand(self, name: str | None, quant: Quant | None = None) -> str:
        """Return the quantized form of an operand, rescaled to `quant` if given."""
        assert name is not None
        tensor = self._graph.tensors[name]
        if tensor.dtype is not DType.F32:
            self._tensors[name] = tensor
            return name
        if tensor.data is not None:
            return self._quantize_constant(tensor, quant)
        if name not in self._quantized:
            quantized = Tensor(f"{name}.quantized", tensor.shape, DType.I8, self._scales[name])
            self._quantized[name] = self._add_tensor(quantized)
            self._add_node(f"{name}.quantize", ops.Quantize(DType.I8), name, self._quantized[name])
        own = self._quantized[name]
        if quant is None or _same_quant(quant, self._tensors[own].quant):
            return own
        made = self._add_tensor(replace(self._tensors[own], name=f"{name}.rescaled", quant=quant))
        self._add_node(f"{name}.rescale", ops.Quantize(DType.I8), own, made)
        return made

    def _quantize_constant(self, tensor: Tensor, quant: Quant | None) -> str:
        assert tensor.data is not None
        if quant is None:
            quant = constant_quant(tensor.data)
        like = Tensor(f"{tensor.name}.quantized", tensor.shape, DType.I8, quant)
        return self._add_tensor(replace(like, data=quantize_like(tensor.data, like)))

    def _product_inputs(self, node: Node) -> tuple[str | None, ...]:
        x = self._tensors[self._quantized_operand(node.inputs[0])]
        w = self._graph.tensors[node.inputs[1] or ""]
        named = node.inputs[2] if len(node.inputs) > 2 else None
        given = None if named is None else self._graph.tensors[named]
        assert w.data is not None
        axis = node.op.weight_axis or 0
        rows = np.moveaxis(w.data, axis, 0).reshape(w.shape[axis], -1).astype(np.float64)
        bias = np.zeros(len(rows)) if given is None else np.asarray(given.data, np.float64)
        scale = _raise_scales(self._weights.scales(node.name, rows), bias, scale_of(x))
        quantized = self._weights.rounded(node.name, rows, scale.astype(np.float64))
        others = tuple(n for i, n in enumerate(w.shape) if i != axis)
        quantized = np.ascontiguousarray(np.moveaxis(quantized.reshape(-1, *others), 0, axis))
        quant = Quant(scale, np.zeros(scale.size, np.int64), axis)
        weights = self._add_tensor(
            Tensor(f"{w.name}.quantized", w.shape, DType.I8, quant, quantized)
        )
        unit = scale.astype(np.float64) * scale_of(x)
        sums = Tensor(f"{node.name}.sums", bias.shape, DType.I32, sums_quant(unit))
        sums = replace(sums, data=np.rint(bias / unit).astype(np.int32))
        return x.name, weights, self._add_tensor(sums)


def _raise_scales(scale: Array, bias: Array, x_scale: float) -> Array:
    """Raise scales (f32) so that biases in units of the sums fit 32 bits and none is 0."""
    least = max(float(scale.max(initial=0.0)) * _TINIEST, 1e-30)
    usable: Array = np.maximum(scale, np.maximum(np.abs(bias) / (_BIAS_LIMIT * x_scale), least))
    small: Array = usable.astype(np.float32)
    return small


def sums_quant(unit: Array) -> Quant:
    """Quantization of s32 sums of products: input scale times weight scales."""
    return Quant(unit.astype(np.float32), np.zeros(unit.size, np.int64), 0)


def constant_quant(data: Array) -> Quant:
    """Quantization of a constant operand; a uniform constant is represented exactly."""
    if data.size and data.min() == data.max() and data.flat[0] != 0:
        return quant_of(abs(float(data.flat[0])) / MOST, 0)
    return range_quant(float(data.min(initial=0.0)), float(data.max(initial=0.0)))


def quantize_like(values: Array, like: Tensor) -> Array:
    """Quantize f32 values with the scale of `like`."""
    low, high = quantized_range(DType.I8)
    scaled = round_half_away(values / np.float32(scale_of(like))) + zero_point_of(like)
    quantized: Array = np.clip(scaled, low, high).astype(np.int8)
    return quantized


def _same_quant(a: Quant, b: Quant | None) -> bool:
    return b is not None and bool(
        np.array_equal(a.scale, b.scale) and np.array_equal(a.zero_point, b.zero_point)
    )
