"""Files exported by `quantize` compute in integers when compiled, like its graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgekit.host.compiler.exporters import write_onnx
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Array, DType, Graph
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.compiler.transforms.passes.quantized import integer_form
from edgekit.host.compiler.transforms.quantize import quantize
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check, run_here
from tests.support.onnx_models import model, node, save, value

_SHAPE = [1, 3, 10, 12]
_RNG = np.random.default_rng(8)


def _weights(*shape: int) -> Array:
    return (_RNG.standard_normal(shape) / np.prod(shape[1:]) ** 0.5).astype(np.float32)


def _network(folder: Path) -> Graph:
    """At least one of every operator that can be quantized."""
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("HardSwish", ["c0"], ["s0"]),
        node("GlobalAveragePool", ["s0"], ["g"]),
        node("Conv", ["g", "w1"], ["g1"]),
        node("Sigmoid", ["g1"], ["g2"]),
        node("Mul", ["s0", "g2"], ["e"]),
        node("Split", ["e", "halves"], ["p", "q"], axis=1),
        node("LeakyRelu", ["p"], ["l"], alpha=0.1),
        node("Tanh", ["q"], ["t"]),
        node("Concat", ["t", "l"], ["both"], axis=1),
        node("Conv", ["both", "w2", "b0"], ["c2"], group=2, pads=[1, 1, 1, 1]),
        node("PRelu", ["c2", "slope"], ["r"]),
        node("MaxPool", ["r"], ["m"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("ConvTranspose", ["m", "w3"], ["u"], strides=[2, 2]),
        node("Resize", ["e", "", "twice"], ["z"], mode="linear",
             coordinate_transformation_mode="half_pixel"),
        node("Add", ["u", "z"], ["a"]),
        node("Pad", ["a", "by"], ["d"]),
        node("Conv", ["d", "w4"], ["y"]),
    ]  # fmt: skip
    constants = {
        "w0": _weights(8, 3, 3, 3), "b0": _weights(8), "w1": _weights(8, 8, 1, 1),
        "w2": _weights(8, 4, 3, 3), "slope": np.abs(_weights(8, 1, 1)),
        "w3": _weights(8, 8, 2, 2), "w4": _weights(5, 8, 3, 3),
        "halves": np.array([4, 4]), "twice": np.array([1, 1, 2, 2], np.float32),
        "by": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    }  # fmt: skip
    return import_model(save(model(nodes, [value("x", _SHAPE)], ["y"], constants), folder))


def _free(graph: Graph) -> float:
    """A cost model in which floats never pay."""
    return 1.0 if any(t.dtype is DType.I8 for t in graph.tensors.values()) else 2.0


def test_a_written_file_computes_on_quantized_values(tmp_path: Path) -> None:
    draw = [{"x": _RNG.standard_normal(_SHAPE).astype(np.float32)} for _ in range(17)]
    made = quantize(_network(tmp_path), draw[1:], _free, target=0.5)
    assert not made.report.floats
    file = tmp_path / "net.int8.onnx"
    file.write_bytes(write_onnx(made.graph))
    graph = run_passes(integer_form(import_model(file)))[0]
    floats = [n.op for n in graph.nodes if graph.tensors[n.outputs[0]].dtype is DType.F32]
    assert [type(op) for op in floats if not isinstance(op, ops.Transpose)] == [ops.Cast]
    (expected,) = evaluate(made.graph, draw[0]).outputs.values()
    found = evaluate(graph, draw[0]).outputs
    step = np.abs(expected).max() / 127
    # The file's layers round once, those of the quantized graph twice.
    assert np.abs(found["y"] - expected).max() <= 3 * step
    build(graph, load_board("local"), tmp_path / "built")
    check(graph, run_here(tmp_path / "built", draw[0]), draw[0])
