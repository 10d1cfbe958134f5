"""The outline of a .tflite file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from edgekit.host.compiler.frontends.common.files import read_model_file
from edgekit.host.compiler.frontends.common.outline import (
    Outline,
    OutlineStep,
    Sized,
    Slot,
    count_multiply_adds,
    peak_bytes,
)
from edgekit.host.compiler.frontends.tflite.importer import operators_of, supported_operators
from edgekit.host.compiler.frontends.tflite.schema import FileSubgraph, FileTensor, read_model
from edgekit.host.compiler.frontends.tflite.signatures import signatures_of
from edgekit.host.compiler.ir.types import Shape

# Element size in bytes and edgekit's name of each type; other types keep the schema's names.
_TYPES = {
    "FLOAT32": (4, "f32"),
    "FLOAT16": (2, "f16"),
    "INT8": (1, "s8"),
    "UINT8": (1, "u8"),
    "INT16": (2, "s16"),
    "INT32": (4, "s32"),
    "INT64": (8, "s64"),
    "BOOL": (1, "bool"),
    "FLOAT64": (8, "f64"),
    "UINT16": (2, "u16"),
    "UINT32": (4, "u32"),
    "UINT64": (8, "u64"),
    "INT2": (1, "s2"),
    "INT4": (1, "s4"),
    "UINT4": (1, "u4"),
}


def outline_tflite(path: Path, shapes: Mapping[str, Shape], signature: str = "") -> Outline:
    """`shapes` override input shapes; `signature` is the one to show (default: the first subgraph).
    Raises `InputError` for unreadable files."""
    content = read_model_file(path)
    model = read_model(content)
    entry = next((s for s in signatures_of(content, model) if s.name == signature), None)
    number, main = 0, model.subgraphs[0]
    if entry is not None:
        number = entry.number
        main = entry.applied_to(model.subgraphs[number])
    tensors: dict[object, Sized] = {
        # With overridden input shapes, the stored shapes of computed tensors are invalid.
        i: replace(_to_sized(t), shape=shapes.get(t.name))
        if shapes and t.data is None
        else _to_sized(t)
        for i, t in enumerate(main.tensors)
    }
    steps = [OutlineStep(o.name, o.inputs, o.outputs) for o in main.operators]
    constants = {
        id(t.data): t for g in model.subgraphs for t in g.tensors if t.data is not None
    }.values()
    return Outline(
        "TensorFlow Lite",
        tuple(_apply_shape(_to_slot(main, i), shapes) for i in main.inputs),
        tuple(_to_slot(main, i) for i in main.outputs),
        _state_slots(main),
        operators_of(model, number),
        frozenset(supported_operators()),
        sum(_to_sized(t).elements or 0 for t in constants),
        sum(t.data.nbytes for t in constants if t.data is not None),
        count_multiply_adds(steps, tensors),
        peak_bytes(steps, tensors, main.outputs),
    )


def _apply_shape(slot: Slot, shapes: Mapping[str, Shape]) -> Slot:
    return replace(slot, shape=shapes.get(slot.name, slot.shape))


def _state_slots(graph: FileSubgraph) -> tuple[Slot, ...]:
    """The variables of a subgraph, from the operators that read them."""
    names = {
        o.outputs[0]: o.option_text("SharedName") or f"state_{o.outputs[0]}"
        for o in graph.operators
        if o.name == "VAR_HANDLE" and o.outputs
    }
    found: dict[str, Slot] = {}
    for operator in graph.operators:
        if operator.name == "READ_VARIABLE" and operator.inputs and operator.outputs:
            name = names.get(operator.inputs[0])
            if name is not None:
                slot = _to_slot(graph, operator.outputs[0])
                found[name] = Slot(name, slot.dtype, slot.shape)
    return tuple(found.values())


def _to_sized(tensor: FileTensor) -> Sized:
    shape = tuple(tensor.shape) if all(d >= 0 for d in tensor.shape) else None
    return Sized(shape, _TYPES.get(tensor.type, (1, ""))[0], tensor.data is not None)


def _to_slot(graph: FileSubgraph, index: int) -> Slot:
    if not 0 <= index < len(graph.tensors):
        return Slot(f"tensor {index}, which does not exist", "", ())
    tensor = graph.tensors[index]
    dtype = _TYPES.get(tensor.type, (0, tensor.type.lower()))[1]
    quant = tensor.quant
    if quant is None or quant.per_channel:
        return Slot(tensor.name, dtype, tuple(tensor.shape))
    scale, zero = float(quant.scale[0]), int(quant.zero_point[0])
    return Slot(tensor.name, dtype, tuple(tensor.shape), scale, zero)
