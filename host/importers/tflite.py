"""TensorFlow Lite files → `Graph`.

    file ─ tflite_schema ─► records ─ this file ─► Graph
                                       │ per operator: tflite_operators (row), Operator.infer

Shapes come from `Operator.infer`, never from the file (TensorFlow Lite ignores those too), but
for graph inputs and constants. SAME padding becomes explicit, DENSIFY happens here, variables
become `Graph.states` with the values that the CALL_ONCE subgraph assigns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from edgekit.host.errors import InputError
from edgekit.host.graph import ops
from edgekit.host.graph.evaluate import run_node
from edgekit.host.graph.types import (
    Array,
    DType,
    Graph,
    Node,
    Operator,
    Shape,
    ShapeError,
    State,
    Tensor,
)
from edgekit.host.importers.files import read_model_file
from edgekit.host.importers.tflite_call import Call
from edgekit.host.importers.tflite_names import NodeNames, tensor_names
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
    FileTensor,
    printable,
    read_model,
)
from edgekit.host.importers.tflite_sparse import to_dense

__all__ = ["graph_from_tflite", "import_tflite", "supported_operators"]

_BYTES_LIMIT = 1 << 30  # of all activations together, and of densified weights
_KNOWN_LIMIT = 64  # elements of the shape vectors that are computed while importing

_DTYPES = {
    "FLOAT32": DType.F32,
    "FLOAT16": DType.F16,
    "INT8": DType.I8,
    "UINT8": DType.U8,
    "INT16": DType.I16,
    "INT32": DType.I32,
    "INT64": DType.I64,
    "BOOL": DType.BOOL,
}


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
        self._names = tensor_names(graph)
        self._node_names = NodeNames(set(self._names))
        self._tensors: dict[int, Tensor] = {}  # available ones: constant, input or produced
        self._known: dict[int, Array] = {}  # values of small computed tensors
        self._handles: dict[int, str] = {}  # resource tensor → state
        self._states: dict[str, State] = {}
        self._nodes: list[Node] = []
        self._bytes = 0

    def run(self, name: str) -> Graph:
        graph = self._graph
        if not graph.outputs:
            raise InputError("expected a model with outputs, found none")
        for ends, word in ((graph.inputs, "inputs"), (graph.outputs, "outputs")):
            if len(set(ends)) != len(ends):
                raise InputError(f"expected distinct {word}, found tensor listed twice: {ends}")
        for index in graph.inputs:
            self._add_input(index)
        for operator in graph.operators:
            try:
                self._add_operator(operator)
            except (ShapeError, InputError) as error:
                raise InputError(f"operator {operator.index} ({operator.name}): {error}") from error
        for index in graph.outputs:
            self._available(index)
        names = self._names
        return Graph(
            name,
            {t.name: t for t in self._tensors.values()},
            tuple(self._nodes),
            tuple(names[i] for i in graph.inputs),
            tuple(names[i] for i in graph.outputs),
            self._states,
        )

    def _add_input(self, index: int) -> None:
        source = self._file_tensor(index)
        if source.data is not None:
            raise InputError(f"input {self._shown(index)}: expected a variable, found a constant")
        dtype = self._dtype(index)
        if any(d < 1 for d in source.shape):
            raise InputError(
                f"input {self._shown(index)}: expected a shape of positive sizes, "
                f"found {list(source.shape)}"
            )
        self._add(index, source.shape, dtype)

    def _add_operator(self, operator: FileOperator) -> None:
        for index in operator.outputs:
            if index in self._tensors or self._file_tensor(index).data is not None:
                raise InputError(
                    f"expected a fresh tensor as output, found {self._shown(index)}, "
                    "which already has a value"
                )
        if operator.name in STRUCTURAL:
            self._add_structural(operator)
            return
        row = ROWS[operator.name]
        if row.options != "NONE" and operator.options_type not in ("NONE", row.options):
            raise InputError(f"expected {row.options}, found {operator.options_type}")
        if not operator.outputs:
            raise InputError("expected an output, found none")
        tensors = [None if i == -1 else self._available(i) for i in operator.inputs]
        values = [None if i == -1 else self._value(i) for i in operator.inputs]
        first = operator.outputs[0]
        call = Call(operator, tensors, values, self._file_tensor(first).shape, self._dtype(first))
        picked = range(len(operator.inputs)) if row.inputs is None else row.inputs
        inputs = [operator.inputs[i] for i in picked if i < len(operator.inputs)]
        self._add_node(operator, row.build(call), inputs)

    def _add_node(self, operator: FileOperator, op: Operator, inputs: Sequence[int]) -> None:
        ins = [None if i == -1 else self._available(i) for i in inputs]
        inferred = op.infer(ins)
        if len(inferred) != len(operator.outputs):
            raise InputError(f"expected {len(inferred)} outputs, found {len(operator.outputs)}")
        for index, (shape, dtype) in zip(operator.outputs, inferred, strict=True):
            if dtype is not self._dtype(index):
                raise InputError(
                    f"expected an output of type {dtype.value}, "
                    f"found {self._file_tensor(index).type}"
                )
            self._add(index, shape, dtype)
        outputs = tuple(self._names[i] for i in operator.outputs)
        node = Node(
            self._node_names.of(op.kind, operator.index, outputs),
            op,
            tuple(None if i == -1 else self._names[i] for i in inputs),
            outputs,
        )
        self._nodes.append(node)
        self._compute_if_small(node, operator, inputs)

    def _compute_if_small(self, node: Node, operator: FileOperator, inputs: Sequence[int]) -> None:
        """Follows SHAPE → STRIDED_SLICE → PACK, so that RESHAPE finds its shape."""
        everything = [self._tensors[i] for i in (*inputs, *operator.outputs) if i != -1]
        is_shape = isinstance(node.op, ops.ShapeOf)
        values = {self._names[i]: v for i in inputs if (v := self._value(i)) is not None}
        if not is_shape and (
            len(values) < len(inputs)
            or any(t.elements > _KNOWN_LIMIT or t.dtype is not DType.I32 for t in everything)
        ):
            return
        tensors = {t.name: t for t in everything}
        results = run_node(node, tensors, values)
        self._known.update(zip(operator.outputs, results, strict=True))

    def _add_structural(self, operator: FileOperator) -> None:
        if operator.name == VAR_HANDLE:
            (output,) = self._arity(operator, 0, 1)[1]
            self._handles[output] = _state_name(operator)
        elif operator.name == ONCE:
            self._states.update(self._initial_states(operator))
        elif operator.name == DENSIFY:
            (source,), (output,) = self._arity(operator, 1, 1)
            dense = self._available(source)
            if dense.data is None:
                raise InputError("expected a constant, found a computed tensor")
            self._tensors[output] = Tensor(
                self._names[output], dense.shape, dense.dtype, dense.quant, dense.data, dense.sparse
            )
        elif operator.name == READ:
            (handle,), (output,) = self._arity(operator, 1, 1)
            state = self._state(handle)
            dtype = self._dtype(output)
            if state.initial.dtype != dtype.numpy:
                raise InputError(
                    f"expected a variable of type {dtype.value}, found {state.initial.dtype}"
                )
            self._add_node(operator, ops.ReadState(state.name, state.initial.shape, dtype), ())
        else:
            (handle, value), _ = self._arity(operator, 2, 0)
            state, tensor = self._state(handle), self._available(value)
            if (tensor.shape, tensor.dtype.numpy) != (state.initial.shape, state.initial.dtype):
                raise InputError(
                    f"expected a value of shape {list(state.initial.shape)}, "
                    f"found {tensor.dtype.value}{list(tensor.shape)}"
                )
            self._add_node(operator, ops.WriteState(state.name), (value,))

    def _initial_states(self, operator: FileOperator) -> dict[str, State]:
        number = operator.option("InitSubgraphIndex")
        if not 0 < number < len(self._model.subgraphs):
            raise InputError(f"expected an initial subgraph, found number {number}")
        init = _SubgraphImport(self._model, self._model.subgraphs[number])
        return init.assigned()

    def assigned(self) -> dict[str, State]:
        """The constants that an initial subgraph assigns; it must hold nothing else."""
        states: dict[str, State] = {}
        for operator in self._graph.operators:
            if operator.name == VAR_HANDLE:
                (output,) = self._arity(operator, 0, 1)[1]
                self._handles[output] = _state_name(operator)
            elif operator.name == ASSIGN:
                (handle, source), _ = self._arity(operator, 2, 0)
                value = self._available(source).data
                if value is None or handle not in self._handles:
                    raise InputError("expected variables set to constants by the first subgraph")
                states[self._handles[handle]] = State(self._handles[handle], value)
            else:
                raise InputError(
                    f"expected variables set to constants, found {operator.name} in the "
                    "initial subgraph"
                )
        return states

    def _state(self, handle: int) -> State:
        name = self._handles.get(handle)
        if name is None:
            raise InputError(f"expected a variable, found {self._shown(handle)}")
        if name not in self._states:
            raise InputError(f"expected variable {name} to have an initial value, found none")
        return self._states[name]

    def _arity(
        self, operator: FileOperator, inputs: int, outputs: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if (len(operator.inputs), len(operator.outputs)) != (inputs, outputs):
            raise InputError(
                f"expected {inputs} inputs and {outputs} outputs, "
                f"found {len(operator.inputs)} and {len(operator.outputs)}"
            )
        return operator.inputs, operator.outputs

    def _file_tensor(self, index: int) -> FileTensor:
        count = len(self._graph.tensors)
        if not 0 <= index < count:
            raise InputError(f"expected a tensor from 0 to {count - 1}, found {index}")
        return self._graph.tensors[index]

    def _dtype(self, index: int) -> DType:
        name = self._file_tensor(index).type
        if name not in _DTYPES:
            raise InputError(f"{self._shown(index)}: type {name} is not supported")
        return _DTYPES[name]

    def _shown(self, index: int) -> str:
        return f"tensor {index} ({printable(self._graph.tensors[index].name[:200])})"

    def _value(self, index: int) -> Array | None:
        return self._known.get(index, self._available(index).data)

    def _available(self, index: int) -> Tensor:
        """A tensor that may be read; constants enter the graph when first used."""
        source = self._file_tensor(index)
        if index not in self._tensors:
            if source.data is None:
                raise InputError(
                    f"expected {self._shown(index)} to be a constant, an input or the output of "
                    "an earlier operator, found none of these"
                )
            self._tensors[index] = self._constant(index, source, source.data)
        return self._tensors[index]

    def _constant(self, index: int, source: FileTensor, raw: Array) -> Tensor:
        dtype, shape, sparsity = self._dtype(index), source.shape, source.sparsity
        if any(d < 0 for d in shape):
            raise InputError(f"{self._shown(index)}: expected sizes from 0, found {list(shape)}")
        size = math.prod(shape) * dtype.bytes
        stored = raw.size if sparsity is None else raw.size - raw.size % dtype.bytes
        if (sparsity is None and raw.size != size) or stored != raw.size:
            raise InputError(
                f"{self._shown(index)}: expected {size} bytes for {dtype.value}{list(shape)}, "
                f"found {raw.size}"
            )
        values = raw.view(dtype.numpy) if raw.flags.c_contiguous else raw
        if sparsity is not None:
            self._charge(size)
            values = to_dense(values, shape, sparsity)
        data = values.reshape(shape)
        data.flags.writeable = False
        quant = source.quant if dtype in (DType.I8, DType.U8, DType.I16, DType.I32) else None
        return Tensor(self._names[index], shape, dtype, quant, data, sparsity is not None)

    def _add(self, index: int, shape: Shape, dtype: DType) -> None:
        quant = self._file_tensor(index).quant if dtype is not DType.F32 else None
        if dtype.is_quantized and (quant is None or quant.per_channel):
            raise InputError(f"{self._shown(index)}: expected one scale, found none or many")
        self._charge(math.prod(shape) * dtype.bytes)
        self._tensors[index] = Tensor(self._names[index], shape, dtype, quant)

    def _charge(self, size: int) -> None:
        self._bytes += size
        if self._bytes > _BYTES_LIMIT:
            raise InputError(
                f"expected activations of at most {_BYTES_LIMIT >> 20} MiB in total, found more"
            )


def _state_name(operator: FileOperator) -> str:
    return operator.option_text("SharedName") or f"state_{operator.index}"
