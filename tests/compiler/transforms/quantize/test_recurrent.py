"""Models with recurrent layers: quantized, exported, run by ONNX Runtime and re-imported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from edgekit.host.compiler.exporters import write_onnx
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Array, DType, Graph
from edgekit.host.compiler.transforms.quantize import Quantized, quantize
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check, run_here
from tests.support.onnx_models import model, node, save, value

_GATES = {"LSTM": 4, "GRU": 3}
_TIME, _SIZE, _HIDDEN, _CLASSES = 21, 19, 33, 7
_SHAPE = [_TIME, 1, _SIZE]


def _drawn(rng: np.random.Generator, *shape: int) -> Array:
    return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


def _classifier(kind: str, folder: Path) -> Path:
    """A bidirectional layer, followed by a fully connected one on its last states."""
    rng, rows = np.random.default_rng(3), _GATES[kind] * _HIDDEN
    constants = {
        "w": _drawn(rng, 2, rows, _SIZE), "r": _drawn(rng, 2, rows, _HIDDEN),
        "b": _drawn(rng, 2, 2 * rows), "w2": _drawn(rng, 2 * _HIDDEN, _CLASSES),
        "b2": _drawn(rng, _CLASSES), "row": np.array([-1, 2 * _HIDDEN]),
    }  # fmt: skip
    more = {"hidden_size": _HIDDEN, "direction": "bidirectional"}
    nodes = [
        node(kind, ["x", "w", "r", "b"], ["", "h"], **more),
        node("Transpose", ["h"], ["t"], perm=[1, 0, 2]),
        node("Reshape", ["t", "row"], ["f"]),
        node("Gemm", ["f", "w2", "b2"], ["y"]),
    ]
    return save(model(nodes, [value("x", _SHAPE)], ["y"], constants), folder)


def _free(graph: Graph) -> float:
    """A cost model in which partial quantization costs as much as full quantization."""
    return 1.0 if any(t.dtype is DType.I8 for t in graph.tensors.values()) else 2.0


def _samples(count: int) -> list[dict[str, Array]]:
    rng = np.random.default_rng(8)
    return [{"x": rng.standard_normal(_SHAPE).astype(np.float32)} for _ in range(count)]


def _quantized(kind: str, folder: Path) -> tuple[Path, Quantized]:
    path = _classifier(kind, folder)
    return path, quantize(import_model(path), _samples(40), _free)


@pytest.mark.slow
@pytest.mark.parametrize("kind", _GATES)
def test_a_written_file_keeps_weights_as_bytes(kind: str, tmp_path: Path) -> None:
    path, made = _quantized(kind, tmp_path)
    assert made.report.cosine > 0.999
    file = tmp_path / "net.int8.onnx"
    file.write_bytes(write_onnx(made.graph))
    stored = onnx.load(file).graph.initializer
    sizes = {tuple(i.dims): i.data_type for i in stored}
    rows = _GATES[kind] * _HIDDEN
    for shape in ((1, rows, _SIZE), (1, rows, _HIDDEN)):
        assert sizes[shape] == onnx.TensorProto.INT8
    assert file.stat().st_size < 0.4 * path.stat().st_size


@pytest.mark.slow
@pytest.mark.parametrize("kind", _GATES)
def test_a_file_that_is_read_again_computes_what_was_measured(kind: str, tmp_path: Path) -> None:
    """In the file gates are not rounded to 8 bits, so outputs are no further from the float
    model's."""
    path, made = _quantized(kind, tmp_path)
    file = tmp_path / "net.int8.onnx"
    file.write_bytes(write_onnx(made.graph))
    again, floats = import_model(file), import_model(path)
    assert any("8-bit in the file, converted to f32" in note for note in again.notes)
    shown = _samples(40)
    exact, measured, found = (
        np.stack([evaluate(g, each).outputs["y"] for each in shown])
        for g in (floats, made.graph, again)
    )
    power = np.linalg.norm(exact)
    assert np.linalg.norm(measured - exact) < 0.03 * power
    assert np.linalg.norm(found - exact) < 0.03 * power
    assert np.linalg.norm(found - measured) < 0.03 * power


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.parametrize("kind", _GATES)
def test_onnx_runtime_runs_the_file(kind: str, tmp_path: Path) -> None:
    """ONNX Runtime rounds the last sums in floats: they may differ from ours by one step."""
    import onnxruntime

    made = _quantized(kind, tmp_path)[1]
    content = write_onnx(made.graph)
    (tmp_path / "net.int8.onnx").write_bytes(content)
    again = import_model(tmp_path / "net.int8.onnx")
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    step = max(float(t.quant.scale[0]) for t in made.graph.tensors.values()
               if t.dtype is DType.I8 and t.shape == (1, _CLASSES) and t.quant)  # fmt: skip
    for each in _samples(5):
        (found,) = session.run(None, each)
        assert np.abs(found - evaluate(again, each).outputs["y"]).max() <= 1.01 * step


@pytest.mark.slow
@pytest.mark.parametrize("kind", _GATES)
def test_what_is_compiled_of_the_file_computes_it(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "net.int8.onnx"
    file.write_bytes(write_onnx(_quantized(kind, tmp_path)[1].graph))
    again = import_model(file)
    (sample,) = _samples(1)
    build(again, load_board("local"), tmp_path / "built")
    check(again, run_here(tmp_path / "built", sample), sample)


def test_a_layer_whose_rows_do_not_fit_quantized_values_stays_in_floats(tmp_path: Path) -> None:
    """The first unit's state is always 0, and every row has its largest weight there."""
    rng, rows = np.random.default_rng(3), 3 * _HIDDEN
    constants = {"w": _drawn(rng, 1, rows, _SIZE), "r": 2 * _drawn(rng, 1, rows, _HIDDEN)}
    constants["w"].reshape(3, _HIDDEN, _SIZE)[:, 0] = 0
    constants["r"].reshape(3, _HIDDEN, _HIDDEN)[:, 0] = 0
    constants["r"][0, 1:, 0] = 300
    nodes = [node("GRU", ["x", "w", "r"], ["y"], hidden_size=_HIDDEN)]
    graph = import_model(save(model(nodes, [value("x", _SHAPE)], ["y"], constants), tmp_path))
    made = quantize(graph, _samples(40), _free)
    (layer,) = (n for n in made.graph.nodes if isinstance(n.op, ops.Gru))
    assert made.graph.tensors[layer.inputs[1] or ""].quant is None
    assert made.report.cosine >= 0.995
