"""Element-wise operators, reductions and image operators in every type, against LiteRT's kernels.

Quantized operators are tested on all 8-bit values and must be bit-exact, except for three 16-bit
ones. Where `fast` is set, LiteRT has no reference kernel, or (s8 sums) one that reads uninitialized
memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.evaluate import evaluate

pytestmark = pytest.mark.peers

_NUMPY = {
    "FLOAT32": np.float32, "INT8": np.int8, "UINT8": np.uint8, "INT16": np.int16,
    "INT32": np.int32, "INT64": np.int64, "BOOL": np.bool_,
}  # fmt: skip
_QUANTIZED = ("INT8", "UINT8", "INT16")
_8BIT = ("INT8", "UINT8")
_PLAIN = ("FLOAT32", "INT32", "INT64")
_EVERY = (*_PLAIN, *_QUANTIZED)


@dataclass(frozen=True)
class Row:
    """An operator with inputs of `shapes`, followed by constant axes or sizes.

    `scale`: the output's, if the operator prescribes one; `zero`: the zero point of the input;
    `same`: the output has the input's scale; `plain`: no tensor has a scale.
    """

    code: str
    types: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...] = ((32, 8),)
    out: tuple[int, ...] | None = None
    options: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    constant: Any = None
    out_type: str | None = None
    scale: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    zero: int | None = None
    same: bool = False
    plain: bool = False
    fast: bool = False
    name: str = ""
    scales: tuple[float, float] = (0.01, 0.1)
    above: float | None = None  # lower bound of f32 inputs


_PAIR = ((16, 16), (16, 16))
_SPREAD = ((4, 3, 5), (3, 1))
_THIRD = {"INT8": (1 / 256, -128), "UINT8": (1 / 256, 0), "INT16": (1 / 32768, 0)}
_UNIT = {"INT8": (1 / 128, 0), "UINT8": (1 / 128, 128), "INT16": (1 / 32768, 0)}
_LOGARITHM = {"INT8": (16 / 256, 127), "UINT8": (16 / 256, 255)}
_CUBE = ((2, 7, 6, 5),)


def _reduction(code: str, types, axes, out, keep=True, **more) -> Row:
    fields = {"KeepDims": keep}
    return Row(
        code, types, _CUBE, out, "ReducerOptions", fields, np.array(axes, np.int32),
        name=f"{code}{axes}", **more,
    )  # fmt: skip


def _image(code: str, types, size, align=False, half=False) -> Row:
    options = {"RESIZE_BILINEAR": "ResizeBilinearOptions"}
    return Row(
        code, types, ((2, 7, 6, 3),), (2, *size, 3),
        options.get(code, "ResizeNearestNeighborOptions"),
        {"AlignCorners": align, "HalfPixelCenters": half}, np.array(size, np.int32),
        same=True, name=f"{code}{size}{align}{half}",
    )  # fmt: skip


def _pool(code: str, types) -> Row:
    fields = {"Padding": 0, "StrideH": 2, "StrideW": 1, "FilterHeight": 3, "FilterWidth": 2}
    return Row(code, types, _CUBE, (2, 4, 6, 5), "Pool2DOptions", fields, same=True)


ROWS = [
    Row("ABS", ("FLOAT32", "INT8", "INT16", "INT32")),
    Row("BITCAST", ("FLOAT32",), options="BitcastOptions", out_type="INT32"),
    Row("BITCAST", ("INT32",), options="BitcastOptions", out_type="FLOAT32", name="back"),
    Row("CEIL", ("FLOAT32",), fast=True),
    Row("COS", ("FLOAT32",)),
    Row("ELU", ("FLOAT32", "INT8"), fast=True),
    Row("EXP", ("FLOAT32", "INT8", "INT16")),
    Row("FLOOR", ("FLOAT32",)),
    Row("GELU", ("FLOAT32", *_QUANTIZED), options="GeluOptions"),
    Row("GELU", ("FLOAT32", *_8BIT), options="GeluOptions", fields={"Approximate": True},
        name="tanh"),
    Row("HARD_SWISH", ("FLOAT32", *_8BIT)),
    Row("LEAKY_RELU", ("FLOAT32", *_QUANTIZED), options="LeakyReluOptions", fields={"Alpha": 0.23}),
    Row("LOG", ("FLOAT32", "INT8", "INT16"), above=0.01),
    Row("LOG", ("INT16",)),
    Row("LOGICAL_NOT", ("BOOL",)),
    Row("LOGISTIC", ("FLOAT32", *_QUANTIZED), scale=_THIRD),
    Row("NEG", ("FLOAT32", "INT8", "INT16", "INT32", "INT64")),
    Row("RELU", ("FLOAT32", *_QUANTIZED)),
    Row("RELU6", ("FLOAT32", *_QUANTIZED)),
    Row("RELU_0_TO_1", ("FLOAT32", *_8BIT)),
    Row("RELU_N1_TO_1", ("FLOAT32", *_8BIT)),
    Row("ROUND", ("FLOAT32",), fast=True),
    Row("RSQRT", ("FLOAT32", "INT8"), zero=-128, above=0.01),
    Row("SIGN", ("FLOAT32", "INT32")),
    Row("SIN", ("FLOAT32",)),
    Row("SQRT", ("FLOAT32", "INT8"), zero=-128, above=0.01),
    Row("SQUARE", ("FLOAT32",)),
    Row("TANH", ("FLOAT32", *_QUANTIZED), scale=_UNIT),
    Row("ZEROS_LIKE", _PLAIN),
    Row("L2_NORMALIZATION", ("FLOAT32", *_8BIT), options="L2NormOptions", scale=_UNIT),
    Row("LOG_SOFTMAX", ("FLOAT32", *_8BIT), scale=_LOGARITHM),
    Row("ADD", _EVERY, _PAIR, options="AddOptions"),
    Row("SUB", _EVERY, _PAIR, options="SubOptions"),
    Row("SUB", _EVERY, _SPREAD, options="SubOptions", name="broadcast"),
    Row("SUB", ("FLOAT32", *_8BIT), _PAIR, options="SubOptions",
        fields={"FusedActivationFunction": 1}, name="relu"),
    Row("MUL", _EVERY, _PAIR, options="MulOptions"),
    Row("DIV", ("FLOAT32", "INT32"), _PAIR, options="DivOptions"),
    Row("MAXIMUM", _EVERY, _SPREAD, same=True),
    Row("MINIMUM", _EVERY, _PAIR, same=True),
    Row("SQUARED_DIFFERENCE", ("FLOAT32", "INT8", "INT32"), _PAIR),
    Row("PRELU", ("FLOAT32", *_8BIT), ((2, 3, 5, 7), (1, 1, 7))),
    Row("POW", ("FLOAT32", "INT32"), _PAIR, above=0.1),
    Row("ATAN2", ("FLOAT32",), _PAIR),
    *(Row(f"STABLEHLO_{code}", (*_PLAIN, *_QUANTIZED), _PAIR, plain=True)
      for code in ("MAXIMUM", "MINIMUM")),
    *(Row(f"STABLEHLO_{code}", _PLAIN, _PAIR) for code in ("ADD", "MULTIPLY")),
    Row("STABLEHLO_SHIFT_LEFT", ("INT8", "INT16", "INT32"), _PAIR, plain=True,
        fast=True),
    Row("FLOOR_DIV", ("FLOAT32", "INT32"), _PAIR),
    Row("FLOOR_DIV", ("INT16",), _PAIR, plain=True),
    Row("FLOOR_MOD", ("FLOAT32", "INT32", "INT64"), _PAIR),
    Row("FLOOR_MOD", ("INT16",), _PAIR, plain=True),
    Row("BITWISE_XOR", (*_QUANTIZED, "INT32"), _PAIR, plain=True),
    Row("RIGHT_SHIFT", (*_QUANTIZED, "INT32"), _PAIR, plain=True),
    Row("LOGICAL_AND", ("BOOL",), _SPREAD),
    Row("LOGICAL_OR", ("BOOL",), _PAIR),
    *(
        Row(code, types, shapes, out_type="BOOL", name=f"{len(shapes[0])}")
        for shapes in (_PAIR, _SPREAD)
        for code, types in (
            ("EQUAL", (*_EVERY, "BOOL")), ("NOT_EQUAL", (*_EVERY, "BOOL")), ("LESS", _EVERY),
            ("LESS_EQUAL", _EVERY), ("GREATER", _EVERY), ("GREATER_EQUAL", _EVERY),
        )
    ),
    *(_reduction("MEAN", ("FLOAT32", *_QUANTIZED, "INT32", "INT64"), axes, out)
      for axes, out in (((1, 2), (2, 1, 1, 5)), ((0, 2), (1, 7, 1, 5)), ((3,), (2, 7, 6, 1)))),
    *(_reduction("SUM", (*_PLAIN, "UINT8"), axes, out, scales=(0.2, 2.0))
      for axes, out in (((1, 2), (2, 1, 1, 5)), ((0, 2), (1, 7, 1, 5)))),
    _reduction("SUM", ("INT8", "INT16"), (0, 2), (7, 5), False, scales=(0.2, 2.0), fast=True),
    _reduction("REDUCE_MAX", (*_EVERY, "BOOL"), (0, 2), (7, 5), False, same=True),
    _reduction("REDUCE_MIN", (*_EVERY, "BOOL"), (1, 2), (2, 1, 1, 5), same=True),
    _reduction("REDUCE_ANY", ("BOOL",), (0, 2), (7, 5), False),
    _reduction("REDUCE_ALL", ("BOOL",), (3,), (2, 7, 6, 1)),
    _reduction("REDUCE_PROD", (*_PLAIN, "INT8", "INT16"), (2,), (2, 7, 1, 5)),
    _reduction("REDUCE_PROD", ("INT8", "INT16"), (0, 3), (1, 7, 6, 1)),
    _reduction("REDUCE_PROD", ("INT8",), (1, 2), (2, 5), False, scales=(0.08, 0.4)),
    *(Row(code, ("FLOAT32", *_8BIT, "INT32", "BOOL"), _CUBE, (2, 7, 5), options,
          {"OutputType": 2}, np.int32(2), "INT32")
      for code, options in (("ARG_MAX", "ArgMaxOptions"), ("ARG_MIN", "ArgMinOptions"))),
    Row("CUMSUM", _PLAIN, _CUBE, None, "CumsumOptions", {"Exclusive": True},
        np.int32(2)),
    _pool("AVERAGE_POOL_2D", ("FLOAT32", *_QUANTIZED)),
    _pool("MAX_POOL_2D", ("FLOAT32", *_QUANTIZED)),
    _pool("L2_POOL_2D", ("FLOAT32",)),
    *(_image(code, ("FLOAT32", *_QUANTIZED), size, *mode)
      for code in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
      for size, mode in (((5, 11), ()), ((14, 4), (False, True)), ((9, 13), (True,)))),
    Row("LOCAL_RESPONSE_NORMALIZATION", ("FLOAT32",), _CUBE, None,
        "LocalResponseNormalizationOptions", {"Radius": 2, "Alpha": 0.3, "Beta": 0.6, "Bias": 1.5},
        fast=True),
    *(Row("MIRROR_PAD", (*_EVERY, "BOOL"), ((3, 4),), (6, 9), "MirrorPadOptions",
          {"Mode": mode}, np.array([[1, 2], [3, 2]], np.int32), same=True, name=str(mode))
      for mode in (0, 1)),
    Row("PAD", (*_EVERY, "BOOL"), ((3, 4),), (6, 6), "PadOptions", {},
        np.array([[1, 2], [0, 2]], np.int32), same=True),
]  # fmt: skip


def _cases() -> list[Any]:
    found = []
    for row in ROWS:
        name = "-".join(filter(None, (row.code, row.name)))
        found += [pytest.param(row, t, id=f"{name}-{t}") for t in row.types]
    return found


def _file(files, row: Row, kind: str, rng) -> bytes:
    """A model of one operator with random scales."""
    tensors, inputs, first = [], [], None

    def drawn() -> tuple[tuple[float], tuple[int]]:
        info = np.iinfo(_NUMPY[kind])
        scale = rng.uniform(*row.scales) * 255 / (info.max - info.min)
        zero = 0 if kind == "INT16" else int(rng.integers(info.min, info.max))
        return (float(np.float32(scale)),), (zero if row.zero is None else row.zero,)

    for i, shape in enumerate(row.shapes):
        scale, zero = drawn() if kind in _QUANTIZED and not row.plain else ((), ())
        if row.same and first is not None:
            scale, zero = first
        first = first or (scale, zero)
        tensors.append(files.tensor(f"x{i}", shape, kind, None, scale, zero))
        inputs.append(f"x{i}")
    if row.constant is not None:
        value = np.asarray(row.constant)
        tensors.append(files.tensor("c", value.shape, "INT32", value))
    out = row.out or np.broadcast_shapes(*row.shapes)
    scale, zero = ((), ())
    if kind in _QUANTIZED and row.out_type is None and not row.plain:
        scale, zero = first if row.same else drawn()
        if kind in row.scale:
            scale, zero = ((v,) for v in row.scale[kind])
        elif row.zero is not None:
            zero = (int(rng.integers(-100, 100)),)
    tensors.append(files.tensor("y", out, row.out_type or kind, None, scale, zero))
    names = inputs + (["c"] if row.constant is not None else [])
    op = files.op(row.code, names, ["y"], row.options, dict(row.fields))
    return files.model(files.graph(tensors, [op], inputs, ["y"]))


def _inputs(row: Row, kind: str, rng) -> dict[str, Any]:
    """All values for a single 8-bit operand, otherwise random ones; integer divisors are
    nonzero."""
    values = {}
    for i, shape in enumerate(row.shapes):
        info = np.iinfo(_NUMPY[kind]) if kind not in ("FLOAT32", "BOOL") else None
        if kind == "FLOAT32":
            drawn = rng.normal(0, 3, shape)
            drawn = drawn if row.above is None else np.abs(drawn) + row.above
        elif kind == "BOOL":
            drawn = rng.integers(0, 2, shape)
        elif kind in _8BIT and int(np.prod(shape)) == 256 and not row.plain:
            drawn = rng.permutation(256).reshape(shape) + info.min
        elif kind in _QUANTIZED and not row.plain:
            drawn = rng.integers(info.min, info.max + 1, shape)
        else:
            drawn = rng.integers(1, 20, shape) * rng.choice([-1, 1], shape)
            if row.code in ("RIGHT_SHIFT", "POW", "STABLEHLO_SHIFT_LEFT") and i == 1:
                drawn = np.abs(drawn)
            if row.code in ("POW", "STABLEHLO_SHIFT_LEFT"):
                drawn = drawn % 7  # overflow results depend on the processor
        values[f"x{i}"] = np.asarray(drawn).astype(_NUMPY[kind])
    return values


def contents(files) -> list[bytes]:
    rng = np.random.default_rng(0)
    return [_file(files, row, kind, rng) for row in ROWS for kind in row.types]


@pytest.mark.slow
@pytest.mark.parametrize(("row", "kind"), _cases())
def test_types_agree_with_litert(files, litert, row, kind):
    rng = np.random.default_rng(len(row.code))
    for _ in range(3):
        content = _file(files, row, kind, rng)
        inputs = _inputs(row, kind, rng)
        expected = litert(content, inputs, row.fast)["y"]
        found = evaluate(graph_from_tflite(content, "case"), inputs).outputs["y"]
        assert found.shape == expected.shape and found.dtype == expected.dtype
        if expected.dtype == np.float32:
            limit = 2e-5 * max(np.abs(expected[np.isfinite(expected)]).max(), 1)
            np.testing.assert_allclose(found, expected, rtol=0, atol=limit)
        else:
            np.testing.assert_array_equal(found, expected)
