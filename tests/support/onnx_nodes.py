"""The node tests that ship inside the onnx package, as graphs of ours.

Case by case: claimed if all its operators and element types are ones that edgekit supports.
Operands that edgekit needs at compile time (weights, shapes, axes) become constants.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from edgekit.host.errors import InputError
from edgekit.host.graph.types import Array, Graph
from edgekit.host.importers import import_model, onnx_operators

_TYPES = {
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.INT32,
    onnx.TensorProto.INT64,
    onnx.TensorProto.BOOL,
}
_QUANTIZED = {onnx.TensorProto.UINT8, onnx.TensorProto.INT8}


@dataclass(frozen=True, eq=False)
class NodeCase:
    name: str
    model: onnx.ModelProto
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    rtol: float
    atol: float


@cache
def _cases() -> tuple[NodeCase, ...]:
    from onnx.backend.test.case.node import collect_testcases

    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in collect_testcases(None):
            inputs, outputs = case.data_sets[0]
            if all(isinstance(v, np.ndarray | np.generic) for v in (*inputs, *outputs)):
                arrays = [tuple(np.asarray(v) for v in side) for side in (inputs, outputs)]
                found.append(
                    NodeCase(case.name, case.model, *arrays, max(case.rtol, 1e-3), case.atol)
                )
    return tuple(found)


def claimed_cases() -> list[NodeCase]:
    known = onnx_operators()
    return [c for c in _cases() if _operators(c) <= known and _types_fit(c)]


def _operators(case: NodeCase) -> set[str]:
    return {n.op_type if not n.domain else f"{n.domain}:{n.op_type}" for n in case.model.graph.node}


def _types_fit(case: NodeCase) -> bool:
    graph = case.model.graph
    kinds = {v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)}
    quantizing = any(
        "Quantize" in n.op_type or "Linear" in n.op_type or "Integer" in n.op_type
        for n in graph.node
    )
    casts = {a.i for n in graph.node for a in n.attribute if n.op_type == "Cast" and a.name == "to"}
    return kinds | casts <= _TYPES | (_QUANTIZED if quantizing else set())


def graph_of(case: NodeCase, folder: Path) -> tuple[Graph, dict[str, Array]]:
    """The imported graph and its inputs. Raises InputError where edgekit refuses the model."""
    refusal: InputError | None = None
    for fixed in _choices(case):
        try:
            return _import(case, fixed, folder)
        except InputError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _choices(case: NodeCase) -> Iterator[frozenset[int]]:
    """Which inputs become constants: none, all but the first, all integers, all."""
    yield frozenset()
    yield frozenset(range(1, len(case.inputs)))
    yield frozenset(i for i, v in enumerate(case.inputs) if v.dtype.kind in "iub")
    yield frozenset(range(len(case.inputs)))


def _import(case: NodeCase, fixed: frozenset[int], folder: Path) -> tuple[Graph, dict[str, Array]]:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    names = [i.name for i in model.graph.input]
    for i in fixed:
        model.graph.initializer.append(numpy_helper.from_array(case.inputs[i], names[i]))
    path = folder / f"{case.name}.onnx"
    path.write_bytes(model.SerializeToString())
    free = {names[i]: v for i, v in enumerate(case.inputs) if i not in fixed}
    graph = import_model(path, {n: v.shape for n, v in free.items()})
    return graph, free


def disagreement(case: NodeCase, outputs: dict[str, Array]) -> str | None:
    """What differs from the case's expected outputs, if anything."""
    names = [o.name for o in case.model.graph.output]
    for name, want in zip(names, case.outputs, strict=True):
        got = outputs[name]
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"{name}: {got.dtype}{got.shape} for {want.dtype}{want.shape}"
        if not np.allclose(got, want, case.rtol, case.atol, equal_nan=True):
            difference = np.abs(got.astype(np.float64) - want.astype(np.float64)).max()
            return f"{name}: off by {difference:.3g}"
    return None
