"""States as inputs and outputs, for formats without variables."""

from __future__ import annotations

from dataclasses import replace

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.types import DType, Graph, Node, Operator, Tensor


def with_states_outside(graph: Graph) -> Graph:
    """An equivalent graph without states: the first read of each is an input, and what it holds
    after the run an output `STATE.next`, which the caller passes as that input of the next run.
    Quantized states are f32 there, so that zero is the usual first value.

    States that no node writes become constants; those that no node reads are left out.
    """
    tensors, nodes, taken = dict(graph.tensors), list[Node](), set(graph.tensors)
    held: dict[str, str] = {}  # the tensor that each state holds at this point of the run
    inputs: dict[str, str] = {}
    renamed: dict[str, str] = {}
    written = {node.op.state for node in graph.nodes if isinstance(node.op, ops.WriteState)}

    def make(name: str, op: Operator, source: str) -> None:
        nodes.append(Node(name, op, (renamed.get(source, source),), (name,)))

    def outside(stem: str, like: Tensor) -> str:
        name = fresh_name(stem, taken)
        tensors[name] = Tensor(name, like.shape, DType.F32 if like.is_quantized else like.dtype)
        return name

    for node in graph.nodes:
        if isinstance(node.op, ops.WriteState):
            held[node.op.state] = str(node.inputs[0])
        elif not isinstance(node.op, ops.ReadState):
            given = tuple(n if n is None else renamed.get(n, n) for n in node.inputs)
            nodes.append(replace(node, inputs=given))
        else:
            state, read = node.op.state, tensors[node.outputs[0]]
            if state in held:
                make(read.name, ops.Reshape(read.shape), held[state])
            elif state not in written:
                initial = graph.states[state].initial
                tensors[read.name] = replace(read, data=initial.reshape(read.shape))
            elif not read.is_quantized:
                renamed[read.name] = inputs.setdefault(state, read.name)
            else:
                if state not in inputs:
                    inputs[state] = outside(state, read)
                make(read.name, ops.Quantize(read.dtype), inputs[state])
    ends = []
    for state in inputs:
        last = tensors[renamed.get(held[state], held[state])]
        ends.append(outside(f"{state}.next", last))
        op = ops.Cast(DType.F32) if last.is_quantized else ops.Reshape(last.shape)
        make(ends[-1], op, last.name)
    return replace(
        graph,
        tensors=tensors,
        nodes=tuple(nodes),
        inputs=(*graph.inputs, *inputs.values()),
        outputs=(*(renamed.get(name, name) for name in graph.outputs), *ends),
        states={},
    )
