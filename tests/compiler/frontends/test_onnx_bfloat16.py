"""bfloat16 in ONNX files, imported as f32, against ml_dtypes."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
bfloat16 = pytest.importorskip("ml_dtypes").bfloat16

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from edgekit.host.compiler.frontends import import_model  # noqa: E402
from edgekit.host.compiler.ir.evaluate import evaluate  # noqa: E402
from edgekit.host.compiler.ir.types import DType  # noqa: E402
from edgekit.host.compiler.transforms.passes.pipeline import run_passes  # noqa: E402
from edgekit.host.errors import InputError  # noqa: E402

_F32, _BF16 = TensorProto.FLOAT, TensorProto.BFLOAT16
_X = np.float32([1.0, 1.00390625, 1.01171875, -3.1, 3.4e38, 1e-40, np.inf, -np.inf, np.nan])


def _node(kind, ins, out="y", **attributes):
    return helper.make_node(kind, ins.split(), [out], **attributes)


def _import(folder, nodes, inputs, output=_BF16, constants=()):
    """`inputs`: the ONNX type by name, all of shape [9]."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, [9]) for name, kind in inputs.items()],
        [helper.make_tensor_value_info("y", output, None)],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in dict(constants).items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return import_model(path)


def _y(graph, **values):
    (found,) = {evaluate(g, values).outputs["y"].tobytes() for g in (graph, run_passes(graph)[0])}
    return np.frombuffer(found, graph.tensors["y"].dtype.numpy)


def _rounded(x):
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(bfloat16).astype(np.float32)


@pytest.mark.parametrize("output", [_F32, _BF16])
def test_a_cast_rounds_to_even(output, tmp_path):
    nodes = [_node("Cast", "x", "n", to=_BF16), _node("Cast", "n", to=output)]
    np.testing.assert_array_equal(_y(_import(tmp_path, nodes, {"x": _F32}, output), x=_X),
                                  _rounded(_X))  # fmt: skip


def test_only_outputs_of_operators_are_rounded(tmp_path):
    """As with f16, intermediate results stay f32. Constants are widened."""
    w = np.linspace(0.7, 1.3, 9).astype(bfloat16)
    nodes = [_node("Mul", "x w", "n"), _node("Mul", "n w")]
    graph = _import(tmp_path, nodes, {"x": _BF16}, constants={"w": w})
    assert graph.tensors["x"].dtype is graph.tensors["y"].dtype is DType.F32
    assert graph.notes == (
        "input x: bfloat16 in the file, f32 here",
        "output y: bfloat16 in the file, f32 here",
    )
    wide = w.astype(np.float32)
    np.testing.assert_array_equal(_y(graph, x=_rounded(_X)), _rounded(_rounded(_X) * wide * wide))


@pytest.mark.parametrize(
    ("nodes", "rounds"),
    [
        ([_node("CastLike", "x b")], True),
        ([_node("CastLike", "x w")], True),
        ([_node("Add", "b w", "n"), _node("CastLike", "x n")], True),
        ([_node("Cast", "b", "n", to=_F32), _node("CastLike", "x n")], False),
        ([_node("CastLike", "b x", "n"), _node("CastLike", "x n")], False),
        ([_node("Constant", "", "n", value=numpy_helper.from_array(np.ones(1, bfloat16))),
          _node("CastLike", "x n")], True),
        ([_node("Shape", "b", "s"),
          _node("ConstantOfShape", "s", "n", value=numpy_helper.from_array(np.ones(1, bfloat16))),
          _node("CastLike", "x n")], True),
    ],
)  # fmt: skip
def test_what_is_cast_like_another_has_its_type(nodes, rounds, tmp_path):
    constants = {"w": np.ones(9, bfloat16)}
    graph = _import(tmp_path, nodes, {"x": _F32, "b": _BF16}, _F32, constants)
    np.testing.assert_array_equal(_y(graph, x=_X, b=_X), _rounded(_X) if rounds else _X)


def test_scales_of_quantized_values(tmp_path):
    scale, zero = np.asarray(0.3, bfloat16), np.asarray(3, np.uint8)
    nodes = [_node("QuantizeLinear", "x s z", "q"), _node("DequantizeLinear", "q s z")]
    graph = _import(tmp_path, nodes, {"x": _BF16}, constants={"s": scale, "z": zero})
    x, wide = _rounded(np.linspace(-1, 9, 9)), scale.astype(np.float32)
    quantized = np.clip(np.rint(x / wide) + 3, 0, 255)
    np.testing.assert_array_equal(_y(graph, x=x), _rounded((quantized - 3) * wide))


@pytest.mark.parametrize(
    ("given", "to"), [(_BF16, TensorProto.UINT16), (TensorProto.UINT16, _BF16)]
)
def test_its_bits_are_not_there(given, to, tmp_path):
    graph = [_node("BitCast", "x", to=to)]
    with pytest.raises(InputError, match="found bfloat16, which is converted to f32"):
        _import(tmp_path, graph, {"x": given}, to)
