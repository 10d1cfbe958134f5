"""The factors between scales: their order of operations, precision and rounding are LiteRT's.

Scales are decimals, powers of two and others, so that ties and neighbors of ties are frequent.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.litert_cases import Single, check, fixed, given, variable

pytestmark = pytest.mark.peers

_RANGES = {np.int8: (-128, 127), np.uint8: (0, 255), np.int16: (-32768, 32767)}
_BYTES = (np.int8, np.uint8)
_ALL = (*_BYTES, np.int16)


class Draw:
    """Random operands; `seed` also selects the kind of scales."""

    def __init__(self, seed: int, kind) -> None:
        self.rng, self.way, self.kind = np.random.default_rng(seed), seed % 3, kind

    def scale(self, least: float = 0.002, most: float = 0.25) -> float:
        rng = self.rng
        if self.way == 0:
            return 2.0 ** int(rng.integers(np.ceil(np.log2(least)), np.floor(np.log2(most)) + 1))
        if self.way == 1:
            return float(np.exp(rng.uniform(np.log(least), np.log(most))))
        return int(rng.integers(np.ceil(least * 1000), most * 1000 + 1)) / 1000

    def unit(self) -> float:
        return self.scale() / (256 if self.kind is np.int16 else 1)

    def zero(self) -> int:
        return 0 if self.kind is np.int16 else int(self.rng.integers(*_RANGES[self.kind]))

    def quantized(self, *shape, kind=None):
        low, high = _RANGES[kind or self.kind]
        return self.rng.integers(low, high + 1, shape).astype(kind or self.kind)

    def every(self):
        """All quantized 8-bit values, or many 16-bit ones."""
        low, high = _RANGES[self.kind]
        step = 1 if self.kind is not np.int16 else 7
        return given(np.arange(low, high + 1, step).astype(self.kind), self.unit(), self.zero())

    def out(self, shape, unit=None, zero=None, kind=None):
        zero = self.zero() if zero is None else zero
        return given(np.zeros(shape, kind or self.kind), unit or self.unit(), zero)


def _unary(code, options="", **fields):
    def build(draw: Draw) -> Single:
        x = draw.every()
        return Single(code, [x], [draw.out(x.value.shape)], options, fields)

    return build


def _fraction(code):
    def build(draw: Draw) -> Single:
        x, (low, _) = draw.every(), _RANGES[draw.kind]
        y = draw.out(x.value.shape, *((1 / 32768, 0) if low < -128 else (1 / 256, low)))
        return Single(code, [x], [y], "SoftmaxOptions" if code == "SOFTMAX" else "", {"Beta": 0.3})

    return build


def _root(code):
    def build(draw: Draw) -> Single:
        x = draw.every()
        zero = int(x.zero[0])
        x = given(x.value[x.value > zero], x.scale[0], zero)
        return Single(code, [x], [draw.out(x.value.shape)])

    return build


def _tanh(draw: Draw) -> Single:
    x = draw.every()
    return Single("TANH", [x], [draw.out(x.value.shape, 1 / 32768)])


def _dense(draw: Draw) -> Single:
    """A layer whose sums often are halves of an output step."""
    few = draw.kind is np.uint8 or draw.rng.random() < 0.5
    scales = [draw.scale(0.001, 0.03) for _ in range(1 if few else 4)]
    if draw.kind is np.uint8:
        w = fixed(draw.quantized(4, 6), scales, [120])
    else:
        w = fixed(np.maximum(draw.quantized(4, 6, kind=np.int8), -127), scales)
    x = given(draw.quantized(24, 6), draw.unit(), draw.zero())
    wide = np.int64 if draw.kind is np.int16 else np.int32
    units = np.float32(x.scale[0]) * np.float32(scales)
    bias = fixed(draw.rng.integers(-5000, 5000, 4).astype(wide), units)
    step = x.scale[0] * max(scales) * 2.0 ** int(draw.rng.integers(7, 10))
    return Single("FULLY_CONNECTED", [x, w, bias], [draw.out((24, 4), step)],
                  "FullyConnectedOptions")  # fmt: skip


def _mul(draw: Draw) -> Single:
    """Ratios of scales of up to 2^30, beyond which LiteRT's kernels differ."""
    pair = [given(draw.quantized(16, 16), draw.unit(), draw.zero()) for _ in range(2)]
    ratio = 2.0 ** int(draw.rng.integers(-4, 30)) * 1.1
    y = draw.out((16, 16), pair[0].scale[0] * pair[1].scale[0] / ratio)
    return Single("MUL", pair, [y], "MulOptions")


def _clamp_far(draw: Draw) -> Single:
    x = draw.every()
    y = draw.out(x.value.shape, x.scale[0] / 2.0 ** int(draw.rng.integers(14, 30)))
    return Single("RELU", [x], [y])


def _pair(code, same=False):
    """Stored values whose scales differ, which LiteRT ignores."""

    def build(draw: Draw) -> Single:
        pair = [given(draw.quantized(16, 16), draw.unit(), draw.zero()) for _ in range(2)]
        return Single(code, pair, [draw.out((16, 16))])

    return build


_CASES = {
    "relu": (_unary("RELU"), _ALL),
    "relu6": (_unary("RELU6"), _ALL),
    "relu-n1-to-1": (_unary("RELU_N1_TO_1"), _BYTES),
    "leaky-relu": (_unary("LEAKY_RELU", "LeakyReluOptions", Alpha=0.2), _ALL),
    "gelu": (_unary("GELU", "GeluOptions"), _ALL),
    "abs": (_unary("ABS"), (np.int8, np.int16)),
    "logistic": (_fraction("LOGISTIC"), _BYTES),
    "softmax": (_fraction("SOFTMAX"), _ALL),
    "tanh": (_tanh, (np.int16,)),
    "sqrt": (_root("SQRT"), (np.int8, np.int16)),
    "rsqrt": (_root("RSQRT"), (np.int8, np.int16)),
    "dense": (_dense, _ALL),
    "mul": (_mul, _ALL),
    "clamp-far": (_clamp_far, _BYTES),
    "maximum": (_pair("MAXIMUM"), _ALL),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, (_, kinds) in _CASES.items() for kind in kinds]
)
def test_factors_are_litert_s(files, litert, name, kind):
    for seed in range(24):
        check(files, litert, _CASES[name][0](Draw(seed, kind)))


def contents(files) -> list[bytes]:
    """What the kernels compute: all cases with scales of each kind."""
    cases = [(build, kind) for build, kinds in _CASES.values() for kind in kinds]
    return [build(Draw(s, kind)).content(files) for build, kind in cases for s in range(3)]


def test_clamps_divide_scales_in_f32(files, litert):
    x = given(np.int8([10, 30, 50, 70]), 0.031)
    single = Single("RELU", [x], [given(np.zeros(4, np.int8), 0.02)])
    assert litert(single.content(files), single.inputs())["y0"].tolist() == [15, 46, 77, 108]
    check(files, litert, single)


@pytest.mark.parametrize(
    ("code", "x", "y"),
    [
        ("LOGISTIC", 2.0**-8, 2.0**-8),
        ("LOGISTIC", 2.0**-10, 2.0**-8),
        ("SQRT", 0.0036, 0.039),
        ("RSQRT", 0.0016, 0.1),
        ("RSQRT", 0.07, 0.0032),
    ],
)
def test_steps_are_rounded_to_f32_or_fixed_point(files, litert, code, x, y):
    quantized = given(np.arange(-127, 128, dtype=np.int8), x, -128)
    single = Single(code, [quantized], [given(np.zeros(255, np.int8), y, -128)])
    check(files, litert, single)


def test_the_approximate_gelu_is_computed_in_f32(files, litert):
    """Its last sum loses bits below 0, which 16-bit results show."""
    x = given(np.arange(-32768, 32768, 7, dtype=np.int16), 8.305691153509542e-05)
    y = given(np.zeros(x.value.shape, np.int16), 1.9993452951894142e-05)
    check(files, litert, Single("GELU", [x], [y], "GeluOptions", {"Approximate": True}))


def test_wide_softmax_multiplies_scale_and_beta_in_f32(files, litert):
    rows = np.random.default_rng(0).integers(-32768, 32768, (64, 8)).astype(np.int16)
    for scale in (0.0011739983456209302, 0.0007, 0.0009, 0.0013, 0.0017):
        ins, outs = [given(rows, scale)], [given(np.zeros((64, 8), np.int16), 1 / 32768)]
        check(files, litert, Single("SOFTMAX", ins, outs, "SoftmaxOptions", {"Beta": 0.3}))


@pytest.mark.parametrize("size", [1, 6, 40])
@pytest.mark.parametrize("unit", [1 / 255, 1 / 127, 0.003])
@pytest.mark.parametrize(
    ("kind", "to", "zero"),
    [(np.uint8, np.uint8, 0), (np.uint8, np.uint8, 9), (np.int8, np.int16, -32768)],
)
def test_softmax_in_another_unit(files, litert, kind, to, zero, unit, size):
    """LiteRT's reference kernel ignores the output scale, the other one the zero point of u8."""
    draw = Draw(2, kind)
    x = np.concatenate([draw.quantized(5, size), np.full((1, size), 7, kind)])
    y = draw.out(x.shape, unit if to is kind else unit / 128, zero, to)
    ins = [given(x, 0.05, 3)]
    check(files, litert, Single("SOFTMAX", ins, [y], "SoftmaxOptions", {"Beta": 1.0}, fast=True))


def test_transpose_conv_of_wide_images_with_a_short_bias(files, litert):
    for seed in range(6):
        draw = Draw(seed, np.int16)
        scales = [draw.scale(0.001, 0.03) for _ in range(4)]
        w = fixed(draw.quantized(4, 3, 3, 3, kind=np.int8), scales)
        x = given(draw.quantized(2, 5, 4, 3), draw.unit())
        bias = fixed(draw.rng.integers(-(2**20), 2**20, 4).astype(np.int32), 1e-4)
        y = draw.out((2, 10, 8, 4), x.scale[0] * max(scales) * 1000)
        ins = [fixed(np.array([2, 10, 8, 4], np.int32)), w, x, bias]
        fields = {"StrideH": 2, "StrideW": 2, "Padding": 0, "QuantizedBiasType": 2}
        check(files, litert, Single("TRANSPOSE_CONV", ins, [y], "TransposeConvOptions", fields))


def test_svdf_weights_of_time_without_a_scale_count_as_zero(files, litert):
    draw = Draw(2, np.int8)
    x = given(draw.rng.normal(0, 1, (2, 6)).astype(np.float32))
    ins = [x, fixed(draw.quantized(4, 6), 0.01), fixed(draw.quantized(4, 3)),
           fixed(draw.rng.normal(0, 1, 4).astype(np.float32)), variable((2, 12))]  # fmt: skip
    y = given(np.zeros((2, 4), np.float32))
    check(files, litert, Single("SVDF", ins, [y], "SVDFOptions", {"Rank": 1}))
