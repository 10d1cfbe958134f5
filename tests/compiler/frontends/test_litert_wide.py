"""Layers with 16-bit activations and 8-bit weights ("16x8"), bit for bit against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.errors import InputError
from tests.support.litert_cases import Operand, Single, check, fixed, given

pytestmark = pytest.mark.peers

_X_SCALE = 2e-4
_WINDOW = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": 0}


def _codes(rng, shape) -> Operand:
    return given(rng.integers(-32768, 32768, shape).astype(np.int16), _X_SCALE)


def _layer(seed, x_shape, w_shape, out, bias, axis=0, channels=True):
    """Operands x, weights and bias, and an output whose values cover the full range."""
    rng = np.random.default_rng(seed)
    count = w_shape[axis]
    scale = rng.uniform(0.001, 0.01, count if channels else 1).astype(np.float32)
    w = fixed(rng.integers(-127, 128, w_shape).astype(np.int8), scale, axis=axis)
    ins = [_codes(rng, x_shape), w]
    if bias is not None:
        values = rng.integers(-(2**20), 2**20, count).astype(bias)
        ins.append(fixed(values, np.float32(_X_SCALE) * scale))
    taps = np.prod(w_shape) / count
    step = 2e-4 * float(np.sqrt(taps)) * rng.uniform(0.5, 20)
    return ins, [given(np.zeros(out, np.int16), step)]


_CONVS = {
    "plain": ((2, 7, 6, 5), (20, 3, 2, 5), {}),
    "stride-relu": ((1, 9, 8, 3), (7, 3, 3, 3), {"StrideH": 2, "FusedActivationFunction": 1}),
    "dilated": ((1, 9, 8, 3), (4, 3, 2, 3), {"DilationHFactor": 2, "Padding": 1}),
    "deep": ((1, 2, 2, 700), (3, 1, 1, 700), {"FusedActivationFunction": 3}),
    "groups": ((1, 5, 5, 6), (8, 3, 3, 3), {}),
}


@pytest.mark.parametrize("channels", [True, False])
@pytest.mark.parametrize("bias", [np.int64, np.int32])
@pytest.mark.parametrize("name", _CONVS)
def test_convolutions(files, litert, name, bias, channels):
    x, w, more = _CONVS[name]
    ins, outs = _layer(len(name), x, w, (1, 1, 1, 1), bias, channels=channels)
    fields = _WINDOW | more | ({"QuantizedBiasType": 2} if bias is np.int32 else {})
    check(files, litert, Single("CONV_2D", ins, outs, "Conv2DOptions", fields))


@pytest.mark.parametrize("bias", [np.int64, None])
@pytest.mark.parametrize(
    ("multiplier", "more"),
    [(1, {}), (3, {"StrideW": 2}), (1, {"DilationWFactor": 2, "FusedActivationFunction": 1})],
)
def test_depthwise(files, litert, multiplier, more, bias):
    ins, outs = _layer(
        multiplier, (2, 7, 6, 19), (1, 3, 2, 19 * multiplier), (1, 1, 1, 1), bias, axis=3
    )
    fields = _WINDOW | {"DepthMultiplier": multiplier} | more
    check(files, litert, Single("DEPTHWISE_CONV_2D", ins, outs, "DepthwiseConv2DOptions", fields))


@pytest.mark.parametrize("channels", [True, False])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("bias", [np.int64, np.int32, None])
def test_fully_connected(files, litert, bias, keep, channels):
    ins, outs = _layer(3, (2, 3, 301), (37, 301), (6, 37), bias, channels=channels)
    fields = {"KeepNumDims": keep} | ({"QuantizedBiasType": 2} if bias is np.int32 else {})
    check(files, litert, Single("FULLY_CONNECTED", ins, outs, "FullyConnectedOptions", fields))


@pytest.mark.parametrize("bias", [np.int64, None])
@pytest.mark.parametrize(("size", "padding"), [((10, 8), 0), ((9, 7), 0), ((11, 9), 1)])
def test_transpose_conv(files, litert, size, padding, bias):
    ins, outs = _layer(5, (2, 5, 4, 3), (4, 3, 3, 3), (2, *size, 4), bias)
    shape = fixed(np.array([2, *size, 4], np.int32))
    fields = {"StrideH": 2, "StrideW": 2, "Padding": padding}
    operands = [shape, ins[1], ins[0], *ins[2:]]
    check(files, litert, Single("TRANSPOSE_CONV", operands, outs, "TransposeConvOptions", fields))


@pytest.mark.parametrize("beta", [1.0, 0.3])
@pytest.mark.parametrize("scale", [1e-5, 3e-4, 2e-3, 0.1])
@pytest.mark.parametrize("size", [1, 2, 64, 3000])
def test_softmax(files, litert, size, scale, beta):
    x = np.random.default_rng(size).integers(-32768, 32768, (7, size)).astype(np.int16)
    outs = [given(np.zeros((7, size), np.int16), 1 / 32768)]
    fields = {"Beta": beta}
    check(files, litert, Single("SOFTMAX", [given(x, scale)], outs, "SoftmaxOptions", fields))


def _prelu(seed, scales, shape=(1, 1, 7)):
    rng = np.random.default_rng(seed)
    x, slope, y = scales
    slopes = fixed(rng.integers(-128, 128, shape).astype(np.int8), slope, [0])
    ins = [given(rng.integers(-32768, 32768, (2, 3, 5, 7)).astype(np.int16), x), slopes]
    return Single("PRELU", ins, [given(np.zeros((1, 1, 1, 7), np.int16), y)])


@pytest.mark.parametrize("shape", [(1, 1, 7), (3, 5, 7), (1, 1, 1)])
@pytest.mark.parametrize("scales", [(2e-4, 0.01, 2e-4), (3e-4, 0.002, 5e-4), (1e-4, 0.9, 1e-2)])
def test_prelu(files, litert, scales, shape):
    check(files, litert, _prelu(3, scales, shape))


@pytest.mark.parametrize("scales", [(0.001, 0.0001, 0.01), (1e-4, 1e-4, 3e-4), (0.1, 0.01, 0.01)])
def test_quotients(files, litert, scales):
    """For quotients of 0 or 1 LiteRT shifts by more bits than a word has and returns the maximum;
    avoid them."""
    rng = np.random.default_rng(4)
    over, under = (rng.integers(2000, 32768, (9, 50)).astype(np.int16) for _ in range(2))
    over *= rng.choice(np.int16([-1, 1]), over.shape)
    under *= rng.choice(np.int16([-1, 1]), under.shape)
    a, b, y = scales
    out = [given(np.zeros((1, 1), np.int16), y)]
    check(files, litert, Single("DIV", [given(over, a), given(under, b)], out, "DivOptions"))


def contents(files) -> list[bytes]:
    """One file per operator."""
    fields = _WINDOW | {"DepthMultiplier": 1}
    conv, image = _layer(1, (1, 4, 4, 4), (4, 2, 2, 4), (1, 1, 1, 1), np.int64)
    rows, dense = _layer(1, (2, 4), (3, 4), (2, 3), np.int64)
    apart, depth = _layer(1, (1, 4, 4, 4), (1, 2, 2, 4), (1, 1, 1, 1), np.int64, 3)
    size = fixed(np.array([1, 5, 5, 4], np.int32))
    apart_by = {"StrideH": 1, "StrideW": 1, "Padding": 1}
    soft = [given(np.zeros((2, 4), np.int16), 1 / 32768)]
    singles = [
        _prelu(1, (2e-4, 0.01, 2e-4)),
        Single("CONV_2D", conv, image, "Conv2DOptions", _WINDOW),
        Single("DEPTHWISE_CONV_2D", apart, depth, "DepthwiseConv2DOptions", fields),
        Single("FULLY_CONNECTED", rows, dense, "FullyConnectedOptions"),
        Single("SOFTMAX", [given(rows[0].value, 1e-3)], soft, "SoftmaxOptions", {"Beta": 1.0}),
        Single("TRANSPOSE_CONV", [size, conv[1], conv[0]], image, "TransposeConvOptions", apart_by),
    ]
    return [single.content(files) for single in singles]


def _refused(code, options, bias, zero=0):
    axis, w = (3, (1, 2, 2, 4)) if code == "DEPTHWISE_CONV_2D" else (0, (4, 2, 2, 4))
    ins, outs = _layer(1, (1, 4, 4, 4), w, (1, 1, 1, 1), bias, axis)
    outs = [given(np.zeros((1, 1, 1, 1), np.int16), 0.1, zero)]
    return Single(code, ins, outs, options, _WINDOW)


@pytest.mark.parametrize(
    ("single", "message"),
    [
        (_refused("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", np.int32), "bias of type s64"),
        (_refused("CONV_2D", "Conv2DOptions", np.int64, 3), "output with one scale and zero"),
        (_refused("CONV_2D", "Conv2DOptions", np.float32), "expected bias of type s64 or s32"),
    ],
)
def test_inconsistent_quantization_is_refused(files, single, message):
    with pytest.raises(InputError, match=message):
        graph_from_tflite(single.content(files), "case")
