"""The outline of an .onnx file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from edgekit.host.compiler.frontends.common.outline import (
    Outline,
    OutlineStep,
    Sized,
    Slot,
    count_multiply_adds,
    peak_bytes,
)
from edgekit.host.compiler.frontends.onnx.file import FileGraph, FileNode, OnnxInput, read_onnx
from edgekit.host.compiler.frontends.onnx.operators import onnx_operators
from edgekit.host.compiler.ir.types import Array, Shape

# Element size in bytes and edgekit's name of each type; other types keep ONNX's names.
_TYPES = {
    "FLOAT": (4, "f32"),
    "FLOAT16": (2, "f16"),
    "BFLOAT16": (4, "f32"),  # the type it is computed in
    "DOUBLE": (8, "f64"),
    "INT8": (1, "s8"),
    "UINT8": (1, "u8"),
    "INT16": (2, "s16"),
    "UINT16": (2, "u16"),
    "INT32": (4, "s32"),
    "UINT32": (4, "u32"),
    "INT64": (8, "s64"),
    "UINT64": (8, "u64"),
    "BOOL": (1, "bool"),
}


def outline_onnx(path: Path, shapes: Mapping[str, Shape]) -> Outline:
    """`shapes` set open input dimensions. Raises `InputError` for unreadable files."""
    model = read_onnx(path)
    inputs = tuple(_to_slot(item, shapes.get(item.name)) for item in model.inputs)
    declared = {item.name: item for item in (*model.inputs, *model.values)}
    tensors: dict[object, Sized] = {
        name: _to_sized(item, shapes.get(name)) for name, item in declared.items()
    }
    nodes = list(_walk_nodes(model.nodes))
    constants = {
        **model.constants,
        **{n.outputs[0]: v for n in nodes if n.outputs and (v := _constant_value(n)) is not None},
    }
    for graph in _subgraphs(nodes):
        constants |= graph.constants
    tensors |= {name: Sized(v.shape, v.itemsize, True) for name, v in constants.items()}
    steps = []
    for node in model.nodes:
        # Register undeclared outputs too, with an unknown shape.
        for name in filter(None, node.outputs):
            tensors.setdefault(name, Sized(None, 4))
        steps.append(OutlineStep(node.op, node.inputs, node.outputs))
    unknown = OnnxInput("", "", None)
    return Outline(
        "ONNX",
        inputs,
        tuple(_to_slot(declared.get(name, unknown), None, name) for name in model.outputs),
        (),
        tuple((str(n.index), n.op) for n in nodes),
        onnx_operators(),
        sum(v.size for v in constants.values()),
        sum(v.nbytes for v in constants.values()),
        count_multiply_adds(steps, tensors),
        peak_bytes(steps, tensors, model.outputs),
    )


def _subgraphs(nodes: Iterable[FileNode]) -> Iterator[FileGraph]:
    """The subgraph attributes of `nodes`: branches and loop bodies."""
    for node in nodes:
        yield from (v for v in node.attributes.values() if isinstance(v, FileGraph))


def _walk_nodes(nodes: Iterable[FileNode]) -> Iterator[FileNode]:
    """`nodes` and, recursively, the nodes of their subgraphs."""
    for node in nodes:
        yield node
        for graph in _subgraphs([node]):
            yield from _walk_nodes(graph.nodes)


def _constant_value(node: FileNode) -> Array | None:
    """The value of a Constant node."""
    found = node.attributes.get("value") if node.op == "Constant" else None
    return found if isinstance(found, np.ndarray) else None


def _to_slot(item: OnnxInput, given: Shape | None, name: str = "") -> Slot:
    dtype = _TYPES.get(item.dtype, (0, item.dtype.lower()))[1]
    return Slot(name or item.name, dtype, item.shape if given is None else given)


def _to_sized(item: OnnxInput, given: Shape | None) -> Sized:
    shape = item.shape if given is None else given
    whole = None if shape is None else tuple(d for d in shape if isinstance(d, int))
    known = whole is not None and shape is not None and len(whole) == len(shape)
    return Sized(whole if known else None, _TYPES.get(item.dtype, (4, ""))[0])
