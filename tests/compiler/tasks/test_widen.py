"""Models whose inputs and outputs are f16, as Ultralytics' exporter makes them."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import DType
from edgekit.host.compiler.options import CompileOptions
from tests.compiler.tasks.test_heads import prepared, rows_of
from tests.support.onnx_models import model, node, save, value


def _in_half(folder, output, **more):
    """A model whose output is constant, but for the brightness of the picture, which it adds to
    the last value."""
    last = np.zeros(output.shape, np.float16)
    last.flat[-1] = 1
    nodes = [
        node("ReduceMean", ["images"], ["mean"], keepdims=0),
        node("Mul", ["mean", "last"], ["more"]),
        node("Add", ["more", "c"], ["y"]),
    ]
    shape = value("images", [1, 3, 64, 96], np.dtype(np.float16))
    made = model(nodes, [shape], ["y"], {"last": last, "c": output.astype(np.float16)}, opset=13)
    made.graph.output[0].type.tensor_type.elem_type = 10
    for key, text in more.items():
        made.metadata_props.add(key=key, value=str(text))
    return save(made, folder)


def test_boxes_of_halves_are_those_of_floats(tmp_path):
    rows = np.array([[[1, 2, 30, 40, 0.5, 3], [5, 6, 7, 8, 0.75, 0]]])
    path = _in_half(tmp_path, rows, task="detect", names={0: "cat", 1: "dog"})
    made = prepared(path, CompileOptions())
    assert made.task is not None and made.graph.tensors["images"].dtype is DType.F32
    assert rows_of(made) == [(0, 0.75, (5, 6, 7, 8)), (3, 0.5, (1, 2, 30, 40))]
    assert prepared(path, CompileOptions(task="none")).graph.tensors["y"].dtype is DType.F16


def test_scores_in_halves_are_floats(tmp_path):
    path = _in_half(tmp_path, np.array([[0.25, 0.5, -2]]), task="classify", names=["a", "b", "c"])
    graph = prepared(path).graph
    assert graph.tensors["y"].dtype is DType.F32 and graph.outputs == ("y", "scores")
    third = np.full((1, 3, 64, 96), 1 / 3, np.float32)
    (found,) = evaluate(graph, {"images": third}).outputs["y"]
    assert found == pytest.approx((0.25, 0.5, np.float16(1 / 3) - 2), abs=2e-3)
    plain = import_model(path)
    assert plain.tensors["images"].dtype is DType.F16
