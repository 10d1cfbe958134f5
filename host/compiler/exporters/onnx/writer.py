"""Writes a `Graph` to an ONNX file.

    Graph ─ writer.py ─► handlers (rows.py) ─► sink.py ─► records ─ writer.py ─► bytes

Takes a graph from an importer or from passes that fuse nothing. Inputs and outputs keep their
names, order and layout; quantized tensors are written as Q/DQ pairs, which engines fuse into
integer operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.host.common.optional import optional
from edgekit.host.compiler.exporters.onnx.rows import row_of
from edgekit.host.compiler.exporters.onnx.sink import NodeRecord, OnnxExportCall, OnnxSink
from edgekit.host.compiler.exporters.refusal import refused
from edgekit.host.compiler.exporters.states import with_states_outside
from edgekit.host.compiler.exporters.tflite import rows as tflite_rows
from edgekit.host.compiler.ir.types import DType, Graph
from edgekit.host.errors import InputError

_OPSET = 17
_OPSET_OF_16_BIT = 21
_SIZE_LIMIT = (1 << 31) - (1 << 20)  # of a protobuf


def write_onnx(graph: Graph, metadata: Mapping[str, bytes] | None = None) -> bytes:
    """An .onnx file equivalent to `graph`, with `metadata` (text) by name; equal graphs give equal
    bytes. States become inputs and outputs, as `with_states_outside` names them.

    Raises `InputError` if the format has no equivalent of a node (it names the node and a way out)
    or if the onnx package is missing.
    """
    graph = with_states_outside(graph)
    onnx, sink = _import_onnx(), OnnxSink(graph)
    inside = {name for gates in sink.gates.values() for name in gates.inside}
    for node in graph.nodes:
        if node.name in inside:
            continue
        call = OnnxExportCall(node, sink)
        row = row_of(type(node.op))
        if row is None:
            other = tflite_rows.row_of(type(node.op)) is not None
            instead = "write a .tflite file" if other else "compile the model without writing it"
            expected = "an operator that ONNX has"
            instead = f"{instead}, or end the model before this node"
            raise refused(node, "ONNX", expected, "one that it lacks", instead)
        row(call, node.op)
    for name in graph.outputs:
        sink.get(graph.tensors[name], real=False)
    size = sum(data.nbytes for data in sink.constants.values())
    if size > _SIZE_LIMIT:
        raise InputError(
            f"expected constants of at most {_SIZE_LIMIT >> 20} MiB in an .onnx file, found "
            f"{size >> 20} MiB; quantize the weights"
        )
    made = _build_model(onnx, graph, sink)
    onnx.helper.set_model_props(made, {k: v.decode() for k, v in (metadata or {}).items()})
    return bytes(made.SerializeToString(deterministic=True))


def _import_onnx() -> Any:
    return optional("onnx", "onnx.helper", "onnx.numpy_helper")[0]


def _build_model(onnx: Any, graph: Graph, sink: OnnxSink) -> Any:
    helper = onnx.helper
    ends = [
        [_value_info(onnx, graph, name) for name in names]
        for names in (graph.inputs, graph.outputs)
    ]
    used = {name for node in sink.nodes for name in node.inputs}
    constants = [
        onnx.numpy_helper.from_array(data, name)
        for name, data in sink.constants.items()
        if name in used
    ]
    nodes = [_make_node(onnx, node) for node in sink.nodes]
    quantized = any(t.is_quantized and t.dtype is DType.I16 for t in graph.tensors.values())
    opsets = [helper.make_opsetid("", _OPSET_OF_16_BIT if quantized else _OPSET)]
    return helper.make_model(
        helper.make_graph(nodes, graph.name, *ends, constants),
        opset_imports=opsets,
        producer_name="edgekit",
        ir_version=helper.find_min_ir_version_for(opsets, True),
    )


def _make_node(onnx: Any, node: NodeRecord) -> Any:
    attributes = {
        name: _element_type(onnx, value) if isinstance(value, DType) else value
        for name, value in node.attributes.items()
    }
    return onnx.helper.make_node(
        node.kind, node.inputs, node.outputs, node.outputs[0], **attributes
    )


def _value_info(onnx: Any, graph: Graph, name: str) -> Any:
    t = graph.tensors[name]
    return onnx.helper.make_tensor_value_info(name, _element_type(onnx, t.dtype), t.shape)


def _element_type(onnx: Any, dtype: DType) -> int:
    return int(onnx.helper.np_dtype_to_tensor_dtype(dtype.numpy))
