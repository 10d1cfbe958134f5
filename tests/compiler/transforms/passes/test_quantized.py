"""Q/DQ graphs around f32 operators become integer operators, within one quantization step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import DType, Graph, Node, Tensor
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.transforms.passes.outputs import transpose_bytes
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.compiler.transforms.passes.quantized import integer_form
from edgekit.kb.targets.board import load_profile
from tests.support.onnx_models import model, node, save, value
from tests.support.op_cases import quant

_STEP = np.float32(0.05)  # of the output


@pytest.fixture
def rng():
    """Each test draws the same numbers, whichever tests ran before."""
    return np.random.default_rng(17)


def _quantized(name, scale, zero):
    """Nodes that quantize `name` and dequantize it to `name`_d."""
    ends = [f"{name}_s", f"{name}_z"]
    nodes = [
        node("QuantizeLinear", [name, *ends], [f"{name}_q"]),
        node("DequantizeLinear", [f"{name}_q", *ends], [f"{name}_d"]),
    ]
    return nodes, {ends[0]: np.array(scale, np.float32), ends[1]: zero}


def _weights(rng, shape, per_channel, axis=0, kind="s8"):
    """Nodes and constants of weights: s8, or u8 that overflow s8 after subtracting their zero
    points."""
    scale = rng.uniform(0.005, 0.01, shape[axis] if per_channel else ()).astype(np.float32)
    stored = rng.integers(-127, 128, shape).astype(np.int8)
    zero = np.zeros(scale.shape, np.int8)
    if kind == "u8":
        stored = (stored.astype(np.int16) + 128).astype(np.uint8)
        zero = np.linspace(90, 250, scale.size).astype(np.uint8).reshape(scale.shape)
    made = node("DequantizeLinear", ["w_q", "w_s", "w_z"], ["w_d"], axis=axis)
    return [made], {"w_q": stored, "w_s": scale, "w_z": zero}


def _imported(parts, shape, folder, output="y_d"):
    nodes = [n for part in parts for n in part[0]]
    constants = {k: v for part in parts for k, v in part[1].items()}
    proto = model(nodes, [value("x", shape)], [output], constants)
    return import_model(save(proto, folder))


def _both(rng, graph, shape, step=_STEP, flips=0.001):
    """`flips`: the most values that differ, by a step, from those of the f32 form."""
    x = {"x": rng.uniform(-2, 2, shape).astype(np.float32)}
    whole = integer_form(graph)
    after = run_passes(whole)[0]
    real, made, last = (evaluate(g, x).outputs["y_d"] for g in (graph, whole, after))
    np.testing.assert_array_equal(made, last)
    lower(after, load_profile("x86-64-v3"))
    assert np.abs(real - made).max() <= step * 1.01
    assert np.mean(real != made) <= flips
    assert np.ptp(real) > 20 * step
    return after


def _dtypes(graph, kind):
    return [graph.tensors[n.outputs[0]].dtype for n in graph.nodes if isinstance(n.op, kind)]


_ZEROS = {"u8": np.array(120, np.uint8), "s8": np.array(-8, np.int8)}


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("stored", ["u8", "s8"])
@pytest.mark.parametrize("groups", [1, 6])
@pytest.mark.parametrize("weights", ["s8", "u8"])
def test_a_convolution_works_on_quantized_values(
    rng, weights, stored, per_channel, groups, tmp_path
):
    zero, shape = _ZEROS[stored], (1, 6, 7, 8)
    bias = rng.standard_normal(6).astype(np.float32)
    middle = [
        node("Conv", ["x_d", "w_d", "b"], ["c"], group=groups, pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["y"]),
    ]
    parts = [
        _quantized("x", 0.02, zero),
        _weights(rng, (6, 6 // groups, 3, 3), per_channel, kind=weights),
        (middle, {"b": bias}),
        _quantized("y", _STEP, zero),
    ]
    after = _both(rng, _imported(parts, shape, tmp_path), shape)
    kind = ops.Conv2D if groups == 1 else ops.DepthwiseConv2D
    # A depthwise convolution supports a single weight zero point.
    apart = weights == "u8" and per_channel and groups > 1
    assert _dtypes(after, kind) == [DType.F32 if apart else DType.I8]
    assert not any(isinstance(n.op, ops.Clamp) for n in after.nodes)


def test_a_product_works_on_quantized_values(rng, tmp_path):
    parts = [
        _quantized("x", 0.02, _ZEROS["u8"]),
        _weights(rng, (40, 9), True, axis=1),
        ([node("MatMul", ["x_d", "w_d"], ["p"]), node("Add", ["p", "b"], ["y"])],
         {"b": rng.standard_normal(9).astype(np.float32)}),
        _quantized("y", _STEP, _ZEROS["u8"]),
    ]  # fmt: skip
    after = _both(rng, _imported(parts, (3, 40), tmp_path), (3, 40))
    assert _dtypes(after, ops.FullyConnected) == [DType.I8]


def test_a_sum_and_a_pool_work_on_quantized_values(rng, tmp_path):
    step = float(_STEP)
    parts = [
        _quantized("x", step, _ZEROS["s8"]),
        ([node("MaxPool", ["x_d"], ["m"], kernel_shape=[2, 2])], {}),
        _quantized("m", step, _ZEROS["s8"]),
        ([node("Add", ["m_d", "m_d"], ["y"])], {}),
        _quantized("y", step, _ZEROS["s8"]),
    ]
    after = _both(rng, _imported(parts, (1, 3, 6, 6), tmp_path), (1, 3, 6, 6))
    assert _dtypes(after, ops.MaxPool2D) == [DType.I8]
    assert _dtypes(after, ops.Add) == [DType.I8]


_FUNCTIONS = {
    "clip": [node("Clip", ["x_d", "low", "high"], ["y"])],
    "elu": [node("Elu", ["x_d"], ["y"])],
    "erf gelu": [
        node("Div", ["x_d", "root"], ["d"]),
        node("Erf", ["d"], ["e"]),
        node("Add", ["e", "one"], ["p"]),
        node("Mul", ["x_d", "p"], ["m"]),
        node("Mul", ["m", "half"], ["y"]),
    ],
    "hard sigmoid": [node("HardSigmoid", ["x_d"], ["y"])],
    "hard swish": [node("HardSwish", ["x_d"], ["y"])],
    "leaky relu": [node("LeakyRelu", ["x_d"], ["y"], alpha=0.2)],
    "sigmoid": [node("Sigmoid", ["x_d"], ["y"])],
    "silu": [node("Sigmoid", ["x_d"], ["g"]), node("Mul", ["x_d", "g"], ["y"])],
    "abs": [node("Abs", ["x_d"], ["y"])],
    "tanh": [node("Tanh", ["x_d"], ["y"])],
    "prelu": [node("PRelu", ["x_d", "slope"], ["y"])],
    "less": [node("Sub", ["x_d", "slope"], ["y"])],
    "reversed": [node("Sub", ["one", "x_d"], ["y"])],
}
_CONSTANTS = {
    "low": np.float32(-0.7), "high": np.float32(1.1), "root": np.float32(2**0.5),
    "one": np.float32(1), "half": np.float32(0.5),
    "slope": np.array([0.1, 0.4, -0.2, 0.3], np.float32).reshape(4, 1, 1),
}  # fmt: skip
_MOVES = {
    "depth to space": ([node("DepthToSpace", ["x_d"], ["y"], blocksize=2)], {}),
    "expand": ([node("Expand", ["x_d", "to"], ["y"])], {"to": np.array([2, 4, 6, 6])}),
    "gather": ([node("Gather", ["x_d", "at"], ["y"], axis=1)], {"at": np.array([3, 0, 2])}),
    "max pool": ([node("MaxPool", ["x_d"], ["y"], kernel_shape=[2, 1], strides=[2, 1])], {}),
    "pad": ([node("Pad", ["x_d", "by"], ["y"])], {"by": np.array([0, 0, 1, 2, 0, 0, 0, 1])}),
    "slice": (
        [node("Slice", ["x_d", "first", "end"], ["y"])],
        {"first": np.array([0, 1, 2, 0]), "end": np.array([1, 4, 6, 5])},
    ),
    "split": (
        [
            node("Split", ["x_d", "sizes"], ["p", "q"], axis=1),
            node("Concat", ["q", "p"], ["y"], axis=1),
        ],
        {"sizes": np.array([1, 3])},
    ),
    "upsample": (
        [node("Resize", ["x_d", "", "times"], ["y"], mode="nearest",
              coordinate_transformation_mode="asymmetric", nearest_mode="floor")],
        {"times": np.array([1, 1, 2, 2], np.float32)},
    ),
}  # fmt: skip


def _between(rng, middle, constants, folder, step=_STEP, kind="s8", flips=0.001):
    """The operators `middle` between quantized x and quantized y."""
    parts = [
        _quantized("x", 0.02, _ZEROS[kind]),
        (middle, constants),
        _quantized("y", step, _ZEROS[kind]),
    ]
    return _both(rng, _imported(parts, (1, 4, 6, 6), folder), (1, 4, 6, 6), step, flips)


def _all_quantized(after):
    """Whether floats are only quantized at the start and dequantized at the end."""
    floats = [n.op for n in after.nodes if after.tensors[n.outputs[0]].dtype is DType.F32]
    return [type(op) for op in floats if not isinstance(op, ops.Transpose)] == [ops.Cast]


@pytest.mark.parametrize("stored", ["u8", "s8"])
@pytest.mark.parametrize("name", _FUNCTIONS)
def test_a_function_works_on_quantized_values(rng, name, stored, tmp_path):
    flips = 1.0 if name == "prelu" else 0.0  # slopes are quantized
    after = _between(rng, _FUNCTIONS[name], _CONSTANTS, tmp_path, np.float32(0.01), stored, flips)
    assert _all_quantized(after)


_CLASSES = [c for c in vars(ops).values() if isinstance(c, type) and issubclass(c, ops.Function)]
_ONE_OPERAND = sorted(c.onnx for c in _CLASSES if c.onnx and DType.F32 in c.dtypes)


@pytest.mark.parametrize("name", _ONE_OPERAND)
def test_a_function_with_or_without_quantized_values_is_within_a_step(rng, name, tmp_path):
    """Input and output have other scales and zero points."""
    step = 0.03
    parts = [
        _quantized("x", 0.02, np.array(-8, np.int8)),
        ([node(name, ["x_d"], ["y"])], {}),
        _quantized("y", step, np.array(11, np.int8)),
    ]
    graph = _imported(parts, (1, 4, 6, 6), tmp_path)
    x = {"x": rng.uniform(-2, 2, (1, 4, 6, 6)).astype(np.float32)}
    real, made = (evaluate(g, x).outputs["y_d"] for g in (graph, integer_form(graph)))
    exact = _imported(parts[:2], (1, 4, 6, 6), tmp_path, "y")
    defined = np.isfinite(evaluate(exact, x).outputs["y"])
    np.testing.assert_array_equal(real[defined], made[defined])


@pytest.mark.parametrize("step", [0.02, 0.05])
@pytest.mark.parametrize("name", _MOVES)
def test_what_moves_values_moves_quantized_values(rng, name, step, tmp_path):
    """With the same scale, or with requantization."""
    after = _between(rng, *_MOVES[name], tmp_path, np.float32(step))
    assert _all_quantized(after)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((4, 5, 2, 2), {"strides": [2, 2]}),
        ((4, 5, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
        ((4, 3, 3, 3), {"group": 2}),
        ((4, 9, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((4, 1, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1], "group": 4}),
    ],
)
@pytest.mark.parametrize("per_channel", [False, True])
def test_a_transposed_convolution_works_on_quantized_values(
    rng, shape, options, per_channel, tmp_path
):
    made, constants = _weights(rng, shape, per_channel, axis=1)
    middle = [*made, node("ConvTranspose", ["x_d", "w_d"], ["y"], **options)]
    assert _all_quantized(_between(rng, middle, constants, tmp_path))


def test_a_grouped_convolution_works_on_quantized_values(rng, tmp_path):
    made, constants = _weights(rng, (6, 2, 3, 3), True)
    middle = [*made, node("Conv", ["x_d", "w_d"], ["y"], group=2)]
    after = _between(rng, middle, constants, tmp_path)
    assert _dtypes(after, ops.Conv2D) == [DType.I8, DType.I8]
    assert _all_quantized(after)


@pytest.mark.parametrize(
    "other",
    [node("Conv", ["x_d", "w_d"], ["other"]), node("Relu", ["tail"], ["other"])],
    ids=["computed", "constant"],
)
def test_parts_are_quantized_before_they_are_together(rng, other, tmp_path):
    made, constants = _weights(rng, (5, 4, 1, 1), False)
    constants["tail"] = rng.uniform(-2, 2, (1, 4, 6, 6)).astype(np.float32)
    middle = [
        *made,
        node("Conv", ["x_d", "w_d"], ["first"]),
        other,
        node("Concat", ["first", "other"], ["y"], axis=1),
    ]
    after = _between(rng, middle, constants, tmp_path)
    assert {*_dtypes(after, ops.Conv2D)} == {DType.I8}
    assert _all_quantized(after)


def test_blocks_are_quantized_before_they_become_pixels(rng, tmp_path):
    made, constants = _weights(rng, (8, 4, 1, 1), False)
    blocks = node("DepthToSpace", ["c"], ["y"], blocksize=2)
    after = _between(rng, [*made, node("Conv", ["x_d", "w_d"], ["c"]), blocks], constants, tmp_path)
    assert _dtypes(after, ops.Conv2D) == [DType.I8]
    assert _all_quantized(after)


def test_parts_take_no_name_of_another_tensor(rng, tmp_path):
    made, constants = _weights(rng, (5, 4, 1, 1), False)
    middle = [
        *made,
        node("Conv", ["x_d", "w_d"], ["c"]),
        node("Relu", ["x_d"], ["y_q.1"]),
        node("Concat", ["c", "y_q.1"], ["y"], axis=1),
    ]
    assert _dtypes(_between(rng, middle, constants, tmp_path), ops.Conv2D) == [DType.I8]


def test_a_constant_that_quantized_values_cannot_hold_stays_in_f32(rng, tmp_path):
    """Its step of 40 / 127 would be larger than y's."""
    low = np.array([40, -1.5, -1.2, -0.5], np.float32).reshape(4, 1, 1)
    after = _between(
        rng, [node("Max", ["x_d", "low"], ["y"])], {"low": low}, tmp_path, np.float32(0.2)
    )
    assert _dtypes(after, ops.Maximum) == [DType.F32]


def test_what_has_no_integer_form_stays_in_f32(rng, tmp_path):
    parts = [
        _quantized("x", 0.02, _ZEROS["s8"]),
        ([node("CumSum", ["x_d", "axis"], ["y"])], {"axis": np.array(2)}),
        _quantized("y", _STEP, _ZEROS["s8"]),
    ]
    after = _both(rng, _imported(parts, (1, 3, 6, 6), tmp_path), (1, 3, 6, 6))
    assert not _all_quantized(after)


def test_a_model_in_f32_stays(tmp_path):
    graph = import_model(
        save(model([node("Relu", ["x"], ["y"])], [value("x", [2])], ["y"]), tmp_path)
    )
    assert integer_form(graph) is graph


@pytest.mark.parametrize("step", [0.031, 0.05, 0.07])
def test_a_change_of_scale_rounds_once(step, tmp_path):
    """LiteRT's fixed-point factors would round some values twice."""
    stored = np.arange(-128, 128, dtype=np.int8)
    parts = [
        _quantized("x", 0.02, np.array(-8, np.int8)),
        ([node("Identity", ["x_d"], ["y"])], {}),
        _quantized("y", step, np.array(11, np.int8)),
    ]
    graph = _imported(parts, stored.shape, tmp_path)
    x = {"x": (stored.astype(np.float32) + 8) * np.float32(0.02)}
    real, made = (evaluate(g, x).outputs["y_d"] for g in (graph, integer_form(graph)))
    np.testing.assert_array_equal(real, made)


@pytest.mark.parametrize(("mode", "size"), [("align_corners", (14, 12)), ("half_pixel", (18, 18))])
def test_an_image_is_enlarged_as_in_floats(rng, mode, size, tmp_path):
    """In sizes without ties, which sums in floats decide by chance."""
    step, size = np.float32(0.02), np.array([1, 4, *size])
    resize = node("Resize", ["x_d", "", "", "size"], ["y"],
                  mode="linear", coordinate_transformation_mode=mode)  # fmt: skip
    ends = [_quantized(name, step, _ZEROS["u8"]) for name in "xy"]
    parts = [ends[0], ([resize], {"size": size}), ends[1]]
    after = _both(rng, _imported(parts, (1, 4, 6, 6), tmp_path), (1, 4, 6, 6), step, 0.0)
    assert _dtypes(after, ops.ResizeBilinear) == [DType.I8]


def test_an_output_is_transposed_before_it_is_dequantized(rng):
    tensors = {
        "x": Tensor("x", (2, 3, 5), DType.I8, quant(0.05, -3)),
        "real": Tensor("real", (2, 3, 5), DType.F32),
        "y": Tensor("y", (5, 2, 3), DType.F32),
    }
    nodes = (
        Node("real", ops.Cast(DType.F32), ("x",), ("real",)),
        Node("y", ops.Transpose((2, 0, 1)), ("real",), ("y",)),
    )
    graph = Graph("g", tensors, nodes, ("x",), ("y",))
    after = transpose_bytes(graph)
    assert [type(n.op) for n in after.nodes] == [ops.Transpose, ops.Cast]
    x = {"x": rng.integers(-128, 128, (2, 3, 5)).astype(np.int8)}
    want, found = (evaluate(each, x).outputs["y"] for each in (graph, after))
    np.testing.assert_array_equal(found, want)
    inside = replace(graph, outputs=("y", "real"))
    assert transpose_bytes(inside) is inside  # others read the reals
