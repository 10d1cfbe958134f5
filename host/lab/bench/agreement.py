"""Measures how far a compiled model's outputs are from LiteRT's, whose own kernel sets disagree.

LiteRT's reference kernels define the correct result. An output agrees with them if floats are
within 1e-5 of the largest magnitude and integers are equal. Otherwise it may still be no farther
from the nearest of LiteRT's three kernel sets than these are from one another, taking the worst
call for both.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from numpy.typing import NDArray

from edgekit.host.errors import InputError
from edgekit.host.lab.bench.process import Worker
from edgekit.host.lab.bench.worker import KERNEL_SETS
from edgekit.host.lab.zoo.cases import Cases, ZooInputs, make_cases

_CUSTOM = b"Convolution2DTransposeBias"
_TRANSPOSE_CONV = 67
_VERSION_WITH_BIAS = 3
_INT32 = 2
_IDENTIFIER = b"TFL3"


def with_builtin_operators(model: Path, folder: Path) -> Path:
    """`model` itself, or a rewritten copy in `folder` if it has the custom operator.

    Raises ModuleNotFoundError without LiteRT, whose schema classes write the file.
    """
    content = model.read_bytes()
    if _CUSTOM not in content:
        return model
    from ai_edge_litert import schema_py_generated as schema

    tree = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    graph = tree.subgraphs[0]
    for operator in graph.operators:
        code = tree.operatorCodes[operator.opcodeIndex]
        if code.customCode == _CUSTOM:
            _to_builtin_operator(schema, tree, graph, operator)
    for code in tree.operatorCodes:
        if code.customCode == _CUSTOM:
            code.customCode, code.version = None, _VERSION_WITH_BIAS
            code.builtinCode = code.deprecatedBuiltinCode = _TRANSPOSE_CONV
    builder = flatbuffers.Builder(len(content))
    builder.Finish(tree.Pack(builder), _IDENTIFIER)
    rewritten = folder / f"{model.stem}-builtin.tflite"
    rewritten.write_bytes(bytes(builder.Output()))
    return rewritten


def _to_builtin_operator(schema: Any, tree: Any, graph: Any, operator: Any) -> None:
    """The custom operator's inputs are x, weights, bias; its options padding and strides as i32."""
    padding, stride_w, stride_h = np.frombuffer(bytes(operator.customOptions), "<i4")
    shape = np.asarray(graph.tensors[operator.outputs[0]].shape, "<i4")
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(shape.tobytes(), np.uint8)
    tree.buffers.append(buffer)
    tensor = schema.TensorT()
    tensor.name, tensor.shape, tensor.type = b"output_shape", [len(shape)], _INT32
    tensor.buffer = len(tree.buffers) - 1
    graph.tensors.append(tensor)
    x, weights, bias = operator.inputs
    operator.inputs = np.array([len(graph.tensors) - 1, weights, x, bias], np.int32)
    options = schema.TransposeConvOptionsT()
    options.padding = int(padding) - 1  # the custom enum starts at 1: same, valid
    options.strideW, options.strideH = int(stride_w), int(stride_h)
    operator.customOptions = None
    operator.builtinOptions = options
    operator.builtinOptionsType = schema.BuiltinOptions.TransposeConvOptions


Array = NDArray[Any]
_FLOAT_TOLERANCE = 1e-5


class Agreement(enum.Enum):
    """How an output compares over all its calls; the worst call decides."""

    EQUAL = "as the reference"
    BETWEEN = "within the kernel sets' own differences"
    APART = "differs"


@dataclass(frozen=True)
class OutputAgreement:
    """One output over all calls.

    Differences are integer steps, or for floats fractions of the call's largest magnitude.
    worst: from the reference. nearest: from the nearest kernel set. spread: between the kernel
    sets. exact_calls: calls within tolerance of the reference. same_top: calls whose largest
    element matches the reference's (or ties with it within tolerance).
    """

    index: int
    dtype: str
    calls: int
    exact_calls: int
    same_top: int
    worst: float
    nearest: float
    spread: float
    verdict: Agreement


@dataclass(frozen=True)
class ModelAgreement:
    """All outputs of one model; `sets` are the LiteRT kernel sets that can run it."""

    sets: tuple[str, ...]
    outputs: tuple[OutputAgreement, ...]

    @property
    def verdict(self) -> Agreement:
        order = list(Agreement)
        return max((o.verdict for o in self.outputs), key=order.index)


def compare_with_litert(release: Path, model: Path, cases: Cases, scratch: Path) -> ModelAgreement:
    """Runs `cases` on the compiled model in `release` and on every LiteRT kernel set.

    release: folder with model.so and weights.bin. scratch: an empty folder.
    Raises InputError if our library or every LiteRT kernel set fails on the model.
    """
    inputs = scratch / "inputs.npz"
    cases.save(inputs)
    ours = _run_engine("edgekit", release, cases, inputs, scratch)
    runnable = with_builtin_operators(model, scratch)
    sets: dict[str, list[Array]] = {}
    failures: list[str] = []
    for name in KERNEL_SETS:
        try:
            sets[name] = _run_engine(f"litert:{name}", runnable, cases, inputs, scratch)
        except InputError as error:
            failures.append(str(error))
    if not sets:
        raise InputError(f"{model}: no LiteRT kernel set runs it: {'; '.join(failures)}")
    return ModelAgreement(
        tuple(sets),
        tuple(
            compare_output(i, ours[i], {name: arrays[i] for name, arrays in sets.items()})
            for i in range(len(ours))
        ),
    )


def compare_release(
    release: Path, model: Path, samples: ZooInputs, count: int, steps: int, scratch: Path
) -> ModelAgreement:
    """compare_with_litert on `count` inputs, or on sequences of `steps` calls if stateful."""
    with Worker("edgekit", release) as worker:
        specs, stateful = worker.inputs, worker.stateful
    cases = make_cases(specs, count, samples, steps if stateful else 1)
    return compare_with_litert(release, model, cases, scratch)


def compare_output(index: int, ours: Array, sets: Mapping[str, Array]) -> OutputAgreement:
    """ours and every set: [calls, ...]; the first of `sets` is the reference."""
    calls = len(ours)
    flat = {name: _flatten_calls(array) for name, array in sets.items()}
    mine = _flatten_calls(ours)
    reference = next(iter(flat.values()))
    if mine.shape != reference.shape:
        raise InputError(
            f"output {index}: expected {reference.shape[1]} elements, found {mine.shape[1]}"
        )
    floating = ours.dtype.kind == "f"
    unit = np.maximum(np.abs(reference).max(axis=1), np.finfo(np.float32).tiny)
    scale = unit if floating else np.ones(calls)
    tolerance = _FLOAT_TOLERANCE if floating else 0.0
    from_reference = _max_distance(mine, reference) / scale
    nearest = np.min([_max_distance(mine, other) / scale for other in flat.values()], axis=0)
    spread = _max_spread(list(flat.values())) / scale
    good = from_reference <= tolerance
    if good.all():
        verdict = Agreement.EQUAL
    else:
        # Judged over all calls: in a single call, the three sets may happen to be close together.
        between = nearest.max() <= max(spread.max(), tolerance)
        verdict = Agreement.BETWEEN if between else Agreement.APART
    top = reference[np.arange(calls), mine.argmax(axis=1)]
    same_top = top >= reference.max(axis=1) - tolerance * scale
    return OutputAgreement(
        index,
        str(ours.dtype),
        calls,
        int(good.sum()),
        int(same_top.sum()),
        float(from_reference.max()),
        float(nearest.max()),
        float(spread.max()),
        verdict,
    )


def _flatten_calls(array: Array) -> Array:
    """One row per call; NaN becomes a huge number so that it never counts as close."""
    wide = array.reshape(len(array), -1).astype(np.float64)
    return np.nan_to_num(wide, nan=1e300, posinf=1e300, neginf=-1e300)


def _max_distance(a: Array, b: Array) -> Array:
    distance: Array = np.abs(a - b).max(axis=1)
    return distance


def _max_spread(sets: Sequence[Array]) -> Array:
    """The largest distance between any two sets, per call."""
    pairs = [_max_distance(a, b) for i, a in enumerate(sets) for b in sets[:i]]
    return np.max(pairs, axis=0) if pairs else np.zeros(len(sets[0]))


def _run_engine(kind: str, model: Path, cases: Cases, inputs: Path, scratch: Path) -> list[Array]:
    path = scratch / f"{kind.replace(':', '-')}.npz"
    with Worker(kind, model) as worker:
        worker.run(inputs, path, cases.steps)
    with np.load(path, allow_pickle=False) as stored:
        return [stored[f"out{i}"] for i in range(len(stored.files))]
