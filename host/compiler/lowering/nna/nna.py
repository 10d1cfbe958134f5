"""8-bit convolutions and fully connected layers on the NNA, with weights rearranged offline, and
products of two computed matrices."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from edgekit.device.runtime.arrays.nna import conv_weights, depthwise_weights, pointwise_weights
from edgekit.device.runtime.kernel_facts import MATMUL_DIMS
from edgekit.device.runtime.kernel_facts import NNA_CHANNELS as CHANNELS
from edgekit.host.compiler.costs.nna import ProductForm, product_form
from edgekit.host.compiler.ir.nna import SIDE, NnaForm, form_of_layer, product_of
from edgekit.host.compiler.ir.ops import Conv2D, DepthwiseConv2D, FullyConnected
from edgekit.host.compiler.ir.quantization import (
    activation_range,
    convolution_multiplier,
    dense_multiplier,
    zero_point_of,
)
from edgekit.host.compiler.ir.types import Array, Node, Tensor
from edgekit.host.compiler.lowering.broadcast import collapse
from edgekit.host.compiler.lowering.common.arguments import operand_of
from edgekit.host.compiler.lowering.common.window import Window, bias_vector, window_of
from edgekit.host.compiler.lowering.context import Context, padded
from edgekit.host.compiler.lowering.elementwise.plain import quantized_fields
from edgekit.host.compiler.lowering.gemm.requantize import requantize_fields, wrap_i32
from edgekit.host.compiler.lowering.plan import Field, Kernel, KernelCall, Value

_CHIP = (
    "output_points", "weight_sets", "mac_cycles", "load_latency", "add_latency", "write_latency",
    "result_latency",
)  # fmt: skip
_FORMS: dict[NnaForm, int] = {"windows": 0, "diagonal": 1, "points": 2}  # as in nna/layer.h
_PRODUCT_FORMS: dict[ProductForm, int] = {"columns": 0, "values": 1}  # as in nna/product.h


@dataclasses.dataclass(frozen=True)
class NnaLayer:
    """A layer as executed by the NNA.

    Weights are [out, kh, kw, in], or [1, kh, kw, c] for the diagonal form.
    """

    form: NnaForm
    window: Window
    weights: Array

    @property
    def extent(self) -> tuple[int, int]:
        """Height and width of the image including padding; in points form, only the points that are
        used."""
        height, width = self.window.y[1:3]
        if self.form == "points":
            return height, width
        stride = self.window.stride[0]
        return (height - 1) * stride + SIDE, (width - 1) * stride + SIDE

    @property
    def groups(self) -> tuple[int, int]:
        """Numbers of 32-channel groups of the image and of the sums."""
        return math.ceil(self.window.x[3] / CHANNELS), math.ceil(self.window.y[3] / CHANNELS)

    @property
    def sums(self) -> Array:
        """The sum of weights of each output channel."""
        axes = (0, 1, 2) if self.form == "diagonal" else (1, 2, 3)
        sums: Array = self.weights.sum(axis=axes, dtype=np.int64)
        return sums

    @property
    def rearranged_shape(self) -> tuple[int, ...]:
        """The shape of `rearranged`."""
        ins, outs = self.groups
        groups = (outs,) if self.form == "diagonal" else (outs, ins)
        taps = () if self.form == "points" else (SIDE * SIDE,)
        return (*groups, *taps, CHANNELS, CHANNELS)

    @property
    def rearranged(self) -> Array:
        """The weights in weight RAM order; windows smaller than 3x3 are padded at the end."""
        if self.form == "points":
            points: Array = pointwise_weights(self.weights.reshape(len(self.weights), -1))
            return points
        outs, kh, kw, ins = self.weights.shape
        wide = np.zeros((outs, SIDE, SIDE, ins), np.int8)
        wide[:, :kh, :kw] = self.weights
        taps: Array = depthwise_weights(wide[0]) if self.form == "diagonal" else conv_weights(wide)
        return taps


def layer_of(
    op: Conv2D | DepthwiseConv2D | FullyConnected, x: Tensor, w: Tensor, y: Tensor
) -> NnaLayer:
    """The layer for a node that `fits_nna`."""
    assert w.data is not None
    form = form_of_layer(op, w)
    if not isinstance(op, FullyConnected):
        return NnaLayer(form, window_of(op, x, w, y), w.data)
    n, k = w.shape
    rows = x.elements // k
    window = Window((1, 1, rows, k), (1, 1, rows, n), (1, 1))
    return NnaLayer(form, window, w.data.reshape(n, 1, 1, k))


def lower_nna(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, Conv2D | DepthwiseConv2D | FullyConnected)
    x, w = ctx.tensor(node.inputs[0]), ctx.tensor(node.inputs[1])
    y = ctx.tensor(node.outputs[0])
    dense = isinstance(op, FullyConnected)
    layer = layer_of(op, x, w, y)
    (ins, outs), (height, width) = layer.groups, layer.extent
    window, whole = layer.window, outs * CHANNELS
    zero = zero_point_of(x)
    bias = bias_vector(ctx.optional(node, 2), window.y[3], np.dtype(np.int32)).astype(np.int64)
    bias -= zero * layer.sums
    low, high = activation_range(op.activation, y)
    factor = dense_multiplier(x, w, y) if dense else convolution_multiplier(x, w, y)
    fields: dict[str, Field] = {
        "chip": chip_fields(ctx),
        "win": window.fields,
        "form": _FORMS[layer.form],
        "in_groups": ins,
        "out_groups": outs,
        "height": height,
        "width": width,
        "x_zero": zero,
        "x": Value(x.name),
        "w": ctx.weights.add(layer.rearranged),
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
    return [KernelCall(dataclasses.replace(kernel, parts=(emulator_of(ctx),)), fields, None)]


def emulator_of(ctx: Context) -> Kernel:
    """The emulator called by NNA kernels."""
    macros = (("NV", str(ctx.isa.nna_vectors)),)
    return Kernel(f"ek_nna_{ctx.isa.simd}", "nna/nna.c", "", "", macros)


def chip_fields(ctx: Context) -> Field:
    """The ek_nna_chip of the board."""
    assert ctx.board.nna is not None
    chip = ctx.board.nna.chip
    return {name: int(getattr(chip, name)) for name in _CHIP}


def lower_nna_product(ctx: Context, node: Node) -> list[KernelCall]:
    """A `MatMul` that fits; the core subtracts the zero points from the sums."""
    assert ctx.board.nna is not None
    a, b = ctx.tensor(node.inputs[0]), ctx.tensor(node.inputs[1])
    y = ctx.tensor(node.outputs[0])
    stack, m, k, n = product_of(ctx.graph, node)
    stacked = collapse([a.shape[:-2], b.shape[:-2]], y.shape[:-2], MATMUL_DIMS)
    ins, outs = math.ceil(k / CHANNELS), math.ceil(n / CHANNELS)
    form = product_form(ctx.board.nna.chip, m, k, n)
    by_columns = form == "columns"
    fields: dict[str, Field] = {
        "chip": chip_fields(ctx),
        "form": _PRODUCT_FORMS[form],
        "m": m,
        "k": k,
        "n": n,
        "matrices": stack,
        "dim": stacked.dims,
        "a_stride": tuple(s * m * k for s in stacked.strides[0]),
        "b_stride": tuple(s * k * n for s in stacked.strides[1]),
        "a": operand_of(ctx, a),
        "b": operand_of(ctx, b),
        **quantized_fields(a, b, y),
        "features": ctx.scratch(node, ins * m * CHANNELS if by_columns else k * n),
        "weights": ctx.scratch(node, outs * ins * CHANNELS * CHANNELS) if by_columns else None,
        "sums": ctx.scratch(node, 4 * m * (outs * CHANNELS if by_columns else n)),
        "columns": ctx.scratch(node, 4 * outs * CHANNELS),
        "y": Value(y.name),
    }
    kernel = ctx.kernel("nna_product", "nna/product.c", "nna/product.h", "ek_nna_product_args")
    return [KernelCall(dataclasses.replace(kernel, parts=(emulator_of(ctx),)), fields, None)]
