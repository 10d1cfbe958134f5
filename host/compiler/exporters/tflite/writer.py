"""Writes a `Graph` to a TensorFlow Lite file.

    Graph ─ writer.py ─► handlers (rows.py) ─► sink.py ─► records ─ file.py ─► bytes

Takes a graph from an importer or from passes that fuse nothing. Tensors keep their names, inputs
and outputs their order; a node without an equivalent operator becomes several or is refused.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

from edgekit.host.compiler.exporters.onnx import rows as onnx_rows
from edgekit.host.compiler.exporters.tflite.file import OperatorRecord, SubgraphRecord, pack
from edgekit.host.compiler.exporters.tflite.rows import row_of
from edgekit.host.compiler.exporters.tflite.sink import TfliteExportCall, TfliteSink
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Tensor

_INITIAL = 1  # index of the subgraph that initializes variables


def write_tflite(
    graph: Graph,
    metadata: Mapping[str, bytes] | None = None,
    files: Mapping[str, bytes] | None = None,
) -> bytes:
    """A .tflite file equivalent to `graph`, with `metadata` by name, and `files`, for example
    labels, in a ZIP archive appended to the model; equal graphs give equal bytes.

    Raises `InputError` if the format has no equivalent of a node; it names the node and a way out.
    """
    sink = TfliteSink("main", graph.tensors)
    for name in graph.inputs:
        sink.number(name)
    handles = _state_handles(graph, sink)
    for node in graph.nodes:
        _write_node(graph, node, sink, handles)
    subgraphs = [sink.finish(graph.inputs, graph.outputs)]
    if graph.states:
        subgraphs.append(_init_subgraph(graph))
    return _with_files(pack(subgraphs, metadata or {}), files or {})


def _write_node(graph: Graph, node: Node, sink: TfliteSink, handles: Mapping[str, int]) -> None:
    op, call = node.op, TfliteExportCall(graph, node, sink)
    if isinstance(op, ops.ReadState):
        number = sink.number(call.out.name)
        sink.operator(OperatorRecord("READ_VARIABLE", 1, (handles[op.state],), (number,)))
    elif isinstance(op, ops.WriteState):
        number = sink.number(call.operand(0).name)
        sink.operator(OperatorRecord("ASSIGN_VARIABLE", 1, (handles[op.state], number), ()))
    elif (row := row_of(type(op))) is not None:
        row(call, op)
    else:
        other = onnx_rows.row_of(type(op)) is not None
        instead = "write an .onnx file" if other else "keep the model in its format"
        raise call.refuse(
            "an operator that TensorFlow Lite has",
            "one that it lacks",
            f"{instead}, or end it before this node",
        )


def _state_handles(graph: Graph, sink: TfliteSink) -> dict[str, int]:
    """Handles of the state variables by name; the variables are initialized at load time."""
    if graph.states:
        fields = {"InitSubgraphIndex": _INITIAL}
        sink.operator(OperatorRecord("CALL_ONCE", 1, (), (), "CallOnceOptions", fields))
    return {name: _add_handle(sink, name) for name in graph.states}


def _add_handle(sink: TfliteSink, state: str) -> int:
    number, fields = sink.handle(state), {"SharedName": state}
    sink.operator(OperatorRecord("VAR_HANDLE", 1, (), (number,), "VarHandleOptions", fields))
    return number


def _init_subgraph(graph: Graph) -> SubgraphRecord:
    """The subgraph that sets each variable to its initial value."""
    dtypes = {d.numpy: d for d in DType}
    quants = {
        node.op.state: graph.tensors[node.outputs[0]].quant
        for node in graph.nodes
        if isinstance(node.op, ops.ReadState)
    }
    values = {
        name: Tensor(name, s.initial.shape, dtypes[s.initial.dtype], quants.get(name), s.initial)
        for name, s in graph.states.items()
    }
    sink = TfliteSink("initial", values)
    for name in graph.states:
        handle = _add_handle(sink, name)
        sink.operator(OperatorRecord("ASSIGN_VARIABLE", 1, (handle, sink.number(name)), ()))
    return sink.finish()


def _with_files(content: bytes, files: Mapping[str, bytes]) -> bytes:
    """Appends an uncompressed archive, as metadata readers expect, without timestamps."""
    if not files:
        return content
    whole = io.BytesIO(content)
    with zipfile.ZipFile(whole, "a") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return whole.getvalue()
