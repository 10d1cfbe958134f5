"""The tests' .tflite files of one operator, and their operators with their dtypes."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from edgekit.host.compiler.frontends.tflite.schema import FileOperator, FileSubgraph, read_model

_NAMES = {
    "FLOAT16": "f16", "FLOAT32": "f32", "INT2": "s2", "INT4": "s4", "UINT4": "u4",
    "INT8": "s8", "UINT8": "u8", "INT16": "s16",
    "INT32": "s32", "INT64": "s64", "BOOL": "bool", "COMPLEX64": "c64", "UINT32": "u32",
    "UINT64": "u64",
}  # fmt: skip
# Operators whose result dtype is independent; report the dtype of their first operand.
_BY_OPERAND = {
    "ARG_MAX", "ARG_MIN", "BUCKETIZE", "CAST", "COMPLEX_ABS", "CUSTOM:TFLite_Detection_PostProcess",
    "DEQUANTIZE", "EQUAL", "GREATER", "GREATER_EQUAL", "IMAG", "LESS", "LESS_EQUAL",
    "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5", "NOT_EQUAL", "RANK", "REAL", "RFFT2D",
    "SHAPE", "WHERE",
}  # fmt: skip
_BY_SECOND = {"STABLEHLO_RNG_BIT_GENERATOR"}  # report the dtype of their second result
# Operators with weights: quantized weights under f32 activations count as "f32 (s8)".
_WEIGHTED = {
    "BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "EMBEDDING_LOOKUP", "FULLY_CONNECTED", "SVDF",
    "TRANSPOSE_CONV", "UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN",
}  # fmt: skip
_CODES = {"INT2": "s2", "INT4": "s4", "INT8": "s8"}


# The tests test_litert_*.py that have a table of operators.
TABLES = (
    "blocks",
    "bounded",
    "boxes",
    "quantized_recurrent",
    "fourier",
    "index",
    "micro",
    "moves",
    "operators",
    "packed",
    "recurrent",
    "scales",
    "stablehlo",
    "stablehlo_index",
    "types",
    "wide",
)


def contents(table: str, files: Any) -> list[bytes]:
    """The files of a table, each with one operator that LiteRT runs."""
    module = importlib.import_module(f"tests.compiler.frontends.test_litert_{table}")
    found: list[bytes] = module.contents(files)
    return found


def pairs(models: Iterable[bytes]) -> set[tuple[str, str]]:
    found = set()
    for content in models:
        graph = read_model(content).subgraphs[0]
        found |= {(operator.name, _type(graph, operator)) for operator in graph.operators}
    return found


def _type(graph: FileSubgraph, operator: FileOperator) -> str:
    places = operator.inputs if operator.name in _BY_OPERAND else operator.outputs
    name = _NAMES[graph.tensors[places[operator.name in _BY_SECOND]].type]
    types = [graph.tensors[i].type for i in operator.inputs if i >= 0]
    if operator.name in _WEIGHTED and name == "f32":
        return next((f"f32 ({k})" for t, k in _CODES.items() if t in types), name)
    return name
