"""Random networks of larger layers, whose images decide what memory they need.

`network(kind, seed, dtype)` makes one of `KINDS`: plain convolutions with pools, inverted
residuals, residual blocks, dense blocks, U-Nets, feature pyramids and encoders with attention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import (
    Activation,
    Array,
    DType,
    Graph,
    Node,
    Operator,
    Padding,
    Tensor,
)
from tests.support.op_cases import Rng, pick, quant

_SIZES = (48, 56, 64, 80, 96, 112, 128)
_WIDTHS = (16, 24, 32, 48, 64)

_KEEPS_QUANTIZED = (
    ops.MaxPool2D, ops.AveragePool2D, ops.ResizeBilinear, ops.Reshape, ops.Transpose
)  # fmt: skip


class Builder:
    """Appends operators to a graph of one input; images are channels-last."""

    def __init__(self, rng: Rng, dtype: DType) -> None:
        self.rng, self.dtype = rng, dtype
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []

    def tensor(self, *shape: int) -> str:
        """A computed tensor or an input."""
        name = f"t{len(self.tensors)}"
        quantized = quant(float(self.rng.uniform(0.03, 0.06)), int(self.rng.integers(-20, 20)))
        q = quantized if self.dtype.is_quantized else None
        self.tensors[name] = Tensor(name, shape, self.dtype, q)
        return name

    def weights(self, *shape: int, outputs: int = 0) -> str:
        """A constant with outputs of about the same size as inputs."""
        name = f"t{len(self.tensors)}"
        sums = np.prod(shape) / shape[outputs]
        if self.dtype.is_quantized:
            data: Array = self.rng.integers(-127, 128, shape).astype(np.int8)
            q = quant(np.full(shape[outputs], 1 / 73 / sums**0.5), 0, outputs)
            self.tensors[name] = Tensor(name, shape, DType.I8, q, data)
        else:
            data = self.rng.normal(0, sums**-0.5, shape).astype(np.float32)
            self.tensors[name] = Tensor(name, shape, DType.F32, None, data)
        return name

    def add(self, op: Operator, *ins: str) -> str:
        shape, _ = op.infer([self.tensors[i] for i in ins])[0]
        made = self.tensor(*shape)
        source = self.tensors[ins[0]]
        if isinstance(op, _KEEPS_QUANTIZED):
            self.tensors[made] = Tensor(made, shape, self.dtype, source.quant)
        self.nodes.append(Node(f"n{len(self.nodes)}", op, ins, (made,)))
        return made

    def shape(self, name: str) -> tuple[int, ...]:
        return self.tensors[name].shape

    def conv(
        self,
        x: str,
        outputs: int,
        kernel: int = 3,
        stride: int = 1,
        linear: bool = False,
        dilation: int = 1,
    ) -> str:
        act = Activation.NONE if linear else self.rng.choice([Activation.RELU, Activation.RELU6])
        pad = _same(self.shape(x), (kernel - 1) * dilation + 1, stride)
        w = self.weights(outputs, kernel, kernel, self.shape(x)[3])
        return self.add(ops.Conv2D((stride, stride), (dilation, dilation), pad, act), x, w)

    def conv1(self, x: str, outputs: int, kernel: int, stride: int, dilation: int = 1) -> str:
        """A convolution over the columns of an image of one row."""
        same = _same(self.shape(x), (kernel - 1) * dilation + 1, stride)
        w = self.weights(outputs, 1, kernel, self.shape(x)[3])
        pad = Padding(0, 0, same.left, same.right)
        return self.add(ops.Conv2D((1, stride), (1, dilation), pad, Activation.RELU), x, w)

    def depthwise(self, x: str, kernel: int = 3, stride: int = 1) -> str:
        pad = _same(self.shape(x), kernel, stride)
        w = self.weights(1, kernel, kernel, self.shape(x)[3], outputs=3)
        op = ops.DepthwiseConv2D((stride, stride), padding=pad, activation=Activation.RELU6)
        return self.add(op, x, w)

    def pool(self, x: str) -> str:
        kind = ops.MaxPool2D if self.rng.random() < 0.7 else ops.AveragePool2D
        return self.add(kind((2, 2), (2, 2)), x)

    def up(self, x: str, like: str) -> str:
        """`x` at the height and width of `like`."""
        return self.add(ops.ResizeBilinear(self.shape(like)[1:3], half_pixel_centers=True), x)

    def dense(self, x: str, outputs: int) -> str:
        return self.add(
            ops.FullyConnected(keep_dims=True), x, self.weights(outputs, self.shape(x)[-1])
        )

    def classes(self, x: str) -> str:
        return self.dense(self.add(ops.Mean((1, 2)), x), 10)


def _same(shape: tuple[int, ...], kernel: int, stride: int) -> Padding:
    def sides(size: int) -> tuple[int, int]:
        total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        return total // 2, total - total // 2

    return Padding(*sides(shape[1]), *sides(shape[2]))


def _plain(b: Builder, x: str) -> str:
    """Convolutions and pools, as VGG."""
    width = pick(b.rng, _WIDTHS)
    for _ in range(int(b.rng.integers(2, 5))):
        for _ in range(int(b.rng.integers(1, 4))):
            x = b.conv(x, width, pick(b.rng, (1, 3, 3, 3, 5)))
        x = b.pool(x) if b.rng.random() < 0.7 else b.conv(x, width, 3, 2)
        width *= pick(b.rng, (1, 2))
    if b.rng.random() < 0.5:
        return b.classes(x)
    flat = b.add(ops.Reshape((1, int(np.prod(b.shape(x))))), x)
    return b.dense(flat, 32)


def _mobile(b: Builder, x: str) -> str:
    """Inverted residuals, as MobileNet v2."""
    x = b.conv(x, pick(b.rng, (16, 24, 32)), 3, pick(b.rng, (1, 2)))
    for _ in range(int(b.rng.integers(3, 8))):
        narrow, stride = pick(b.rng, (16, 24, 32)), pick(b.rng, (1, 1, 2))
        before, inner = x, b.shape(x)[3] * pick(b.rng, (3, 4, 6))
        x = b.depthwise(b.conv(x, inner, 1), pick(b.rng, (3, 3, 5)), stride)
        x = b.conv(x, narrow, 1, linear=True)
        if b.shape(x) == b.shape(before):
            x = b.add(ops.Add(), before, x)
    return b.classes(x)


def _residual(b: Builder, x: str) -> str:
    """Residual blocks, as ResNet; a third of them bottlenecks."""
    x = b.conv(x, pick(b.rng, (16, 32, 64)), pick(b.rng, (3, 7)), pick(b.rng, (1, 2)))
    x = b.pool(x) if b.rng.random() < 0.5 else x
    for _ in range(int(b.rng.integers(2, 6))):
        stride = pick(b.rng, (1, 1, 2))
        width = b.shape(x)[3] * (2 if stride == 2 else 1)
        short = x if stride == 1 else b.conv(x, width, 1, stride, linear=True)
        if b.rng.random() < 0.33:
            x = b.conv(b.conv(x, max(width // 4, 8), 1), max(width // 4, 8), 3, stride)
            x = b.conv(x, width, 1, linear=True)
        else:
            x = b.conv(b.conv(x, width, 3, stride), width, 3, linear=True)
        x = b.add(ops.Add(Activation.RELU), x, short)
    return b.classes(x)


def _densely(b: Builder, x: str) -> str:
    """Dense blocks: each layer reads all before it."""
    x = b.conv(x, 24, 3, pick(b.rng, (1, 2)))
    for _ in range(int(b.rng.integers(1, 4))):
        for _ in range(int(b.rng.integers(2, 5))):
            x = b.add(ops.Concat(3), x, b.conv(b.conv(x, 32, 1), 12))
        x = b.pool(b.conv(x, b.shape(x)[3] // 2, 1))
    return b.classes(x)


def _unet(b: Builder, x: str) -> str:
    """An encoder whose images are concatenated to the decoder's."""
    width, skips = pick(b.rng, (8, 16, 24)), []
    for _ in range(int(b.rng.integers(2, 4))):
        x = b.conv(b.conv(x, width), width)
        skips.append(x)
        x, width = b.pool(x), width * 2
    x = b.conv(x, width)
    for skip in reversed(skips):
        width //= 2
        x = b.conv(b.add(ops.Concat(3), b.up(x, skip), skip), width)
        x = b.conv(x, width) if b.rng.random() < 0.5 else x
    return b.conv(x, 2, 1, linear=True)


def _pyramid(b: Builder, x: str) -> str:
    """Features of three sizes that are added from the smallest to the largest, then a head."""
    x = b.conv(x, 16, 3, 2)
    found = []
    for _ in range(3):
        width = b.shape(x)[3] * 2
        x = b.conv(b.conv(x, width, 3, 2), width)
        found.append(b.conv(x, 32, 1, linear=True))
    y = found[-1]
    for side in reversed(found[:-1]):
        y = b.add(ops.Add(), b.up(y, side), side)
    return b.conv(b.conv(y, 64), 6, 1, linear=True)


def _encoder(b: Builder, x: str) -> str:
    """Patches, then layers of attention and two products each, as a vision transformer."""
    width, heads = pick(b.rng, (64, 96, 128)), pick(b.rng, (2, 4))
    patch = pick(b.rng, (4, 8))
    x = b.conv(x, width, patch, patch, linear=True)
    rows = b.shape(x)[1] * b.shape(x)[2]
    x = b.add(ops.Reshape((1, rows, width)), x)
    for _ in range(int(b.rng.integers(1, 4))):
        before = x
        if b.dtype is DType.F32:
            x = b.add(ops.LayerNorm(), x, b.weights(width), b.weights(width))
        q, k, v = (_heads(b, b.dense(x, width), heads) for _ in range(3))
        turned = b.add(ops.Transpose((0, 1, 3, 2)), k)
        scores = b.add(ops.MatMul(), q, turned)
        shares = b.add(ops.Softmax(), scores)
        if b.dtype.is_quantized:
            kept = b.tensors[shares]
            b.tensors[shares] = Tensor(shares, kept.shape, kept.dtype, quant(1 / 256, -128))
        mixed = b.add(ops.Transpose((0, 2, 1, 3)), b.add(ops.MatMul(), shares, v))
        x = b.add(ops.Add(), before, b.dense(b.add(ops.Reshape((1, rows, width)), mixed), width))
        wide = b.add(ops.Gelu(), b.dense(x, width * 4))
        x = b.add(ops.Add(), x, b.dense(wide, width))
    return b.dense(b.add(ops.Mean((1,)), x), 10)


def _heads(b: Builder, x: str, heads: int) -> str:
    _, rows, width = b.shape(x)
    apart = b.add(ops.Reshape((1, rows, heads, width // heads)), x)
    return b.add(ops.Transpose((0, 2, 1, 3)), apart)


KINDS: dict[str, Callable[[Builder, str], str]] = {
    "plain": _plain,
    "mobile": _mobile,
    "residual": _residual,
    "dense": _densely,
    "unet": _unet,
    "pyramid": _pyramid,
    "encoder": _encoder,
}


def network(kind: str, seed: int, dtype: DType = DType.F32) -> Graph:
    """The network of a kind and seed; its input is an image of 3 channels."""
    return drawn(f"{kind}-{seed}", lambda b, x: [KINDS[kind](b, x)], _SIZES, seed, dtype)


def drawn(
    name: str,
    make: Callable[[Builder, str], list[str]],
    sizes: Sequence[int],
    seed: int,
    dtype: DType,
) -> Graph:
    """A network that `make` adds to an image of one of `sizes`; it returns the outputs."""
    b = Builder(np.random.default_rng(seed), dtype)
    size = pick(b.rng, sizes)
    image = b.tensor(1, size, size, 3)
    outputs = make(b, image)
    return Graph(name, b.tensors, tuple(b.nodes), (image,), tuple(outputs))
