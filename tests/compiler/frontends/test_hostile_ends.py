"""Outputs that nothing computes: inputs, constants, or results of constants only."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.codegen.emit import describe
from edgekit.host.compiler.driver import prepare_graph, units_of
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.options import DEFAULT_OPTIONS
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import run_here
from tests.support.onnx_models import model, node, save, value
from tests.support.toolchains import toolchain_for

X, Z, C = np.array([-1, 2], np.float32), np.arange(3, dtype=np.float32), np.full(2, 7, np.float32)
RELU = np.maximum(X, 0)
ENDS = {"x": X, "z": Z}

# (inputs, operators, outputs with their values)
CASES: dict[str, tuple[str, bool, dict[str, Any]]] = {
    "an output is an input": ("x", True, {"y": RELU, "x": X}),
    "the only output is an input": ("x", False, {"x": X}),
    "an output is a constant": ("x", True, {"y": RELU, "c": C}),
    "outputs are a constant and an input": ("x", False, {"c": C, "x": X}),
    "nothing but a constant": ("", False, {"c": C}),
    "an input that nothing reads": ("xz", True, {"y": RELU}),
    "inputs that nothing reads": ("xz", False, {"c": C}),
}


def _onnx(inputs: str, computes: bool, outputs: Any, folder: Path, _: Any) -> Path:
    nodes = [node("Relu", ["x"], ["y"])] if computes else []
    ends = [value(name, ENDS[name].shape) for name in inputs]
    return save(model(nodes, ends, list(outputs), {"c": C}), folder)


def _tflite(inputs: str, computes: bool, outputs: Any, folder: Path, files: Any) -> Path:
    tensors = [files.tensor("x", [2]), files.tensor("y", [2]), files.tensor("z", [3])]
    tensors.append(files.tensor("c", [2], data=C))
    made = [files.op("RELU", ["x"], ["y"])] if computes else []
    path = folder / "m.tflite"
    path.write_bytes(files.model(files.graph(tensors, made, list(inputs), list(outputs))))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("write", [_onnx, _tflite], ids=["onnx", "tflite"])
@pytest.mark.parametrize("case", CASES)
def test_they_are_given_out(
    case: str, write: Callable[..., Path], files: Any, tmp_path: Path
) -> None:
    inputs, computes, outputs = CASES[case]
    path = write(inputs, computes, outputs, tmp_path, files)
    board = load_board("local")
    made = prepare_graph(import_model(path), board)
    _, plan = plan_of(made.graph, board, DEFAULT_OPTIONS)
    library = toolchain_for(board).build(units_of(plan, board))
    (tmp_path / "model.so").write_bytes(library)
    (tmp_path / "weights.bin").write_bytes(plan.lowered.weights)
    (tmp_path / "about.json").write_text(json.dumps(describe(plan)))
    found = run_here(tmp_path, {name: ENDS[name] for name in inputs})
    assert list(found) == list(outputs)
    for name, expected in outputs.items():
        np.testing.assert_array_equal(found[name], expected)


def test_constants_only_that_are_computed(tmp_path: Path) -> None:
    path = save(model([node("Neg", ["c"], ["y"])], [], ["y"], {"c": C}), tmp_path)
    made = prepare_graph(import_model(path), load_board("local"))
    data = made.graph.tensors[made.graph.outputs[0]].data
    assert data is not None and not made.graph.nodes
    np.testing.assert_array_equal(data, -C)
