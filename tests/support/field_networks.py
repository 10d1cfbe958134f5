"""Networks of the kinds that people run on small boards, in sizes drawn from a seed.

`field_network(kind, seed, dtype)` makes one of `FIELD_KINDS`. Weights are random.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, DType, Graph, Operator, Tensor
from tests.support.large_networks import KINDS, Builder, drawn
from tests.support.op_cases import pick

_SIZES = (64, 80, 96, 112, 128, 160)

Network = Callable[[Builder, str], list[str]]


def _gate(b: Builder, x: str, reduction: int = 4) -> str:
    """Squeeze and excite."""
    width = b.shape(x)[3]
    small = b.add(ops.Mean((1, 2), keep_dims=True), x)
    small = b.conv(b.conv(small, max(width // reduction, 8), 1), width, 1, linear=True)
    return b.add(ops.Mul(), x, b.add(ops.Logistic(), small))


def _inverted(b: Builder, x: str, width: int, factor: int, stride: int, gated: bool) -> str:
    before = x
    x = b.depthwise(b.conv(x, b.shape(x)[3] * factor, 1), pick(b.rng, (3, 5)), stride)
    x = b.conv(_gate(b, x) if gated else x, width, 1, linear=True)
    return b.add(ops.Add(), before, x) if b.shape(x) == b.shape(before) else x


def _mobilenet1(b: Builder, x: str) -> list[str]:
    width = pick(b.rng, (8, 16, 32))
    x = b.conv(x, width, 3, 2)
    for stride in (1, 2, 1, 2, 1, 2, 1, 1, 2):
        width *= 1 + (stride == 2)
        x = b.conv(b.depthwise(x, 3, stride), width, 1)
    return [b.classes(x)]


def _mobilenet3(b: Builder, x: str) -> list[str]:
    x = b.add(ops.HardSwish(), b.conv(x, 16, 3, 2, linear=True))
    rows = ((16, 1, 2), (24, 4, 2), (24, 3, 1), (40, 4, 2), (40, 6, 1), (48, 3, 1), (96, 6, 2))
    gates = int(b.rng.integers(0, 3))  # the first block with a gate
    for i, (width, factor, stride) in enumerate(rows):
        x = _inverted(b, x, width, factor, stride, i >= gates)
    return [b.classes(b.conv(x, 288, 1))]


def _efficientnet(b: Builder, x: str) -> list[str]:
    x = _inverted(b, b.conv(x, 32, 3, 2), 16, 1, 1, True)
    for width, stride in ((24, 2), (24, 1), (40, 2), (40, 1), (80, 2), (112, 1)):
        x = _inverted(b, x, width, 6, stride, True)
    return [b.classes(b.conv(x, 320, 1))]


def _csp(b: Builder, x: str, width: int) -> str:
    """Half of the channels go through bottlenecks, as in YOLO."""
    both = b.conv(x, width, 1)
    half = width // 2
    one, y = (_slice(b, both, at, half) for at in (0, half))
    z = b.add(ops.Add(), y, b.conv(b.conv(y, half), half))
    return b.conv(b.add(ops.Concat(3), one, y, z), width, 1)


def _slice(b: Builder, x: str, at: int, width: int) -> str:
    shape = (*b.shape(x)[:3], width)
    op = ops.StridedSlice((0, 0, 0, at), (1, 1, 1, 1), shape, shape)
    return _like(b, op, x)


def _like(b: Builder, op: Operator, *x: str) -> str:
    """An operator that moves values: its result has its (first) input's scale and zero point."""
    made = b.add(op, *x)
    b.tensors[made] = Tensor(made, b.shape(made), b.dtype, b.tensors[x[0]].quant)
    return made


def _nearest(b: Builder, x: str) -> str:
    """Twice the height and width, each pixel four times."""
    for axis in (1, 2):
        name = f"t{len(b.tensors)}"
        picks = np.repeat(np.arange(b.shape(x)[axis], dtype=np.int32), 2)
        b.tensors[name] = Tensor(name, picks.shape, DType.I32, None, picks)
        source = b.tensors[x].quant
        x = b.add(ops.Gather(axis), x, name)
        b.tensors[x] = Tensor(x, b.shape(x), b.dtype, source)
    return x


def _yolo(b: Builder, x: str) -> list[str]:
    """A backbone, features joined from the smallest to the largest and back, three heads."""
    width = pick(b.rng, (8, 16))
    x = b.conv(b.conv(x, width, 3, 2), width * 2, 3, 2)
    found = []
    for _ in range(3):
        width *= 2
        x = _csp(b, b.conv(x, width * 2, 3, 2), width * 2)
        found.append(x)
    large, middle, small = found
    m = _csp(b, b.add(ops.Concat(3), _nearest(b, small), middle), b.shape(middle)[3])
    s = _csp(b, b.add(ops.Concat(3), _nearest(b, m), large), b.shape(large)[3])
    m = _csp(b, b.add(ops.Concat(3), b.conv(s, b.shape(s)[3], 3, 2), m), b.shape(m)[3])
    return [b.conv(t, 24, 1, linear=True) for t in (s, m, small)]


def _tiny_yolo(b: Builder, x: str) -> list[str]:
    width = pick(b.rng, (8, 16))
    for _ in range(5):
        x, width = b.add(ops.MaxPool2D((2, 2), (2, 2)), b.conv(x, width)), width * 2
    return [b.conv(b.conv(x, width), 30, 1, linear=True)]


def _ssd(b: Builder, x: str) -> list[str]:
    """MobileNet with heads at four sizes, whose rows are joined."""
    x = b.conv(x, 16, 3, 2)
    places, scores = [], []
    for i, width in enumerate((24, 32, 64, 96, 128)):
        x = b.conv(b.depthwise(x, 3, 2), width, 1)
        x = b.conv(b.depthwise(x), width, 1)
        if i:
            for found, values in ((places, 4), (scores, 6)):
                y = b.conv(b.depthwise(x), values * 3, 1, linear=True)
                found.append(b.add(ops.Reshape((1, int(np.prod(b.shape(y))) // values, values)), y))
    return [b.add(ops.Concat(1), *places), b.add(ops.Concat(1), *scores)]


def _ds_cnn(b: Builder, x: str) -> list[str]:
    x = b.conv(x, 64, 5, 2)
    for _ in range(4):
        x = b.conv(b.depthwise(x), 64, 1)
    return [b.classes(x)]


def _shuffle(b: Builder, x: str) -> list[str]:
    """ShuffleNet v2: half of the channels pass by, then both halves are interleaved."""
    x = b.add(ops.MaxPool2D((2, 2), (2, 2)), b.conv(x, 24, 3, 2))
    half = pick(b.rng, (24, 58))
    for stride in (2, 1, 1, 2, 1):
        if stride == 2:
            half *= 1 + (b.shape(x)[3] >= half * 2)
            one = b.conv(b.depthwise(x, 3, 2), half, 1)
            two = b.conv(b.depthwise(b.conv(x, half, 1), 3, 2), half, 1)
        else:
            one, two = (_slice(b, x, at, half) for at in (0, half))
            two = b.conv(b.depthwise(b.conv(two, half, 1)), half, 1)
        x = b.add(ops.Concat(3), one, two)
        n, h, w, c = b.shape(x)
        y = _like(b, ops.Reshape((n, h, w, 2, c // 2)), x)
        x = _like(b, ops.Reshape((n, h, w, c)), _like(b, ops.Transpose((0, 1, 2, 4, 3)), y))
    return [b.classes(x)]


def _ghost(b: Builder, x: str) -> list[str]:
    def module(x: str, width: int) -> str:
        y = b.conv(x, width // 2, 1)
        return b.add(ops.Concat(3), y, b.depthwise(y))

    x = b.conv(x, 16, 3, 2)
    for width, stride in ((24, 2), (24, 1), (40, 2), (40, 1), (80, 2)):
        before, x = x, module(x, b.shape(x)[3] * 3)
        x = b.depthwise(x, 3, 2) if stride == 2 else x
        x = module(_gate(b, x) if b.rng.random() < 0.4 else x, width)
        x = b.add(ops.Add(), x, before) if b.shape(x) == b.shape(before) else x
    return [b.classes(x)]


def _recurrent(b: Builder, x: str) -> list[str]:
    """Convolutions, then a stack of products over time, as a keyword spotter."""
    _, h, w, c = b.shape(x)
    x = b.conv(b.add(ops.Reshape((1, 1, h * w, c)), x), 32, 1)
    for width in (48, 64, 64):
        x = b.conv1(x, width, 9, pick(b.rng, (1, 2)))
    return [b.dense(b.add(ops.Mean((1, 2)), x), 12)]


def _audio(b: Builder, x: str) -> list[str]:
    """Dilation-free convolutions over time with residuals, on frames of a waveform."""
    _, h, w, c = b.shape(x)
    x = b.conv1(b.add(ops.Reshape((1, 1, h * w * c, 1)), x), 16, 25, 4)
    for _ in range(3):
        y = b.conv1(b.conv1(x, 32, 9, 1), b.shape(x)[3], 9, 1)
        x = b.conv1(b.add(ops.Add(), x, y), b.shape(x)[3] * 2, 9, 4)
    return [b.classes(x)]


def _tcn(b: Builder, x: str) -> list[str]:
    """Dilated convolutions over time with residuals; one vector of the whole sound."""
    _, h, w, c = b.shape(x)
    x = b.conv1(b.add(ops.Reshape((1, 1, h * w // 8, c * 8)), x), 32, 1, 1)
    for dilation in (1, 2, 4, 8, 16):
        y = b.conv1(b.conv1(x, 32, 3, 1, dilation), 32, 3, 1, dilation)
        x = b.add(ops.Add(Activation.RELU), x, y)
    frames = b.add(ops.Reshape(b.shape(x)[1:]), x)
    return [b.dense(b.add(ops.Mean((1,)), frames), 10)]


def _aspp(b: Builder, x: str) -> list[str]:
    """DeepLab: dilated branches and a pooled one, joined, at the size of the image."""
    image = x
    x = b.conv(b.conv(b.conv(x, 16, 3, 2), 32, 3, 2), 64)
    pooled = b.conv(b.add(ops.Mean((1, 2), keep_dims=True), x), 32, 1)
    branches = [b.conv(x, 32, 1), *(b.conv(x, 32, dilation=d) for d in (2, 4)), b.up(pooled, x)]
    x = b.conv(b.conv(b.add(ops.Concat(3), *branches), 32, 1), 5, 1, linear=True)
    return [b.up(x, image)]


def _larger_image(b: Builder, x: str) -> list[str]:
    """Super-resolution: residual blocks, then depth to space; a long skip."""
    width = pick(b.rng, (16, 32))
    first = x = b.conv(x, width)
    for _ in range(int(b.rng.integers(2, 5))):
        x = b.add(ops.Add(), x, b.conv(b.conv(x, width), width, linear=True))
    x = b.conv(b.add(ops.Add(), x, first), 12, linear=True)
    return [_like(b, ops.DepthToSpace(2), x)]


def _segments(b: Builder, x: str) -> list[str]:
    """MobileNet, a pooled branch (LR-ASPP), and the result at the size of the image."""
    image = x
    x = b.conv(x, 16, 3, 2)
    x = skip = _inverted(b, x, 24, 4, 2, False)
    for width in (40, 64):
        x = _inverted(b, x, width, 4, 2, False)
    whole = b.conv(b.add(ops.Mean((1, 2), keep_dims=True), x), 64, 1, linear=True)
    x = b.add(ops.Mul(), b.conv(x, 64, 1), b.add(ops.Logistic(), whole))
    x = b.conv(b.up(x, skip), 8, 1, linear=True)
    x = b.add(ops.Add(), x, b.conv(skip, 8, 1, linear=True))
    return [b.up(x, image)]


def _gated_residual(b: Builder, x: str) -> list[str]:
    x = b.conv(x, 32, 3, 2)
    for _ in range(3):
        y = _gate(b, b.conv(b.conv(x, 32), 32, linear=True))
        x = b.add(ops.Add(), x, y)
        x = b.conv(x, 32, 3, 2) if b.rng.random() < 0.4 else x
    return [b.classes(x)]


def _group_norm(b: Builder, x: str) -> list[str]:
    """Residual blocks; each convolution is normalized in 8 groups of channels, except in
    quantized networks."""

    def normalized(x: str, width: int, stride: int) -> str:
        x = b.conv(x, width, 3, stride, linear=True)
        if b.dtype is not DType.F32:
            return x
        x = b.add(ops.Transpose((0, 3, 1, 2)), x)
        groups = b.add(ops.LayerNorm(), b.add(ops.Reshape((1, 8, math.prod(b.shape(x)) // 8)), x))
        return b.add(ops.Transpose((0, 2, 3, 1)), b.add(ops.Reshape(b.shape(x)), groups))

    x = normalized(x, 32, 2)
    for stride in (1, 2, 1):
        width = 32 * stride if b.shape(x)[3] == 32 else 64
        y = normalized(b.add(ops.Clamp(Activation.RELU), normalized(x, width, stride)), width, 1)
        x = b.add(ops.Add(Activation.RELU), y, x if stride == 1 else b.conv(x, width, 1, stride))
    return [b.classes(x)]


def _volumes(b: Builder, x: str) -> list[str]:
    """Two convolutions of volumes, whose taps in depth are slices stacked as channels."""
    depth = b.shape(x)[1]
    x = _like(b, ops.Reshape((1, depth, depth, 3, 1)), x)
    for width in (16, 4):
        sizes = b.shape(x)[2:]
        x = _like(b, ops.Pad((0, 1, 0, 0, 0), (0, 1, 0, 0, 0)), x)
        cuts = (((0, k, 0, 0, 0), (1,) * 5, (1, depth, *sizes), (depth, *sizes)) for k in range(3))
        taps = [_like(b, ops.StridedSlice(*cut), x) for cut in cuts]
        x = b.conv(_like(b, ops.Concat(3), *taps), width)
        x = _like(b, ops.Reshape((1, *b.shape(x))), x)
    return [b.add(ops.Mean((1, 2, 3)), x)]


def _one(network: Callable[[Builder, str], str]) -> Network:
    return lambda b, x: [network(b, x)]


FIELD_KINDS: dict[str, Network] = {
    **{kind: _one(network) for kind, network in KINDS.items()},
    "mobilenet1": _mobilenet1,
    "mobilenet3": _mobilenet3,
    "efficientnet": _efficientnet,
    "yolo": _yolo,
    "tiny_yolo": _tiny_yolo,
    "ssd": _ssd,
    "ds_cnn": _ds_cnn,
    "shuffle": _shuffle,
    "ghost": _ghost,
    "keywords": _recurrent,
    "audio": _audio,
    "tcn": _tcn,
    "aspp": _aspp,
    "larger_image": _larger_image,
    "segments": _segments,
    "gated_residual": _gated_residual,
    "group_norm": _group_norm,
    "volumes": _volumes,
}


def field_network(kind: str, seed: int, dtype: DType = DType.F32) -> Graph:
    """The network of a kind and seed; its input is an image of 3 channels."""
    return drawn(f"{kind}-{seed}", FIELD_KINDS[kind], _SIZES, seed, dtype)
