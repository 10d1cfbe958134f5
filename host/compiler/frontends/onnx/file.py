"""Reads an ONNX file into plain records; imports the `onnx` package only here, on first use.

The file is untrusted: references between records are checked where they are used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.host.common.optional import optional
from edgekit.host.compiler.frontends.common.files import (
    check_nodes,
    check_operands,
    read_model_file,
)
from edgekit.host.compiler.frontends.common.names import shown_name
from edgekit.host.compiler.frontends.onnx import EXTERNAL_DATA
from edgekit.host.compiler.ir.types import Array
from edgekit.host.errors import InputError

NEWEST_OPSET = 28
_DOMAINS = ("", "ai.onnx")
_BYTES_LIMIT = 1 << 30  # of all constants together
_RANK_LIMIT = 8
# Types NumPy lacks, and the types that hold their values.
_SMALL_TYPES = {
    "int2": np.int8,
    "uint2": np.uint8,
    "int4": np.int8,
    "uint4": np.uint8,
}
_SHOWN = 80  # characters of another library's message


@dataclass(frozen=True, eq=False)
class FileNode:
    """One operator; `shown`: the node as messages name it. Absent optional inputs are ""."""

    index: int
    op: str
    shown: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class OnnxInput:
    """`shape` has None or a name for open dimensions, and is None for any rank. `dtype` is ONNX's
    type name, or describes a non-tensor."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None


@dataclass(frozen=True, eq=False)
class FileGraph:
    """A subgraph attribute, or the body of a function."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Array]
    nodes: tuple[FileNode, ...]


@dataclass(frozen=True)
class AttributeOf:
    """A reference to attribute `name` of the enclosing function."""

    name: str


@dataclass(frozen=True, eq=False)
class FileFunction:
    """An operator defined in the file; `attributes` are defaults, `opset` 0 means the model's."""

    graph: FileGraph
    attributes: Mapping[str, Any]
    opset: int


@dataclass(frozen=True, eq=False)
class OnnxFile:
    opset: int
    inputs: tuple[OnnxInput, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Array]
    nodes: tuple[FileNode, ...]
    values: tuple[OnnxInput, ...] = ()  # declared outputs and intermediate tensors
    functions: Mapping[str, FileFunction] = field(default_factory=dict)


def read_onnx(path: Path) -> OnnxFile:
    """Raises `InputError` with one line if the file is not a readable ONNX model."""
    onnx = import_onnx()
    return _Reader(onnx, path.parent).model(decode_model(onnx, read_model_file(path)))


def external_files(path: Path) -> tuple[Path, ...]:
    """The external data files of an ONNX model, sorted by name.

    Raises `InputError` like `read_onnx`.
    """
    onnx = import_onnx()
    reader, proto = _Reader(onnx, path.parent), decode_model(onnx, read_model_file(path))
    return tuple(
        sorted({reader.external(t) for t in _iter_tensors(proto, onnx) if _is_external(t)})
    )


def onnx_metadata(path: Path) -> Mapping[str, str]:
    """The metadata properties of an ONNX model, by name.

    Raises `InputError` like `read_onnx`.
    """
    proto = decode_model(import_onnx(), read_model_file(path))
    return {entry.key: entry.value for entry in proto.metadata_props}


def decode_model(onnx: Any, content: bytes) -> Any:
    try:
        return onnx.load_model_from_string(content)
    except Exception as error:  # the protobuf runtime's errors for damaged data vary
        raise InputError(
            f"expected an ONNX model, found bytes that cannot be decoded "
            f"({type(error).__name__}); fetch the file again"
        ) from None


def _iter_tensors(message: Any, onnx: Any) -> Iterator[Any]:
    """All tensors in a message. Recursion is bounded by protobuf's own depth limit."""
    if isinstance(message, onnx.TensorProto):
        yield message
        return
    for field_, value in message.ListFields():
        if field_.message_type is not None:
            for item in [value] if hasattr(value, "ListFields") else value:
                yield from _iter_tensors(item, onnx)


def _is_external(tensor: Any) -> bool:
    return bool(tensor.data_location == type(tensor).EXTERNAL)


def import_onnx() -> Any:
    return optional("onnx", "onnx.numpy_helper")[0]


class _Reader:
    def __init__(self, onnx: Any, folder: Path) -> None:
        self._onnx = onnx
        self._folder = folder
        self._bytes = 0

    def model(self, proto: Any) -> OnnxFile:
        graph = proto.graph
        if not graph.node and not graph.output:
            raise InputError("expected an ONNX model with a graph, found none; fetch it again")
        constants = self._read_initializers(graph)
        inputs = tuple(
            self._read_input(i) for i in graph.input if _decode_text(i.name) not in constants
        )
        return OnnxFile(
            self._read_opset(proto),
            inputs,
            tuple(_decode_text(o.name) for o in graph.output),
            constants,
            self._read_nodes(graph),
            tuple(self._read_input(v) for v in (*graph.value_info, *graph.output)),
            {_operator_name(f.domain, f.name): self._read_function(f) for f in proto.functions},
        )

    def _read_initializers(self, graph: Any) -> dict[str, Array]:
        for sparse in graph.sparse_initializer:
            shown = shown_name(_decode_text(sparse.values.name))
            raise InputError(f"expected dense initializers, found sparse {shown}")
        return {_decode_text(t.name): self.array(t) for t in graph.initializer}

    def _read_nodes(self, graph: Any) -> tuple[FileNode, ...]:
        check_nodes(len(graph.node))
        return _in_order([self._read_node(n, i) for i, n in enumerate(graph.node)])

    def _read_graph(self, graph: Any) -> FileGraph:
        return FileGraph(
            tuple(_decode_text(i.name) for i in graph.input),
            tuple(_decode_text(o.name) for o in graph.output),
            self._read_initializers(graph),
            self._read_nodes(graph),
        )

    def _read_function(self, function: Any) -> FileFunction:
        ends = [
            tuple(_decode_text(n) for n in names) for names in (function.input, function.output)
        ]
        defaults = {_decode_text(a.name): self._read_attribute(a) for a in function.attribute_proto}
        opsets = [o.version for o in function.opset_import if o.domain in _DOMAINS]
        graph = FileGraph(ends[0], ends[1], {}, self._read_nodes(function))
        return FileFunction(graph, defaults, int(opsets[0]) if opsets else 0)

    def _read_opset(self, proto: Any) -> int:
        versions = [o.version for o in proto.opset_import if o.domain in _DOMAINS]
        others = proto.opset_import and all(n.domain not in _DOMAINS for n in proto.graph.node)
        if not versions and others:
            return NEWEST_OPSET  # no operator depends on it
        if not versions:
            raise InputError("expected an opset of ONNX's own operators, found none")
        version = int(versions[0])
        if not 1 <= version <= NEWEST_OPSET:
            raise InputError(
                f"expected opset 1 to {NEWEST_OPSET}, found {version}; export the model with "
                f"opset_version={min(NEWEST_OPSET, 17)}"
            )
        return version

    def _read_input(self, value: Any) -> OnnxInput:
        name, kind = _decode_text(value.name), value.type.WhichOneof("value")
        if kind != "tensor_type":
            return OnnxInput(name, kind or "no type", ())
        tensor = value.type.tensor_type
        if not tensor.HasField("shape"):
            return OnnxInput(name, self._type_name(tensor.elem_type), None)
        dims: list[int | str | None] = []
        for dim in tensor.shape.dim:
            known = dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0
            dims.append(int(dim.dim_value) if known else (_decode_text(dim.dim_param) or None))
        return OnnxInput(name, self._type_name(tensor.elem_type), tuple(dims))

    def _type_name(self, number: int) -> str:
        names = self._onnx.TensorProto.DataType
        return str(names.Name(number)) if number in names.values() else f"number {number}"

    def array(self, tensor: Any) -> Array:
        """The value of a constant."""
        name = shown_name(_decode_text(tensor.name))
        if len(tensor.dims) > _RANK_LIMIT or any(d < 0 for d in tensor.dims):
            raise InputError(f"tensor {name}: expected a shape, found {list(tensor.dims)[:9]}")
        count = math.prod(tensor.dims)
        self._bytes += count * 8
        if self._bytes > 8 * _BYTES_LIMIT or count > _BYTES_LIMIT:
            raise InputError(f"tensor {name}: expected constants of at most 1 GiB, found more")
        if _is_external(tensor):
            self.external(tensor)
        try:
            value = self._onnx.numpy_helper.to_array(tensor, str(self._folder))
        except Exception as error:  # onnx raises many types for invalid data
            reason = str(error).partition("\n")[0][:_SHOWN]
            raise InputError(
                f"tensor {name}: expected {count} values of "
                f"{self._type_name(tensor.data_type)}, found damaged data ({reason})"
            ) from None
        if value.dtype.name in _SMALL_TYPES:
            value = value.astype(_SMALL_TYPES[value.dtype.name])
        if value.size != count:
            raise InputError(f"tensor {name}: expected {count} values, found {value.size}")
        return np.ascontiguousarray(value).reshape(tuple(tensor.dims))

    def external(self, tensor: Any) -> Path:
        """The file with a tensor's values. Raises `InputError` if it is outside the model's folder
        or missing."""
        name = shown_name(_decode_text(tensor.name))
        entries = {_decode_text(e.key): _decode_text(e.value) for e in tensor.external_data}
        location = entries.get(EXTERNAL_DATA, "")
        folder = self._folder.resolve()
        inside = location and "\0" not in location
        try:
            target = (folder / location).resolve() if inside else folder
            found = target.is_file()
        except OSError:  # a name of more characters than any file has
            target, found = folder, False
        if not inside or not target.is_relative_to(folder):
            raise InputError(
                f"tensor {name}: expected external data inside the model's folder, "
                f"found {shown_name(location)}"
            )
        if not found:
            raise InputError(
                f"tensor {name}: expected its data in {shown_name(location)} next to the model, "
                "found no such file; fetch it as well"
            )
        return target

    def _read_node(self, node: Any, index: int) -> FileNode:
        check_operands(len(node.input), len(node.output))
        op = _operator_name(node.domain, node.op_type)
        shown = shown_name(_decode_text(node.name or (node.output[0] if node.output else "")))
        return FileNode(
            index,
            op,
            f"{index} ({shown_name(op)} {shown})",
            tuple(_decode_text(n) for n in node.input),
            tuple(_decode_text(n) for n in node.output),
            {_decode_text(a.name): self._read_attribute(a) for a in node.attribute},
        )

    def _read_attribute(self, attribute: Any) -> Any:
        """Numbers, strings (decoded), lists of these, an array, or a graph; otherwise None."""
        kinds = self._onnx.AttributeProto
        if attribute.ref_attr_name:
            return AttributeOf(_decode_text(attribute.ref_attr_name))
        if attribute.type == kinds.GRAPH:
            return self._read_graph(attribute.g)
        if attribute.type == kinds.TENSOR:
            return self.array(attribute.t)
        if attribute.type == kinds.STRING:
            return attribute.s.decode("utf-8", "replace")
        if attribute.type == kinds.FLOAT:
            return float(attribute.f)
        if attribute.type == kinds.INT:
            return int(attribute.i)
        if attribute.type == kinds.FLOATS:
            return tuple(float(v) for v in attribute.floats)
        if attribute.type == kinds.INTS:
            return tuple(int(v) for v in attribute.ints)
        if attribute.type == kinds.STRINGS:
            return tuple(s.decode("utf-8", "replace") for s in attribute.strings)
        return None


def _in_order(nodes: Sequence[FileNode]) -> tuple[FileNode, ...]:
    """`nodes` in the file's order, except that those listed too late come before their readers."""
    makers: dict[str, int] = {}
    for at, node in enumerate(nodes):
        for name in filter(None, node.outputs):
            makers.setdefault(name, at)
    needs = [[makers[name] for name in names_read(node) if name in makers] for node in nodes]
    done, begun, order = set[int](), set[int](), list[FileNode]()
    for first in range(len(nodes)):
        left = [first]
        while left:
            at = left[-1]
            while needs[at] and needs[at][-1] in done:
                needs[at].pop()
            if not needs[at]:
                left.pop()
                if at not in done:
                    done.add(at)
                    order.append(nodes[at])
                continue
            begun.add(at)
            if needs[at][-1] in begun:
                raise InputError(
                    f"operator {nodes[at].shown}: expected operators without cycles, found one "
                    "that needs its own result; export the model again"
                )
            left.append(needs[at][-1])
    return tuple(order)


def names_read(node: FileNode) -> Iterator[str]:
    """The names that a node reads from its graph, also inside its subgraphs."""
    yield from filter(None, node.inputs)
    for graph in node.attributes.values():
        if isinstance(graph, FileGraph):
            own = {*graph.inputs, *graph.constants, *(o for n in graph.nodes for o in n.outputs)}
            inner = (name for n in graph.nodes for name in names_read(n))
            yield from (name for name in (*inner, *graph.outputs) if name not in own)


def _operator_name(domain: str | bytes, kind: str | bytes) -> str:
    """An operator's name, prefixed with its domain unless that is ONNX's own."""
    named = _decode_text(domain)
    return _decode_text(kind) if named in _DOMAINS else f"{named}:{_decode_text(kind)}"


def _decode_text(value: str | bytes) -> str:
    """Protobuf returns text that is not valid UTF-8 as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
