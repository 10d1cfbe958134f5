"""Generated C: names from a model file cannot escape into code; text matches a golden file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.compiler.codegen.emit import emit
from edgekit.host.compiler.codegen.section import _format_field, section_code
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Tensor
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.lowering.plan import Plan
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, run_here

_GOLDEN = Path(__file__).with_name("small_model.golden")
_HOSTILE = ["*/ int x; /*", '"; system("x"); "', "a\\", "??/", "naïve é", "%s%n"]


def _relu(name: str) -> Graph:
    tensors = {n: Tensor(n, (2, 2), DType.F32) for n in (name, f"{name} out")}
    node = Node(name, ops.Clamp(), (name,), (f"{name} out",))
    return Graph(name, tensors, (node,), (name,), (f"{name} out",))


def _all_text(plan: Plan) -> str:
    code = [section_code(plan, section) for section in plan.sections]
    files = [f"/* {made.symbol} */\n{made.text}" for made in code]
    return "\n".join([emit(plan, code), *files])


@pytest.mark.slow
@pytest.mark.parametrize("name", _HOSTILE)
def test_names_of_the_model_stay_text(name, tmp_path):
    folder = build(_relu(name), load_board("local"), tmp_path)
    x = np.array([[-1, 2], [3, -4]], np.float32)
    np.testing.assert_array_equal(run_here(folder, {name: x})[f"{name} out"], np.maximum(x, 0))
    assert json.loads((folder / "about.json").read_text())["inputs"][0]["name"] == name


def test_generated_code_is_as_reviewed():
    """EDGEKIT_UPDATE_GOLDEN=1 rewrites the file; review the diff before committing."""
    w = np.arange(2 * 3 * 3 * 1, dtype=np.float32).reshape(2, 3, 3, 1)
    tensors = {
        "x": Tensor("x", (1, 4, 4, 1), DType.F32),
        "w": Tensor("w", w.shape, DType.F32, data=w),
        "t": Tensor("t", (1, 2, 2, 2), DType.F32),
        "p": Tensor("p", (1, 1, 1, 2), DType.F32),
        "y": Tensor("y", (1, 2), DType.F32),
    }
    nodes = (
        Node("conv", ops.Conv2D(), ("x", "w", None), ("t",)),
        Node("pool", ops.MaxPool2D((2, 2), (2, 2)), ("t",), ("p",)),
        Node("flat", ops.Reshape((1, 2)), ("p",), ("y",)),
    )
    graph = Graph("small", tensors, nodes, ("x",), ("y",))
    text = "\n".join(
        _all_text(lower(graph, load_board("a57"), subgraphs=subgraphs, units={"pool": "other"}))
        for subgraphs in ([["conv"], ["pool", "flat"]], [["conv", "pool", "flat"]])
    )
    if os.environ.get("EDGEKIT_UPDATE_GOLDEN"):
        _GOLDEN.write_text(text)
    assert text == _GOLDEN.read_text()


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (float("nan"), "NAN"),
        (float("inf"), "INFINITY"),
        (-1e300, "-INFINITY"),  # rounded to f32
        (0.5, "0x1.0000000000000p-1f"),
    ],
)
def test_every_number_is_one_in_c(number, text):
    assert _format_field(number, None) == text
