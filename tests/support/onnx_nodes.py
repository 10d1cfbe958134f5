"""The node tests that ship with the onnx package, as edgekit graphs.

Covers all standard ONNX operators with fixed shapes, numeric tensors and deterministic results.
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

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.frontends.onnx.operators import onnx_operators
from edgekit.host.compiler.ir.types import Array, Graph
from edgekit.host.errors import InputError

# Results are padded to an upper bound with filler.
_BOUNDED = {"Compress": 0, "NonMaxSuppression": -1, "NonZero": -1, "TopK": 0, "Unique": 0}
# ONNX Runtime and PyTorch put the last output on the last input, whatever the scale: edgekit, too.
# ONNX before 1.24 has indices of a smaller image there (test_onnx_pool.py).
_OTHERWISE = {
    "test_maxunpool_export_with_output_shape",
    "test_resize_downsample_scales_cubic_align_corners",
    "test_resize_downsample_scales_linear_align_corners",
}
_CHANCE = {"Bernoulli", "Multinomial", "RandomNormalLike", "RandomUniformLike"}
_CHANCE_NAMES = {
    "test_training_dropout", "test_training_dropout_default", "test_training_dropout_default_mask",
    "test_training_dropout_mask",
}  # fmt: skip

_UNPACKED = {
    onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE,
    onnx.TensorProto.BFLOAT16,
}  # fmt: skip
_TWO_UNITS = {"float16": 2.0**-9, "bfloat16": 2.0**-6}


@dataclass(frozen=True, eq=False)
class NodeCase:
    name: str
    model: onnx.ModelProto
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    rtol: float
    atol: float


@cache
def all_cases() -> tuple[NodeCase, ...]:
    from onnx.backend.test.case.node import collect_testcases

    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in collect_testcases(None):
            if case.name in _OTHERWISE | _CHANCE_NAMES:
                continue
            inputs, outputs = (tuple(map(_unpacked, side)) for side in case.data_sets[0])
            if not all(isinstance(v, np.ndarray | np.generic) for v in (*inputs, *outputs)):
                continue
            arrays = [tuple(np.asarray(v) for v in side) for side in (inputs, outputs)]
            if any(v.dtype.kind in "OUS" for side in arrays for v in side):
                continue
            made = NodeCase(case.name, case.model, *arrays, max(case.rtol, 1e-3), case.atol)
            if not (operators_of(made) & _CHANCE or _domains(made) - {"", "ai.onnx.ml"}):
                found.append(made)
    return tuple(found)


def _unpacked(value: object) -> object:
    """Cast and CastLike tests store their values as protobuf messages."""
    kept = isinstance(value, onnx.TensorProto) and value.data_type in _UNPACKED
    return numpy_helper.to_array(value) if kept else value


def is_claimed(case: NodeCase) -> bool:
    """Whether edgekit supports all its operators."""
    return operators_of(case) <= onnx_operators()


def operators_of(case: NodeCase) -> set[str]:
    """The kinds of its operators, with their domain unless that is ONNX's own."""
    nodes = case.model.graph.node
    return {f"{n.domain}:{n.op_type}" if n.domain else n.op_type for n in nodes}


def _domains(case: NodeCase) -> set[str]:
    return {n.domain for n in case.model.graph.node}


def graph_of(case: NodeCase, folder: Path) -> tuple[Graph, dict[str, Array]]:
    """Import the graph; return it with its inputs. Raises InputError if edgekit rejects the
    model."""
    refusal: InputError | None = None
    for fixed in _choices(case):
        try:
            return _import(case, fixed, folder)
        except InputError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _choices(case: NodeCase) -> Iterator[frozenset[int]]:
    """Candidate sets of inputs to make constant: none, all but the first, all integers, all."""
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
    free = {names[i]: _given(v) for i, v in enumerate(case.inputs) if i not in fixed}
    graph = import_model(path, {n: v.shape for n, v in free.items()})
    return graph, free


def _given(value: Array) -> Array:
    """Convert values to edgekit's interface types: bfloat16 becomes f32."""
    return value.astype(np.float32) if value.dtype.name == "bfloat16" else value


def disagreement(case: NodeCase, outputs: dict[str, Array]) -> str | None:
    """Describe how outputs differ from the expected ones, or return None.

    f16 and bfloat16 may differ by two units, because the expected values were computed with other
    intermediate roundings. For the same reason, terms that should cancel in a transform may differ
    by one unit of its largest value.
    """
    names = [o.name for o in case.model.graph.output]
    for name, expected in zip(names, case.outputs, strict=True):
        got, want = outputs[name], _given(expected)
        bounded = operators_of(case) & _BOUNDED.keys()
        if bounded and got.shape != want.shape and got.ndim == want.ndim:
            filler = _BOUNDED[bounded.pop()]
            inside = tuple(slice(d) for d in want.shape)
            filled = got.copy()
            filled[inside] = filler
            if np.any(filled != filler):
                return f"{name}: rows behind the last that are not {filler}"
            got = got[inside]
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"{name}: {got.dtype}{got.shape} for {want.dtype}{want.shape}"
        rtol = max(case.rtol, _TWO_UNITS.get(expected.dtype.name, 0.0))
        atol = case.atol
        if "DFT" in operators_of(case):
            atol = max(atol, 2.0**-23 * float(np.abs(want).max()))
        if want.dtype != np.bool_:
            got, want = got.astype(np.float64), want.astype(np.float64)
        if not np.allclose(got, want, rtol, atol, equal_nan=True):
            with np.errstate(invalid="ignore"):
                difference = np.abs(got.astype(np.float64) - want.astype(np.float64)).max()
            return f"{name}: off by {difference:.3g}"
    return None
