"""Files with one TensorFlow Lite operator, built from the values of its operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.evaluate import evaluate

TYPES = {
    "float32": "FLOAT32", "float16": "FLOAT16", "float64": "FLOAT64", "int8": "INT8",
    "uint8": "UINT8", "int16": "INT16", "int32": "INT32", "int64": "INT64", "bool": "BOOL",
    "uint32": "UINT32", "uint64": "UINT64", "complex64": "COMPLEX64",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Operand:
    """A value and its scale in the file. `constant`: stored in the file, not an input; `variable`:
    neither."""

    value: Any
    constant: bool = False
    scale: Sequence[float] = ()
    zero: Sequence[int] = ()
    axis: int = 0
    variable: bool = False


def given(value: Any, scale: float = 0.0, zero: int = 0) -> Operand:
    return Operand(np.asarray(value), False, [scale] if scale else (), [zero] if scale else ())


def variable(
    shape: Sequence[int], kind: str = "float32", scale: float = 0.0, zero: int = 0
) -> Operand:
    scales = [scale] if scale else []
    return Operand(np.zeros(shape, kind), scale=scales, zero=[zero] * len(scales), variable=True)


def fixed(
    value: Any, scale: float | Sequence[float] = (), zero: Sequence[int] = (), axis: int = 0
) -> Operand:
    scales = [scale] if isinstance(scale, float) else list(scale)
    return Operand(np.asarray(value), True, scales, list(zero) or [0] * len(scales), axis)


@dataclass(frozen=True, eq=False)
class Single:
    """`ins`: operands, None for omitted ones; `outs`: like the results, with free shapes.

    `fast`: LiteRT has no reference kernel for this operator.
    """

    code: str
    ins: Sequence[Operand | None]
    outs: Sequence[Operand]
    options: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    custom: bytes = b""
    fast: bool = False
    between: Sequence[Operand] = ()  # intermediate tensors

    def content(self, files: Any, called: Sequence[Any] = ()) -> bytes:
        """`called`: subgraphs after the main one."""
        tensors, names = [], []
        for i, operand in enumerate(self.ins):
            names.append(-1 if operand is None else f"x{i}")
            if operand is not None:
                data = operand.value if operand.constant else None
                tensors.append(_tensor(files, f"x{i}", operand, data))
        outs = [f"y{i}" for i in range(len(self.outs))]
        tensors += [_tensor(files, n, o, None) for n, o in zip(outs, self.outs, strict=True)]
        between = [f"z{i}" for i in range(len(self.between))]
        tensors += [_tensor(files, n, o, None) for n, o in zip(between, self.between, strict=True)]
        op = files.op(self.code, names, outs, self.options, self.fields, self.custom, between)
        return bytes(files.model(files.graph(tensors, [op], list(self.inputs()), outs), *called))

    def inputs(self) -> dict[str, Any]:
        return {
            f"x{i}": o.value
            for i, o in enumerate(self.ins)
            if o is not None and not o.constant and not o.variable
        }


def _tensor(files: Any, name: str, operand: Operand, data: Any) -> Any:
    value = operand.value
    return files.tensor(
        name,
        value.shape,
        TYPES[value.dtype.name],
        data,
        operand.scale,
        operand.zero,
        operand.axis,
        variable=operand.variable,
    )


def check(files: Any, litert: Any, single: Single, near: float = 1e-5) -> None:
    """Compare the reference with LiteRT: integers equal, floats within `near` of the largest."""
    content, inputs = single.content(files), single.inputs()
    expected = litert(content, inputs, single.fast)
    found = evaluate(graph_from_tflite(content, "case"), inputs).outputs
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].shape == value.shape
        assert found[name].dtype == value.dtype
        if value.dtype.kind == "f":
            limit = near * max(np.abs(value).max(), 1e-9)
            np.testing.assert_allclose(found[name], value, rtol=0, atol=limit)
        else:
            np.testing.assert_array_equal(found[name], value)
