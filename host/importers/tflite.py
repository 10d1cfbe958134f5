"""TensorFlow Lite files → `Graph`.

    file ─ tflite_schema ─► records ─ this file ─► Graph
                                       │ tensors: tflite_tensors
                                       │ per operator: tflite_operators (row), Operator.infer

Shapes come from `Operator.infer`, never from the file (TensorFlow Lite ignores those too), but
for graph inputs and constants. SAME padding becomes explicit, DENSIFY happens here, variables
become `Graph.states` with the values that the CALL_ONCE subgraph assigns.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from pathlib import Path

from edgekit.host.errors import InputError
from edgekit.host.graph import ops
from edgekit.host.graph.evaluate import run_node
from edgekit.host.graph.types import Array, DType, Graph, Node, Operator, ShapeError, State, Tensor
from edgekit.host.importers.files import read_model_file
from edgekit.host.importers.tflite_call import Call
from edgekit.host.importers.tflite_checks import check_quantized
from edgekit.host.importers.tflite_names import NodeNames
from edgekit.host.importers.tflite_operators import (
    ASSIGN,
    DENSIFY,
    ONCE,
    READ,
    ROWS,
    STRUCTURAL,
    VAR_HANDLE,
    supported_operators,
)
from edgekit.host.importers.tflite_schema import (
    FileModel,
    FileOperator,
    FileSubgraph,
    read_model,
)
from edgekit.host.importers.tflite_tensors import TensorTable

__all__ = ["graph_from_tflite", "import_tflite", "supported_operators"]

_KNOWN_LIMIT = 64  # elements of the shape vectors that are computed while importing
_WEIGHTED = ops.Conv2D | ops.DepthwiseConv2D | ops.TransposeConv2D | ops.FullyConnected


def import_tflite(path: Path) -> Graph:
    """Reads a .tflite file. Raises `InputError` with one line that names file and operator."""
    content = read_model_file(path)
    try:
        return graph_from_tflite(content, path.stem)
    except InputError as error:
        raise InputError(f"{path.name}: {error}") from error


def graph_from_tflite(content: bytes, name: str) -> Graph:
    """`import_tflite` of a file's bytes; messages do not name the file."""
    model = read_model(content)
    main = model.subgraphs[0]
    _refuse_unsupported(main)
    return _SubgraphImport(model, main).run(name)


def _refuse_unsupported(graph: FileSubgraph) -> None:
    known = {*ROWS, *STRUCTURAL}
    missing = [f"{o.index} ({o.name})" for o in graph.operators if o.name not in known]
    if missing:
        noun, verb = ("operator", "is") if len(missing) == 1 else ("operators", "are")
        raise InputError(
            f"{noun} {', '.join(missing)} {verb} not supported; "
            "supported operators: edgekit compile --list-operators"
        )


class _SubgraphImport:
    """Walks the operators of one subgraph once, in order."""

    def __init__(self, model: FileModel, graph: FileSubgraph) -> None:
        self._model = model
        self._graph = graph
        self._tensors = TensorTable(graph)
        self._node_names = NodeNames()
        self._known: dict[int, Array] = {}  # values of small computed tensors
        self._handles: dict[int, str] = {}  # resource tensor → state
        self._states: dict[str, State] = {}
        self._nodes: list[Node] = []

    def run(self, name: str) -> Graph:
        graph, tensors = self._graph, self._tensors
        if not graph.outputs:
            raise InputError("expected a model with outputs, found none")
        for ends, word in ((graph.inputs, "inputs"), (graph.outputs, "outputs")):
            if len(set(ends)) != len(ends):
                raise InputError(f"expected distinct {word}, found a tensor listed twice")
        for index in graph.inputs:
            if tensors.has_value(index):
                raise InputError(f"input {tensors.shown(index)}: expected no value, found one")
            tensors.add(index, tensors.source(index).shape, tensors.dtype(index))
        for operator in graph.operators:
            try:
                self._add_operator(operator)
            except (ShapeError, InputError) as error:
                raise InputError(f"operator {operator.index} ({operator.name}): {error}") from error
        for index in graph.outputs:
            tensors.get(index)
        return Graph(
            name,
            tensors.readable(),
            tuple(self._nodes),
            tuple(tensors.name(i) for i in graph.inputs),
            tuple(tensors.name(i) for i in graph.outputs),
            self._states,
        )

    def assigned(self) -> dict[str, State]:
        """The constants that an initial subgraph assigns; it must hold nothing else."""
        for operator in self._graph.operators:
            if operator.name == VAR_HANDLE:
                self._add_handle(operator)
            elif operator.name == ASSIGN:
                (handle, source), _ = _arity(operator, 2, 0)
                name, value = self._handles.get(handle), self._tensors.get(source).data
                if value is None or name is None or name in self._states:
                    raise InputError("expected each variable to be set once, to a constant")
                self._states[name] = State(name, value)
            else:
                raise InputError(f"expected variables set to constants, found {operator.name}")
        return self._states

    def _add_operator(self, operator: FileOperator) -> None:
        outputs = operator.outputs
        for index in outputs:
            if self._tensors.has_value(index) or index in self._handles or outputs.count(index) > 1:
                raise InputError(
                    f"expected to write each tensor once, found {self._tensors.shown(index)}, "
                    "which already has a value"
                )
        if operator.name in STRUCTURAL:
            self._add_structural(operator)
            return
        row = ROWS[operator.name]
        if row.options != "NONE" and operator.options_type not in ("NONE", row.options):
            raise InputError(f"expected {row.options}, found {operator.options_type}")
        if not outputs:
            raise InputError("expected an output, found none")
        tensors = [None if i == -1 else self._tensors.get(i) for i in operator.inputs]
        values = [None if i == -1 else self._value(i) for i in operator.inputs]
        op = row.build(Call(operator, tensors, values, self._tensors.dtype(outputs[0])))
        picked = range(len(operator.inputs)) if row.inputs is None else row.inputs
        inputs = [operator.inputs[i] for i in picked if i < len(operator.inputs)]
        self._add_node(operator, op, inputs)

    def _add_node(self, operator: FileOperator, op: Operator, inputs: Sequence[int]) -> None:
        tensors = self._tensors
        ins = [None if i == -1 else tensors.get(i) for i in inputs]
        inferred = op.infer(ins)
        if len(inferred) != len(operator.outputs):
            raise InputError(f"expected {len(inferred)} outputs, found {len(operator.outputs)}")
        fixed = all(i == -1 or tensors.is_fixed(i) for i in inputs)
        fixed = fixed and not isinstance(op, ops.ReadState)
        if isinstance(op, _WEIGHTED) and not all(
            i == -1 or tensors.is_fixed(i) for i in inputs[1:]
        ):
            raise InputError("expected constant weights and bias, found computed ones")
        for index, (shape, dtype) in zip(operator.outputs, inferred, strict=True):
            if dtype is not tensors.dtype(index):
                raise InputError(
                    f"expected an output of type {dtype.value}, found {tensors.dtype(index).value}"
                )
            tensors.add(index, shape, dtype, fixed)
        outs = [tensors.get(i) for i in operator.outputs]
        check_quantized(op, ins, outs)
        outputs = tuple(t.name for t in outs)
        name = self._node_names.of(op.kind, operator.index, outputs)
        node = Node(name, op, tuple(None if t is None else t.name for t in ins), outputs)
        self._nodes.append(node)
        self._compute_if_small(node, operator, inputs)

    def _compute_if_small(self, node: Node, operator: FileOperator, inputs: Sequence[int]) -> None:
        """Follows SHAPE → STRIDED_SLICE → PACK, so that RESHAPE finds its shape."""
        if isinstance(node.op, ops.ReadState | ops.WriteState):
            return
        ins = [self._tensors.get(i) for i in inputs if i != -1]
        outs = [self._tensors.get(i) for i in operator.outputs]
        values = {self._tensors.name(i): v for i in inputs if (v := self._value(i)) is not None}
        if not isinstance(node.op, ops.ShapeOf) and not _is_known(ins, outs, values.keys()):
            return
        results = run_node(node, {t.name: t for t in (*ins, *outs)}, values)
        self._known.update(zip(operator.outputs, results, strict=True))

    def _value(self, index: int) -> Array | None:
        return self._known.get(index, self._tensors.get(index).data)

    def _add_structural(self, operator: FileOperator) -> None:
        if operator.name == VAR_HANDLE:
            self._add_handle(operator)
        elif operator.name == ONCE:
            self._add_initial_states(operator)
        elif operator.name == DENSIFY:
            (source,), (output,) = _arity(operator, 1, 1)
            self._tensors.alias(output, source)
        elif operator.name == READ:
            (handle,), (output,) = _arity(operator, 1, 1)
            state = self._state(handle)
            dtype = self._tensors.dtype(output)
            if state.initial.dtype != dtype.numpy:
                raise InputError(
                    f"expected a variable of type {dtype.value}, found {state.initial.dtype}"
                )
            self._add_node(operator, ops.ReadState(state.name, state.initial.shape, dtype), ())
        else:
            (handle, value), _ = _arity(operator, 2, 0)
            state, tensor = self._state(handle), self._tensors.get(value)
            if (tensor.shape, tensor.dtype.numpy) != (state.initial.shape, state.initial.dtype):
                raise InputError(
                    f"expected a value of {state.initial.dtype}{list(state.initial.shape)}, "
                    f"found {tensor.dtype.value}{list(tensor.shape)}"
                )
            self._add_node(operator, ops.WriteState(state.name), (value,))

    def _add_handle(self, operator: FileOperator) -> None:
        _, (output,) = _arity(operator, 0, 1)
        self._tensors.source(output)
        self._handles[output] = operator.option_text("SharedName") or f"state_{output}"

    def _add_initial_states(self, operator: FileOperator) -> None:
        number = operator.option("InitSubgraphIndex")
        if not 0 < number < len(self._model.subgraphs) or self._states:
            raise InputError(f"expected one initial subgraph, found number {number}")
        initial = _SubgraphImport(self._model, self._model.subgraphs[number])
        self._states.update(initial.assigned())

    def _state(self, handle: int) -> State:
        name = self._handles.get(handle)
        if name is None:
            raise InputError(f"expected a variable, found {self._tensors.shown(handle)}")
        if name not in self._states:
            raise InputError(f"expected variable {name} to have an initial value, found none")
        return self._states[name]


def _is_known(ins: list[Tensor], outs: list[Tensor], known: Set[str]) -> bool:
    """Whether results are a few integers that follow from known ones."""
    small = all(t.elements <= _KNOWN_LIMIT and t.dtype is DType.I32 for t in (*ins, *outs))
    return small and all(t.name in known for t in ins)


def _arity(
    operator: FileOperator, inputs: int, outputs: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The operator's inputs and outputs, which must be as many."""
    if (len(operator.inputs), len(operator.outputs)) != (inputs, outputs):
        raise InputError(
            f"expected {inputs} inputs and {outputs} outputs, "
            f"found {len(operator.inputs)} and {len(operator.outputs)}"
        )
    return operator.inputs, operator.outputs
