"""Random layers with activation outliers, for `op_graphs`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, Array, DType, Graph, Node, Padding, Tensor
from tests.support.op_cases import Case, Rng, constant, pick, quant, tensor

_CHANNELS = (1, 2, 7, 16, 17, 33, 64, 96, 130, 200)
_MANY = 300  # slices: more than a product processes at once, whatever its panels


def layer(rng: Rng) -> Case:
    """Inputs are in [-1, 1]: thresholds below 1 split them, more or less; one above 1 does not."""
    slices = pick(rng, (1, 1, 2, 3, _MANY))
    m, n = pick(rng, (1, 2, 5, 13, 33)), pick(rng, _CHANNELS)
    k = pick(rng, _CHANNELS) * slices
    if slices == _MANY:
        n, k = min(n, 33), 33 * slices
    most = pick(rng, (7, 127))  # the small ones are packed two per byte
    weights = constant(rng.integers(-most, most + 1, (n, k)), DType.I8)
    scale = constant(_scales(rng, (slices, n), (16, 20)))
    bias = constant(rng.standard_normal(n)) if rng.random() < 0.7 else None
    threshold = float(rng.choice([0.3, 0.9, 0.99, 6.0]))
    keep = bool(rng.random() < 0.5)
    activation = list(Activation)[rng.integers(4)]
    op = ops.OutlierFullyConnected(threshold, keep, activation, share=pick(rng, (4, 32)))
    lead = (1, m) if keep else (m,)
    residual = tensor((*lead, n)) if rng.random() < 0.3 else None
    return Case(op, (tensor((*lead, k)), weights, scale, bias, residual))


def rows(rng: Rng) -> Case:
    """One row, or a few, by weights of 2 to 8 bits in groups: even and odd numbers of them, and of
    columns; scales that bfloat16 holds, those that f16 holds, and others."""
    group, slices = pick(rng, (16, 32, 64, 128, 40, 256)), pick(rng, (1, 2, 3, 4, 7))
    n, k = pick(rng, (1, 4, 17, 33, 64, 70)), group * slices
    least, most = ((-2, 2), (-4, 4), (-8, 8), (-127, 128))[rng.integers(4)]
    weights = constant(rng.integers(least, most, (n, k)), DType.I8)
    scale = constant(_scales(rng, (slices, n), (16, 18, 20)))
    bias = constant(rng.standard_normal(n)) if rng.random() < 0.5 else None
    op, m = ops.OutlierFullyConnected(float(rng.choice([0.97, 6.0]))), pick(rng, (1, 1, 9, 18))
    residual = tensor((m, n)) if rng.random() < 0.3 else None
    return Case(op, (tensor((m, k)), weights, scale, bias, residual))


def _scales(rng: Rng, shape: tuple[int, int], kept: tuple[int, ...]) -> Array:
    """f32 from 2^-14 to 2, some negative, with the lower mantissa bits cleared so that the given
    number of high bits remains, or all bits. Scales of 12 bits or fewer fit into a byte."""
    size = (
        np.exp2(rng.uniform(-14, 1, shape)) if rng.random() < 0.5 else rng.uniform(0.5, 1.5, shape)
    )
    bits = np.where(rng.random(shape) < 0.3, -size, size).astype(np.float32).view(np.uint32)
    drop = np.uint32(32 - int(rng.choice((*kept, 32))))
    return (bits >> drop << drop).view(np.float32) / np.float32(128)


def embedding(rng: Rng) -> Case:
    """Rows of 4-bit values, including rows of odd size, and of 8-bit values."""
    rows, groups = pick(rng, (1, 3, 50)), pick(rng, (1, 1, 2, 3))
    run, most = pick(rng, _CHANNELS) * groups, pick(rng, (8, 128))
    quantized = constant(rng.integers(-most, most, (rows, run)), DType.I8)
    scale = constant(_scales(rng, (rows, groups), (8, 12, 16, 20)))
    kind = DType.I32 if rng.random() < 0.5 else DType.I64
    if rng.random() < 0.5:  # as an input: mostly out of range
        return Case(ops.GatherQuantized(), (quantized, tensor((2, 3), kind), scale))
    indices = constant(rng.integers(-rows, rows, (7,)), kind)
    return Case(ops.GatherQuantized(), (quantized, indices, scale))


def dynamic(rng: Rng, dtype: DType) -> Case:
    """Weights without zero points, and with zero points whose subtraction overflows a byte; inputs
    larger than one task quantizes."""
    m, k, n = pick(rng, (1, 2, 5, 13, 70)), pick(rng, _CHANNELS), pick(rng, _CHANNELS)
    info = np.iinfo(dtype.numpy)
    quantized = rng.integers(info.min, info.max + 1, (n, k))
    middle = 128 if dtype is DType.U8 else 0
    zero: int | Array = middle if rng.random() < 0.5 else int(rng.integers(info.min, info.max + 1))
    if rng.random() < 0.3:  # one per channel
        zero = rng.integers(info.min, info.max + 1, n)
    scale = rng.uniform(0.005, 0.02, n if np.size(zero) > 1 or rng.random() < 0.5 else 1)
    bias = constant(rng.standard_normal(n)) if rng.random() < 0.7 else None
    op = ops.DynamicFullyConnected(list(Activation)[rng.integers(4)])
    lead = (m,) if rng.random() < 0.5 else (2, m)
    return Case(op, (tensor((*lead, k)), constant(quantized, dtype, quant(scale, zero)), bias))


def dynamic_conv(rng: Rng, dtype: DType) -> Case:
    """Windows with and without padding, weights with and without zero points."""
    kernel = ((1, 1), (3, 3), (1, 3), (2, 5))[rng.integers(4)]
    c, oc, n = pick(rng, (1, 3, 8, 17)), pick(rng, (1, 5, 16, 33)), pick(rng, (1, 1, 2))
    h, w = pick(rng, (5, 8, 13)), pick(rng, (9, 16, 21))
    info = np.iinfo(dtype.numpy)
    zero: int | Array = int(rng.integers(info.min, info.max + 1))
    if rng.random() < 0.3:
        zero = rng.integers(info.min, info.max + 1, oc)
    elif rng.random() < 0.5:
        zero = 128 if dtype is DType.U8 else 0
    quantized = rng.integers(info.min, info.max + 1, (oc, *kernel, c))
    scale = rng.uniform(0.005, 0.02, oc if np.size(zero) > 1 or rng.random() < 0.5 else 1)
    pad = Padding(*(int(p) for p in rng.integers(0, 3, 4))) if rng.random() < 0.7 else Padding()
    strides, dilations = ((1, 1), (2, 2), (1, 2)), ((1, 1), (1, 1), (2, 2))
    op = ops.DynamicConv2D(
        strides[rng.integers(3)], dilations[rng.integers(3)], pad, list(Activation)[rng.integers(4)]
    )
    bias = constant(rng.standard_normal(oc)) if rng.random() < 0.7 else None
    return Case(op, (tensor((n, h, w, c)), constant(quantized, dtype, quant(scale, zero)), bias))


FAMILIES = {
    "outlier_layer": (layer, (None,)),
    "outlier_rows": (rows, (None,)),
    "embedding": (embedding, (None,)),
    "dynamic": (dynamic, (DType.I8, DType.U8)),
    "dynamic_conv": (dynamic_conv, (DType.I8, DType.U8)),
}


def tied(words: int, run: int, matmul: bool = False) -> Graph:
    """The first and last operators of a language model with tied embeddings: gather rows of a float
    table by `token`, add `hidden`, multiply by the same table."""
    table = np.random.default_rng(run).standard_normal((words, run)).astype(np.float32)
    held = np.ascontiguousarray(table.T) if matmul else table
    tensors = [
        Tensor("token", (1,), DType.I64),
        Tensor("hidden", (1, run), DType.F32),
        Tensor("table", table.shape, DType.F32, None, table),
        Tensor("head", held.shape, DType.F32, None, held),
        *(Tensor(name, (1, run), DType.F32) for name in ("row", "sum")),
        Tensor("logits", (1, words), DType.F32),
    ]
    last = ops.MatMul() if matmul else ops.FullyConnected(keep_dims=True)
    nodes = (
        Node("pick", ops.Gather(), ("table", "token"), ("row",)),
        Node("add", ops.Add(), ("row", "hidden"), ("sum",)),
        Node("last", last, ("sum", "head"), ("logits",)),
    )
    by_name = {t.name: t for t in tensors}
    return Graph("tied", by_name, nodes, ("token", "hidden"), ("logits", "row"))


def with_shared_tables(graph: Graph) -> Graph:
    """Gathers of quantized rows, each with a product after it, which then has the same weights."""
    nodes = list(graph.nodes)
    for i in range(1, len(nodes), 2):
        x, _, *rest = nodes[i].inputs
        nodes[i] = replace(nodes[i], inputs=(x, nodes[i - 1].inputs[0], *rest))
    used = {name for node in nodes for name in (*node.inputs, *node.outputs)}
    tensors = {name: t for name, t in graph.tensors.items() if name in used}
    return replace(graph, tensors=tensors, nodes=tuple(nodes))
