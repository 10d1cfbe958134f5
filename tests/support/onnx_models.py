"""Small ONNX models, built node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgekit.host.compiler.ir.types import Array

_TYPES = {"f32": TensorProto.FLOAT, "s64": TensorProto.INT64, "u8": TensorProto.UINT8}


def value(name: str, shape: Sequence[int | str | None], dtype: Any = "f32") -> Any:
    """`dtype` is one of the names in this module, or a NumPy dtype."""
    kind = _TYPES[dtype] if isinstance(dtype, str) else helper.np_dtype_to_tensor_dtype(dtype)
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[str],
    constants: Mapping[str, Array] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """`outputs` are f32 of unknown shape; nothing is checked."""
    made = [numpy_helper.from_array(v, n) for n, v in (constants or {}).items()]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    graph = helper.make_graph(list(nodes), "g", list(inputs), ends, made)
    opsets = [helper.make_opsetid("", opset)]
    # Engines support a new IR version later than the onnx package writes it, so use an older one.
    return helper.make_model(
        graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets, True)
    )


def save(proto: onnx.ModelProto, folder: Path, name: str = "m.onnx") -> Path:
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path


node = helper.make_node


def recurrent(folder: Path) -> Path:
    """x [1,16], before [1,24] -> after = tanh(both), y [1,4]; the input is the smaller part."""
    rng = np.random.default_rng(6)
    shapes = {"w": (16, 24), "u": (24, 24), "v": (24, 4)}
    constants = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("MatMul", ["before", "u"], ["b"]),
        node("Add", ["a", "b"], ["c"]),
        node("Tanh", ["c"], ["after"]),
        node("MatMul", ["after", "v"], ["y"]),
    ]
    inputs = [value("x", [1, 16]), value("before", [1, 24])]
    return save(model(nodes, inputs, ["y", "after"], constants), folder, "rnn.onnx")
