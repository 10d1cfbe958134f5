"""ONNX export of recurrent layers: the fully connected layer before them is fused in.

    x ─ FullyConnected (W, bias) ─ [Cast] ─ Lstm (R)     becomes     LSTM(x, W, R, bias)

If passes have put a transpose or reshape of rows after the product, it is applied to x instead.

Gates are then float sums, even where the graph quantizes them; quantized weights stay quantized,
with one scale per row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace

import numpy as np

from edgekit.host.compiler.exporters.gates import Gates
from edgekit.host.compiler.exporters.onnx.sink import OnnxExportCall, writes
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, Array, DType, Operator, Quant, Tensor

_CLAMPS = {Activation.RELU: "Relu", Activation.NONE: "Affine"}


@writes(ops.Gru, ops.Lstm, ops.Rnn)
def recurrent(call: OnnxExportCall, op: ops.Recurrent) -> None:
    """One direction. ONNX states and outputs have a direction axis."""
    gates, r = call.sink.gates.get(call.node.name), call.operand(1)
    if gates is None or r.data is None:
        raise call.refuse(
            "constant weights, and gates computed from them by a fully connected layer",
            "computed ones",
            "compile the model without writing it",
        )
    if getattr(op, "cell_clip", math.inf) < math.inf:
        raise call.refuse(
            "no clipping of the cell state", "some", "compile the model without writing it"
        )
    sink = call.sink
    names = [*gates.product.inputs, None][:3]
    x, w, bias = (None if name is None else sink.graph.tensors[name] for name in names)
    assert x is not None and w is not None
    ins = [
        _input_sequence(call, gates, x, w.shape[1]),
        call.weights(_one_way(w), (0, 1, 2)),
        call.weights(_one_way(r), (0, 1, 2)),
    ]
    ins.append(sink.constant(_concat_biases(call, op, x, w, bias)))
    ins += [_optional_operand(call, i) for i in range(2, 3 + op.states)]
    if isinstance(op, ops.Lstm):
        ins.append(_peepholes(call))
    made = sink.steps(op.kind.upper(), ins, 1 + op.states, **_node_attributes(op, r.shape[1]))
    _store_results(call, made)


def _input_sequence(call: OnnxExportCall, gates: Gates, x: Tensor, inputs: int) -> str:
    """The input [steps, batch, inputs] of the fused layer: the operand of the product, moved the
    way the gates are."""
    graph, name, shape = call.sink.graph, call.sink.get(x), x.shape
    for node in (gates.product, *gates.moves):
        moved = (*graph.tensors[node.outputs[0]].shape[:-1], inputs)
        if isinstance(node.op, ops.Transpose):
            name = call.step("Transpose", [name], perm=node.op.permutation)
        elif moved != shape:
            name = call.step("Reshape", [name, call.integers(moved)])
        shape = moved
    return name


def _store_results(call: OnnxExportCall, made: Sequence[str]) -> None:
    """Stores the results that are used, without the direction axis."""
    graph = call.sink.graph
    users = graph.consumers()
    for t, name in zip(call.outs, made, strict=True):
        if users[t.name] or t.name in graph.outputs:
            call.sink.put(t, call.step("Reshape", [name, call.integers(t.shape)]))


def _one_way(t: Tensor) -> Tensor:
    """A matrix with a leading direction axis."""
    assert t.data is not None
    quant = t.quant and Quant(t.quant.scale, t.quant.zero_point, t.quant.axis + 1)
    return replace(t, shape=(1, *t.shape), data=t.data[None], quant=quant)


def _concat_biases(
    call: OnnxExportCall, op: ops.Recurrent, x: Tensor, w: Tensor, bias: Tensor | None
) -> Array:
    """[1, 2 · gates · h]: input biases, then recurrent biases."""
    size = w.shape[0]
    both = np.zeros((1, 2 * size), np.float32)
    if bias is not None and bias.data is not None:
        both[0, :size] = bias.data
        if bias.dtype is DType.I32:
            assert x.quant is not None and w.quant is not None
            unit = x.quant.scale.reshape(-1)[0] * w.quant.scale.reshape(-1)
            both[0, :size] = bias.data * unit.astype(np.float64)
    inner = call.operands[4] if isinstance(op, ops.Gru) and len(call.operands) > 4 else None
    if inner is not None:
        if inner.data is None:
            raise call.refuse("a constant bias", "a computed one", "compile the model instead")
        both[0, -len(inner.data) :] = inner.data
    return both


def _optional_operand(call: OnnxExportCall, index: int) -> str:
    """Sequence lengths, or a state with a direction axis; empty for an all-zero initial state."""
    given = call.operands[index]
    if given is None or (index > 2 and given.data is not None and not given.data.any()):
        return ""
    if index == 2:
        return call.sink.get(given)
    return call.step("Reshape", [call.sink.get(given), call.integers((1, *given.shape))])


def _peepholes(call: OnnxExportCall) -> str:
    given = call.operands[5] if len(call.operands) > 5 else None
    if given is None:
        return ""
    return call.step("Reshape", [call.sink.get(given), call.integers((1, given.elements))])


def _node_attributes(op: ops.Recurrent, hidden: int) -> Mapping[str, object]:
    found: dict[str, object] = {
        "hidden_size": hidden,
        "direction": "reverse" if op.backwards else "forward",
        "activations": [_activation_name(f) for f in op.functions],
    }
    alphas = [value for f in op.functions for value in _activation_parameters(f)[:1]]
    betas = [value for f in op.functions for value in _activation_parameters(f)[1:]]
    found |= {"activation_alpha": alphas, "activation_beta": betas} if alphas else {}
    found |= {"clip": float(op.clip)} if op.clip < math.inf else {}
    found |= {"linear_before_reset": 1} if getattr(op, "linear_before_reset", False) else {}
    return found


def _activation_name(op: Operator) -> str:
    if isinstance(op, ops.Clamp):
        return _CLAMPS[op.activation]
    return op.onnx


def _activation_parameters(op: Operator) -> tuple[float, ...]:
    """Alpha and beta, if the function has any."""
    if isinstance(op, ops.Clamp):
        return (1.0, 0.0) if op.activation is Activation.NONE else ()
    return astuple(op)
