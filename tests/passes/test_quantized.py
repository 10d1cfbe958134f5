"""Q and DQ nodes around f32 operators become integer operators, within one code."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.graph import ops
from edgekit.host.graph.evaluate import evaluate
from edgekit.host.graph.types import DType
from edgekit.host.importers import import_model
from edgekit.host.passes.pipeline import run_passes
from edgekit.host.passes.quantized import integer_form
from tests.support.onnx_models import model, node, save, value

_RNG = np.random.default_rng(17)
_STEP = np.float32(0.05)  # of the output


def _coded(name, scale, zero):
    """Nodes that quantize `name` and give it back as `name`_d."""
    ends = [f"{name}_s", f"{name}_z"]
    nodes = [
        node("QuantizeLinear", [name, *ends], [f"{name}_q"]),
        node("DequantizeLinear", [f"{name}_q", *ends], [f"{name}_d"]),
    ]
    return nodes, {ends[0]: np.array(scale, np.float32), ends[1]: zero}


def _weights(shape, per_channel, axis=0, kind="s8"):
    """Nodes and constants of weights: of s8, or of u8 that do not fit into s8 less their zero
    points."""
    scale = _RNG.uniform(0.005, 0.01, shape[axis] if per_channel else ()).astype(np.float32)
    codes = _RNG.integers(-127, 128, shape).astype(np.int8)
    zero = np.zeros(scale.shape, np.int8)
    if kind == "u8":
        codes = (codes.astype(np.int16) + 128).astype(np.uint8)
        zero = np.linspace(90, 250, scale.size).astype(np.uint8).reshape(scale.shape)
    made = node("DequantizeLinear", ["w_q", "w_s", "w_z"], ["w_d"], axis=axis)
    return [made], {"w_q": codes, "w_s": scale, "w_z": zero}


def _imported(parts, shape, folder):
    nodes = [n for part in parts for n in part[0]]
    constants = {k: v for part in parts for k, v in part[1].items()}
    proto = model(nodes, [value("x", shape)], ["y_d"], constants)
    return import_model(save(proto, folder))


def _both(graph, shape):
    x = {"x": _RNG.uniform(-2, 2, shape).astype(np.float32)}
    whole = integer_form(graph)
    after = run_passes(whole)[0]
    real, made, last = (evaluate(g, x).outputs["y_d"] for g in (graph, whole, after))
    np.testing.assert_array_equal(made, last)
    assert np.abs(real - made).max() <= _STEP * 1.01
    assert np.ptp(real) > 20 * _STEP
    return after


def _dtypes(graph, kind):
    return [graph.tensors[n.outputs[0]].dtype for n in graph.nodes if isinstance(n.op, kind)]


_ZEROS = {"u8": np.array(120, np.uint8), "s8": np.array(-8, np.int8)}


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("codes", ["u8", "s8"])
@pytest.mark.parametrize("groups", [1, 6])
@pytest.mark.parametrize("weights", ["s8", "u8"])
def test_a_convolution_works_on_codes(weights, codes, per_channel, groups, tmp_path):
    zero, shape = _ZEROS[codes], (1, 6, 7, 8)
    bias = _RNG.standard_normal(6).astype(np.float32)
    middle = [
        node("Conv", ["x_d", "w_d", "b"], ["c"], group=groups, pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["y"]),
    ]
    parts = [
        _coded("x", 0.02, zero),
        _weights((6, 6 // groups, 3, 3), per_channel, kind=weights),
        (middle, {"b": bias}),
        _coded("y", _STEP, zero),
    ]
    after = _both(_imported(parts, shape, tmp_path), shape)
    kind = ops.Conv2D if groups == 1 else ops.DepthwiseConv2D
    # A depthwise convolution takes one zero point of weights off.
    apart = weights == "u8" and per_channel and groups > 1
    assert _dtypes(after, kind) == [DType.F32 if apart else DType.I8]
    assert not any(isinstance(n.op, ops.Clamp) for n in after.nodes)


def test_a_product_works_on_codes(tmp_path):
    parts = [
        _coded("x", 0.02, _ZEROS["u8"]),
        _weights((40, 9), True, axis=1),
        ([node("MatMul", ["x_d", "w_d"], ["p"]), node("Add", ["p", "b"], ["y"])],
         {"b": _RNG.standard_normal(9).astype(np.float32)}),
        _coded("y", _STEP, _ZEROS["u8"]),
    ]  # fmt: skip
    after = _both(_imported(parts, (3, 40), tmp_path), (3, 40))
    assert _dtypes(after, ops.FullyConnected) == [DType.I8]


def test_a_sum_and_a_pool_work_on_codes(tmp_path):
    step = float(_STEP)
    parts = [
        _coded("x", step, _ZEROS["s8"]),
        ([node("MaxPool", ["x_d"], ["m"], kernel_shape=[2, 2])], {}),
        _coded("m", step, _ZEROS["s8"]),
        ([node("Add", ["m_d", "m_d"], ["y"])], {}),
        _coded("y", step, _ZEROS["s8"]),
    ]
    after = _both(_imported(parts, (1, 3, 6, 6), tmp_path), (1, 3, 6, 6))
    assert _dtypes(after, ops.MaxPool2D) == [DType.I8]
    assert _dtypes(after, ops.Add) == [DType.I8]


def test_what_has_no_integer_form_stays_in_f32(tmp_path):
    parts = [
        _coded("x", 0.02, _ZEROS["s8"]),
        ([node("MaxPool", ["x_d"], ["m"], kernel_shape=[2, 2]), node("Exp", ["m"], ["y"])], {}),
        _coded("y", _STEP, _ZEROS["s8"]),
    ]
    after = _both(_imported(parts, (1, 3, 6, 6), tmp_path), (1, 3, 6, 6))
    assert _dtypes(after, ops.Exp) == [DType.F32] == _dtypes(after, ops.MaxPool2D)


def test_a_model_in_f32_stays(tmp_path):
    graph = import_model(
        save(model([node("Relu", ["x"], ["y"])], [value("x", [2])], ["y"]), tmp_path)
    )
    assert integer_form(graph) is graph
