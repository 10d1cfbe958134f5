"""A small decoder as an ONNX file, with caches as inputs and outputs, and its expected logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.options import StateBinding
from tests.support.onnx_models import model, node, value

Array = np.ndarray[Any, Any]

TIES = (StateBinding("position", "next"), StateBinding("past.*", "present.*"))
TOKENS = np.array([3, 1, 4, 1, 5, 9, 2], np.int64)

_WORDS, _HEADS, _SIZE, CONTEXT = 11, 3, 5, 9
_WIDTH = _HEADS * _SIZE


def decoder_model(context_out: int = CONTEXT) -> Any:
    """One attention layer over the keys and values of all previous tokens, indexed by position."""
    rng = np.random.default_rng(0)

    def matrix(*shape: int) -> Array:
        return (rng.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32)

    constants = {f"w{n}": matrix(_WIDTH, _WIDTH) for n in "qkvo"}
    constants |= {"words": 2 * matrix(_WORDS, _WIDTH), "out": matrix(_WIDTH, _WORDS)}
    constants |= {"places": matrix(CONTEXT, _WIDTH), "one": np.array([1], np.int64)}
    constants |= {
        "heads": np.array([_HEADS, 1, _SIZE], np.int64),
        "rows": np.array([_HEADS, _SIZE], np.int64),
        "flat": np.array([1, _WIDTH], np.int64),
        "numbers": np.arange(_HEADS, dtype=np.int64)[:, None],
        "column": np.array([_HEADS, 1], np.int64),
        "steps": np.arange(CONTEXT, dtype=np.int64),
        "none": np.float32(0),
        "far": np.float32(-1e9),
        "axis": np.array([0], np.int64),
        "length": np.array([context_out], np.int64),
        "middle": np.array([1], np.int64),
    }
    nodes = [
        node("Gather", ["words", "token"], ["e"]),
        node("Gather", ["places", "position"], ["p"]),
        node("Add", ["e", "p"], ["x"]),
        *(node("MatMul", ["x", f"w{n}"], [f"{n}1"]) for n in "qkv"),
        node("Reshape", ["q1", "heads"], ["q"]),
        node("Expand", ["position", "column"], ["row"]),
        node("Concat", ["numbers", "row"], ["where"], axis=1),
    ]
    for part, row in (("key", "k1"), ("value", "v1")):
        nodes += [
            node("Reshape", [row, "rows"], [f"{row}r"]),
            node("ScatterND", [f"past.{part}", "where", f"{row}r"], [f"all.{part}"]),
            node("Slice", [f"all.{part}", "axis", "length", "middle"], [f"present.{part}"]),
        ]
    nodes += [
        node("Transpose", ["all.key"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["scores"]),
        node("LessOrEqual", ["steps", "position"], ["seen"]),
        node("Where", ["seen", "none", "far"], ["hidden"]),
        node("Add", ["scores", "hidden"], ["masked"]),
        node("Softmax", ["masked"], ["shares"], axis=-1),
        node("MatMul", ["shares", "all.value"], ["mixed"]),
        node("Reshape", ["mixed", "flat"], ["m"]),
        node("MatMul", ["m", "wo"], ["o"]),
        node("Add", ["x", "o"], ["y"]),
        node("MatMul", ["y", "out"], ["logits"]),
        node("Add", ["position", "one"], ["next"]),
    ]
    caches = [value(f"past.{n}", [_HEADS, CONTEXT, _SIZE]) for n in ("key", "value")]
    inputs = [value("token", [1], "s64"), value("position", [1], "s64"), *caches]
    outputs = ["logits", "next", "present.key", "present.value"]
    return model(nodes, inputs, outputs, constants)


def decoded_by_hand(file: Path, tokens: Array) -> Array:
    """Logits of each token, f32 [tokens, 1, words], feeding cache outputs back as inputs."""
    graph = import_model(file)
    kept = {
        name: np.zeros(graph.tensors[name].shape, graph.tensors[name].dtype.numpy)
        for name in graph.inputs[1:]
    }
    logits = []
    for token in tokens:
        out = evaluate(graph, {"token": np.array([token]), **kept}).outputs
        logits.append(out["logits"])
        kept = {name: out[made] for name, made in zip(kept, graph.outputs[1:], strict=True)}
    return np.array(logits)
