"""Models quantized with ONNX Runtime's tools: from the float model to matching outputs."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.compiler.transforms.passes.quantized import integer_form
from tests.support.onnx_models import model, node, save, value

pytestmark = pytest.mark.engines

_RNG = np.random.default_rng(13)


def _f32(*shape):
    return _RNG.standard_normal(shape).astype(np.float32) * np.float32(0.3)


def _image_net():
    """Convolutions with a residual, both kinds of pool, a concat, and a classifier."""
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2", "b1"], ["c2"], pads=[1, 1, 1, 1], group=8),
        node("LeakyRelu", ["c2"], ["l2"], alpha=0.1),
        node("Add", ["r1", "l2"], ["sum"]),
        node("AveragePool", ["sum"], ["a"], kernel_shape=[2, 2], strides=[2, 2]),
        node("MaxPool", ["sum"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Concat", ["a", "m"], ["both"], axis=1),
        node("Sigmoid", ["both"], ["gate"]),
        node("Mul", ["both", "gate"], ["gated"]),
        node("GlobalAveragePool", ["gated"], ["g"]),
        node("Flatten", ["g"], ["flat"]),
        node("Gemm", ["flat", "w3", "b3"], ["h"], transB=1),
        node("Softmax", ["h"], ["y"], axis=-1),
    ]
    constants = {
        "w1": _f32(8, 3, 3, 3), "b1": _f32(8), "w2": _f32(8, 1, 3, 3),
        "w3": _f32(5, 16), "b3": _f32(5),
    }  # fmt: skip
    return model(nodes, [value("x", [1, 3, 16, 16])], ["y"], constants), (1, 3, 16, 16)


def _sequence_net():
    """Matrix products, an LSTM, and a product of two computed operands."""
    nodes = [
        node("MatMul", ["x", "w1"], ["m"]),
        node("Add", ["m", "b1"], ["a"]),
        node("Relu", ["a"], ["r"]),
        node("LSTM", ["r", "wx", "wh", "bias"], ["l", "", ""], hidden_size=6),
        node("Squeeze", ["l", "one"], ["s"]),
        node("MatMul", ["s", "w2"], ["y"]),
    ]
    constants = {
        "w1": _f32(8, 10), "b1": _f32(10), "wx": _f32(1, 24, 10), "wh": _f32(1, 24, 6),
        "bias": _f32(1, 48), "w2": _f32(6, 4), "one": np.array([1]),
    }  # fmt: skip
    return model(nodes, [value("x", [7, 1, 8])], ["y"], constants), (7, 1, 8)


class _Samples:
    def __init__(self, shape):
        self._left = [{"x": _f32(*shape) * np.float32(3)} for _ in range(8)]

    def get_next(self):
        return self._left.pop() if self._left else None


def _agrees(path, shape, steps):
    """`steps`: maximum difference of outputs, in units of the largest output / 255."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    graph = import_model(path)
    for each in (graph, run_passes(graph)[0]):
        for _ in range(3):
            x = _f32(*shape) * np.float32(3)
            (want,) = session.run(None, {"x": x})
            got = evaluate(each, {"x": x}).outputs["y"]
            np.testing.assert_allclose(got, want, rtol=0, atol=np.abs(want).max() * steps / 255)


# Weight types: ONNX Runtime's 8-bit product pairs saturate on x86 without VNNI.
_SEVEN_BITS = True
_NETS = {"image": _image_net, "sequence": _sequence_net}


@pytest.mark.parametrize("net", _NETS)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("activations", ["QUInt8", "QInt8"])
@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_static_quantization(form, activations, per_channel, net, tmp_path):
    from onnxruntime import quantization

    proto, shape = _NETS[net]()
    made = tmp_path / "q.onnx"
    quantization.quantize_static(
        save(proto, tmp_path), made, _Samples(shape),
        quant_format=quantization.QuantFormat[form], per_channel=per_channel,
        activation_type=quantization.QuantType[activations],
        weight_type=quantization.QuantType.QInt8, reduce_range=_SEVEN_BITS,
    )  # fmt: skip
    _agrees(made, shape, steps=4)


@pytest.mark.parametrize("net", _NETS)
@pytest.mark.parametrize("weights", ["QUInt8", "QInt8"])
def test_dynamic_quantization(weights, net, tmp_path):
    from onnxruntime import quantization

    proto, shape = _NETS[net]()
    made = tmp_path / "q.onnx"
    kind = quantization.QuantType[weights]
    quantization.quantize_dynamic(
        save(proto, tmp_path), made, weight_type=kind, reduce_range=_SEVEN_BITS
    )
    _agrees(made, shape, steps=0.5)


def test_dequantized_constants_are_quantized_again(tmp_path):
    """`quantize_static` does so to a weight that two layers share."""
    constants = {
        "w": np.int8([-128, 0, 127]), "s": np.float32(1 / 255), "z": np.int8(-128),
        "t": np.float32(0.1), "u": np.int8(3),
    }  # fmt: skip
    nodes = [
        node("DequantizeLinear", ["w", "s", "z"], ["a"]),
        node("QuantizeLinear", ["a", "t", "u"], ["b"]),
        node("DequantizeLinear", ["b", "t", "u"], ["c"]),
        node("Mul", ["x", "c"], ["y"]),
    ]
    constants = {name: np.asarray(v) for name, v in constants.items()}
    path = save(model(nodes, [value("x", [3])], ["y"], constants), tmp_path)
    found = evaluate(import_model(path), {"x": np.ones(3, np.float32)}).outputs["y"]
    np.testing.assert_allclose(found, [0, 0.5, 1], atol=1e-6)


def test_stored_values_from_a_table_are_what_their_reader_says(tmp_path):
    """The tools quantize an embedding, which Gather then reads without its scale."""
    import onnxruntime

    rng = np.random.default_rng(3)
    table, w = rng.integers(0, 256, (9, 6), np.uint8), rng.integers(-63, 64, (5, 4), np.int8)
    constants = {
        "table": table, "w": w, "s": np.float32(0.02), "z": np.uint8(120),
        "t": np.float32(0.01), "v": np.int8(0), "u": np.float32(0.1),
    }  # fmt: skip
    nodes = [
        node("Gather", ["table", "ids"], ["rows"]),
        node("Transpose", ["rows"], ["columns"], perm=[0, 2, 1]),
        node("QLinearMatMul", ["columns", "s", "z", "w", "t", "v", "u", "z"], ["q"]),
        node("DequantizeLinear", ["q", "u", "z"], ["y"]),
    ]
    constants = {name: np.asarray(v) for name, v in constants.items()}
    path = save(model(nodes, [value("ids", [1, 5], "s64")], ["y"], constants), tmp_path)
    ids = {"ids": np.array([[0, 3, 8, 3, 5]])}
    (want,) = onnxruntime.InferenceSession(path).run(None, ids)
    graph = integer_form(import_model(path))
    for each in (graph, run_passes(graph)[0]):
        np.testing.assert_allclose(evaluate(each, ids).outputs["y"], want, atol=0.11)


def test_constants_that_the_file_quantizes_keep_their_scale(tmp_path):
    """Position embeddings, which no tool stores as integers: another scale moves a fifth of the
    sums by a step."""
    import onnxruntime

    rng = np.random.default_rng(4)
    places = rng.uniform(-0.04, 0.05, (16, 32)).astype(np.float32)
    constants = {
        "places": places, "s": np.float32(0.0004), "z": np.int8(-3),
        "t": np.float32(0.0006), "u": np.int8(5), "e": np.float32(0.00076),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", ["places", "s", "z"], ["p"]),
        node("DequantizeLinear", ["p", "s", "z"], ["q"]),
        node("QuantizeLinear", ["x", "t", "u"], ["a"]),
        node("DequantizeLinear", ["a", "t", "u"], ["b"]),
        node("Add", ["b", "q"], ["sum"]),
        node("QuantizeLinear", ["sum", "e", "u"], ["c"]),
        node("DequantizeLinear", ["c", "e", "u"], ["y"]),
    ]
    constants = {name: np.asarray(v) for name, v in constants.items()}
    path = save(model(nodes, [value("x", [1, 16, 32])], ["y"], constants), tmp_path)
    x = {"x": rng.uniform(-0.07, 0.07, (1, 16, 32)).astype(np.float32)}
    (want,) = onnxruntime.InferenceSession(path).run(None, x)
    graph = run_passes(integer_form(import_model(path)))[0]
    assert {n.op.kind for n in graph.nodes} >= {"quantize", "add", "cast"}
    steps = np.rint((evaluate(graph, x).outputs["y"] - want) / constants["e"])
    assert np.count_nonzero(steps) < steps.size / 100  # ties


def test_a_dequantized_scalar_is_a_scalar(tmp_path):
    """The tools quantize even the arithmetic on shapes."""
    nodes = [
        node("DequantizeLinear", ["w", "s", "z"], ["a"]),
        node("Cast", ["a"], ["b"], to=7),
        node("Unsqueeze", ["b", "axes"], ["c"]),
        node("Concat", ["c", "two"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["y"]),
    ]
    constants = {"w": np.int8(6), "s": np.float32(0.5), "z": np.int8(0), "axes": [0], "two": [2]}
    constants = {name: np.asarray(v) for name, v in constants.items()}
    path = save(model(nodes, [value("x", [6])], ["y"], constants), tmp_path)
    assert import_model(path).tensors["y"].shape == (3, 2)
