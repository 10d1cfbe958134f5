"""ONNX files → `Graph`.

    file ─ onnx_file ─► records ─ this file ─► rows of onnx_operators ─ builder ─► Graph

Tensors keep ONNX's layout (NCHW) and names; convolutions get transposes around them, which the
layout pass removes. All shapes are static: open dimensions of inputs come from `shapes`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edgekit.host.errors import InputError
from edgekit.host.graph.types import DType, Graph, ShapeError, Tensor
from edgekit.host.importers.builder import Builder
from edgekit.host.importers.names import duplicates, shown_name
from edgekit.host.importers.onnx_call import Call
from edgekit.host.importers.onnx_file import (
    FileInput,
    FileModel,
    FileNode,
    read_onnx,
)
from edgekit.host.importers.onnx_operators import ROWS
from edgekit.host.importers.onnx_types import INPUT_TYPES, Floats
from edgekit.host.importers.open_shapes import FixedShapes, OpenInput, Shapes, fix_shapes
from edgekit.host.importers.refusal import refuse, unsupported

_RANK_LIMIT = 8


def import_onnx(path: Path, shapes: Shapes | None = None) -> Graph:
    """Reads an .onnx file; `shapes` are those of inputs with open dimensions, by name.

    Raises `InputError` with one line that names the file and the node.
    """
    try:
        model = read_onnx(path)
        return graph_from_onnx(model, str(path), shapes or {})
    except InputError as error:
        raise InputError(f"{path.name}: {error}") from error


def graph_from_onnx(model: FileModel, file: str, shapes: Shapes) -> Graph:
    """`import_onnx` of the records of `file`; messages do not begin with its name."""
    refuse(unsupported(((str(n.index), n.op) for n in model.nodes), ROWS))
    if not model.outputs:
        raise InputError("expected a model with outputs, found none")
    ends = [*(i.name for i in model.inputs), *model.outputs]
    if again := duplicates([i.name for i in model.inputs]) or duplicates(model.outputs):
        raise InputError(
            f"expected distinct inputs and outputs, found {shown_name(again[0])} twice"
        )
    if unnamed := [n for n in ends if not n or not n.isprintable()]:
        raise InputError(
            f"expected printable names of inputs and outputs, found {unnamed[0]!r:.40}"
        )
    return _Import(model, shapes).run(Path(file).stem, file)


class _Import:
    """Walks the nodes of the file once, in order."""

    def __init__(self, model: FileModel, shapes: Shapes) -> None:
        self._model = model
        self._shapes = shapes
        self._builder = Builder()
        self._floats = Floats(self._builder)
        self._values: dict[str, Tensor] = {}

    def run(self, name: str, file: str) -> Graph:
        model, builder = self._model, self._builder
        builder.reserve([*(i.name for i in model.inputs), *model.outputs])
        fixed = self._fixed(file)
        inputs = []
        for item in model.inputs:
            try:
                tensor = builder.input(item.name, fixed.shapes[item.name], self._dtype(item))
            except ShapeError as error:
                raise InputError(f"input {shown_name(item.name)}: {error}") from error
            inputs.append(tensor)
            self._values[item.name] = tensor
        builder.begin("model")
        for node in model.nodes:
            try:
                self._add(node)
            except (ShapeError, InputError) as error:
                raise InputError(f"operator {node.shown}: {error}") from error
        outputs = {name: self._get(name) for name in model.outputs}
        return replace(builder.finish(name, inputs, outputs), notes=fixed.notes)

    def _fixed(self, file: str) -> FixedShapes:
        """The shapes of all inputs, none larger than a graph takes."""
        inputs = [OpenInput(i.name, self._dtype(i), i.shape) for i in self._model.inputs]
        fixed = fix_shapes(inputs, self._shapes, file)
        for name, shape in fixed.shapes.items():
            if len(shape) > _RANK_LIMIT:
                raise InputError(
                    f"input {shown_name(name)}: expected at most {_RANK_LIMIT} dimensions, "
                    f"found {len(shape)}"
                )
        return fixed

    def _dtype(self, item: FileInput) -> DType:
        if item.dtype not in INPUT_TYPES:
            raise InputError(
                f"input {shown_name(item.name)}: expected one of the types "
                f"{', '.join(INPUT_TYPES)}, found {item.dtype}"
            )
        return INPUT_TYPES[item.dtype]

    def _get(self, name: str) -> Tensor:
        if name not in self._values:
            if name not in self._model.constants:
                raise InputError(
                    f"expected {shown_name(name)} to be a constant, an input or the output of an "
                    "earlier operator, found none of these"
                )
            self._values[name] = self._builder.constant(self._model.constants[name])
        return self._values[name]

    def _add(self, node: FileNode) -> None:
        builder = self._builder
        builder.begin(_label(node))
        tensors = [self._get(n) if n else None for n in node.inputs]
        seen = self._floats.operands(node.op, tensors)
        wide = ROWS[node.op](Call(node, seen, self._model.opset, builder))
        wide = wide if isinstance(wide, list) else [wide]
        made = self._floats.results(node.op, tensors, seen, wide)
        wanted = list(node.outputs)
        while wanted and not wanted[-1]:
            wanted.pop()
        if len(wanted) > len(made):
            raise ShapeError(f"expected at most {len(made)} outputs, found {len(wanted)}")
        for name, tensor, source in zip(wanted, made, wide, strict=False):
            if not name:
                continue
            if name in self._values or name in self._model.constants:
                raise ShapeError(
                    f"expected to write each tensor once, found {shown_name(name)} written before"
                )
            self._values[name] = builder.rename(tensor, name)
            if source is not tensor:
                self._floats.remember(self._values[name], source)


def _label(node: FileNode) -> str:
    """A stem for the names of what a node becomes."""
    stem = node.outputs[0] if node.outputs else ""
    short = 0 < len(stem) <= 40 and stem.isascii() and stem.isprintable()
    return stem if short else f"{node.op.lower()[:40]}_{node.index}"
