"""Converts f32 operators between dequantized inputs and a quantized output to integer operators.

ONNX represents quantized models that way (Q and DQ nodes around f32 operators). Tensors of type u8
become s8 (values and zero point minus 128), since weights are s8. Operators without an equivalent
integer form stay in f32, between conversions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgekit.host.compiler.frontends.tflite.checks import check_scales
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.quantization import scale_of, zero_point_of
from edgekit.host.compiler.ir.traits import OnQuantized
from edgekit.host.compiler.ir.types import DType, Graph, Node, Operator, Quant, ShapeError, Tensor
from edgekit.host.compiler.transforms.passes.affine import fuse_affine
from edgekit.host.compiler.transforms.passes.dead import dead
from edgekit.host.compiler.transforms.passes.fuse import fuse_activation
from edgekit.host.compiler.transforms.passes.gelu import fuse_gelu
from edgekit.host.compiler.transforms.passes.hard_swish import fuse_hard_swish
from edgekit.host.compiler.transforms.passes.layout import push_transposes
from edgekit.host.compiler.transforms.passes.quantized_operands import quantized_operands, tensor_of
from edgekit.host.compiler.transforms.passes.reciprocal import use_reciprocals
from edgekit.host.compiler.transforms.passes.rewrite import Users, until_stable
from edgekit.host.compiler.transforms.passes.silu import fuse_silu


def integer_form(graph: Graph) -> Graph:
    """Convert a graph with Q and DQ nodes to integer operators; others are returned unchanged.

    Kernels are verified against the result. The f32 form may differ by a step at ties, since it
    rounds sums, and with float constants, which are quantized here.
    """
    if not any(isinstance(n.op, ops.Quantize) and n.op.to_even for n in graph.nodes):
        return graph
    for apply in _STEPS:
        graph = apply(graph)
    return _round_once(graph)


def _round_once(graph: Graph) -> Graph:
    """Let operators round to the nearest value, as Q does."""
    made: dict[int, Quant] = {}  # tensors that share an object still do
    tensors = dict(graph.tensors)
    for name in (name for node in graph.nodes for name in node.outputs):
        quant = tensors[name].quant
        if quant is not None:
            once = made.setdefault(id(quant), replace(quant, rounds_once=True))
            tensors[name] = replace(tensors[name], quant=once)
    return replace(graph, tensors=tensors)


def _u8_to_s8(graph: Graph) -> Graph:
    """Convert u8 tensors to s8 if they are only dequantized again. Others, such as the graph's
    inputs and outputs, stay u8 for their other readers."""
    users, tensors = graph.consumers(), dict(graph.tensors)
    taken = {*tensors, *(node.name for node in graph.nodes)}
    nodes, shifted = list[Node](), dict[str, str]()

    def shift(x: Tensor) -> str:
        shifted[x.name] = name = fresh_name(f"{x.name}.s8", taken)
        tensors[name] = _as_s8(x, name)
        return name

    for node in graph.nodes:
        ends = [tensors[name or ""] for name in (*node.inputs[:1], *node.outputs)]
        if isinstance(node.op, ops.Quantize) and _is_u8(ends[1]):
            out = ends[1].name
            reals = all(isinstance(user.op, ops.Cast) for user in users[out])
            node = replace(node, op=replace(node.op, to=DType.I8))
            if reals and out not in graph.outputs:
                tensors[out] = _as_s8(ends[1], out)
            else:
                nodes.append(replace(node, outputs=(shift(ends[1]),)))
                own = fresh_name(f"{node.name}.u8", taken)
                node = Node(own, ops.Quantize(DType.U8, True), (shifted[out],), (out,))
        elif isinstance(node.op, ops.Cast) and _is_u8(ends[0]):
            x = ends[0]
            if x.name not in shifted:
                own = fresh_name(f"{x.name}.s8", taken)
                nodes.append(Node(own, ops.Quantize(DType.I8, True), (x.name,), (shift(x),)))
            node = replace(node, inputs=(shifted[x.name],))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes), tensors=tensors)


def _is_u8(x: Tensor) -> bool:
    return x.dtype is DType.U8 and x.is_quantized and x.data is None


def _as_s8(x: Tensor, name: str) -> Tensor:
    """The values of a quantized u8 tensor, as s8."""
    assert x.quant is not None
    quant = replace(x.quant, zero_point=x.quant.zero_point - 128, from_u8=True)
    return replace(x, name=name, dtype=DType.I8, quant=quant)


def _move_quantized(graph: Graph) -> Graph:
    """Apply operators that move or select dequantized values before dequantizing."""
    tensors, producer = dict(graph.tensors), graph.producer()
    taken = {*tensors, *(node.name for node in graph.nodes)}
    nodes: list[Node] = []
    for node in graph.nodes:
        before = producer.get(node.inputs[0] or "") if node.inputs else None
        quantized = None
        moves = node.op.on_quantized is OnQuantized.MOVES
        if moves and before is not None and isinstance(before.op, ops.Cast):
            quantized = tensors[before.inputs[0] or ""]
        if (
            before is None
            or quantized is None
            or quantized.dtype is not DType.I8
            or quantized.data is not None
        ):
            nodes.append(node)
            continue
        inputs = (quantized.name, *node.inputs[1:])
        names = [fresh_name(f"{name}.quantized", taken) for name in node.outputs]
        nodes.append(
            Node(fresh_name(f"{node.name}.quantized", taken), node.op, inputs, tuple(names))
        )
        for i, (name, real) in enumerate(zip(names, node.outputs, strict=True)):
            tensors[name] = replace(quantized, name=name, shape=tensors[real].shape)
            own = node.name if i == 0 else fresh_name(f"{node.name}.{i}", taken)
            cast = Node(own, before.op, (name,), (real,))
            nodes.append(cast)
            producer[real] = cast
    return replace(graph, nodes=tuple(nodes), tensors=tensors)


def _quantize_parts(graph: Graph) -> Graph:
    """Quantize the inputs of a concatenation instead of its output, so that their producers can be
    fused with Quantize."""
    users, tensors = graph.consumers(), dict(graph.tensors)
    nodes: list[Node] = []
    taken = {*tensors, *(node.name for node in graph.nodes)}
    last: dict[str, Node] = {}  # concatenations by the name of the Quantize after them
    for node in graph.nodes:
        inside = isinstance(node.op, ops.Concat) and node.outputs[0] not in graph.outputs
        after = users[node.outputs[0]] if inside else []
        if len(after) == 1 and isinstance(after[0].op, ops.Quantize) and after[0].op.to is DType.I8:
            last[after[0].name] = node
        elif node.name not in last:
            nodes.append(node)
        else:
            together = last[node.name]
            quantized, parts = tensors[node.outputs[0]], []
            for i, name in enumerate(together.inputs):
                part = fresh_name(f"{node.outputs[0]}.{i}", taken)
                tensors[part] = replace(quantized, name=part, shape=tensors[name or ""].shape)
                parts.append(part)
                nodes.append(Node(fresh_name(f"{node.name}.{i}", taken), node.op, (name,), (part,)))
            nodes.append(Node(together.name, together.op, tuple(parts), node.outputs))
    return replace(graph, nodes=tuple(nodes), tensors=tensors)


def _quantize_unmoved(graph: Graph) -> Graph:
    """Quantize before operators that only move values, so that the producer can be fused with
    Quantize."""
    users, producer, tensors = graph.consumers(), graph.producer(), dict(graph.tensors)
    taken = {*tensors, *(node.name for node in graph.nodes)}
    instead: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if not isinstance(node.op, ops.Quantize) or node.op.to is not DType.I8:
            continue
        if tensors[node.inputs[0] or ""].dtype is DType.U8:
            continue  # what it moves may have no quantization
        source, moves = node.inputs[0] or "", list[Node]()
        while source in producer and source not in graph.outputs and len(users[source]) == 1:
            before = producer[source]
            if not before.op.places_values:
                break
            moves.insert(0, before)
            source = before.inputs[0] or ""
        else:
            continue
        if not moves or producer[source].op.on_quantized is OnQuantized.NEVER:
            continue
        quantized = tensors[node.outputs[0]]
        reals = [source, *(move.outputs[0] for move in moves[:-1])]
        names = [fresh_name(f"{real}.quantized", taken) for real in reals]
        for name, real in zip(names, reals, strict=True):
            tensors[name] = replace(quantized, name=name, shape=tensors[real].shape)
        made = [replace(node, inputs=(source,), outputs=(names[0],))]
        for move, name, out in zip(moves, names, [*names[1:], quantized.name], strict=True):
            made.append(replace(move, inputs=(name, *move.inputs[1:]), outputs=(out,)))
        instead |= {node.name: made, **{move.name: [] for move in moves}}
    nodes = [each for node in graph.nodes for each in instead.get(node.name, [node])]
    return replace(graph, nodes=tuple(nodes), tensors=tensors)


def _fuse_integer_ops(graph: Graph) -> Graph:
    return until_stable(graph, _on_quantized)


def _on_quantized(users: Users, node: Node) -> dict[str, Node | None] | None:
    after = [users.only_consumer(name) for name in node.outputs]
    quantized = [n for n in after if n is not None and isinstance(n.op, ops.Quantize)]
    outs = [users.graph.tensors[n.outputs[0]] for n in quantized]
    if not outs or len(outs) < len(after) or any(t.dtype is not DType.I8 for t in outs):
        return None
    if users.graph.tensors[node.outputs[0]].dtype is not DType.F32:
        return None
    if isinstance(node.op, ops.Cast):
        return _drop_quantize_pair(users, node, quantized[0])
    if node.op.on_quantized is OnQuantized.NEVER:
        return None
    inputs = quantized_operands(users, node, outs[0])
    if inputs is None or not _has_integer_op(users, node.op, inputs, outs):
        return None
    fused = Node(node.name, node.op, inputs, tuple(t.name for t in outs))
    return {node.name: fused, **{n.name: None for n in quantized}}


def _drop_quantize_pair(users: Users, node: Node, after: Node) -> dict[str, Node | None] | None:
    """Replace Dequantize and Quantize in sequence by nothing or by a change of scale."""
    quantized, out = (
        users.graph.tensors[name or ""] for name in (node.inputs[0], after.outputs[0])
    )
    if quantized.dtype is not DType.I8 or not quantized.is_quantized:
        return None
    same = _scale_and_zero(quantized) == _scale_and_zero(out)
    op: Operator = ops.Reshape(out.shape) if same else ops.Quantize(DType.I8, True)
    return {node.name: Node(node.name, op, node.inputs, after.outputs), after.name: None}


def _has_integer_op(
    users: Users, op: Operator, inputs: tuple[str | None, ...], outs: Sequence[Tensor]
) -> bool:
    """Whether an integer operator exists for these scales."""
    ins = [tensor_of(users, name) for name in inputs]
    first = ins[0]
    assert first is not None
    keeps = op.on_quantized.keeps_scale and not isinstance(op, ops.AveragePool2D)
    if keeps and any(_scale_and_zero(first) != _scale_and_zero(out) for out in outs):
        return False
    try:
        inferred = op.infer(ins)
        check_scales(op, ins, outs)
    except ShapeError:
        return False
    return inferred == [(out.shape, DType.I8) for out in outs]


def _scale_and_zero(t: Tensor) -> tuple[float, int]:
    return scale_of(t), zero_point_of(t)


_STEPS = (
    push_transposes, _u8_to_s8, _move_quantized, use_reciprocals, fuse_gelu, fuse_hard_swish,
    fuse_silu, fuse_affine, fuse_activation, _fuse_integer_ops, _quantize_unmoved, _quantize_parts,
    _fuse_integer_ops, dead,
)  # fmt: skip
