"""Imports TensorFlow Lite models.

    file ─ schema.py ─► records ─ importer.py ─► handlers (operators.py) ─ builder ─► Graph
                                       │ tensors: tensors.py
                                       │ subgraphs, variables: flow.py

Shapes are inferred, never read from the file (TensorFlow Lite ignores those too), except for graph
inputs and constants. SAME padding becomes explicit, constants are folded, and variables become
`Graph.states`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from edgekit.host.compiler.frontends.common.bounded import Bounded
from edgekit.host.compiler.frontends.common.builder import UNNAMED, GraphBuilder
from edgekit.host.compiler.frontends.common.files import read_model_file
from edgekit.host.compiler.frontends.common.open_shapes import (
    StoredInput,
    resize,
    size_notes,
)
from edgekit.host.compiler.frontends.common.refusal import at_operator, refuse, unsupported
from edgekit.host.compiler.frontends.tflite.call import Output, TfliteCall
from edgekit.host.compiler.frontends.tflite.complex import MOVES, real
from edgekit.host.compiler.frontends.tflite.flow import FLOW, check_variable, run_flow, subgraphs_of
from edgekit.host.compiler.frontends.tflite.operators import ROWS
from edgekit.host.compiler.frontends.tflite.rules import RULES
from edgekit.host.compiler.frontends.tflite.schema import (
    FileOperator,
    TfliteFile,
    read_model,
)
from edgekit.host.compiler.frontends.tflite.scope import TfliteScope
from edgekit.host.compiler.frontends.tflite.signatures import (
    TfliteSignature,
    chosen_signature,
    signatures_of,
)
from edgekit.host.compiler.frontends.tflite.tensors import TensorTable
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, ShapeError, State, Tensor
from edgekit.host.compiler.options import Shapes
from edgekit.host.errors import InputError

__all__ = ["graph_from_tflite", "import_tflite", "operators_of", "supported_operators"]

_NODE_NAME_LIMIT = 40
_DEPTH_LIMIT = 32  # nesting of subgraph calls
_NODE_LIMIT = 1 << 17  # nodes after unrolling loops
_WORK_LIMIT = 1 << 18  # tensors and operators over all runs of subgraphs


def supported_operators() -> list[str]:
    """Names as in the TensorFlow Lite schema (custom operators as CUSTOM:name), sorted."""
    return sorted((*ROWS, *FLOW))


def import_tflite(path: Path, shapes: Shapes | None = None, signature: str = "") -> Graph:
    """Reads a .tflite file; `shapes` override input shapes by name. `signature` names one of the
    file's signatures, which gives its names to inputs and outputs; a file with several needs it.

    Raises `InputError` with one line that names the file and the operator.
    """
    content = read_model_file(path)
    try:
        return graph_from_tflite(content, path.stem, shapes, signature)
    except InputError as error:
        raise InputError(f"{path.name}: {error}") from error


def graph_from_tflite(
    content: bytes,
    name: str,
    shapes: Shapes | None = None,
    signature: str = "",
    work_limit: int = _WORK_LIMIT,
) -> Graph:
    """`import_tflite` for file content; messages do not name the file.

    `work_limit`: tensors and operators over all runs of subgraphs.
    """
    model = read_model(content)
    entry = chosen_signature(signatures_of(content, model), signature)
    main = 0 if entry is None else entry.number
    refuse(unsupported(operators_of(model, main), {*ROWS, *FLOW}))
    if entry is None:
        return _Importer(model, work_limit, main).run(name, shapes or {})
    made = _Importer(_with_names(model, entry), work_limit, main).run(name, shapes or {})
    # Lengths of outputs may follow, which have no names in the signature.
    pairs = zip(made.outputs, entry.outputs, strict=False)
    return replace(made, output_names={inner: text for inner, text in pairs if inner != text})


def _with_names(model: TfliteFile, entry: TfliteSignature) -> TfliteFile:
    """The model with the signature's names in its subgraph."""
    graph = entry.applied_to(model.subgraphs[entry.number])
    graphs = [graph if i == entry.number else g for i, g in enumerate(model.subgraphs)]
    return replace(model, subgraphs=tuple(graphs))


def operators_of(model: TfliteFile, main: int = 0) -> tuple[tuple[str, str], ...]:
    """Number and kind of each operator; in subgraphs other than `main` the number is prefixed with
    the subgraph's."""
    return tuple(
        (f"{o.index}" if number == main else f"{number}:{o.index}", o.name)
        for number in subgraphs_of(model, main)
        for o in model.subgraphs[number].operators
    )


def _stored_input(tensors: TensorTable, index: int) -> StoredInput:
    source = tensors.source(index)
    signature = source.signature or source.shape
    is_open = tuple(s < 0 or d < 1 for s, d in zip(signature, source.shape, strict=True))
    no_batch = len(is_open) > 1 and source.shape[0] < 1
    shape = (1, *source.shape[1:]) if no_batch else source.shape
    return StoredInput(tensors.name(index), tensors.dtype(index), shape, is_open)


class _Importer:
    """Walks the operators of subgraph `main` and of the subgraphs it calls, in order."""

    def __init__(self, model: TfliteFile, work_limit: int, main: int) -> None:
        self.model = model
        self._main = main
        self.builder = GraphBuilder()
        self.bounded = Bounded(self.builder, RULES)
        self.states = self.builder.states
        self.initializing = False  # inside CALL_ONCE, which initializes variables
        self._constants: dict[int, dict[int, Tensor]] = {}
        self._depth = 0
        self._work = 0
        self._work_limit = work_limit

    def run(self, name: str, shapes: Shapes) -> Graph:
        graph = self.model.subgraphs[self._main]
        if not graph.outputs:
            raise InputError("expected a model with outputs, found none")
        scope = self._open_scope(self._main, "")
        tensors, inputs = scope.tensors, []
        for index in graph.inputs:
            if tensors.has_value(index):
                raise InputError(f"input {tensors.shown(index)}: expected no value, found one")
        fixed = resize([_stored_input(tensors, i) for i in graph.inputs], shapes)
        other = partial(_Importer(self.model, self._work_limit, self._main).run, name)
        notes = partial(size_notes, fixed.sized, shapes, name, other)
        try:
            for index in graph.inputs:
                tensors.set(index, self._add_input(tensors, index, fixed.shapes))
                inputs.append(tensors.get(index))
            self._add_operators(scope)
        except InputError as error:
            raise InputError("; ".join((str(error), *notes()))) from error
        names = self.builder.distinct([tensors.name(i) for i in graph.outputs])
        outputs = dict(zip(names, map(tensors.get, graph.outputs), strict=True))
        for wanted, tensor in self.bounded.finish(outputs).items():
            outputs[wanted if wanted in outputs else self.builder.take(wanted)] = tensor
        made = self.builder.finish(name, inputs, outputs)
        return replace(made, notes=(*fixed.notes, *made.notes, *notes()))

    def call(self, number: int, args: Sequence[Tensor], label: str) -> list[Tensor]:
        """Inlines subgraph `number` and returns its outputs."""
        if not 0 < number < len(self.model.subgraphs):
            raise InputError(
                f"expected a subgraph from 1 to {len(self.model.subgraphs) - 1}, found {number}"
            )
        graph = self.model.subgraphs[number]
        if len(args) != len(graph.inputs):
            raise InputError(
                f"expected {len(graph.inputs)} inputs for subgraph {number}, found {len(args)}"
            )
        self._depth += 1
        if self._depth > _DEPTH_LIMIT:
            raise InputError(
                f"expected subgraphs at most {_DEPTH_LIMIT} deep, found more: a recursion?"
            )
        scope = self._open_scope(number, f"{label}/")
        for index, tensor in zip(graph.inputs, args, strict=True):
            scope.tensors.set(index, tensor)
        self._add_operators(scope)
        self._depth -= 1
        return [scope.tensors.get(i) for i in graph.outputs]

    def _open_scope(self, number: int, prefix: str) -> _Operators:
        graph = self.model.subgraphs[number]
        if number == self._main and len(set(graph.inputs)) != len(graph.inputs):
            raise InputError("expected distinct inputs, found a tensor listed twice")
        self.charge(len(graph.tensors) + len(graph.operators))
        constants = self._constants.setdefault(number, {})
        return _Operators(self, graph, TensorTable(graph, self.builder, constants, prefix))

    def charge(self, work: int) -> None:
        """Adds to the work so far; raises `InputError` if it is too much."""
        self._work += work
        if self._work > self._work_limit:
            raise InputError(
                f"expected at most {self._work_limit} tensors and operators in all runs of "
                "subgraphs, found more; export the model with smaller loops or fewer branches"
            )

    def _add_input(self, tensors: TensorTable, index: int, shapes: Shapes) -> Tensor:
        name, dtype = tensors.name(index), tensors.dtype(index)
        try:
            return self.builder.input(name, shapes[name], dtype, tensors.quant(index))
        except ShapeError as error:
            raise InputError(f"input {tensors.shown(index)}: {error}") from error

    def _add_operators(self, scope: _Operators) -> None:
        graph = scope.graph
        last = {i: at for at, each in enumerate(graph.operators) for i in each.inputs}
        for at, operator in enumerate(graph.operators):
            try:
                scope.add(operator)
            except (ShapeError, InputError) as error:
                raise InputError(
                    at_operator(f"{operator.index} ({operator.name})", error)
                ) from error
            if self.builder.size > _NODE_LIMIT:
                raise InputError(
                    f"expected at most {_NODE_LIMIT} operators with loops unrolled, found more"
                )
            if self._depth == 0:  # steps of an unrolled loop share their constants
                read = {index for index in operator.inputs if last[index] == at}
                for index in read.difference(graph.outputs):
                    scope.tensors.release(index)


class _Operators(TfliteScope):
    """One run of a subgraph, operator by operator."""

    def add(self, operator: FileOperator) -> None:
        outputs = operator.outputs
        for index in outputs:
            known = index in self.handles or index in self.complexes
            if self.tensors.has_value(index) or known or outputs.count(index) > 1:
                raise InputError(
                    f"expected to write each tensor once, found {self.tensors.shown(index)}, "
                    "which already has a value"
                )
        self.builder.begin(self._node_prefix(operator))
        if operator.name in FLOW:
            made = run_flow(self, operator)
        elif operator.inputs and operator.inputs[0] in self.complexes:
            made = self._of_complex(operator)
        else:
            ins = [None if i == -1 else self._read_operand(i) for i in operator.inputs]
            made = self._run_handler(operator, self.importer.bounded.operands(operator.name, ins))
        tensors = [i for i in outputs if i not in self.handles and i not in self.complexes]
        if len(made) != len(tensors):
            raise InputError(f"expected {len(made)} outputs, found {len(tensors)}")
        for index, tensor in zip(tensors, made, strict=True):
            self._bind_output(index, tensor)
        pairs = zip(made, [self.tensors.get(i) for i in tensors], strict=True)
        ins = [self.tensors.known(i) for i in operator.inputs]
        self.importer.bounded.follow(
            operator.name, ins, pairs, partial(self._run_handler, operator)
        )

    def _of_complex(self, operator: FileOperator) -> list[Tensor]:
        """Applies an operator to both parts of a complex tensor, or emits a conversion to real."""
        if operator.name == "CAST":
            return real(self, operator)
        if operator.name not in MOVES:
            shown = self.tensors.shown(operator.inputs[0])
            raise InputError(f"expected a real tensor, found {shown}, which is complex")
        rest = [None if i == -1 else self._read_operand(i) for i in operator.inputs[1:]]
        outputs = [Output(DType.F32, None)]
        parts = [
            self._run_handler(operator, [part, *rest], outputs)
            for part in self.complexes[operator.inputs[0]]
        ]
        self.complexes[operator.outputs[0]] = (parts[0][0], parts[1][0])
        return []

    def _run_handler(
        self,
        operator: FileOperator,
        tensors: Sequence[Tensor | None],
        outputs: Sequence[Output] | None = None,
    ) -> list[Tensor]:
        """Runs the operator's handler on `tensors`; `outputs` overrides the file's."""
        row = ROWS[operator.name]
        if row.options != "NONE" and operator.options_type not in ("NONE", row.options):
            raise InputError(f"expected {row.options}, found {operator.options_type}")
        if not operator.outputs:
            raise InputError("expected an output, found none")
        if outputs is None:
            of = self.tensors
            outputs = [
                Output(of.dtype(i), of.quant(i), of.source(i).shape) for i in operator.outputs
            ]
        variables = {
            place: self.tensors.name(i)
            for place, i in enumerate(operator.inputs)
            if i != -1 and self.tensors.is_variable(i)
        }
        between = [
            None if i == -1 else self.tensors.source(i).quant for i in operator.intermediates
        ]
        codes = {
            place: self.tensors.source(i).type
            for place, i in enumerate(operator.inputs)
            if i != -1 and self.tensors.source(i).blocks is not None
        }
        note, states = self.importer.bounded.add, self.importer.states
        here = f"operator {self.importer.model.subgraphs.index(self.graph)}:{operator.index}"
        made = row.build(
            TfliteCall(
                operator,
                tensors,
                outputs,
                self.builder,
                note,
                variables,
                between,
                codes,
                states,
                here,
                self.importer.model.subgraphs,
            )
        )
        return made if isinstance(made, list) else [made]

    def _read_operand(self, index: int) -> Tensor:
        """A tensor, or a variable's current value; initially 0 (the zero point if s8)."""
        if not self.tensors.is_variable(index):
            return self.tensors.get(index)
        name, shape = self.tensors.name(index), self.tensors.source(index).shape
        dtype, quant = self.tensors.dtype(index), self.tensors.quant(index)
        if any(d < 1 for d in shape):
            raise InputError(f"expected a variable with sizes of at least 1, found {list(shape)}")
        check_variable(shape, dtype)
        if name not in self.importer.states:
            first = np.zeros((), dtype.numpy)
            if dtype is DType.I8 and quant is not None:
                first = quant.zero_point[0].astype(np.int8)
            self.importer.states[name] = State(name, np.full(shape, first, dtype.numpy))
        return self.builder.emit(ops.ReadState(name, shape, dtype), quant=quant)

    def _bind_output(self, index: int, tensor: Tensor) -> None:
        wanted = self.tensors.dtype(index)
        if tensor.dtype is not wanted:
            raise InputError(
                f"expected an output of type {tensor.dtype.value}, found {wanted.value}"
            )
        self.tensors.set(index, self.builder.rename(tensor, self.tensors.name(index)))

    def _node_prefix(self, operator: FileOperator) -> str:
        """A prefix for the names of an operator's nodes."""
        for index in operator.outputs[:1]:
            self.tensors.source(index)
            name = self.tensors.name(index)
            if len(name) <= _NODE_NAME_LIMIT and name.isascii() and not name.startswith(UNNAMED):
                return name
        return f"{operator.name.lower()[:_NODE_NAME_LIMIT]}_{operator.index}"
