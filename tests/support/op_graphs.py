"""Random graphs of independent operators with odd sizes, for testing kernels.

Operators share no inputs or outputs, so one library tests dozens of shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgekit.host.compiler.golden.vectors import random_input
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import (
    Activation,
    Array,
    DType,
    Graph,
    Node,
    Padding,
    Quant,
    Tensor,
)
from tests.support import (
    chain_graphs,
    channels_first_graphs,
    loop_graphs,
    outlier_graphs,
    plain_graphs,
    quantized_graphs,
    recurrent_graphs,
    signal_graphs,
    stem_graphs,
    tree_graphs,
    window_graphs,
)
from tests.support.op_cases import Case, Rng, constant, pick, quant, tensor

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 11, 15, 16, 17, 23, 31, 33)
CHANNELS = (1, 2, 3, 4, 7, 8, 15, 16, 17, 24, 31, 32, 33, 47, 48, 49, 65, 97)
_ACTIVATIONS = list(Activation)
_EPILOGUES = (
    ops.HardSwish(), ops.LeakyRelu(0.2), ops.PRelu(), ops.HardSigmoid(0.3, 0.4), ops.Logistic(),
    ops.Silu(), ops.Silu(1.7), ops.Tanh(), ops.Gelu(), ops.GeluTanh(),
)  # fmt: skip


def graph_of(cases: Sequence[Case]) -> Graph:
    """One graph containing all cases in parallel."""
    tensors: dict[str, Tensor] = {}
    nodes, inputs, outputs = [], [], []

    def add(t: Tensor, name: str) -> str:
        tensors[name] = Tensor(name, t.shape, t.dtype, t.quant, t.data, t.sparse)
        return name

    for i, case in enumerate(cases):
        step: Case | None = case
        outs: list[str] = []
        node = ""
        while step is not None:
            node = f"{node}_after" if outs else f"n{i}"
            names: list[str | None] = [*outs]
            for j, t in enumerate(step.ins):
                names.append(None if t is None else add(t, f"{node}_in{j}"))
                if t is not None and t.data is None:
                    inputs.append(f"{node}_in{j}")
            made = [None if n is None else tensors[n] for n in names]
            outs = []
            for j, (shape, dtype) in enumerate(step.op.infer(made)):
                q = step.quant if dtype.is_quantized or dtype in (DType.I16, DType.I32) else None
                outs.append(add(tensor(shape, dtype, q), f"{node}_out{j}"))
            nodes.append(Node(node, step.op, tuple(names), tuple(outs)))
            step = step.after
        outputs += outs
    return Graph("kernels", tensors, tuple(nodes), tuple(inputs), tuple(outputs))


def inputs_of(graph: Graph, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: random_input(graph.tensors[name], rng) for name in graph.inputs}


def _activation(rng: Rng) -> Activation:
    return _ACTIVATIONS[rng.integers(len(_ACTIVATIONS))]


@dataclass(frozen=True)
class _Geometry:
    x: tuple[int, int, int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: Padding


def _geometry(rng: Rng, channels: int) -> _Geometry:
    kernel = [(1, 1), (3, 3), (5, 5), (1, 3), (2, 1), (4, 7)][rng.integers(6)]
    dilation = (1, 1) if rng.random() < 0.7 else (2, 2)
    span = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    stride = [(1, 1), (2, 2), (1, 2), (2, 1), (3, 1)][rng.integers(5)]
    pad = [int(rng.integers(0, s)) for s in (span[0], span[0], span[1], span[1])]
    h = max(pick(rng, SIZES), span[0] - pad[0] - pad[1], 1)
    w = max(pick(rng, SIZES), span[1] - pad[2] - pad[3], 1)
    n = 1 if rng.random() < 0.7 else 2
    return _Geometry((n, h, w, channels), kernel, stride, dilation, Padding(*pad))


def _normal(rng: Rng, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def _winograd_geometry(rng: Rng, channels: int, least: int = 3) -> _Geometry:
    """Windows for which some boards use Winograd's transform."""
    pad = [int(rng.integers(0, 3)) for _ in range(4)]
    h, w = (int(rng.integers(least, 20)) for _ in range(2))
    return _Geometry((1, h, w, channels), (3, 3), (1, 1), (1, 1), Padding(*pad))


def _end(rng: Rng) -> dict[str, Any]:
    """An optional function after the product: a fused epilogue or an activation."""
    if rng.random() < 0.4:
        return {"epilogue": _EPILOGUES[rng.integers(len(_EPILOGUES))]}
    return {"activation": _activation(rng)}


def _product(rng: Rng, op: Any, *ins: Tensor | None) -> Case:
    """If the epilogue has an operand, it is the fifth input."""
    if not isinstance(op.epilogue, ops.Binary):
        return Case(op, ins)
    channels = op.infer(ins)[0][0][-1]
    slope = constant(_normal(rng, channels if rng.random() < 0.7 else 1))
    return Case(op, (*ins, *[None] * (4 - len(ins)), slope))


def conv_f32(rng: Rng) -> Case:
    if rng.random() < 0.3:
        g, oc = _winograd_geometry(rng, pick(rng, (16, 24, 32, 64))), pick(rng, (12, 16, 28, 64))
    else:
        g, oc = _geometry(rng, pick(rng, CHANNELS)), pick(rng, CHANNELS)
    op = ops.Conv2D(g.stride, g.dilation, g.padding, **_end(rng))
    x, w = tensor(g.x), constant(_normal(rng, oc, *g.kernel, g.x[3]))
    bias = constant(_normal(rng, oc)) if rng.random() < 0.8 else None
    residual = tensor(op.infer([x, w, bias])[0][0]) if rng.random() < 0.3 else None
    last = residual is not None and op.epilogue is not None and rng.random() < 0.6
    case = _product(rng, op, x, w, bias, None if last else residual)
    return replace(case, ins=(*case.ins, *[None] * (5 - len(case.ins)), residual)) if last else case


def large_window(rng: Rng) -> Case:
    """More taps than the kernels' fixed tables hold, dilated so that each needs a pointer."""
    x = tensor((1, 19, 23, pick(rng, (1, 5, 17))))
    w = constant(_normal(rng, pick(rng, CHANNELS), 9, 9, x.shape[3]))
    padding = Padding(*(int(p) for p in rng.integers(0, 5, 4)))
    return Case(ops.Conv2D((2, 1), (2, 2), padding), (x, w, None))


def _codes(rng: Rng, dtype: DType, *shape: int) -> Array:
    info = np.iinfo(dtype.numpy)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype.numpy)


def _quantized_weights(rng: Rng, dtype: DType, axis: int, *shape: int) -> Tensor:
    """s8: symmetric, per channel; u8: one zero point."""
    if dtype is DType.U8:
        data = _codes(rng, dtype, *shape)
        return constant(data, dtype, quant(0.01, int(rng.integers(256))))
    data = np.maximum(_codes(rng, dtype, *shape), -127)
    scales = rng.uniform(0.005, 0.02, shape[axis]).astype(np.float32)
    return constant(data, dtype, quant(scales, 0, axis))


def _io_quant(rng: Rng, dtype: DType, k: int) -> tuple[Quant, Quant]:
    info = np.iinfo(dtype.numpy)
    zeros = rng.integers(info.min, info.max + 1, 2)
    y = quant(0.05 * max(k, 1) ** 0.5, int(zeros[1]))
    return quant(0.05, int(zeros[0])), replace(y, rounds_once=bool(zeros[1] % 2))


def conv_8bit(rng: Rng, dtype: DType) -> Case:
    many = rng.random() < 0.2
    g = _winograd_geometry(rng, 64, 9) if many else _geometry(rng, pick(rng, CHANNELS))
    oc = pick(rng, (41, 64) if many else CHANNELS)
    qx, qy = _io_quant(rng, dtype, g.kernel[0] * g.kernel[1] * g.x[3])
    w = _quantized_weights(rng, dtype, 0, oc, *g.kernel, g.x[3])
    ins = tensor(g.x, dtype, qx), w, constant(rng.integers(-9999, 9999, oc), DType.I32)
    op = ops.Conv2D(g.stride, g.dilation, g.padding, _activation(rng))
    return Case(op, ins, qy, quantized_graphs.behind(rng, dtype, oc, qy))


def conv_hybrid(rng: Rng) -> Case:
    g, oc = _geometry(rng, pick(rng, CHANNELS)), pick(rng, CHANNELS)
    codes = np.maximum(_codes(rng, DType.I8, oc, *g.kernel, g.x[3]), -127)
    ins = tensor(g.x), constant(codes, DType.I8, quant(0.01)), constant(_normal(rng, oc))
    return Case(ops.Conv2D(g.stride, g.dilation, g.padding, _activation(rng)), ins)


def depthwise_f32(rng: Rng) -> Case:
    g, times = _geometry(rng, pick(rng, CHANNELS)), int(rng.choice([1, 1, 1, 2, 3]))
    op = ops.DepthwiseConv2D(g.stride, g.dilation, g.padding, times, **_end(rng))
    w = constant(_normal(rng, 1, *g.kernel, g.x[3] * times))
    return _product(rng, op, tensor(g.x), w, constant(_normal(rng, g.x[3] * times)))


def depthwise_8bit(rng: Rng, dtype: DType) -> Case:
    g, times = _geometry(rng, pick(rng, CHANNELS)), int(rng.choice([1, 1, 1, 2]))
    qx, qy = _io_quant(rng, dtype, g.kernel[0] * g.kernel[1])
    w = _quantized_weights(rng, dtype, 3, 1, *g.kernel, g.x[3] * times)
    bias = constant(rng.integers(-999, 999, g.x[3] * times), DType.I32)
    op = ops.DepthwiseConv2D(g.stride, g.dilation, g.padding, times, _activation(rng))
    ends = quantized_graphs.behind(rng, dtype, g.x[3] * times, qy)
    return Case(op, (tensor(g.x, dtype, qx), w, bias), qy, ends)


def dense_f32(rng: Rng) -> Case:
    m, k, n = pick(rng, (1, 1, 2, 7, 13)), pick(rng, CHANNELS), pick(rng, CHANNELS)
    op = ops.FullyConnected(**_end(rng))
    return _product(
        rng, op, tensor((m, k)), constant(_normal(rng, n, k)), constant(_normal(rng, n))
    )


def dense_8bit(rng: Rng, dtype: DType) -> Case:
    m, k, n = pick(rng, (1, 1, 2, 7, 13)), pick(rng, CHANNELS), pick(rng, CHANNELS)
    qx, qy = _io_quant(rng, dtype, k)
    w = _quantized_weights(rng, dtype, 0, n, k)
    op = ops.FullyConnected(activation=_activation(rng))
    bias = constant(rng.integers(-9999, 9999, n), DType.I32)
    ends = quantized_graphs.behind(rng, dtype, n, qy)
    return Case(op, (tensor((m, k), dtype, qx), w, bias), qy, ends)


def zeros_8bit(rng: Rng) -> Case:
    """s8 weights with one zero point, or with several where kernels support them."""
    made = (conv_8bit, dense_8bit, depthwise_8bit)[rng.integers(3)](rng, DType.I8)
    x, w, bias = made.ins
    assert w is not None and w.quant is not None
    several = rng.random() < 0.6 and not isinstance(made.op, ops.DepthwiseConv2D)
    zeros = rng.integers(-128, 128, w.quant.scale.size if several else 1)
    q = replace(w.quant, zero_point=np.resize(zeros, w.quant.scale.size))
    return replace(made, ins=(x, replace(w, quant=q), bias))


def dense_hybrid(rng: Rng) -> Case:
    m, k, n = pick(rng, (1, 1, 2, 7, 13)), pick(rng, CHANNELS), pick(rng, CHANNELS)
    values = np.maximum(_codes(rng, DType.I8, n, k), -127)
    w = constant(values, DType.I8, quant(rng.uniform(0.005, 0.02, n if rng.random() < 0.5 else 1)))
    op = ops.FullyConnected(activation=_activation(rng))
    return Case(op, (tensor((m, k)), w, constant(_normal(rng, n)) if rng.random() < 0.7 else None))


def _any_quant(rng: Rng, dtype: DType) -> Quant | None:
    if dtype is DType.F32:
        return None
    info = np.iinfo(dtype.numpy)
    return quant(float(rng.uniform(0.01, 0.1)), int(rng.integers(info.min, info.max + 1)))


def binary(rng: Rng, dtype: DType) -> Case:
    shape = [pick(rng, (1, 2, 3, 5, 17)) for _ in range(rng.integers(1, 5))]
    other = list(shape[int(rng.integers(0, len(shape))) :] if rng.random() < 0.5 else shape)
    for i in range(len(other)):
        if rng.random() < 0.3:
            other[i] = 1
    pair = [tensor(s, dtype, _any_quant(rng, dtype)) for s in (shape, other)]
    if rng.random() < 0.5:
        pair.reverse()
    kind = ops.Add if rng.random() < 0.5 else ops.Mul
    return Case(kind(_activation(rng)), tuple(pair), _any_quant(rng, dtype))


def pool(rng: Rng, dtype: DType) -> Case:
    g = _geometry(rng, pick(rng, CHANNELS))
    h, w = g.kernel if rng.random() < 0.9 else (31, 33)
    n, ih, iw, c = g.x
    pad = Padding(*(int(rng.integers(0, k)) for k in (h, h, w, w)))
    x = tensor((n, max(ih, h), max(iw, w), c), dtype, q := _any_quant(rng, dtype))
    kind = ops.MaxPool2D if rng.random() < 0.5 else ops.AveragePool2D
    return Case(kind((h, w), g.stride, pad, _activation(rng)), (x,), q)


def unary(rng: Rng, dtype: DType) -> Case:
    x = tensor((pick(rng, (1, 5, 4096, 4097, 9001)),), dtype, _any_quant(rng, dtype))
    quarter = quant(1 / 256, -128 if dtype is DType.I8 else 0)
    if rng.random() < 0.4:
        return Case(ops.Logistic(), (x,), quarter)
    if not dtype.is_quantized and rng.random() < 0.5:
        return Case(ops.HardSwish(), (x,))
    return Case(ops.Clamp(Activation.RELU6), (x,), x.quant)


def convert(rng: Rng, dtype: DType) -> Case:
    x = tensor((pick(rng, (1, 5, 4097)),), dtype, _any_quant(rng, dtype))
    if dtype.is_quantized and rng.random() < 0.5:
        return Case(ops.Cast(), (x,))
    to = DType.I8 if rng.random() < 0.5 else DType.U8
    return Case(ops.Quantize(to), (x,), _any_quant(rng, to))


def softmax(rng: Rng, dtype: DType) -> Case:
    q = quant(1 / 256, -128 if dtype is DType.I8 else 0)
    x = tensor((pick(rng, (1, 3)), pick(rng, CHANNELS)), dtype, _any_quant(rng, dtype))
    return Case(ops.Softmax(float(rng.choice([1.0, 0.5]))), (x,), q)


def mean(rng: Rng, dtype: DType) -> Case:
    x = tensor([pick(rng, (1, 2, 7, 65)) for _ in range(4)], dtype, _any_quant(rng, dtype))
    return Case(ops.Mean((1, 2), bool(rng.random() < 0.5)), (x,), _any_quant(rng, dtype))


def resize(rng: Rng, dtype: DType) -> Case:
    mode = [(False, False), (True, False), (False, True)][rng.integers(3)]
    size = (pick(rng, SIZES), pick(rng, SIZES))
    shape = (2, pick(rng, SIZES), pick(rng, SIZES), pick(rng, (1, 3, 17)))
    q = (each := _any_quant(rng, dtype)) and replace(each, rounds_once=rng.random() < 0.5)
    return Case(ops.ResizeBilinear(size, *mode), (tensor(shape, dtype, q),), q)


def movement(rng: Rng, dtype: DType) -> Case:
    """Every data-movement operator."""
    n, h, w, c = (pick(rng, (1, 2)), pick(rng, (2, 4, 6)), pick(rng, (2, 4, 6)), 4)
    q = _any_quant(rng, dtype)
    x = tensor((n, h, w, c), dtype, q)
    axis = int(rng.integers(4))
    other = list(x.shape)
    other[axis] += 1
    ends = [int(v) for v in rng.integers(0, 3, 8)]
    makers: list[Callable[[], Case]] = [
        lambda: Case(ops.Pad(tuple(ends[:4]), tuple(ends[4:])), (x,), q),
        lambda: Case(ops.Concat(axis), (x, tensor(other, dtype, q), x), q),
        lambda: Case(ops.Concat(axis), (x, tensor(other, dtype, _any_quant(rng, dtype))), q),
        lambda: Case(ops.Transpose(tuple(int(i) for i in rng.permutation(4))), (x,), q),
        lambda: Case(ops.DepthToSpace(2), (x,), q),
        lambda: Case(ops.SpaceToBatch((2, 2), (1, 1, 0, 2)), (x,), q),
        lambda: Case(ops.Split(1, (1, h - 1)), (x,), q),
        lambda: Case(
            ops.StridedSlice((0, 1, w - 1, 0), (1, 1, -1, 2), (n, h - 1, w, 2), (n, h - 1, w, 2)),
            (x,),
            q,
        ),
        lambda: Case(ops.Reshape((n * h, w * c)), (x,), q),
        lambda: Case(
            ops.BatchToSpace((2, 1), (0, 1, 1, 0)), (tensor((2 * n, h, w, c), dtype, q),), q
        ),
    ]
    return makers[int(rng.integers(len(makers)))]()


def transpose_conv(rng: Rng) -> Case:
    kh, kw = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    h, w, ic, oc = (pick(rng, s) for s in (SIZES, SIZES, CHANNELS, CHANNELS))
    op = ops.TransposeConv2D((kh, kw), Padding(), (h * kh, w * kw), **_end(rng))
    return _product(rng, op, tensor((1, h, w, ic)), constant(_normal(rng, oc, kh, kw, ic)), None)


_ALL, _F32, _8BIT = (DType.F32, DType.I8, DType.U8), (None,), (DType.I8, DType.U8)
FAMILIES: dict[str, tuple[Callable[..., Case | list[Case]], tuple[DType | None, ...]]] = {
    "conv_f32": (conv_f32, _F32),
    "large_window": (large_window, _F32),
    "conv_8bit": (conv_8bit, _8BIT),
    "conv_hybrid": (conv_hybrid, _F32),
    "depthwise_f32": (depthwise_f32, _F32),
    "depthwise_8bit": (depthwise_8bit, _8BIT),
    "dense_f32": (dense_f32, _F32),
    "dense_8bit": (dense_8bit, _8BIT),
    "zeros_8bit": (zeros_8bit, _F32),
    "dense_hybrid": (dense_hybrid, _F32),
    "binary": (binary, _ALL),
    "pool": (pool, _ALL),
    "unary": (unary, _ALL),
    "convert": (convert, _ALL),
    "softmax": (softmax, _ALL),
    "mean": (mean, _ALL),
    "resize": (resize, (*_ALL, DType.I16)),
    "movement": (movement, _ALL),
    "transpose_conv": (transpose_conv, _F32),
    **plain_graphs.FAMILIES,
    **quantized_graphs.FAMILIES,
    **channels_first_graphs.FAMILIES,
    **outlier_graphs.FAMILIES,
    **chain_graphs.FAMILIES,
    **stem_graphs.FAMILIES,
    **recurrent_graphs.FAMILIES,
    **signal_graphs.FAMILIES,
    **loop_graphs.FAMILIES,
    **tree_graphs.FAMILIES,
    **window_graphs.FAMILIES,
    "transpose_conv_8bit": (quantized_graphs.transpose_conv, _8BIT),
}


def random_graph(family: str, count: int, seed: int) -> Graph:
    """`count` operators of a family, cycling through its dtypes; all, without dtypes."""
    make, dtypes = FAMILIES[family]
    rng = np.random.default_rng(seed)
    turns = (dtypes[i % len(dtypes)] for i in range(count))
    drawn = (make(rng) if dtype is None else make(rng, dtype) for dtype in turns)
    return graph_of(list(drawn) if dtypes else make(rng))
