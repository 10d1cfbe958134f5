"""Single Caffe layers compared with their definitions in NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from tests.support.caffe_models import image, layer, save

_RNG = np.random.default_rng(8)


def _random(*shape):
    return _RNG.uniform(-1, 1, shape).astype(np.float32)


_X, _Y = _random(2, 6, 5, 7), _random(2, 6, 5, 7)
_P = np.abs(_X) + 0.25
_C, _D = _random(6), _random(6)
_M = _random(6, 5, 7)


def _run(text, blobs, feeds, tmp_path):
    """The outputs as imported, checked to be the same after the passes."""
    inputs = "".join(image(*v.shape, name=n) for n, v in feeds.items())
    graph = import_model(save(inputs + text, blobs, tmp_path))
    made = evaluate(graph, feeds).outputs
    for name, value in evaluate(run_passes(graph)[0], feeds).outputs.items():
        np.testing.assert_allclose(value, made[name], rtol=1e-5, atol=1e-6)
    return made


def _pooled(x, kernel, stride, pad, average, ceil=True):
    """Caffe pooling, window by window."""
    n, c, h, w = x.shape
    rounded = math.ceil if ceil else math.floor
    counts = []
    for size, k, s, p in zip((h, w), kernel, stride, pad, strict=True):
        count = rounded((size + 2 * p - k) / s) + 1
        counts.append(count - 1 if p and (count - 1) * s >= size + p else count)
    y = np.empty((n, c, *counts))
    for i, j in np.ndindex(*counts):
        top, left = i * stride[0] - pad[0], j * stride[1] - pad[1]
        bottom = min(top + kernel[0], h + pad[0])
        right = min(left + kernel[1], w + pad[1])
        part = x[:, :, max(top, 0) : min(bottom, h), max(left, 0) : min(right, w)]
        area = (bottom - top) * (right - left)
        y[:, :, i, j] = part.sum((2, 3)) / area if average else part.max((2, 3))
    return y


@pytest.mark.parametrize("average", [False, True], ids=["MAX", "AVE"])
@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("kernel_size: 2 stride: 2", ((2, 2), (2, 2), (0, 0))),
        ("kernel_size: 3 stride: 2", ((3, 3), (2, 2), (0, 0))),
        ("kernel_size: 3 stride: 2 pad: 1", ((3, 3), (2, 2), (1, 1))),
        ("kernel_size: 3 stride: 1 pad: 1", ((3, 3), (1, 1), (1, 1))),
        ("kernel_h: 2 kernel_w: 3 stride_h: 1 stride_w: 3 pad_h: 1 pad_w: 2",
         ((2, 3), (1, 3), (1, 2))),
        ("kernel_size: 6 stride: 2", ((6, 6), (2, 2), (0, 0))),
        ("kernel_size: 2 stride: 2 ceil_mode: false", ((2, 2), (2, 2), (0, 0), False)),
        ("kernel_size: 2 stride: 2 round_mode: FLOOR", ((2, 2), (2, 2), (0, 0), False)),
    ],
)  # fmt: skip
def test_pools(average, text, window, tmp_path):
    kernel, stride, pad, *ceil = window
    method = "AVE" if average else "MAX"
    made = _run(layer("y", "Pooling", "x", rest=f"pooling_param {{ pool: {method} {text} }}"),
                {}, {"x": _X}, tmp_path)["y"]  # fmt: skip
    expected = _pooled(_X, kernel, stride, pad, average, *ceil)
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


def _convolved(x, w, bias, groups, stride, pad, dilation):
    n = x.shape[0]
    oc, depth, kh, kw = w.shape
    x = np.pad(x, ((0, 0), (0, 0), (pad[0], pad[0]), (pad[1], pad[1])))
    rows = (x.shape[2] - (kh - 1) * dilation - 1) // stride[0] + 1
    columns = (x.shape[3] - (kw - 1) * dilation - 1) // stride[1] + 1
    y = np.zeros((n, oc, rows, columns))
    for o in range(oc):
        first = o // (oc // groups) * depth
        for i, j in np.ndindex(kh, kw):
            part = x[:, first : first + depth, i * dilation :: stride[0], j * dilation :: stride[1]]
            y[:, o] += np.einsum("nchw,c->nhw", part[:, :, :rows, :columns], w[o, :, i, j])
    return y + (0 if bias is None else bias[:, None, None])


@pytest.mark.parametrize(
    ("kind", "text", "groups", "window"),
    [
        ("Convolution", "kernel_size: 3", 1, ((3, 3), (1, 1), (0, 0), 1)),
        ("Convolution", "kernel_size: 3 pad: 2 dilation: 2", 1, ((3, 3), (1, 1), (2, 2), 2)),
        ("Convolution", "kernel_h: 1 kernel_w: 3 pad_h: 0 pad_w: 1 stride_h: 2 stride_w: 1", 1,
         ((1, 3), (2, 1), (0, 1), 1)),
        ("Convolution", "kernel_size: 3 kernel_size: 2 stride: 2 group: 3", 3,
         ((3, 2), (2, 2), (0, 0), 1)),
        ("Convolution", "kernel_size: 3 pad: 1 group: 6", 6, ((3, 3), (1, 1), (1, 1), 1)),
        ("DepthwiseConvolution", "kernel_size: 3 pad: 1", 6, ((3, 3), (1, 1), (1, 1), 1)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("biased", [True, False])
def test_convolutions(kind, text, groups, window, biased, tmp_path):
    kernel, stride, pad, dilation = window
    w = _random(12, 6 // groups, *kernel)
    rest = f"num_output: 12 {text}" + ("" if biased else " bias_term: false")
    blobs = {"y": [w, _random(12)] if biased else [w]}
    made = _run(layer("y", kind, "x", rest=f"convolution_param {{ {rest} }}"), blobs,
                {"x": _X}, tmp_path)["y"]  # fmt: skip
    bias = blobs["y"][1] if biased else None
    expected = _convolved(_X, w, bias, groups, stride, pad, dilation)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "groups", "kernel", "stride", "pad"),
    [
        ("kernel_size: 2 stride: 2", 1, 2, 2, 0),
        ("kernel_size: 4 stride: 2 pad: 1 group: 6", 6, 4, 2, 1),
        ("kernel_size: 3 stride: 1 pad: 1 group: 2", 2, 3, 1, 1),
        ("kernel_size: 5 stride: 3", 1, 5, 3, 0),
    ],
)
def test_deconvolutions(text, groups, kernel, stride, pad, tmp_path):
    w, bias = _random(6, 12 // groups, kernel, kernel), _random(12)
    made = _run(
        layer("y", "Deconvolution", "x", rest=f"convolution_param {{ num_output: 12 {text} }}"),
        {"y": [w, bias]}, {"x": _X}, tmp_path,
    )["y"]  # fmt: skip
    n, c, h, width = _X.shape
    full = np.zeros((n, 12, (h - 1) * stride + kernel, (width - 1) * stride + kernel))
    share = 12 // groups
    for ch, i, j in np.ndindex(c, h, width):
        first = ch // (c // groups) * share
        full[:, first : first + share, i * stride : i * stride + kernel,
             j * stride : j * stride + kernel] += (
            _X[:, ch, i, j][:, None, None, None] * w[ch])  # fmt: skip
    end = (full.shape[2] - pad, full.shape[3] - pad)
    expected = full[:, :, pad : end[0], pad : end[1]] + bias[:, None, None]
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)


def _across(x, size, alpha, beta, k):
    wide = np.pad(x * x, ((0, 0), (size // 2, size // 2), (0, 0), (0, 0)))
    sums = sum(wide[:, i : i + x.shape[1]] for i in range(size))
    return x / (k + alpha / size * sums) ** beta


def _within(x, size, alpha, beta):
    mean = _pooled(x * x, (size, size), (1, 1), (size // 2, size // 2), True)
    return x / (1 + alpha * mean) ** beta


def _ch(v):
    return v[:, None, None]


def _standard(x, axes, eps=0.0):
    centered = x - x.mean(axes, keepdims=True)
    return centered / (np.sqrt((centered**2).mean(axes, keepdims=True)) + eps)


def _softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _interpolated(x, height, width):
    for axis, size in ((2, height), (3, width)):
        at = np.linspace(0, x.shape[axis] - 1, size)
        low = np.minimum(np.floor(at).astype(int), x.shape[axis] - 1)
        high = np.minimum(low + 1, x.shape[axis] - 1)
        part = (at - low).reshape([-1 if a == axis else 1 for a in range(4)])
        x = np.take(x, low, axis) * (1 - part) + np.take(x, high, axis) * part
    return x


_TWO = {"x": _X, "z": _Y}
_LAYERS = {
    "AbsVal": ("", [], lambda x: np.abs(x)),
    "BNLL": ("", [], lambda x: np.log1p(np.exp(x))),
    "Clip": ("clip_param { min: -0.5 max: 0.25 }", [], lambda x: np.clip(x, -0.5, 0.25)),
    "Dropout": ("", [], lambda x: x),
    "Dropout-unscaled": ("dropout_param { dropout_ratio: 0.25 scale_train: false }", [],
                         lambda x: x * 0.75),
    "ELU": ("elu_param { alpha: 0.5 }", [], lambda x: np.where(x > 0, x, 0.5 * np.expm1(x))),
    "Exp": ("exp_param { base: 2 scale: 3 shift: 0.5 }", [], lambda x: 2 ** (0.5 + 3 * x)),
    "Exp-e": ("", [], np.exp),
    "Log": ("log_param { base: 10 scale: 2 shift: 3 }", [], lambda x: np.log10(3 + 2 * x)),
    "PReLU": ("", [_C], lambda x: np.where(x > 0, x, x * _ch(_C))),
    "PReLU-shared": ("prelu_param { channel_shared: true }", [_C[:1]],
                     lambda x: np.where(x > 0, x, x * _C[0])),
    "Power": ("power_param { power: 3 scale: 0.5 shift: 2 }", [], lambda x: (2 + x / 2) ** 3),
    "Power-2": ("power_param { power: 2 scale: -1 }", [], lambda x: x * x),
    "Power-half": ("power_param { power: 0.5 shift: 2 }", [], lambda x: np.sqrt(2 + x)),
    "Power-inverse": ("power_param { power: -1 shift: 2 }", [], lambda x: 1 / (2 + x)),
    "ReLU": ("", [], lambda x: np.maximum(x, 0)),
    "ReLU-slope": ("relu_param { negative_slope: 0.1 }", [], lambda x: np.where(x > 0, x, 0.1 * x)),
    "ReLU6": ("", [], lambda x: np.clip(x, 0, 6)),
    "Sigmoid": ("", [], lambda x: 1 / (1 + np.exp(-x))),
    "Swish": ("swish_param { beta: 2 }", [], lambda x: x / (1 + np.exp(-2 * x))),
    "TanH": ("", [], np.tanh),
    "Threshold": ("threshold_param { threshold: 0.25 }", [], lambda x: x > 0.25),
    "LRN": ("lrn_param { local_size: 3 alpha: 0.5 beta: 0.7 k: 2 }", [],
            lambda x: _across(x, 3, 0.5, 0.7, 2)),
    "LRN-within": ("lrn_param { local_size: 3 alpha: 0.5 norm_region: WITHIN_CHANNEL }", [],
                   lambda x: _within(x, 3, 0.5, 0.75)),
    "Scale": ("scale_param { bias_term: true }", [_C, _D], lambda x: x * _ch(_C) + _ch(_D)),
    "Scale-all": ("scale_param { num_axes: -1 }", [_M], lambda x: x * _M),
    "Scale-last": ("scale_param { axis: -1 }", [_random(7)], None),
    "Scale-one": ("scale_param { num_axes: 0 }", [np.float32(3).reshape(())], lambda x: 3 * x),
    "Bias": ("", [_C], lambda x: x + _ch(_C)),
    "BatchNorm": ("batch_norm_param { eps: 0.01 }",
                  [_C * 4, np.abs(_D) * 4, np.array([4], np.float32)],
                  lambda x: (x - _ch(_C)) / np.sqrt(np.abs(_ch(_D)) + 0.01)),
    "BatchNorm-batch": ("batch_norm_param { use_global_stats: false }", [],
                        lambda x: (x - x.mean((0, 2, 3), keepdims=True))
                        / np.sqrt(x.var((0, 2, 3), keepdims=True) + 1e-5)),
    "MVN": ("", [], lambda x: _standard(x, (2, 3), 1e-9)),
    "MVN-across": ("mvn_param { across_channels: true eps: 0.1 }", [],
                   lambda x: _standard(x, (1, 2, 3), 0.1)),
    "MVN-mean": ("mvn_param { normalize_variance: false }", [],
                 lambda x: x - x.mean((2, 3), keepdims=True)),
    "Normalize": ("norm_param { across_spatial: false channel_shared: false }", [_C],
                  lambda x: x / np.sqrt((x * x).sum(1, keepdims=True)) * _ch(_C)),
    "Normalize-all": ("", [_C[:1]],
                      lambda x: x / np.sqrt((x * x).sum((1, 2, 3), keepdims=True)) * _C[0]),
    "Softmax": ("", [], lambda x: _softmax(x, 1)),
    "Softmax-2": ("softmax_param { axis: 2 }", [], lambda x: _softmax(x, 2)),
    "ArgMax": ("argmax_param { axis: 1 }", [], lambda x: x.argmax(1)[:, None]),
    "ArgMax-flat": ("argmax_param { out_max_val: true }", [], lambda x: np.stack(
        [x.reshape(2, -1).argmax(1), x.reshape(2, -1).max(1)], 1)[:, :, None]),
    "Reduction": ("reduction_param { axis: 1 coeff: 2 }", [], lambda x: 2 * x.sum((1, 2, 3))),
    "Reduction-ASUM": ("reduction_param { axis: 2 operation: ASUM }", [],
                       lambda x: np.abs(x).sum((2, 3))),
    "Reduction-SUMSQ": ("reduction_param { axis: -1 operation: SUMSQ }", [],
                        lambda x: (x * x).sum(3)),
    "Reduction-MEAN": ("reduction_param { axis: 1 operation: MEAN }", [],
                       lambda x: x.mean((1, 2, 3))),
    "Flatten": ("", [], lambda x: x.reshape(2, -1)),
    "Flatten-some": ("flatten_param { axis: 1 end_axis: 2 }", [], lambda x: x.reshape(2, 30, 7)),
    "Reshape": ("reshape_param { shape { dim: 0 dim: -1 dim: 7 } }", [],
                lambda x: x.reshape(2, 30, 7)),
    "Reshape-part": ("reshape_param { shape { dim: 3 dim: 2 } axis: 1 num_axes: 1 }", [],
                     lambda x: x.reshape(2, 3, 2, 5, 7)),
    "Permute": ("permute_param { order: 0 order: 2 order: 3 order: 1 }", [],
                lambda x: x.transpose(0, 2, 3, 1)),
    "Permute-short": ("permute_param { order: 1 }", [], lambda x: x.transpose(1, 0, 2, 3)),
    "Tile": ("tile_param { tiles: 3 }", [], lambda x: np.tile(x, (1, 3, 1, 1))),
    "ShuffleChannel": ("shuffle_channel_param { group: 3 }", [], lambda x: x.reshape(
        2, 3, 2, 5, 7).swapaxes(1, 2).reshape(x.shape)),
    "Upsample": ("upsample_param { scale: 2 }", [], lambda x: x.repeat(2, 2).repeat(2, 3)),
    "Interp": ("interp_param { height: 9 width: 10 }", [], lambda x: _interpolated(x, 9, 10)),
    "Interp-zoom": ("interp_param { zoom_factor: 2 }", [], lambda x: _interpolated(x, 9, 13)),
}  # fmt: skip


@pytest.mark.parametrize("name", _LAYERS)
def test_layers_of_one_bottom(name, tmp_path):
    rest, blobs, expected = _LAYERS[name]
    if name == "Scale-last":
        expected = lambda x: x * blobs[0]  # noqa: E731
    text = layer("y", name.split("-")[0], "x", rest=rest)
    made = _run(text, {"y": blobs} if blobs else {}, {"x": _X}, tmp_path)["y"]
    wanted = expected(_X)
    assert made.dtype == np.float32 and made.shape == wanted.shape
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("kind", "rest", "expected"),
    [
        ("Eltwise", "", lambda x, z: x + z),
        ("Eltwise", "eltwise_param { operation: SUM coeff: 1 coeff: -2 }", lambda x, z: x - 2 * z),
        ("Eltwise", "eltwise_param { operation: PROD }", lambda x, z: x * z),
        ("Eltwise", "eltwise_param { operation: MAX }", np.maximum),
        ("Concat", "", lambda x, z: np.concatenate([x, z], 1)),
        ("Concat", "concat_param { concat_dim: 0 }", lambda x, z: np.concatenate([x, z], 0)),
        ("Concat", "concat_param { axis: -1 }", lambda x, z: np.concatenate([x, z], 3)),
        ("Scale", "scale_param { axis: 0 }", lambda x, z: x * z),
        ("Bias", "bias_param { axis: 0 }", lambda x, z: x + z),
    ],
)
def test_layers_of_two_bottoms(kind, rest, expected, tmp_path):
    made = _run(layer("y", kind, "x z", rest=rest), {}, _TWO, tmp_path)["y"]
    np.testing.assert_allclose(made, expected(_X, _Y), rtol=1e-5, atol=1e-6)


def test_a_factor_per_channel_and_a_sum(tmp_path):
    feeds = {"s": _random(2, 6, 1, 1), **_TWO}
    made = _run(layer("y", "Axpy", "s x z"), {}, feeds, tmp_path)["y"]
    np.testing.assert_allclose(made, feeds["s"] * _X + _Y, rtol=1e-5, atol=1e-6)


def test_a_part_as_large_as_another(tmp_path):
    feeds = {"x": _X, "z": _random(2, 6, 3, 4)}
    text = layer("y", "Crop", "x z", rest="crop_param { axis: 2 offset: 1 offset: 2 }")
    made = _run(text + layer("ends", "Silence", "z", "unused"), {}, feeds, tmp_path)
    np.testing.assert_array_equal(made["y"], _X[:, :, 1:4, 2:6])


@pytest.mark.parametrize("rest", ["", "slice_param { slice_point: 2 axis: 1 }"])
def test_parts(rest, tmp_path):
    made = _run(layer("y", "Slice", "x", "a b", rest), {}, {"x": _X}, tmp_path)
    at = 2 if rest else 3
    np.testing.assert_array_equal(made["a"], _X[:, :at])
    np.testing.assert_array_equal(made["b"], _X[:, at:])


@pytest.mark.parametrize("transposed", [False, True])
def test_products(transposed, tmp_path):
    w, bias = _random(4, 35), _random(4)
    rest = f"inner_product_param {{ num_output: 4 axis: 2 transpose: {str(transposed).lower()} }}"
    made = _run(layer("y", "InnerProduct", "x", rest=rest),
                {"y": [w.T if transposed else w, bias]}, {"x": _X}, tmp_path)["y"]  # fmt: skip
    expected = np.einsum("nck,ok->nco", _X.reshape(2, 6, 35), w) + bias
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)


def test_boxes_around_pixels(tmp_path):
    rest = (
        "prior_box_param { min_size: 4 max_size: 9 aspect_ratio: 4 flip: false variance: 0.1 "
        "variance: 0.2 variance: 0.3 variance: 0.4 step: 8 offset: 0.5 img_w: 40 img_h: 20 }"
    )
    feeds = {"x": _random(1, 2, 2, 3), "image": _random(1, 3, 16, 24)}
    text = layer("boxes", "PriorBox", "x image", rest=rest)
    text += layer("sums", "Reduction", "x") + layer("all", "Scale", "boxes sums", rest="scale_param"
                                                    " { axis: 0 }")  # fmt: skip
    made = _run(text, {}, feeds, tmp_path)["all"] / feeds["x"].sum()
    wanted = []
    for i, j in np.ndindex(2, 3):
        for w, h in ((4, 4), (6, 6), (8, 2)):
            cx, cy = (j + 0.5) * 8, (i + 0.5) * 8
            wanted += [(cx - w / 2) / 40, (cy - h / 2) / 20, (cx + w / 2) / 40, (cy + h / 2) / 20]
    np.testing.assert_allclose(made[0, 0], wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(made[0, 1, :4], [0.1, 0.2, 0.3, 0.4], rtol=1e-4)
