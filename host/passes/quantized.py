"""f32 operators between dequantized inputs and a quantized output → operators on the codes.

This is how ONNX writes quantized models (Q and DQ nodes around f32 operators). Codes of type u8
become s8 ones (128 less, and the zero point as well), since weights are s8. What does not fit
stays as it is written: in f32, between conversions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgekit.host.graph import ops
from edgekit.host.graph.quantization import scale_of, zero_point_of
from edgekit.host.graph.types import Array, DType, Graph, Node, Operator, Quant, ShapeError, Tensor
from edgekit.host.importers.tflite_checks import check_scales
from edgekit.host.passes.affine import fuse_affine
from edgekit.host.passes.dead import dead
from edgekit.host.passes.fuse import fuse_activation
from edgekit.host.passes.layout import push_transposes
from edgekit.host.passes.rewrite import Users, until_stable

_WEIGHTED = (ops.Conv2D, ops.DepthwiseConv2D, ops.FullyConnected)
_RESCALING = (ops.Add, ops.Clamp, ops.Concat, ops.Mean, ops.Mul)
_KEEPING = (
    ops.AveragePool2D, ops.MaxPool2D, ops.Pad, ops.Reshape, ops.StridedSlice, ops.Transpose,
)  # fmt: skip
_FRACTIONS = (ops.Logistic, ops.Softmax)
_I32 = np.iinfo(np.int32)


def integer_form(graph: Graph) -> Graph:
    """`graph` itself unless it quantizes by Q and DQ nodes; then their meaning in integers.

    The result is what kernels are held to: a rounding of the f32 form may differ by one code.
    """
    if not any(isinstance(n.op, ops.Quantize) and n.op.to_even for n in graph.nodes):
        return graph
    for apply in (push_transposes, _signed, _move_codes, fuse_affine, fuse_activation, _fuse, dead):
        graph = apply(graph)
    return graph


def _signed(graph: Graph) -> Graph:
    """u8 codes that are only dequantized again become s8 codes."""
    users, tensors = graph.consumers(), dict(graph.tensors)
    nodes = []
    for node in graph.nodes:
        if isinstance(node.op, ops.Quantize) and node.op.to is DType.U8:
            codes = tensors[node.outputs[0]]
            inside = codes.name not in graph.outputs and codes.quant is not None
            if inside and all(isinstance(u.op, ops.Cast) for u in users[codes.name]):
                assert codes.quant is not None
                quant = replace(codes.quant, zero_point=codes.quant.zero_point - 128)
                tensors[codes.name] = replace(codes, dtype=DType.I8, quant=quant)
                node = replace(node, op=replace(node.op, to=DType.I8))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes), tensors=tensors)


def _move_codes(graph: Graph) -> Graph:
    """Transposes and reshapes of dequantized codes become such of codes, dequantized after."""
    tensors, producer = dict(graph.tensors), graph.producer()
    nodes: list[Node] = []
    for node in graph.nodes:
        before = producer.get(node.inputs[0] or "") if node.inputs else None
        if (
            isinstance(node.op, ops.Transpose | ops.Reshape)
            and before is not None
            and isinstance(before.op, ops.Cast)
        ):
            codes = tensors[before.inputs[0] or ""]
            name = f"{node.outputs[0]}.codes"
            if codes.dtype is DType.I8 and codes.data is None and name not in tensors:
                shape = tensors[node.outputs[0]].shape
                tensors[name] = replace(codes, name=name, shape=shape)
                nodes.append(Node(f"{node.name}.codes", node.op, (codes.name,), (name,)))
                node = Node(node.name, before.op, (name,), node.outputs)
                producer[node.outputs[0]] = node
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes), tensors=tensors)


def _fuse(graph: Graph) -> Graph:
    def match(users: Users, node: Node) -> dict[str, Node | None] | None:
        after = users.only_consumer(node.outputs[0]) if len(node.outputs) == 1 else None
        if after is None or not isinstance(after.op, ops.Quantize):
            return None
        out = users.graph.tensors[after.outputs[0]]
        if users.graph.tensors[node.outputs[0]].dtype is not DType.F32 or out.dtype is not DType.I8:
            return None
        if isinstance(node.op, ops.Cast):
            return _without(users, node, after)
        inputs = _coded(users, node)
        if inputs is None or not _fits(users, node.op, inputs, out):
            return None
        fused = Node(node.name, node.op, inputs, after.outputs)
        return {node.name: fused, after.name: None}

    return until_stable(graph, match)


def _without(users: Users, node: Node, after: Node) -> dict[str, Node | None] | None:
    """Codes that are dequantized and quantized to the same codes again stay."""
    codes, out = (users.graph.tensors[name or ""] for name in (node.inputs[0], after.outputs[0]))
    if codes.dtype is not DType.I8 or not codes.is_coded:
        return None
    if (scale_of(codes), zero_point_of(codes)) != (scale_of(out), zero_point_of(out)):
        return None
    kept = Node(node.name, ops.Reshape(out.shape), node.inputs, after.outputs)
    return {node.name: kept, after.name: None}


def _tensor(users: Users, name: str | None) -> Tensor | None:
    if name is None:
        return None
    return users.made.get(name) or users.graph.tensors[name]


def _codes(users: Users, name: str | None) -> Tensor | None:
    """The s8 codes behind a dequantized tensor."""
    made_by = users.producer.get(name) if name is not None else None
    if made_by is None or not isinstance(made_by.op, ops.Cast):
        return None
    codes = users.graph.tensors[made_by.inputs[0] or ""]
    usable = codes.dtype is DType.I8 and codes.quant is not None and not codes.quant.per_channel
    return codes if usable else None


def _coded(users: Users, node: Node) -> tuple[str | None, ...] | None:
    """The node's inputs as codes; None where one is not quantized."""
    if not isinstance(node.op, (*_WEIGHTED, *_RESCALING, *_KEEPING, *_FRACTIONS)):
        return None
    x = _codes(users, node.inputs[0])
    if isinstance(node.op, _WEIGHTED):
        return None if x is None or len(node.inputs) > 3 else _with_weights(users, node, x)
    found = [_codes(users, name) for name in node.inputs]
    return None if any(t is None for t in found) else tuple(t.name for t in found if t)


def _with_weights(users: Users, node: Node, x: Tensor) -> tuple[str | None, ...] | None:
    w = _tensor(users, node.inputs[1])
    bias = _tensor(users, node.inputs[2]) if len(node.inputs) > 2 else None
    if w is None or w.data is None or w.quant is None:
        return None
    if bias is not None and bias.data is None:
        return None
    axis = 3 if isinstance(node.op, ops.DepthwiseConv2D) else 0
    shape = [1] * len(w.shape)
    shape[axis] = w.quant.scale.size
    codes = np.rint(w.data / w.quant.scale.reshape(shape)).astype(np.int64)
    points = _points(codes, axis)
    if points is None or (np.ptp(points) and isinstance(node.op, ops.DepthwiseConv2D)):
        return None
    shape[axis] = points.size
    stored = (codes + points.reshape(shape)).astype(np.int8)
    count = max(points.size, w.quant.scale.size)
    scale, zero = (np.resize(v, count) for v in (w.quant.scale, points))
    name = users.constant(f"{w.name}.codes", replace(w, dtype=DType.I8), stored)
    users.made[name] = replace(users.made[name], quant=Quant(scale, zero, axis))
    sums = None if bias is None else _bias(users, node, x, w.quant, bias.data)
    return (x.name, name, sums)


def _points(codes: Array, axis: int) -> Array | None:
    """The zero point with which `codes` fit into s8, or where there is none those of the channels
    along `axis`; 0 where it does, and None where there are none."""
    if not codes.size:
        return np.zeros(1, np.int64)
    rows = np.moveaxis(codes, axis, 0).reshape(codes.shape[axis], -1)
    low, high = -128 - rows.min(axis=1), 127 - rows.max(axis=1)
    if low.max() <= high.min():
        return np.clip(np.zeros(1, np.int64), low.max(), high.min())
    return np.clip(0, low, high) if (low <= high).all() else None


def _bias(users: Users, node: Node, x: Tensor, weights: Quant, bias: Array | None) -> str:
    assert bias is not None
    unit = scale_of(x) * weights.scale.astype(np.float64)
    codes = np.clip(np.rint(bias / unit), _I32.min, _I32.max).astype(np.int32)
    like = Tensor("", codes.shape, DType.I32)
    return users.constant(f"{node.name}.sums", like, codes)


def _fits(users: Users, op: Operator, inputs: tuple[str | None, ...], out: Tensor) -> bool:
    """Whether the integer operator exists for these scales."""
    ins = [_tensor(users, name) for name in inputs]
    first = ins[0]
    assert first is not None
    if isinstance(op, _KEEPING) and (scale_of(first), zero_point_of(first)) != (
        scale_of(out),
        zero_point_of(out),
    ):
        return False
    try:
        inferred = op.infer(ins)
        check_scales(op, ins, [out])
    except ShapeError:
        return False
    return inferred == [(out.shape, DType.I8)]
