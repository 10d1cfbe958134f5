"""Import of TensorFlow Lite's subgraph calls and variables: IF, WHILE, CALL, CALL_ONCE, handles.

Shapes and operator order are static: a branch with a constant condition is selected at import time,
otherwise both branches are computed and one result is selected; loops are unrolled up to the limit
that their condition names, or become one operator if it names none.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgekit.host.compiler.frontends.tflite import complex as fourier
from edgekit.host.compiler.frontends.tflite.schema import FileOperator, TfliteFile
from edgekit.host.compiler.frontends.tflite.scope import TfliteScope
from edgekit.host.compiler.frontends.tflite.stream import STATEFUL
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Shape, State, Tensor
from edgekit.host.errors import InputError

_ITERATION_LIMIT = 1024  # of loops that are unrolled
_ROLLED_LIMIT = 1 << 16  # of loops that only data end
_VARIABLE_LIMIT = 1 << 30  # bytes
_BRANCH_WORK = 128  # of importing both branches, which double per level, in tensors
_WRITES = {"ASSIGN_VARIABLE", *STATEFUL}
# The options that refer to subgraphs, by operator.
_CALLED = {
    "CALL": ("Subgraph",),
    "CALL_ONCE": ("InitSubgraphIndex",),
    "IF": ("ThenSubgraphIndex", "ElseSubgraphIndex"),
    "STABLEHLO_COMPOSITE": ("DecompositionSubgraphIndex",),
    "WHILE": ("CondSubgraphIndex", "BodySubgraphIndex"),
}


def subgraphs_of(model: TfliteFile, main: int) -> list[int]:
    """Subgraph `main` and all subgraphs it calls, even indirectly, in order of first use."""
    found = [main]
    for number in found:
        for operator in model.subgraphs[number].operators:
            for option in _CALLED.get(operator.name, ()):
                called = int(operator.option(option))
                if 0 <= called < len(model.subgraphs) and called not in found:
                    found.append(called)
    return found


def variables_of(model: TfliteFile, main: int) -> tuple[set[str], set[str]]:
    """The named variables that subgraph `main` and those it calls use, and those they change after
    their initialization."""
    used, written = set[str](), set[str]()
    once = {
        int(o.option("InitSubgraphIndex"))
        for graph in model.subgraphs
        for o in graph.operators
        if o.name == "CALL_ONCE"
    }
    for number in subgraphs_of(model, main):
        handles: dict[int, str] = {}
        for operator in model.subgraphs[number].operators:
            name = handles.get(operator.inputs[0]) if operator.inputs else None
            if operator.name == "VAR_HANDLE" and operator.outputs:
                handles[operator.outputs[0]] = operator.option_text("SharedName")
            elif name and operator.name == "ASSIGN_VARIABLE" and number not in once:
                written.add(name)
            elif name:
                used.add(name)
    return used, written


def run_flow(scope: TfliteScope, operator: FileOperator) -> list[Tensor]:
    """The outputs of a control-flow or variable operator."""
    return FLOW[operator.name](scope, operator)


def _read_inputs(scope: TfliteScope, operator: FileOperator) -> list[Tensor]:
    if any(i in scope.handles for i in operator.inputs):
        raise InputError("expected tensors as inputs of a subgraph, found a variable")
    found = [scope.tensors.get(i) for i in operator.inputs]
    return scope.importer.bounded.operands(operator.name, found)


def _call(scope: TfliteScope, operator: FileOperator) -> list[Tensor]:
    number = operator.option(_CALLED[operator.name][0])
    return scope.importer.call(number, _read_inputs(scope, operator), f"{operator.index}")


def _if(scope: TfliteScope, operator: FileOperator) -> list[Tensor]:
    inputs = _read_inputs(scope, operator)
    if not inputs or inputs[0].elements != 1 or inputs[0].dtype is not DType.BOOL:
        raise InputError(
            "expected a condition of one bool as input 0, found another tensor or none"
        )
    condition, args = inputs[0], inputs[1:]
    label, importer = f"{operator.index}", scope.importer
    branches = [operator.option(name) for name in _CALLED["IF"]]
    if condition.data is not None:
        taken = branches[0] if condition.data.reshape(-1)[0] else branches[1]
        return importer.call(taken, args, label)
    _refuse_writes(scope, branches)
    importer.charge(_BRANCH_WORK)
    then, otherwise = (importer.call(n, args, f"{label}.{n}") for n in branches)
    return _selected(scope, condition, then, otherwise)


def _selected(
    scope: TfliteScope, condition: Tensor, then: list[Tensor], otherwise: list[Tensor]
) -> list[Tensor]:
    """`then` where the condition of one bool holds, else `otherwise`."""
    importer = scope.importer
    if [(t.shape, t.dtype) for t in then] != [(t.shape, t.dtype) for t in otherwise]:
        shapes = [[list(t.shape) for t in made[:9]] for made in (then, otherwise)]
        raise InputError(f"expected branches of equal shapes, found {shapes[0]} and {shapes[1]}")
    chosen = []
    for a, b in zip(then, otherwise, strict=True):
        shaped = (
            condition if condition.shape == () else scope.builder.emit(ops.Reshape(()), condition)
        )
        importer.bounded.follow("IF", [condition, a, b], (), list)
        chosen.append(scope.builder.emit(ops.Where(), shaped, a, b, quant=a.quant))
    return chosen


def _refuse_writes(scope: TfliteScope, branches: list[int]) -> None:
    model = scope.importer.model
    for number in branches:
        if 0 < number < len(model.subgraphs) and any(
            (found := o.name) in _WRITES for o in model.subgraphs[number].operators
        ):
            raise InputError(
                "expected branches that write no variables under a computed condition, "
                f"found {found} in subgraph {number}"
            )


def _while(scope: TfliteScope, operator: FileOperator) -> list[Tensor]:
    """The values when the condition first fails. Where it depends on data, its other terms end the
    loop: the body goes on, and its results are kept while the condition held."""
    condition, body = (operator.option(name) for name in _CALLED["WHILE"])
    values, importer = _read_inputs(scope, operator), scope.importer
    kept, runs = values, None
    for count in range(_ITERATION_LIMIT + 1):
        label = f"{operator.index}.{count}"
        found = importer.call(condition, values, f"{label}.cond")
        if len(found) != 1 or found[0].elements != 1:
            raise InputError("expected a condition of one bool, found another")
        (going,) = importer.bounded.operands("WHILE", found)
        terms = _terms(scope, going)
        if not all(known := [bool(t.data.reshape(-1)[0]) for t in terms if t.data is not None]):
            return kept
        if going.data is None:
            if any(importer.bounded.holds(t) for t in values):
                raise InputError(
                    "expected a loop over tensors of constant shape, found a shape that depends "
                    "on data; run the loop in the application, or export it unrolled"
                )
            _refuse_writes(scope, [condition, body])
            if not known and runs is None:
                return _rolled(scope, operator, going, values)
            going = scope.builder.emit(ops.Reshape(()), going)
            runs = going if runs is None else scope.builder.emit(ops.And(), runs, going)
        values = importer.call(body, values, label)
        kept = values if runs is None else _selected(scope, runs, values, kept)
    raise InputError(f"expected a loop of at most {_ITERATION_LIMIT} iterations, found more")


def _rolled(
    scope: TfliteScope, operator: FileOperator, going: Tensor, values: list[Tensor]
) -> list[Tensor]:
    """The values when `going`, the condition on `values`, and those after it first fail."""
    importer, builder, label = scope.importer, scope.builder, f"{operator.index}"
    condition, body = (operator.option(name) for name in _CALLED["WHILE"])
    ends = importer.model.subgraphs[body]
    kept = [a == b for a, b in zip(ends.inputs, ends.outputs, strict=False)]
    if len(kept) != len(values) or all(kept):
        raise InputError(f"expected a body that changes some of {len(values)} values, found none")
    states = [v for v, same in zip(values, kept, strict=True) if not same]
    begun, mark = builder.begun, builder.open_body(_ROLLED_LIMIT)
    inside = [builder.input(builder.take("state"), v.shape, v.dtype, v.quant) for v in states]
    given = iter(inside)
    args = [v if same else next(given) for v, same in zip(values, kept, strict=True)]
    made = importer.call(body, args, f"{label}.body")
    (again,) = importer.call(condition, made, f"{label}.cond")
    news = [t for t, same in zip(made, kept, strict=True) if not same]
    if any(importer.bounded.holds(t) for t in (again, *news)):
        raise InputError("expected values of constant shape in a loop, found one that data set")
    first = builder.emit(ops.Reshape(()), again)
    graph, captured = builder.close_body(mark, inside, [first, *news])
    builder.resume(begun)
    builder.note(f"{operator.name} {label}: at most {_ROLLED_LIMIT} iterations")
    op = ops.Loop(_ROLLED_LIMIT, len(states), 0, True, graph)
    first = builder.emit(ops.Reshape(()), going)
    results = builder.emit_all(
        op, [first, *states, *captured], [None, *(state.quant for state in states)]
    )
    left = iter(results[1:])
    return [v if same else next(left) for v, same in zip(values, kept, strict=True)]


def _terms(scope: TfliteScope, condition: Tensor) -> list[Tensor]:
    """The tensors whose conjunction is `condition`."""
    terms, found = [condition], list[Tensor]()
    while terms:
        node = scope.builder.producer((term := terms.pop()).name)
        if node is not None and isinstance(node.op, ops.And | ops.Reshape):
            terms += [scope.builder.tensor(name) for name in node.inputs if name is not None]
        else:
            found.append(term)
    return found


def _call_once(scope: TfliteScope, operator: FileOperator) -> list[Tensor]:
    """Runs a subgraph that initializes variables; the values must be constants."""
    number = operator.option("InitSubgraphIndex")
    if not 0 < number < len(scope.importer.model.subgraphs):
        raise InputError(f"expected one initial subgraph, found number {number}")
    before = scope.builder.size
    scope.importer.initializing = True
    scope.importer.call(number, [], f"{operator.index}")
    scope.importer.initializing = False
    if scope.builder.size != before:
        raise InputError("expected variables set to constants, found a computed initial value")
    return []


def _var_handle(scope: TfliteScope, operator: FileOperator) -> list[Tensor]:
    _check_arity(operator, 0, 1)
    (output,) = operator.outputs
    scope.tensors.source(output)
    scope.handles[output] = operator.option_text("SharedName") or f"state_{output}"
    return []


def _read_variable(scope: TfliteScope, operator: FileOperator) -> list[Tensor]:
    _check_arity(operator, 1, 1)
    name = _variable_name(scope, operator.inputs[0])
    state = scope.importer.states.get(name)
    if state is None:
        raise InputError(f"expected variable {name} to have an initial value, found none")
    dtype = scope.tensors.dtype(operator.outputs[0])
    if state.initial.dtype != dtype.numpy:
        raise InputError(f"expected a variable of type {dtype.value}, found {state.initial.dtype}")
    op = ops.ReadState(name, state.initial.shape, dtype)
    return [scope.builder.emit(op, quant=scope.tensors.quant(operator.outputs[0]))]


def check_variable(shape: Shape, dtype: DType) -> None:
    """Refuses a variable that is too large, before its initial value is made."""
    if math.prod(shape) * dtype.bytes > _VARIABLE_LIMIT:
        raise InputError(
            f"expected a variable of at most {_VARIABLE_LIMIT >> 20} MiB, found {list(shape)}"
        )


def _assign_variable(scope: TfliteScope, operator: FileOperator) -> list[Tensor]:
    _check_arity(operator, 2, 0)
    name = _variable_name(scope, operator.inputs[0])
    tensor, states = scope.tensors.get(operator.inputs[1]), scope.importer.states
    if scope.importer.initializing and tensor.data is not None and name not in states:
        states[name] = State(name, tensor.data)
        return []
    if name not in states:  # written before the first read
        check_variable(tensor.shape, tensor.dtype)
        states[name] = State(name, np.zeros(tensor.shape, tensor.dtype.numpy))
    initial = states[name].initial
    if (tensor.shape, tensor.dtype.numpy) != (initial.shape, initial.dtype):
        raise InputError(
            f"expected a value of {initial.dtype}{list(initial.shape)}, "
            f"found {tensor.dtype.value}{list(tensor.shape)}"
        )
    scope.builder.emit_all(ops.WriteState(name), [tensor])
    return []


def _densify(scope: TfliteScope, operator: FileOperator) -> list[Tensor]:
    """Sparse constants were expanded when they were read."""
    _check_arity(operator, 1, 1)
    tensor = scope.tensors.get(operator.inputs[0])
    if tensor.data is None:
        raise InputError(
            f"expected a constant, found {scope.tensors.shown(operator.inputs[0])}, "
            "which is computed"
        )
    return [tensor]


def _variable_name(scope: TfliteScope, index: int) -> str:
    name = scope.handles.get(index)
    if name is None:
        raise InputError(f"expected a variable, found {scope.tensors.shown(index)}")
    return name


def _check_arity(operator: FileOperator, inputs: int, outputs: int) -> None:
    if (len(operator.inputs), len(operator.outputs)) != (inputs, outputs):
        raise InputError(
            f"expected {inputs} inputs and {outputs} outputs, "
            f"found {len(operator.inputs)} and {len(operator.outputs)}"
        )


FLOW: dict[str, Callable[[TfliteScope, FileOperator], list[Tensor]]] = {
    "ASSIGN_VARIABLE": _assign_variable,
    "CALL": _call,
    "CALL_ONCE": _call_once,
    "COMPLEX_ABS": fourier.magnitude,
    "DENSIFY": _densify,
    "IF": _if,
    "IMAG": fourier.imaginary,
    "READ_VARIABLE": _read_variable,
    "REAL": fourier.real,
    "RFFT2D": fourier.rfft2d,
    "STABLEHLO_COMPOSITE": _call,
    "VAR_HANDLE": _var_handle,
    "WHILE": _while,
}
