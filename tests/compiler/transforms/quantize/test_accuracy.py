"""The accuracy and the cost of `quantize`, on small networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.types import DType, Graph
from edgekit.host.compiler.transforms.quantize import Quantized, quantize
from edgekit.host.compiler.transforms.quantize.quantize import cost_on
from edgekit.kb.targets.board import load_board
from tests.support.onnx_models import model, node, save, value

_SHAPE = [1, 3, 9, 11]


def _made(folder: Path, nodes: list[Any], outputs: list[str], **arrays: Any) -> Graph:
    constants = {name: np.asarray(a, np.float32) for name, a in arrays.items()}
    return import_model(save(model(nodes, [value("x", _SHAPE)], outputs, constants), folder))


def _samples(count: int = 24) -> list[dict[str, np.ndarray[Any, Any]]]:
    rng = np.random.default_rng(5)
    return [{"x": rng.standard_normal(_SHAPE).astype(np.float32)} for _ in range(count)]


def _free(graph: Graph) -> float:
    """A cost model in which keeping some floats is free, but keeping all of them is not."""
    return 1.0 if any(t.dtype is DType.I8 for t in graph.tensors.values()) else 2.0


def _snr(made: Quantized, name: str = "y") -> float:
    assert not made.report.floats
    return made.report.outputs[name].snr_db


def test_channels_far_from_0_are_moved_to_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    offsets, mix = np.array([900, -700, 400, -1000, 600]), rng.standard_normal((4, 5, 1, 1))
    graph = _made(
        tmp_path,
        [
            node("Conv", ["x", "w0", "b0"], ["c"], pads=[1, 1, 1, 1]),
            node("Conv", ["c", "w1", "b1"], ["y"]),
        ],
        ["y"],
        w0=rng.standard_normal((5, 3, 3, 3)),
        b0=offsets,
        w1=mix,
        b1=-mix[:, :, 0, 0] @ offsets,
    )
    made = quantize(graph, _samples(), _free, target=0.5)
    assert _snr(made) > 30
    assert "centered" in made.report.recipe


def test_values_that_a_relu_behind_an_addition_drops_take_no_quantized_values(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(2)
    graph = _made(
        tmp_path,
        [
            node("Conv", ["x", "w0"], ["c"]),
            node("Relu", ["c"], ["r"]),
            node("Conv", ["x", "w1", "b1"], ["d"]),
            node("Add", ["r", "d"], ["a"]),
            node("Relu", ["a"], ["y"]),
        ],
        ["y"],
        w0=rng.standard_normal((4, 3, 1, 1)),
        w1=rng.standard_normal((4, 3, 1, 1)),
        b1=[-1000, 0, 0, 0],  # a channel that the ReLU always clips
    )
    assert _snr(quantize(graph, _samples(), _free, target=0.5)) > 35


def _branches(folder: Path) -> Graph:
    same = np.random.default_rng(3).standard_normal((4, 3, 3, 3))
    nodes = [
        node("Conv", ["x", "w0"], ["dear"], name="dear"),
        node("Conv", ["x", "w1"], ["cheap"], name="cheap"),
    ]
    return _made(folder, nodes, ["dear", "cheap"], w0=same, w1=same)


def _by_layer(graph: Graph) -> float:
    """Quantization costs 10; float layers have costs by name."""
    costs = {"dear.conv2d": 100.0, "cheap.conv2d": 5.0}
    floats = [n.name for n in graph.nodes if graph.tensors[n.outputs[0]].dtype is DType.F32]
    quantized = any(t.dtype is DType.I8 for t in graph.tensors.values())
    return 10.0 * quantized + sum(costs.get(name, 0.0) for name in floats)


def test_of_layers_as_noisy_the_cheaper_one_stays_in_floats(tmp_path: Path) -> None:
    made = quantize(_branches(tmp_path), _samples(), _by_layer, target=1 - 1e-9)
    # Both would cost 115, more than the 105 of the float model.
    assert [layer.name for layer in made.report.floats] == ["cheap.conv2d"]
    assert made.report.outputs["cheap"].snr_db > made.report.outputs["dear"].snr_db + 20


def test_no_layer_stays_in_floats_where_all_floats_cost_less(tmp_path: Path) -> None:
    def cost(graph: Graph) -> float:
        return 2.0 if any(t.dtype is DType.I8 for t in graph.tensors.values()) else 1.0

    made = quantize(_branches(tmp_path), _samples(), cost, target=1 - 1e-9)
    assert not made.report.floats


def test_a_target_out_of_reach_takes_no_more_time_than_it_is_worth(tmp_path: Path) -> None:
    same = np.random.default_rng(3).standard_normal((4, 3, 3, 3))
    costs = {"a.conv2d": 5.0, "b.conv2d": 40.0, "c.conv2d": 50.0}
    nodes = [node("Conv", ["x", f"w{n}"], [n], name=n) for n in "abc"]
    graph = _made(tmp_path, nodes, ["a", "b", "c"], wa=same, wb=same, wc=same)

    def cost(graph: Graph) -> float:
        floats = [n.name for n in graph.nodes if graph.tensors[n.outputs[0]].dtype is DType.F32]
        quantized = any(t.dtype is DType.I8 for t in graph.tensors.values())
        return 10.0 * quantized + sum(costs.get(name, 0.0) for name in floats)

    # a and b would cost 55 of 95, more than half of what quantization saves, for a third of the
    # noise.
    made = quantize(graph, _samples(), cost, target=1 - 1e-9)
    assert [layer.name for layer in made.report.floats] == ["a.conv2d"]


def test_weights_that_are_zero_stay_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    weights = rng.standard_normal((16, 48, 1, 1)) * (rng.random((16, 48, 1, 1)) < 0.2)
    graph = _made(
        tmp_path,
        [node("Conv", ["x", "w0"], ["r"]), node("Conv", ["r", "w1"], ["y"])],
        ["y"],
        w0=rng.standard_normal((48, 3, 1, 1)),  # redundant, to compensate for errors
        w1=weights,
    )
    made = quantize(graph, _samples(), _free, target=0.5)
    (stored,) = (t.data for t in made.graph.tensors.values() if t.shape == (16, 1, 1, 48))
    assert stored is not None
    assert not stored[:, 0, 0][weights[:, :, 0, 0] == 0].any()
    assert np.count_nonzero(stored) > 0.95 * np.count_nonzero(weights)
    assert _snr(made) > 30


@pytest.mark.parametrize(
    ("equation", "names", "shape"),
    [("bchw,co->bohw", ["x", "w"], (3, 5)), ("oc,bchw->bohw", ["w", "x"], (5, 3))],
)
def test_weights_of_an_einsum_get_quantized_values(
    tmp_path: Path, equation: str, names: list[str], shape: tuple[int, int]
) -> None:
    weights = np.random.default_rng(9).standard_normal(shape)
    nodes = [
        node("Einsum", names, ["e"], equation=equation),
        node("Conv", ["e", "v"], ["y"]),
    ]
    graph = _made(tmp_path, nodes, ["y"], w=weights, v=np.eye(5)[:, :, None, None])
    made = quantize(graph, _samples(), _free, target=0.5)
    assert [layer.kind for layer in made.report.layers] == ["fully_connected", "conv2d"]
    assert _snr(made) > 30


def test_a_transposed_convolution_of_quantized_values_has_a_cost(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    nodes = [
        node("Conv", ["x", "w0"], ["c"], pads=[1, 1, 1, 1]),
        node("ConvTranspose", ["c", "w1", "b1"], ["y"], strides=[2, 3], kernel_shape=[2, 3]),
    ]
    weights = {"w0": rng.standard_normal((5, 3, 3, 3)), "w1": rng.standard_normal((5, 2, 2, 3))}
    graph = _made(tmp_path, nodes, ["y"], **weights, b1=[1, -1])
    cost = cost_on(load_board("rpi5"))
    made = quantize(graph, _samples(), cost, target=0.5)
    assert "transpose_conv2d" in [layer.kind for layer in made.report.layers if layer.quantized]
    assert np.isfinite(cost(made.graph))
    assert _snr(made) > 30


@pytest.mark.parametrize("function", ["Sigmoid", "HardSwish", "HardSigmoid", "Tanh"])
def test_values_beyond_the_ends_of_a_function_take_no_quantized_values(
    tmp_path: Path, function: str
) -> None:
    weights = np.random.default_rng(12).standard_normal((2, 3, 1, 1))
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"]),
        node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1]),
        node(function, ["t"], ["y"]),
    ]
    graph = _made(tmp_path, nodes, ["y"], w=weights, b=[-900, 0])
    assert _snr(quantize(graph, _samples(), _free, target=0.5)) > 30
