"""Imports ONNX models.

    file ─ file.py ─► records ─ walk.py ─► handlers (operators.py) ─ builder ─► Graph

Tensors keep ONNX's layout (NCHW) and names; convolutions get transposes around them, which the
layout pass removes. All shapes are static: open input dimensions are set by `shapes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np

from edgekit.host.compiler.frontends.common.builder import GraphBuilder
from edgekit.host.compiler.frontends.common.names import duplicates, shown_name
from edgekit.host.compiler.frontends.common.open_shapes import (
    FixedShapes,
    OpenInput,
    OpenShapesError,
    fix_shapes,
)
from edgekit.host.compiler.frontends.common.refusal import need_numbers, refuse, unsupported
from edgekit.host.compiler.frontends.onnx.dynamic import fuse_dynamic
from edgekit.host.compiler.frontends.onnx.file import (
    OnnxFile,
    OnnxInput,
    read_onnx,
)
from edgekit.host.compiler.frontends.onnx.groups import fuse_groups
from edgekit.host.compiler.frontends.onnx.imputer import fuse_imputers
from edgekit.host.compiler.frontends.onnx.operators import ROWS
from edgekit.host.compiler.frontends.onnx.types import INPUT_TYPES, Texts
from edgekit.host.compiler.frontends.onnx.walk import MOST_NODES, OnnxScope, Walk
from edgekit.host.compiler.ir.types import DType, Graph, ShapeError, Tensor
from edgekit.host.compiler.options import Shapes
from edgekit.host.errors import InputError

_RANK_LIMIT = 8
_SHOWN_LABELS = 12
_SPARE_LIMIT = 64
_SPARE_STEP = 16  # halves of the number of rows stay whole
_BFLOAT16 = "BFLOAT16"
_NONE: Mapping[str, str] = MappingProxyType({})


def import_onnx(
    path: Path,
    shapes: Shapes | None = None,
    most_rows: int | None = None,
    ones: Mapping[str, str] = _NONE,
) -> Graph:
    """Imports an .onnx file; `shapes` set the open dimensions of inputs, by name, and `most_rows`
    how many rows results of data-dependent length have where nothing else limits them. `ones` are
    INT64 inputs that become constants of nothing but 1, with the name of the input whose shape each
    has.

    Raises `InputError` with one line that names the file and the node.
    """
    try:
        model = read_onnx(path)
        try:
            return graph_from_onnx(model, str(path), shapes or {}, most_rows=most_rows, ones=ones)
        except OpenShapesError as error:
            fits = partial(graph_from_onnx, model, str(path), most_rows=most_rows, ones=ones)
            raise error.answered(str(path), fits) from error
    except InputError as error:
        raise InputError(f"{path.name}: {error}") from error


def graph_from_onnx(
    model: OnnxFile,
    file: str,
    shapes: Shapes,
    most_nodes: int = MOST_NODES,
    most_rows: int | None = None,
    ones: Mapping[str, str] = _NONE,
) -> Graph:
    """`import_onnx` on the records of `file`; messages do not start with its name.

    `most_nodes` limits the nodes after expanding loops, branches and functions.
    """
    known = {*ROWS, *model.functions}
    refuse(unsupported(((str(n.index), n.op) for n in model.nodes), known))
    if not model.outputs:
        raise InputError("expected a model with outputs, found none")
    ends = [*(i.name for i in model.inputs), *model.outputs]
    if again := duplicates([i.name for i in model.inputs]):
        raise InputError(f"expected distinct inputs, found {shown_name(again[0])} twice")
    if unnamed := [n for n in ends if not n or not n.isprintable()]:
        raise InputError(f"expected printable input and output names, found {unnamed[0]!r:.40}")
    kept = tuple(i for i in model.inputs if i.name not in ones)
    fused = fuse_groups(fuse_imputers(fuse_dynamic(replace(model, inputs=kept))))
    for spare in range(0, _SPARE_LIMIT, _SPARE_STEP):
        made = _Import(fused, shapes, most_nodes, most_rows, spare, ones)
        try:
            return made.run(Path(file).stem)
        except InputError:
            if not made.walk.bounded.ambiguous:
                raise
    return _Import(fused, shapes, most_nodes, most_rows, _SPARE_LIMIT, ones).run(Path(file).stem)


class _Import:
    """Imports inputs, then all nodes in order, then outputs."""

    def __init__(
        self,
        model: OnnxFile,
        shapes: Shapes,
        most_nodes: int,
        most_rows: int | None,
        spare: int,
        ones: Mapping[str, str],
    ) -> None:
        self._model = model
        self._ones = ones
        self._shapes = shapes
        self._builder = GraphBuilder()
        self.walk = Walk(self._builder, model.functions, most_nodes, most_rows, spare)

    def run(self, name: str) -> Graph:
        fixed = self._fix_input_shapes()
        try:
            return self._build(name, fixed)
        except InputError as error:
            if not fixed.replaced:
                raise
            raise InputError(f"{error}; {fixed.replaced}") from error

    def _build(self, name: str, fixed: FixedShapes) -> Graph:
        model, builder = self._model, self._builder
        builder.reserve([*(i.name for i in model.inputs), *model.outputs])
        inputs = []
        for item in model.inputs:
            try:
                tensor = builder.input(item.name, fixed.shapes[item.name], self._input_dtype(item))
            except ShapeError as error:
                raise InputError(f"input {shown_name(item.name)}: {error}") from error
            inputs.append(tensor)
        builder.begin("model")
        walk = self.walk
        walk.floats.bfloat16.update(i.name for i in model.inputs if i.dtype == _BFLOAT16)
        whole = {name: np.ones(fixed.shapes[of], np.int64) for name, of in self._ones.items()}
        constants = {**model.constants, **whole}
        scope = OnnxScope(constants, model.opset, {t.name: t for t in inputs})
        walk.nodes(model.nodes, model.outputs, scope)
        narrow = {v.name for v in model.values if v.dtype == _BFLOAT16}
        made = [
            (own, walk.rounded(tensor) if name in narrow else tensor)
            for name in model.outputs
            for own, tensor in self._output_tensors(walk, scope, name)
        ]
        builder.begin("output")
        names = builder.distinct([own for own, _ in made])
        outputs = {name: tensor for name, (_, tensor) in zip(names, made, strict=True)}
        self._note_bfloat16(narrow)
        for wanted, tensor in walk.bounded.finish(outputs).items():
            outputs[wanted if wanted in outputs else builder.take(wanted)] = tensor
        graph = builder.finish(name, inputs, outputs)
        return replace(graph, notes=(*fixed.notes, *graph.notes))

    def _note_bfloat16(self, narrow: Set[str]) -> None:
        """`narrow`: the values declared as bfloat16 in the file."""
        for what, names in (
            ("input", [i.name for i in self._model.inputs if i.dtype == _BFLOAT16]),
            ("output", [n for n in self._model.outputs if n in narrow]),
        ):
            if names:
                listed, many = ", ".join(map(shown_name, names)), "s" if len(names) > 1 else ""
                self._builder.note(f"{what}{many} {listed}: bfloat16 in the file, f32 here")

    def _fix_input_shapes(self) -> FixedShapes:
        """The shapes of all inputs, within the rank limit of the graph."""
        inputs = [OpenInput(i.name, self._input_dtype(i), i.shape) for i in self._model.inputs]
        fixed = fix_shapes(inputs, self._shapes)
        for name, shape in fixed.shapes.items():
            if len(shape) > _RANK_LIMIT:
                raise InputError(
                    f"input {shown_name(name)}: expected at most {_RANK_LIMIT} dimensions, "
                    f"found {len(shape)}"
                )
        return fixed

    def _input_dtype(self, item: OnnxInput) -> DType:
        need_numbers(f"input {shown_name(item.name)}", item.dtype)
        if item.dtype not in INPUT_TYPES:
            raise InputError(
                f"input {shown_name(item.name)}: expected one of the types "
                f"{', '.join(INPUT_TYPES)}, found {item.dtype}"
            )
        return INPUT_TYPES[item.dtype]

    def _output_tensors(self, walk: Walk, scope: OnnxScope, name: str) -> list[tuple[str, Tensor]]:
        """The outputs that the file's output becomes: one, or one for each part of a sequence."""
        value = walk.value(name, scope)
        if isinstance(value, Texts):
            self._builder.note(_note_on_labels(name, value.vocabulary))
            return [(name, value.places)]
        if isinstance(value, Tensor):
            return [(name, value)]
        if value is None or not value.items:
            raise InputError(f"output {shown_name(name)}: expected a tensor, found nothing")
        parts = [(self._builder.take(f"{name}_{i}"), part) for i, part in enumerate(value.items)]
        listed = ", ".join(shown_name(own) for own, _ in parts[:_SHOWN_LABELS])
        self._builder.note(f"output {shown_name(name)}: a sequence in the file, {listed} here")
        return parts


def _note_on_labels(name: str, vocabulary: tuple[str, ...]) -> str:
    listed = ", ".join(f"{i} {shown_name(v)}" for i, v in enumerate(vocabulary[:_SHOWN_LABELS]))
    more = ", ..." if len(vocabulary) > _SHOWN_LABELS else ""
    return f"output {shown_name(name)}: strings in the file, numbers of labels here: {listed}{more}"
