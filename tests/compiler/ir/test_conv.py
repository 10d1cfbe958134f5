"""Convolutions against plain loops over every output, tap and channel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.host.compiler.ir.ops import Conv2D, DepthwiseConv2D, TransposeConv2D
from edgekit.host.compiler.ir.types import Activation, DType, Padding, ShapeError


def conv_loops(x, w, bias, stride, dilation, padding):
    n, height, width, channels = x.shape
    oc, kh, kw, _ = w.shape
    rows = (height + padding.top + padding.bottom - (kh - 1) * dilation[0] - 1) // stride[0] + 1
    columns = (width + padding.left + padding.right - (kw - 1) * dilation[1] - 1) // stride[1] + 1
    y = np.zeros((n, rows, columns, oc))
    for b, r, c, o in np.ndindex(*y.shape):
        total = bias[o]
        for i, j, k in np.ndindex(kh, kw, channels):
            row = r * stride[0] + i * dilation[0] - padding.top
            column = c * stride[1] + j * dilation[1] - padding.left
            if 0 <= row < height and 0 <= column < width:
                total += x[b, row, column, k] * w[o, i, j, k]
        y[b, r, c, o] = total
    return y


def depthwise_as_conv(w, channels, multiplier):
    """Depthwise weights as ordinary convolution weights, zero between different channels."""
    _, kh, kw, total = w.shape
    dense = np.zeros((total, kh, kw, channels))
    for o in range(total):
        dense[o, :, :, o // multiplier] = w[0, :, :, o]
    return dense


def transpose_loops(x, w, bias, stride, padding, size):
    n, height, width, channels = x.shape
    oc, kh, kw, _ = w.shape
    y = np.tile(bias, (n, *size, 1)).astype(np.float64)
    for b, r, c, i, j in np.ndindex(n, height, width, kh, kw):
        row, column = r * stride[0] + i - padding.top, c * stride[1] + j - padding.left
        if 0 <= row < size[0] and 0 <= column < size[1]:
            for o, k in np.ndindex(oc, channels):
                y[b, row, column, o] += x[b, r, c, k] * w[o, i, j, k]
    return y


GEOMETRIES = [
    ((1, 1), (1, 1), Padding()),
    ((2, 1), (1, 1), Padding(1, 1, 0, 1)),
    ((1, 3), (2, 1), Padding(2, 1, 1, 0)),
    ((2, 2), (1, 2), Padding(0, 1, 2, 2)),
]


@pytest.mark.parametrize(("stride", "dilation", "padding"), GEOMETRIES)
@pytest.mark.parametrize("shape", [(1, 5, 7, 3), (2, 4, 5, 1)])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 2)])
def test_conv_f32_equals_loops(apply, rng, stride, dilation, padding, shape, kernel):
    x = rng.normal(size=shape).astype(np.float32)
    w = rng.normal(size=(5, *kernel, shape[3])).astype(np.float32)
    bias = rng.normal(size=5).astype(np.float32)
    y = apply(Conv2D(stride, dilation, padding), x, w, bias)
    expected = conv_loops(x, w, bias, stride, dilation, padding)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("stride", "dilation", "padding"), GEOMETRIES)
@pytest.mark.parametrize("multiplier", [1, 3])
def test_depthwise_f32_equals_loops(apply, rng, stride, dilation, padding, multiplier):
    x = rng.normal(size=(2, 5, 7, 4)).astype(np.float32)
    w = rng.normal(size=(1, 3, 2, 4 * multiplier)).astype(np.float32)
    bias = rng.normal(size=4 * multiplier).astype(np.float32)
    y = apply(DepthwiseConv2D(stride, dilation, padding, multiplier), x, w, bias)
    dense = depthwise_as_conv(w, 4, multiplier)
    expected = conv_loops(x, dense, bias, stride, dilation, padding)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("stride", "padding", "size"),
    [
        ((1, 1), Padding(), (6, 6)),
        ((2, 2), Padding(0, 1, 0, 0), (8, 8)),
        ((2, 3), Padding(1, 0, 0, 0), (8, 12)),
    ],
)
def test_transpose_conv_f32_equals_loops(apply, rng, stride, padding, size):
    x = rng.normal(size=(2, 4, 4, 3)).astype(np.float32)
    w = rng.normal(size=(5, 3, 2 if stride[1] == 2 else 3, 3)).astype(np.float32)
    bias = rng.normal(size=5).astype(np.float32)
    y = apply(TransposeConv2D(stride, padding, size), x, w, bias)
    expected = transpose_loops(x, w, bias, stride, padding, size)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("activation", list(Activation))
def test_residual_and_activation_follow_the_bias(apply, rng, activation):
    x = rng.normal(size=(1, 3, 3, 2)).astype(np.float32)
    w = rng.normal(size=(4, 1, 1, 2)).astype(np.float32)
    bias, residual = np.float32([5, -5, 1, 0]), rng.normal(size=(1, 3, 3, 4)).astype(np.float32)
    y = apply(Conv2D(activation=activation), x, w, bias, residual)
    total = conv_loops(x, w, bias, (1, 1), (1, 1), Padding()) + residual
    np.testing.assert_allclose(y, np.clip(total, *activation.bounds), rtol=1e-5, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dtype=st.sampled_from([np.int8, np.uint8]),
    activation=st.sampled_from(list(Activation)),
)
def test_quantized_conv_is_within_a_step_of_the_real_result(
    apply, quantized, seed, kernel, stride, dtype, activation
):
    rng = np.random.default_rng(seed)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = quantized(
        rng.integers(low, high + 1, (1, 5, 4, 3)).astype(dtype), 0.04, int(rng.integers(low, high))
    )
    per_channel = dtype is np.int8
    scale = rng.uniform(0.01, 0.05, 4) if per_channel else 0.02
    weights = rng.integers(low, high + 1, (4, *kernel, 3)).astype(dtype)
    w = quantized(weights, scale, 0 if per_channel else 131)
    bias = rng.integers(-900, 900, 4).astype(np.int32)
    y = quantized(None, 0.11, int(rng.integers(low, high)))
    padding = Padding(0, kernel[0] - 1, kernel[1] - 1, 0)
    op = Conv2D(stride, (1, 1), padding, activation)
    found = apply(op, x, w, bias, to=y)
    real_bias = bias * np.float64(np.float32(0.04)) * np.asarray(scale, np.float32)
    real = conv_loops(x.real, w.real, np.broadcast_to(real_bias, 4), stride, (1, 1), padding)
    stored = np.clip(real, *activation.bounds) / np.float32(0.11) + y.zero
    assert np.abs(found - np.clip(stored, low, high)).max() <= 0.52 + (
        0.5 if activation is not Activation.NONE else 0
    )


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", ["conv", "depthwise"])
def test_s8_weights_under_f32_images_stay_near_the_real_result(
    apply, quantized, rng, per_channel, kind
):
    x = rng.normal(size=(2, 5, 4, 6)).astype(np.float32)
    x[1] *= 100  # scales are per image
    scale = rng.uniform(0.01, 0.02, 6) if per_channel else 0.02
    shape, axis = ((6, 3, 3, 6), 0) if kind == "conv" else ((1, 3, 3, 6), 3)
    w = quantized(rng.integers(-127, 128, shape).astype(np.int8), scale, 0, axis)
    bias = rng.normal(size=6).astype(np.float32)
    op = Conv2D() if kind == "conv" else DepthwiseConv2D()
    y = apply(op, x, w, bias)
    dense = w.real if kind == "conv" else depthwise_as_conv(w.real, 6, 1)
    expected = conv_loops(x, dense, bias, (1, 1), (1, 1), Padding())
    for image in range(2):
        worst = np.abs(y[image] - expected[image]).max()
        assert worst < 0.02 * np.abs(expected[image]).max()


def test_an_image_of_zeros_stays_zero_under_dynamic_quantization(apply, quantized):
    x = np.zeros((1, 3, 3, 2), np.float32)
    w = quantized(np.ones((4, 1, 1, 2), np.int8), 0.5)
    assert not apply(Conv2D(), x, w, np.zeros(4, np.float32)).any()


X = np.zeros((1, 5, 5, 3), np.float32)
W = np.zeros((4, 3, 3, 3), np.float32)


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (Conv2D(), (X, W[..., :2]), "weights of shape"),
        (Conv2D(), (X[0], W), "image of rank 4"),
        (Conv2D(), (X, W[0]), "weights of rank 4"),
        (Conv2D(), (X,), "input 1"),
        (Conv2D(), (X, W, np.zeros(3, np.float32)), "bias of shape"),
        (Conv2D(), (X, W, np.zeros(4, np.int32)), "bias of type f32"),
        (Conv2D(stride=(0, 1)), (X, W), "stride and dilation"),
        (Conv2D(dilation=(3, 3)), (X, W), "holds one window"),
        (Conv2D(padding=Padding(top=2**20)), (X, W), "padding from 0"),
        (Conv2D(padding=Padding(top=-1)), (X, W), "padding from 0"),
        (Conv2D(), (X.astype(np.int32), W), "image of type"),
        (Conv2D(), (X, W, None, X), "residual of shape"),
        (DepthwiseConv2D(), (X, W), "weights of shape"),
        (DepthwiseConv2D(multiplier=0), (X, W), "multiplier"),
        (TransposeConv2D(out_size=(9, 9)), (X, W), "output size"),
        (TransposeConv2D(), (X, W), "output size"),
    ],
)
def test_misfits_are_refused(infer, op, operands, message):
    with pytest.raises(ShapeError, match=message):
        infer(op, *operands)


def test_an_8bit_image_without_a_scale_is_refused(infer):
    image = np.zeros((1, 5, 5, 3), np.int8)
    with pytest.raises(ShapeError, match="one scale"):
        infer(Conv2D(), image, np.zeros((4, 3, 3, 3), np.int8))


def test_the_shape_rule_gives_type_and_size(infer):
    op = Conv2D((2, 2), (1, 1), Padding(0, 1, 0, 1))
    assert infer(op, X, W) == [((1, 2, 2, 4), DType.F32)]


@pytest.mark.parametrize("pieces", [1, 200])
def test_a_large_image_is_done_in_pieces(apply, rng, pieces):
    x = rng.standard_normal((2, 11, 9, 3)).astype(np.float32)
    w = rng.standard_normal((4, 3, 2, 3)).astype(np.float32)
    residual = rng.standard_normal((2, 6, 9, 4)).astype(np.float32)
    op = Conv2D((2, 1), (1, 1), Padding(1, 1, 1, 0), Activation.RELU)
    whole = apply(op, x, w, None, residual)
    made = apply(op, x, w, None, residual, most_patches=pieces)
    np.testing.assert_allclose(made, whole, rtol=1e-6)
