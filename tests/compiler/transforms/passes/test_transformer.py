"""Layer normalization and GELU as exporters write them: one operator each; near-matches stay."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.driver import compile_artifact, prepare
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import DType, Graph
from edgekit.host.compiler.transforms.passes.normalize import fuse_layer_norm
from edgekit.kb.targets.board import load_board
from tests.support.large_networks import Builder
from tests.support.onnx_models import model, node, save, value

_SHAPE, _WIDTH = [2, 7, 48], 48
_RNG = np.random.default_rng(11)
_FACTOR, _SHIFT = (_RNG.standard_normal(_WIDTH).astype(np.float32) for _ in range(2))


def _f32(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values if len(values) > 1 else values[0], np.float32)


_CONSTANTS = {
    "two": _f32(2), "half": _f32(0.5), "one": _f32(1), "eps": _f32(1e-5),
    "root2": _f32(math.sqrt(2)), "g": _FACTOR, "b": _SHIFT,
}  # fmt: skip


def _norm_chain(x: str, to: str, square: str = "Pow", axes: tuple[int, ...] = (-1,)) -> list[Any]:
    """LayerNorm as PyTorch's exporter writes it before opset 17."""
    squared = [f"{to}c", "two"] if square == "Pow" else [f"{to}c", f"{to}c"]
    return [
        node("ReduceMean", [x], [f"{to}m"], axes=axes),
        node("Sub", [x, f"{to}m"], [f"{to}c"]),
        node(square, squared, [f"{to}s"]),
        node("ReduceMean", [f"{to}s"], [f"{to}v"], axes=axes),
        node("Add", [f"{to}v", "eps"], [f"{to}e"]),
        node("Sqrt", [f"{to}e"], [f"{to}r"]),
        node("Div", [f"{to}c", f"{to}r"], [f"{to}n"]),
        node("Mul", [f"{to}n", "g"], [f"{to}g"]),
        node("Add", [f"{to}g", "b"], [to]),
    ]


def _gelu_chain(x: str, to: str, form: int = 0) -> list[Any]:
    """x (1 + erf) / 2, (x / 2) (1 + erf), or x ((1 + erf) / 2)."""
    start = [
        node("Div", [x, "root2"], [f"{to}d"]),
        node("Erf", [f"{to}d"], [f"{to}f"]),
        node("Add", [f"{to}f", "one"], [f"{to}p"]),
    ]
    first, second = [(x, f"{to}p"), (x, "half"), (f"{to}p", "half")][form]
    other = ["half", f"{to}p", x][form]
    return [*start, node("Mul", [first, second], [f"{to}q"]), node("Mul", [f"{to}q", other], [to])]


def _kinds(graph: Graph) -> list[str]:
    """Without aliasing operators."""
    return [n.op.kind for n in graph.nodes if n.op.kind != "reshape"]


def _made(home: Path, nodes: list[Any], outputs: list[str], opset: int = 17) -> Path:
    return save(model(nodes, [value("x", _SHAPE)], outputs, _CONSTANTS, opset), home)


def _onnx_runtime(path: Path, x: np.ndarray[Any, Any]) -> list[Any]:
    engine = pytest.importorskip("onnxruntime")
    session = engine.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": x}))


_NORMAL = node("LayerNormalization", ["x", "g", "b"], ["y"], axis=-1)
_GELU = node("Gelu", ["x"], ["y"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "opset", "kinds"),
    [
        (_norm_chain("x", "y"), 13, ["layer_norm"]),
        (_norm_chain("x", "y", "Mul"), 13, ["layer_norm"]),
        ([_NORMAL], 17, ["layer_norm"]),
        *[(_gelu_chain("x", "y", form), 13, ["gelu"]) for form in range(3)],
        ([_GELU], 20, ["gelu"]),
        (_norm_chain("x", "n") + _gelu_chain("n", "y"), 13, ["layer_norm", "gelu"]),
    ],
)
def test_a_chain_is_one_operator(nodes, opset, kinds, tmp_path):
    path, board = _made(tmp_path, nodes, ["y"], opset), load_board("local")
    made = prepare(path, board)
    assert _kinds(made.graph) == kinds
    x = np.random.default_rng(3).normal(3, 2, _SHAPE).astype(np.float32)
    ours = evaluate(made.graph, {"x": x}).outputs["y"]
    np.testing.assert_allclose(ours, evaluate(made.imported, {"x": x}).outputs["y"], atol=2e-5)
    np.testing.assert_allclose(ours, _onnx_runtime(path, x)[0], atol=2e-5)
    explained = compile_artifact(path, board).explain
    found = [o["op"] for o in json.loads(json.dumps(explained))["operators"]]
    assert [kind for kind in found if kind != "reshape"] == kinds


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        (_norm_chain("x", "y"), ["y", "yc"]),  # an intermediate is read elsewhere
        (_norm_chain("x", "y"), ["y", "ym"]),
        (_norm_chain("x", "y", axes=(1,)), ["y"]),  # not the last axis
        (_gelu_chain("x", "y"), ["y", "yp"]),
        ([node("Neg", ["x"], ["z"]), *_gelu_chain("x", "t"), node("Mul", ["z", "tp"], ["y"])],
         ["t", "y"]),
    ],
)  # fmt: skip
def test_what_only_looks_like_it_stays(nodes, outputs, tmp_path):
    path = _made(tmp_path, nodes, outputs, 13)
    made = prepare(path, load_board("local"))
    assert not {"layer_norm", "gelu"} & set(_kinds(made.graph))
    x = np.random.default_rng(4).standard_normal(_SHAPE).astype(np.float32)
    before, after = (evaluate(g, {"x": x}).outputs for g in (made.imported, made.graph))
    for name, y in before.items():
        np.testing.assert_allclose(after[name], y, atol=2e-5)


def test_a_chain_of_squares_has_too_many_factors_to_list(tmp_path):
    """x to the power of 2^24 in 24 products: as many factors, of which GELU has three."""
    squares = [node("Mul", [f"x{i or ''}"] * 2, [f"x{i + 1}"]) for i in range(24)]
    path, start = _made(tmp_path, squares, ["x24"], 13), time.process_time()
    assert _kinds(prepare(path, load_board("local")).graph) == ["mul"] * 24
    assert time.process_time() - start < 5


def test_a_factor_and_a_shift_behind_a_norm_without_any_become_its_own():
    b = Builder(np.random.default_rng(0), DType.F32)
    x, factor, shift = b.tensor(2, 6), b.weights(6), b.weights(6)
    y = b.add(ops.Add(), b.add(ops.Mul(), b.add(ops.LayerNorm(), x), factor), shift)
    before = Graph("g", b.tensors, tuple(b.nodes), (x,), (y,))
    after = fuse_layer_norm(before)
    assert [node.inputs for node in after.nodes] == [(x, factor, shift)]
    value = np.arange(12, dtype=np.float32).reshape(2, 6) ** 2
    found, want = (evaluate(g, {x: value}).outputs[y] for g in (after, before))
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
