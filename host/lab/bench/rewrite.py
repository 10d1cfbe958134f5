"""Replaces MediaPipe's custom operator in a model by the equivalent builtin one.

Of LiteRT's kernel sets only XNNPACK implements Convolution2DTransposeBias; with TRANSPOSE_CONV
instead, all of them can run the model and be compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np

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
            _replace(schema, tree, graph, operator)
    for code in tree.operatorCodes:
        if code.customCode == _CUSTOM:
            code.customCode, code.version = None, _VERSION_WITH_BIAS
            code.builtinCode = code.deprecatedBuiltinCode = _TRANSPOSE_CONV
    builder = flatbuffers.Builder(len(content))
    builder.Finish(tree.Pack(builder), _IDENTIFIER)
    rewritten = folder / f"{model.stem}-builtin.tflite"
    rewritten.write_bytes(bytes(builder.Output()))
    return rewritten


def _replace(schema: Any, tree: Any, graph: Any, operator: Any) -> None:
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
