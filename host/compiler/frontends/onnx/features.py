"""Import of ai.onnx.ml's operators on features, and of labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgekit.host.compiler.frontends.common import indexing
from edgekit.host.compiler.frontends.common.emitter import need_axes
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.scores import rows_of
from edgekit.host.compiler.frontends.onnx.trees import numbers_of
from edgekit.host.compiler.frontends.onnx.types import Texts
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, ShapeError, Tensor

_DENSE = 1 << 16  # integers between the keys of a table
_KINDS = {"int64s": np.int64, "floats": np.float32}
_DEFAULTS = {"strings": "_Unused", "int64s": -1, "floats": -0.0}


def scaler(call: OnnxCall) -> Tensor:
    """(x - offset) · scale."""
    x = call.convert(call.x(0), DType.F32)
    need_axes(x, 1)
    for name in ("offset", "scale"):
        values = np.array(call.floats(name), np.float32)
        if values.size not in (0, 1, *x.shape[-1:]):
            raise ShapeError(f"expected {name} of 1 or {x.shape[-1]} values, found {values.size}")
        if values.size and name == "offset":
            x = call.emit(ops.Add(), x, call.constant(-values))  # one form for passes to match
        elif values.size:
            x = call.emit(ops.Mul(), x, call.constant(values))
    return x


def normalizer(call: OnnxCall) -> Tensor:
    """Each row divided by its maximum, sum of magnitudes or length, unless that is 0."""
    x, norm = call.convert(call.x(0), DType.F32), call.text("norm", "MAX")
    need_axes(x, 1)
    last = (len(x.shape) - 1,)
    if norm == "MAX":
        size = call.emit(ops.ReduceMax(last, True), x)
    elif norm == "L1":
        size = call.emit(ops.ReduceSum(last, True), call.emit(ops.Abs(), x))
    elif norm == "L2":
        square = call.emit(ops.ReduceSum(last, True), call.emit(ops.Mul(), x, x))
        size = call.emit(ops.Sqrt(), square)
    else:
        raise ShapeError(f"expected norm MAX, L1 or L2, found {norm:.40}")
    zero = call.emit(ops.Equal(), size, call.builder.floats(0.0))
    return call.emit(ops.Div(), x, call.emit(ops.Where(), zero, call.builder.floats(1.0), size))


def binarizer(call: OnnxCall) -> Tensor:
    x = call.x(0)
    limit = call.builder.floats(call.number("threshold", 0.0))
    above = call.emit(ops.Less(), limit, call.convert(x, DType.F32))
    return call.convert(above, x.dtype)


def imputer(call: OnnxCall) -> Tensor:
    """Replaces a value, which may be NaN, by a constant of its feature."""
    x = call.x(0)
    need_axes(x, 1)
    kind = "int64s" if x.dtype in (DType.I32, DType.I64) else "floats"
    values = numbers_of(call, f"imputed_value_{kind}", np.dtype(_KINDS[kind]))
    old = call.attributes.get(f"replaced_value_{kind[:-1]}", 0)
    if values.size not in (1, *x.shape[-1:]) or not isinstance(old, int | float):
        raise ShapeError(
            f"expected values to impute for {x.shape[-1]} features, found {values.size}"
        )
    if old != old:
        replaced = call.emit(ops.Not(), call.emit(ops.Equal(), x, x))
    else:
        replaced = call.emit(ops.Equal(), x, call.scalar(old, x))
    return call.emit(ops.Where(), replaced, call.constant(values.astype(x.dtype.numpy)), x)


def array_feature_extractor(call: OnnxCall) -> Tensor | Texts:
    """Columns of x by number. Strings keep their vocabulary."""
    texts = call.strings(0)
    x = texts.places if texts is not None else call.x(0)
    need_axes(x, 1)
    numbers = call.reshape(call.x(1), (call.x(1).elements,))
    x = call.reshape(x, (1, *x.shape)) if len(x.shape) == 1 else x
    y = indexing.gather(call, x, numbers, len(x.shape) - 1)
    return y if texts is None else Texts(y, texts.vocabulary)


def feature_vectorizer(call: OnnxCall) -> Tensor:
    """All inputs side by side, each cut or filled to its number of columns."""
    sizes, parts = call.list("inputdimensions"), []
    if len(sizes) != len(call.values) or min(sizes, default=0) < 1:
        raise ShapeError(f"expected inputdimensions of {len(call.values)} inputs, found {sizes}")
    for index, size in enumerate(sizes):
        x = call.convert(call.x(index), DType.F32)
        rows = 1 if len(x.shape) < 2 else x.shape[0]
        x = call.reshape(x, (rows, x.elements // max(rows, 1)))
        x = call.part(x, 1, 0, size) if x.shape[1] > size else x
        if x.shape[1] < size:
            x = call.emit(ops.Pad((0, 0), (0, size - x.shape[1])), x)
        parts.append(x)
    return call.emit(ops.Concat(1), *parts) if len(parts) > 1 else parts[0]


def zip_map(call: OnnxCall) -> Tensor:
    """The map of each row as a row of its values, in the order of the labels."""
    return rows_of(call)


def one_hot_encoder(call: OnnxCall) -> Tensor:
    """Unknown categories give zeros."""
    texts = call.strings(0)
    if texts is not None:
        names = call.texts("cats_strings")
        table = np.array([[v == name for name in names] for v in texts.vocabulary], np.float32)
        return call.emit(ops.Gather(0), call.constant(table), texts.places)
    categories = numbers_of(call, "cats_int64s", np.dtype(np.int64))
    if len(np.unique(categories)) != len(categories):
        raise ShapeError("expected different integers as cats_int64s, found one twice")
    if not len(categories):
        raise ShapeError("expected numbers as categories, found strings; encode them before")
    x = call.convert(call.x(0), DType.I64)
    numbers = call.constant(categories)
    same = call.emit(ops.Equal(), call.reshape(x, (*x.shape, 1)), numbers)
    return call.convert(same, DType.F32)


def label_encoder(call: OnnxCall) -> Tensor | Texts:
    """Looks keys up in a table; of equal keys in the table, the first counts."""
    keys, values, default = _table(call)
    found = call.strings(0)
    if found is not None:
        places = {key: i for i, key in reversed(list(enumerate(keys)))}
        picked = [values[places[v]] if v in places else default for v in found.vocabulary]
        return _picked(call, found.places, picked)
    x = call.x(0)
    numbers = np.asarray(keys)
    if numbers.dtype.kind not in "iuf":
        raise ShapeError("expected strings that follow from numbers, found an input of strings")
    return _picked(call, _place_of(call, x, numbers), [*values, default])


def _table(call: OnnxCall) -> tuple[Sequence[Any], Sequence[Any], Any]:
    """Keys, values and the value of all other keys."""
    for name in ("classes_strings", "cats_strings"):  # LabelEncoder of opset 1, CategoryMapper
        if call.has(name):
            names = call.texts(name)
            numbers = call.attributes.get("cats_int64s", tuple(range(len(names))))
            if len(names) != len(numbers):
                raise ShapeError(f"expected {len(names)} cats_int64s, found {len(numbers)}")
            if call.strings(0) is not None:
                return names, numbers, call.integer("default_int64", -1)
            return numbers, names, call.text("default_string", "_Unused")
    keys, _ = _listed(call, "keys")
    values, kind = _listed(call, "values")
    if len(keys) != len(values) or not len(keys):
        raise ShapeError(f"expected as many keys as values, found {len(keys)} and {len(values)}")
    default = call.attributes.get(f"default_{kind[:-1]}", _DEFAULTS[kind])
    tensor = call.attributes.get("default_tensor")
    if isinstance(tensor, np.ndarray) and tensor.size:
        default = tensor.reshape(-1)[0].item() if tensor.dtype.kind != "O" else tensor.flat[0]
    wanted = {"strings": str, "int64s": int, "floats": int | float}[kind]
    if not isinstance(default, wanted):
        raise ShapeError(f"expected a default like the values, found {default!r:.40}")
    return keys, values, default


def _listed(call: OnnxCall, what: str) -> tuple[Any, str]:
    """The keys or values, and the name of their kind."""
    tensor = call.attributes.get(f"{what}_tensor")
    if isinstance(tensor, np.ndarray):
        kind = {"O": "strings", "i": "int64s"}.get(tensor.dtype.kind, "floats")
        return tensor.reshape(-1), kind
    if call.has(f"{what}_strings"):
        return np.array(call.texts(f"{what}_strings"), object), "strings"
    for kind in ("int64s", "floats"):
        if call.has(f"{what}_{kind}"):
            return numbers_of(call, f"{what}_{kind}", np.dtype(_KINDS[kind])), kind
    raise ShapeError(f"expected {what} of strings, integers or floats, found none")


def _place_of(call: OnnxCall, x: Tensor, keys: Array) -> Tensor:
    """The place of each number among the keys, or their count; s64 of x's shape."""
    count = len(keys)
    if x.dtype in (DType.I16, DType.I32, DType.I64) and keys.dtype.kind in "iu":
        low, high = int(keys.min()), int(keys.max())
        if high - low < _DENSE:
            table = np.full(high - low + 3, count, np.int64)  # an end on each side
            table[keys[::-1] - (low - 1)] = np.arange(count)[::-1]
            wide = call.convert(x, DType.I64)
            inside = call.emit(ops.Maximum(), wide, call.scalar(low - 1, wide))
            inside = call.emit(ops.Minimum(), inside, call.scalar(high + 1, wide))
            at = call.emit(ops.Sub(), inside, call.scalar(low - 1, wide))
            return call.emit(ops.Gather(0), call.constant(table), at)
    column = call.reshape(x, (*x.shape, 1))
    same = call.emit(ops.Equal(), column, call.constant(keys.astype(x.dtype.numpy)))
    if keys.dtype.kind == "f" and np.any(np.isnan(keys)):
        missing = call.emit(ops.Not(), call.emit(ops.Equal(), column, column))
        both = call.emit(ops.And(), missing, call.constant(np.isnan(keys)))
        same = call.emit(ops.Or(), same, both)
    last = len(x.shape)
    number = call.convert(same, DType.I32)
    at = call.reshape(call.emit(ops.ArgExtreme(last), number), x.shape)
    found = call.emit(ops.ReduceMax((last,), False), number)
    known = call.emit(ops.Less(), call.scalar(0, found), found)
    return call.emit(ops.Where(), known, at, call.scalar(count, at))


def _picked(call: OnnxCall, places: Tensor, values: Sequence[Any]) -> Tensor | Texts:
    """values[places]; numbers have the type of the first one, which comes from the file."""
    dtype = np.asarray(values[0]).dtype
    if isinstance(values[0], str):
        vocabulary = tuple(dict.fromkeys(values))
        numbers = np.array([vocabulary.index(v) for v in values], np.int64)
        same = np.array_equal(numbers, np.arange(len(numbers)))
        if not same:
            places = call.emit(ops.Gather(0), call.constant(numbers), places)
        return Texts(places, vocabulary)
    return call.emit(ops.Gather(0), call.constant(np.array(values, dtype)), places)
