"""ONNX models of one operator with operands and attributes that make no sense."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.host.compiler.frontends.onnx.file import NEWEST_OPSET
from edgekit.host.compiler.frontends.onnx.operators import ROWS

_KINDS = sorted(ROWS)
_OPSETS = (7, 9, 11, 13, 17, 21, min(23, NEWEST_OPSET))
_INTEGERS = (0, 1, -1, 2, 3, 5, -2, 7, 255, 65536, 2**31, -(2**31), 2**40, 2**62, -(2**62))
_EDGES = (*_INTEGERS, 2**63 - 1, -(2**63))
_FLOATS = (0.0, 1.0, -1.0, 0.5, 1e30, -1e38, 1e-38, float("inf"), float("-inf"), float("nan"))
_SIZES = (1, 2, 3, 4, 5, 1, 2, 3, 0)
_TYPES = (
    np.float32, np.float32, np.float32, np.int64, np.int64, np.int32, np.uint8, np.int8, np.bool_,
    np.float16, np.float64, np.int16, np.uint16,
)  # fmt: skip
_TEXTS = ("", "SAME_UPPER", "VALID", "linear", "cubic", "constant", "ij,jk->ik", "max", "\x00", "é")


def drawn(rng: random.Random) -> bytes:
    """Any operator in any opset; each operand is randomly an input or a constant."""
    kind, opset = rng.choice(_KINDS), rng.choice(_OPSETS)
    count = rng.choice((0, 1, 1, 2, 2, 3, 3, 4, 6))
    rank = rng.choice((0, 1, 2, 3, 4, 4, 5))
    inputs, constants, names = [], [], []
    shape: tuple[int, ...] = tuple(rng.choice(_SIZES) for _ in range(rank))
    dtype = rng.choice(_TYPES)
    for i in range(count):
        if rng.random() < 0.5:  # otherwise like the previous one, as operands usually are
            shape = tuple(rng.choice(_SIZES) for _ in range(rng.choice((0, 1, 1, 2, 3, 4, 5))))
            dtype = rng.choice(_TYPES)
        name = f"x{i}"
        if rng.random() < 0.08:
            name = ""
        elif rng.random() < 0.5:
            constants.append(numpy_helper.from_array(_value(rng, shape, dtype), name))
        else:
            number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            inputs.append(helper.make_tensor_value_info(name, number, shape))
        names.append(name)
    outs = [f"y{i}" for i in range(rng.choice((1, 1, 1, 2, 3)))]
    node = helper.make_node(kind, names, outs)
    node.attribute.extend(_attributes(rng, kind, opset))
    ends = [helper.make_tensor_value_info(n, 1, None) for n in outs]
    graph = helper.make_graph([node], "g", inputs, ends, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return bytes(made.SerializeToString())


def _value(rng: random.Random, shape: Sequence[int], dtype: Any) -> Any:
    size = int(np.prod(shape))
    kind = np.dtype(dtype).kind
    if kind == "f":
        values = [rng.choice(_FLOATS) if rng.random() < 0.3 else rng.uniform(-2, 2)
                  for _ in range(size)]  # fmt: skip
    else:
        edges = rng.random() < 0.3
        values = [
            rng.choice(_EDGES) if edges else rng.choice((0, 1, 2, 3, -1)) for _ in range(size)
        ]
    with np.errstate(all="ignore"):
        array = np.array(values, np.float64 if kind == "f" else np.int64)
        return array.astype(dtype).reshape(shape)


def _attributes(rng: random.Random, kind: str, opset: int) -> list[Any]:
    try:
        known = onnx.defs.get_schema(kind, opset).attributes
    except onnx.defs.SchemaError:
        return []
    found = []
    for name, schema in known.items():
        if rng.random() < (0.1 if not schema.required else 0.9):
            made = _attribute(rng, name, schema.type.name if rng.random() < 0.95 else "FLOAT")
            found += [made] if made is not None else []
    return found


def _attribute(rng: random.Random, name: str, kind: str) -> Any:
    count = rng.choice((0, 1, 2, 2, 2, 3, 4, 4, 8))
    made: Any = {
        "INT": _integer(rng),
        "INTS": [_integer(rng) for _ in range(count)],
        "FLOAT": float(np.float32(rng.choice(_FLOATS))),
        "FLOATS": [float(np.float32(rng.choice(_FLOATS))) for _ in range(count)],
        "STRING": rng.choice(_TEXTS),
        "STRINGS": [rng.choice(_TEXTS) for _ in range(count)],
    }.get(kind)
    if made is None:
        return None
    kinds = onnx.AttributeProto.AttributeType
    return helper.make_attribute(name, made, attr_type=kinds.Value(kind))


def _integer(rng: random.Random) -> int:
    return rng.choice(_EDGES) if rng.random() < 0.4 else rng.choice((0, 1, 2, 3, -1))
