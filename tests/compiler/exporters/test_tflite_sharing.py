"""Equal data is stored once in a .tflite file, so small models are not mostly zero points."""

from __future__ import annotations

import numpy as np
import pytest
import tflite

from edgekit.host.compiler.exporters import write_tflite
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.quantization import scale_of
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.transforms.quantize import quantize
from tests.support.onnx_models import model, node, save, value

_CHANNELS, _LAYERS, _SIZE = 24, 9, 7


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """8-bit convolutions of equal shapes; x and y are f32 [1, 24, 7, 7]."""
    folder = tmp_path_factory.mktemp("equal")
    rng = np.random.default_rng(6)
    shape = [1, _CHANNELS, _SIZE, _SIZE]
    constants = {
        f"w{i}": (rng.standard_normal((_CHANNELS, _CHANNELS, 1, 1)) / 5).astype(np.float32)
        for i in range(_LAYERS)
    }
    names = ["x", *(f"c{i}" for i in range(_LAYERS - 1)), "y"]
    nodes = [node("Conv", [names[i], f"w{i}"], [names[i + 1]]) for i in range(_LAYERS)]
    path = save(model(nodes, [value("x", shape)], ["y"], constants), folder)
    samples = [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(12)]
    return quantize(import_model(path), samples, lambda graph: 1.0, target=0.5).graph


def _places(content: bytes) -> dict[str, list[tuple[object, int]]]:
    """Vectors and tables that tensors and operators refer to, with their file offsets."""
    graph = tflite.Model.GetRootAs(content).Subgraphs(0)
    found: dict[str, list[tuple[object, int]]] = {"shape": [], "zero points": [], "options": []}
    for t in map(graph.Tensors, range(graph.TensorsLength())):
        found["shape"].append((tuple(t.ShapeAsNumpy()), t._tab.Vector(t._tab.Offset(4))))
        q = t.Quantization()
        if q is not None:
            zeros = tuple(q.ZeroPointAsNumpy())
            found["zero points"].append((zeros, q._tab.Vector(q._tab.Offset(10))))
    for o in map(graph.Operators, range(graph.OperatorsLength())):
        if o.BuiltinOptionsType() == tflite.BuiltinOptions.Conv2DOptions:
            found["options"].append(("all the same", o.BuiltinOptions().Pos))
    return found


def test_equal_vectors_and_tables_are_stored_once(quantized: Graph) -> None:
    for places in _places(write_tflite(quantized)).values():
        assert len(places) >= _LAYERS
        assert len({place for _, place in places}) == len({content for content, _ in places})


def test_it_is_read_as_it_was(quantized: Graph) -> None:
    again = graph_from_tflite(write_tflite(quantized), "again")
    for name, t in quantized.tensors.items():
        if t.quant is not None:
            quant = again.tensors[name].quant
            assert quant is not None and quant.axis == t.quant.axis
            np.testing.assert_array_equal(quant.scale, t.quant.scale)
            np.testing.assert_array_equal(quant.zero_point, t.quant.zero_point)


@pytest.mark.peers
def test_litert_computes_the_same(quantized: Graph) -> None:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    content, rng = write_tflite(quantized), np.random.default_rng(7)
    kinds = {OpResolverType.BUILTIN_REF: 0, OpResolverType.BUILTIN: 2}  # XNNPACK rounds in floats
    x = rng.standard_normal((1, _CHANNELS, _SIZE, _SIZE)).astype(np.float32)
    expected = evaluate(quantized, {"x": x}).outputs["y"]
    step = scale_of(quantized.tensors["y.quantized"])
    for kind, steps in kinds.items():
        engine = Interpreter(model_content=content, experimental_op_resolver_type=kind)
        engine.allocate_tensors()
        found = engine.get_signature_runner("serving_default")(x=x)["y"]
        assert np.abs(found - expected).max() <= 1.001 * steps * step
