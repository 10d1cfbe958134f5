"""8-bit convolutions and fully connected layers on the NNA: weights rearranged offline."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from edgekit.device.arrays.nna_chip import NnaChip
from edgekit.device.kernel_facts import NNA_CHANNELS as CHANNELS
from edgekit.host.graph.nna import SIDE
from edgekit.host.graph.ops import Conv2D, FullyConnected
from edgekit.host.graph.quantization import (
    activation_range,
    convolution_multiplier,
    dense_multiplier,
    zero_point_of,
)
from edgekit.host.graph.types import Array, Node
from edgekit.host.lower.context import Context, padded
from edgekit.host.lower.plan import Call, Field, Kernel, Value
from edgekit.host.lower.product_i8 import requantize_fields, wrap_i32
from edgekit.host.lower.window import Window, bias_vector, window_of

_CHIP = (
    "output_points", "weight_sets", "mac_cycles", "load_latency", "add_latency", "write_latency",
    "result_latency",
)  # fmt: skip


def lower_nna(ctx: Context, node: Node) -> list[Call]:
    assert ctx.board.nna is not None
    op = node.op
    assert isinstance(op, Conv2D | FullyConnected)
    x, w = ctx.tensor(node.inputs[0]), ctx.tensor(node.inputs[1])
    y = ctx.tensor(node.outputs[0])
    dense = isinstance(op, FullyConnected)
    data = ctx.constant(node, 1, "weights")
    if isinstance(op, FullyConnected):
        n, k = data.shape
        data, window = (
            data.reshape(n, 1, 1, k),
            Window((1, 1, x.elements // k, k), (1, 1, x.elements // k, n), (1, 1)),
        )
    else:
        window = window_of(op, x, w, y)
    ins, outs = (math.ceil(c / CHANNELS) for c in (window.x[3], window.y[3]))
    height, width = ((size - 1) * window.stride[0] + SIDE for size in window.y[1:3])
    whole = outs * CHANNELS
    zero = zero_point_of(x)
    bias = bias_vector(ctx.optional(node, 2), window.y[3], np.dtype(np.int32)).astype(np.int64)
    bias -= zero * data.sum(axis=(1, 2, 3), dtype=np.int64)
    low, high = activation_range(op.activation, y)
    factor = dense_multiplier(x, w, y) if dense else convolution_multiplier(x, w, y)
    fields: dict[str, Field] = {
        "chip": {name: _number(ctx.board.nna.chip, name) for name in _CHIP},
        "win": window.fields,
        "in_groups": ins,
        "out_groups": outs,
        "height": height,
        "width": width,
        "x_zero": zero,
        "x": Value(x.name),
        "w": ctx.weights.add(rearranged(data)),
        "bias": ctx.weights.add(wrap_i32(padded(bias, whole, np.dtype(np.int64)))),
        "left": None,
        **requantize_fields(ctx, factor, whole, rounds_once=dense),
        "once": int(dense),
        "y_zero": zero_point_of(y),
        "low": low,
        "high": high,
        "image": ctx.scratch(node, ins * height * width * CHANNELS),
        "sums": ctx.scratch(node, 4 * whole * math.prod(window.y[1:3])),
        "y": Value(y.name),
    }
    kernel = ctx.kernel("nna_layer", "nna/layer.c", "nna/layer.h", "ek_nna_layer_args")
    emulator = (("NV", str(ctx.isa.nna_vectors)),)
    part = Kernel(f"ek_nna_{ctx.isa.simd}", "nna/nna.c", "", "", emulator)
    return [Call(dataclasses.replace(kernel, parts=(part,)), fields, None)]


def _number(chip: NnaChip, name: str) -> int:
    return int(getattr(chip, name))


def rearranged(weights: Array) -> Array:
    """s8 [oc, kh, kw, ic] as [out group][in group][9][32 out][32 in], zeros around."""
    oc, kh, kw, ic = weights.shape
    outs, ins = math.ceil(oc / CHANNELS), math.ceil(ic / CHANNELS)
    wide = np.zeros((outs * CHANNELS, SIDE, SIDE, ins * CHANNELS), np.int8)
    wide[:oc, :kh, :kw, :ic] = weights
    grouped = wide.reshape(outs, CHANNELS, SIDE * SIDE, ins, CHANNELS)
    return np.ascontiguousarray(grouped.transpose(0, 3, 2, 1, 4))
