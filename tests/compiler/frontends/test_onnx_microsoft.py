"""ONNX Runtime's contrib operators, each in a separate model, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.frontends.onnx.operators import onnx_operators
from edgekit.host.compiler.ir.evaluate import COMPUTED_BYTES, evaluate
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from tests.support.onnx_models import model, node, save, value

pytestmark = pytest.mark.engines

_RNG = np.random.default_rng(7)
_S, _Z, _T = np.float32(0.02), np.uint8(120), np.float32(0.03)


def _f32(*shape):
    return _RNG.standard_normal(shape).astype(np.float32)


def _u8(*shape):
    return _RNG.integers(0, 256, shape).astype(np.uint8)


def _s8(*shape):
    """7-bit values: ONNX Runtime's 8-bit product pairs saturate on x86 without VNNI."""
    return _RNG.integers(-63, 64, shape).astype(np.int8)


def _case(kind, computed, *constants, outputs=1, domain="com.microsoft", **attributes):
    """`computed` and `constants` are arrays in input order; None marks an absent input."""
    return pytest.param(kind, computed, constants, outputs, domain, attributes, id=kind)


_Q = (_S, _Z, _T, np.uint8(100))
_IMAGE = _u8(1, 6, 5, 4)
_LSTM = [_s8(2, 5, 28), _s8(2, 7, 28), _f32(2, 56), None, None, None, None]
_LSTM += [np.full(2, 0.01, np.float32), np.zeros(2, np.int8), np.full(2, 0.02, np.float32)]
_ROWS = _f32(2, 3, 8)
_TOKENS, _PROJECTED = _f32(2, 3, 8), [_f32(8, 24), _f32(24)]
_KEPT = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
_GROUPED = {"num_heads": 4, "kv_num_heads": 2}  # of 16 values each
_PROMPT = [_f32(2, 3, 64), _f32(2, 3, 32), _f32(2, 3, 32)]
_STEP = [_f32(2, 1, 64), _f32(2, 1, 32), _f32(2, 1, 32), _f32(2, 2, 5, 16), _f32(2, 2, 5, 16)]
_CHUNK = [x[:1] for x in (*_PROMPT, *_STEP[3:])]
_TURNS = (_f32(9, 8), _f32(9, 8))


def _grouped(computed, ends, total, *more, **attributes):
    """Constants are the total length and `more`."""
    own = [*computed, *[None] * (5 - len(computed)), np.array(ends, np.int32)]
    total = np.array(total, np.int32)
    attributes |= _GROUPED
    return _case("GroupQueryAttention", own, total, *more, outputs=3, **attributes)


_CASES = [
    _grouped(_PROMPT, [2, 2], 3),
    _grouped([np.concatenate(_PROMPT, 2)], [2, 2], 3, *_TURNS, do_rotary=1),
    _grouped([*_PROMPT, *_STEP[3:]], [2, 2], 3, softcap=1.5, scale=0.5),
    _grouped(_STEP, [5, 5], 6),
    _grouped(_STEP, [5, 3], 6, *_TURNS, do_rotary=1, rotary_interleaved=1),
    _grouped(_STEP, [3, 2], 4, local_window_size=2),
    _grouped(_CHUNK, [7], 8, *_TURNS, do_rotary=1),
    _grouped(_CHUNK, [7], 8, None, None, None, _f32(1, 4, 3, 8), softcap=2.0),
    _grouped(_STEP, [5, 3], 6, *_TURNS, np.array([[5], [2]]), do_rotary=1),
    _case("Trilu", [_f32(2, 3, 4)], np.array(1), upper=0),
    _case("Pad", [_f32(2, 3)], np.array([0, 1, 1, 0]), np.float32(2)),
    _case("ExpandDims", [_f32(2, 3)], np.array(-1, np.int32)),
    _case("QuantizeLinear", [_f32(3, 5)], _S, _Z),
    _case("DequantizeLinear", [_u8(3, 5)], _S, _Z),
    _case("QLinearAdd", [_u8(3, 5)], _S, _Z, _u8(5), _T, np.uint8(9), np.float32(0.04), _Z),
    _case("QLinearMul", [_s8(3, 5)], _S, np.int8(3), _s8(3, 1), _T, np.int8(9), _S, np.int8(4)),
    _case("QLinearAveragePool", [_u8(1, 3, 6, 7)], *_Q, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    _case("QLinearAveragePool", [_IMAGE], *_Q, kernel_shape=[2, 2], channels_last=1),
    _case("QLinearGlobalAveragePool", [_u8(1, 3, 6, 7)], *_Q),
    _case("QLinearGlobalAveragePool", [_IMAGE], *_Q, channels_last=1),
    _case("QLinearLeakyRelu", [_u8(3, 5)], *_Q, alpha=0.2),
    _case("QLinearSigmoid", [_u8(3, 5)], *_Q[:2], np.float32(1 / 256), np.uint8(0)),
    _case(
        "QLinearSoftmax", [_u8(3, 5)], *_Q[:2], np.float32(1 / 256), np.uint8(0), axis=1, opset=13
    ),
    _case(
        "QLinearConcat",
        [np.float32(0.04), np.uint8(7)],
        _u8(2, 3),
        _S,
        _Z,
        _u8(2, 4),
        _T,
        _Z,
        axis=1,
    ),
    _case("QLinearWhere", [_u8(3, 5) > 99], _u8(3, 5), _S, _Z, _u8(3, 5), _T, _Z, _S, _Z),
    _case("NhwcMaxPool", [_IMAGE], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    _case(
        "QLinearConv",
        [_u8(1, 5, 6, 4)],
        _S,
        _Z,
        _s8(3, 4, 3, 3),
        np.full(3, 0.01, np.float32),
        np.zeros(3, np.int8),
        np.float32(0.2),
        _Z,
        channels_last=1,
    ),
    _case(
        "QGemm",
        [_u8(3, 6)],
        _S,
        _Z,
        _s8(4, 6),
        np.full(4, 0.01, np.float32),
        np.zeros(4, np.int8),
        _RNG.integers(-99, 99, 4).astype(np.int32),
        _T,
        _Z,
        transB=1,
    ),
    _case("QGemm", [_u8(3, 6)], _S, _Z, _u8(6, 4), _T, np.uint8(128), None),
    _case("DynamicQuantizeMatMul", [_f32(3, 6)], _s8(6, 4), _S, np.int8(0), _f32(4)),
    _case("MatMulIntegerToFloat", [_u8(3, 6), _s8(6, 4), _S, _T, _Z, np.int8(3), _f32(4)]),
    _case(
        "DynamicQuantizeLSTM",
        [_f32(30, 1, 5)],
        *_LSTM,
        np.zeros(2, np.int8),
        outputs=3,
        hidden_size=7,
        direction="bidirectional",
    ),
    _case(
        "DynamicQuantizeLSTM",
        [_f32(6, 1, 5)],
        *_LSTM,
        np.zeros(2, np.int8),
        outputs=3,
        hidden_size=7,
        direction="bidirectional",
    ),
    _case("Attention", [_TOKENS], *_PROJECTED, num_heads=2),
    _case("Attention", [_TOKENS], *_PROJECTED, num_heads=2, unidirectional=1),
    _case("Attention", [_TOKENS], *_PROJECTED, _KEPT, num_heads=2, scale=0.3),
    _case("Attention", [_TOKENS], *_PROJECTED, np.array([2, 3], np.int32), num_heads=2),
    _case("Attention", [_TOKENS], *_PROJECTED, np.array([3, 3, 1, 0], np.int32), num_heads=2),
    _case(
        "Attention",
        [_TOKENS, *_PROJECTED, None, _f32(2, 2, 2, 5, 4)],
        outputs=2,
        num_heads=2,
        unidirectional=1,
    ),
    _case("Attention", [_TOKENS], *_PROJECTED, None, None, _f32(2, 2, 3, 3), num_heads=2),
    _case("MultiHeadAttention", [_TOKENS, _f32(2, 5, 8), _f32(2, 5, 12)], num_heads=2),
    _case(
        "MultiHeadAttention",
        [_TOKENS, _f32(2, 5, 8), _f32(2, 5, 8)],
        _f32(24),
        np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32),
        _f32(1, 2, 3, 5),
        num_heads=2,
    ),
    _case(
        "MultiHeadAttention",
        [_TOKENS, _TOKENS, _TOKENS, None, None, None, _f32(2, 2, 4, 4), _f32(2, 2, 4, 4)],
        outputs=3,
        num_heads=2,
    ),
    _case("MultiHeadAttention", [_TOKENS, _f32(2, 2, 5, 4), _f32(2, 2, 5, 4)], num_heads=2),
    _case(
        "QAttention",
        [_u8(2, 3, 8)],
        _s8(8, 24),
        _f32(24),
        _S,
        _T,
        _KEPT,
        _Z,
        np.int8(0),
        num_heads=2,
    ),
    _case(
        "RotaryEmbedding",
        [_f32(2, 3, 8)],
        np.array([[0, 1, 2], [4, 2, 1]]),
        _f32(9, 2),
        _f32(9, 2),
        num_heads=2,
    ),
    _case("RotaryEmbedding", [_f32(2, 2, 3, 4)], np.array([3]), _f32(9, 2), _f32(9, 2)),
    _case("GridSample", [_f32(1, 2, 4, 5), _f32(1, 3, 6, 2)], padding_mode="reflection"),
    _case("GridSample", [_f32(1, 2, 4, 5), _f32(1, 3, 6, 2)], mode="bicubic", align_corners=1),
    _case("Gelu", [_f32(3, 5)]),
    _case("BiasGelu", [_f32(3, 5)], _f32(5)),
    _case("FastGelu", [_f32(3, 5)], _f32(5)),
    _case("QuickGelu", [_f32(3, 5)], alpha=1.5),
    _case("FusedConv", [_f32(1, 4, 6, 5)], _f32(3, 4, 3, 3), _f32(3), activation="Relu"),
    _case(
        "FusedConv",
        [_f32(1, 4, 6, 5)],
        _f32(3, 4, 3, 3),
        _f32(3),
        activation="LeakyRelu",
        activation_params=[0.3],
    ),
    _case(
        "FusedConv",
        [_f32(1, 4, 6, 5)],
        _f32(3, 4, 3, 3),
        _f32(3),
        activation="Clip",
        activation_params=[-0.5, 2.0],
    ),
    _case(
        "FusedConv", [_f32(1, 4, 6, 5)], _f32(3, 4, 3, 3), None, _f32(1, 3, 4, 3), activation="Relu"
    ),
    _case(
        "FusedGemm",
        [_f32(3, 5)],
        _f32(4, 5),
        _f32(4),
        transB=1,
        activation="LeakyRelu",
        activation_alpha=0.2,
    ),
    _case("FusedMatMul", [_f32(2, 3, 5), _f32(2, 4, 5)], transB=1, alpha=0.25),
    _case("TransposeMatMul", [_f32(2, 5, 3), _f32(2, 5, 4)], transA=1),
    _case(
        "SkipLayerNormalization",
        [_ROWS, _f32(2, 3, 8)],
        _f32(8),
        _f32(8),
        _f32(8),
        outputs=4,
        epsilon=1e-5,
    ),
    _case("SkipSimplifiedLayerNormalization", [_ROWS, _f32(2, 3, 8)], _f32(8), epsilon=1e-5),
    _case("SimplifiedLayerNormalization", [_ROWS], _f32(8), domain="", axis=-1, epsilon=1e-5),
    _case(
        "EmbedLayerNormalization",
        [_RNG.integers(0, 9, (2, 3)).astype(np.int32)],
        np.ones((2, 3), np.int32),
        _f32(9, 8),
        _f32(5, 8),
        _f32(2, 8),
        _f32(8),
        _f32(8),
        np.array([[1, 1, 0], [1, 1, 1]], np.int32),
        outputs=3,
        epsilon=1e-5,
    ),
    _case(
        "MatMulNBits",
        [_f32(3, 40)],
        _u8(5, 2, 16),
        _f32(10),
        _u8(5),
        K=40,
        N=5,
        bits=4,
        block_size=32,
    ),
    _case("MatMulNBits", [_f32(3, 64)], _u8(5, 2, 16), _f32(10), K=64, N=5, bits=4, block_size=32),
    _case("FusedMatMul", [_f32(3, 2, 4, 5), _f32(2, 4, 5, 6)], transBatchA=1),
    _case("FusedMatMul", [_f32(2, 3, 5), _f32(4, 2, 5)], transBatchB=1, transB=1),
    _case("FusedMatMul", [_f32(5, 2, 3), _f32(5, 2, 4)], transA=1, transBatchA=1, transBatchB=1),
    _case("FusedConv", [_f32(1, 2, 3, 4, 4)], _f32(3, 2, 2, 3, 3), _f32(3), activation="Relu"),
]


def _session(proto):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), options, ["CPUExecutionProvider"]
    )


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "computed", "constants", "count", "domain", "attributes"), _CASES)
def test_an_operator_is_what_onnx_runtime_computes(
    kind, computed, constants, count, domain, attributes, tmp_path
):
    given = {f"x{i}": np.asarray(v) for i, v in enumerate((*computed, *constants)) if v is not None}
    names = [f"x{i}" if f"x{i}" in given else "" for i in range(len((*computed, *constants)))]
    free = [n for n in names[: len(computed)] if n and given[n].ndim]
    outs = [f"y{i}" for i in range(count)]
    proto = model(
        [node(kind, names, outs, domain=domain, **attributes)],
        [value(n, given[n].shape, given[n].dtype) for n in free],
        outs,
        {n: v for n, v in given.items() if n not in free},
    )
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    for out in proto.graph.output:
        out.ClearField("type")
    session = _session(proto)
    inputs = {n: given[n] for n in free}
    graph = import_model(save(proto, tmp_path))
    wanted = dict(
        zip([o.name for o in session.get_outputs()], session.run(None, inputs), strict=True)
    )
    for each in (graph, run_passes(graph)[0]):
        made = evaluate(each, inputs).outputs
        for name, want in wanted.items():
            assert made[name].dtype == want.dtype and made[name].shape == want.shape
            atol = 1.0 if want.dtype.kind in "iu" else 2e-5 * max(np.abs(want).max(), 1)
            got = made[name].astype(np.float64)
            np.testing.assert_allclose(got, want.astype(np.float64), rtol=0, atol=atol)


@pytest.mark.slow
def test_weights_of_8_bits_are_widened_whatever_their_size(tmp_path):
    """They are 32 times as large until they are the operands of products."""
    size, hidden = 3700, 512
    weights = {"w": _s8(1, size, 4 * hidden), "r": _s8(1, hidden, 4 * hidden)}
    # At 16 times their size, more than any file may make us compute.
    assert 16 * sum(w.nbytes for w in weights.values()) > COMPUTED_BYTES
    numbers = {"s": np.full(1, 0.01, np.float32), "z": np.ones(1, np.int8)}
    ins = ["x", "w", "r", *[""] * 5, "s", "z", "s", "z"]
    made = node("DynamicQuantizeLSTM", ins, ["y"], domain="com.microsoft", hidden_size=hidden)
    proto = model([made], [value("x", (3, 1, size))], ["y"], weights | numbers)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    graph = import_model(save(proto, tmp_path))
    assert not [n for n in graph.nodes if all(graph.tensors[i].data is not None for i in n.inputs)]


def test_every_operator_has_a_test():
    tested = {f"{p.values[4]}:{p.values[0]}" for p in _CASES}
    known = {k for k in onnx_operators() if k.startswith("com.microsoft:")}
    assert known <= tested
