"""The 8-bit product (conv/i8_conv.c), with weights in the order of the ISA's instructions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from edgekit.device.runtime.kernel_facts import I8_UNPACKED_BYTES, UNARY_CHUNK
from edgekit.host.compiler.costs.methods.operators import Form, OperatorMethod
from edgekit.host.compiler.costs.methods.winograd import has_winograd
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.ops import Conv2D
from edgekit.host.compiler.ir.quantization import zero_point_of
from edgekit.host.compiler.ir.types import Activation, Array, DType, Node, Tensor
from edgekit.host.compiler.ir.winograd import is_exact
from edgekit.host.compiler.lowering.common.arguments import C_TYPES
from edgekit.host.compiler.lowering.common.tables import look_up_of
from edgekit.host.compiler.lowering.common.window import (
    Window,
    bias_vector,
    count_tasks,
    window_of,
)
from edgekit.host.compiler.lowering.context import Context, padded
from edgekit.host.compiler.lowering.gemm.borders import border_fields, flips_as_it_copies
from edgekit.host.compiler.lowering.gemm.byte_depth import Depth, depth_of
from edgekit.host.compiler.lowering.gemm.prefetch import AHEAD, ahead_of, grain_of, runs_alone
from edgekit.host.compiler.lowering.gemm.read_ahead import READ_AHEAD, bytes_read_ahead
from edgekit.host.compiler.lowering.gemm.requantize import requantized_by, wrap_i32
from edgekit.host.compiler.lowering.gemm.winograd_i8 import lower_bytes
from edgekit.host.compiler.lowering.methods import band_of, form_of, method_of, tile_of
from edgekit.host.compiler.lowering.packing import (
    NO_ZERO,
    pack_byte_panels,
    pack_int4,
    signed_weights,
    zero_of_rows,
)
from edgekit.host.compiler.lowering.plan import Field, Kernel, KernelCall, Value
from edgekit.kb.targets.isa import ByteProduct, Tile

_BYTES = ((DType.I8,) * 3, (DType.U8,) * 3)
_STRIP_TILE, _FEW_STEPS = Tile(4, 1), 2  # of products whose weights registers hold
_I32, _F32 = np.dtype(np.int32), np.dtype(np.float32)


@dataclass(frozen=True, eq=False)
class _PackedBytes:
    """8-bit weights in an ISA's layout, and the correction to add to the bias."""

    weights: Array
    correction: Array
    w_zero: Array
    macros: Mapping[str, int]

    @property
    def suffix(self) -> str:
        """The kernel name suffix for the macros."""
        zero = ("", "_zero", "_zeros")[self.macros["W_ZERO"]]
        narrow = "_narrow" if "NARROW" in self.macros else ""
        half = "_half" * ("HALF_STEP" in self.macros)
        return zero + narrow + half + ("_ahead" if AHEAD in self.macros else "")


def _pack_bytes(
    ctx: Context,
    window: Window,
    weights: Array,
    x: Tensor,
    zeros: tuple[int, Array],
    tile: Tile,
    depth: Depth,
    alone: bool = False,
) -> _PackedBytes:
    """Packs weights; `zeros` holds the zero points of x and of the weights."""
    x_zero, w_zero = zeros
    vl, kind = ctx.isa.vl, ctx.isa.i8
    n, k = weights.shape
    nr = tile.nv * vl
    signed, zero = signed_weights(weights, w_zero)
    a_zero = 0  # 16-bit rows: subtracted while widening
    if kind.reads_bytes:
        a_zero = x_zero
        # The kernel reads x as `a`: unsigned for DOT4_US, else signed.
        if kind is ByteProduct.DOT4_US and x.dtype is not DType.U8:
            a_zero += 128
        if kind.flips_unsigned and x.dtype is DType.U8:
            a_zero -= 128
    correction = k * np.ravel(zero) * a_zero - a_zero * signed.sum(axis=1, dtype=np.int64)
    if depth.segments:
        rows = signed.reshape(n, window.kernel[0], -1)
        wide = np.zeros((n, window.kernel[0], depth.segment), signed.dtype)
        wide[:, :, : rows.shape[2]] = rows
        signed = wide.reshape(n, -1)
    packed_weights = pack_byte_panels(signed, nr, ctx.isa, depth.total)
    macros = {"W_ZERO": int(zero.any()) if zero.size == 1 else 2}
    in_pairs = kind is ByteProduct.WIDE16 and vl > 1 and x.dtype is DType.I8
    in_pairs = in_pairs and macros["W_ZERO"] != 1
    if (kind is ByteProduct.MULL16 or in_pairs) and packed_weights.min(initial=0) > -128:
        macros["NARROW"] = 1
    if window.pixels == 1:
        macros |= ahead_of(ctx, alone)
    multiplies = kind is ByteProduct.MULL16 and not ctx.board.in_order and tile.mr > 1
    if multiplies and depth.ends_in_half(window):  # a single row waits for weights instead
        macros["HALF_STEP"] = 1
    return _PackedBytes(packed_weights, correction, zero, macros)


def _i8_fields(
    ctx: Context,
    node: Node,
    window: Window,
    packed: _PackedBytes,
    method: OperatorMethod,
    depth: Depth,
    x_zero: int,
) -> dict[str, Field]:
    tile = tile_of(method, ctx.isa.vl)
    zeros: dict[str, Field] = {}
    if packed.w_zero.size > 1:
        width = round_up(window.y[3], ctx.isa.vl)
        zeros["w_zeros"] = ctx.weights.add(padded(packed.w_zero.reshape(-1), width, _I32))
    else:
        zeros["w_zero"] = int(packed.w_zero)
    return {
        **zeros,
        "win": window.fields,
        "pointwise": int(window.pointwise),
        "segments": int(depth.segments),
        "segment_length": depth.segment,
        "panel_outer": int(method.split == "n"),
        "panels": count_tasks(window, tile, ctx.isa.vl)[1],
        "band": band_of(ctx, node, method),
        "pitch": window.y[3],
        "k_padded": depth.total,
        "x_zero": x_zero,
    }


def i8_tile(ctx: Context, node: Node, window: Window, weights: Array) -> Tile:
    """The register tile of a byte product with weights [n, k]."""
    w_zero = zero_of_rows(ctx.tensor(node.inputs[1]))
    depth = depth_of(ctx, window, signed_weights(weights, w_zero)[1])
    return tile_of(_i8_method(ctx, node, window, depth), ctx.isa.vl)


def byte_form(ctx: Context, node: Node, window: Window, depth: Depth, direct: bool = True) -> Form:
    """The form of a byte product."""
    size = max(depth.total, window.border) * (1 if ctx.isa.i8.reads_bytes else 2)
    dtype = "u8" if ctx.tensor(node.inputs[0]).dtype is DType.U8 else "s8"
    packed = round_up(window.y[3], ctx.isa.vl) * depth.total
    return replace(form_of(node, window, dtype, packed, size), direct=direct)


def may_transform(ctx: Context, node: Node) -> Form | None:
    """The form of a byte convolution that Winograd's transform may compute; None for others."""
    if type(node.op) is not Conv2D or not has_winograd("s8", ctx.isa):
        return None
    x, w, y = (ctx.tensor(name) for name in (*node.inputs[:2], node.outputs[0]))
    if w.data is None or w.shape[1:3] != (3, 3) or (x.dtype, w.dtype, y.dtype) not in _BYTES:
        return None
    zero, weights = zero_of_rows(w), w.data.reshape(len(w.data), -1)
    window = window_of(node.op, x, w, y)
    if not is_exact(weights - zero.astype(np.int64)):
        return None
    depth = depth_of(ctx, window, signed_weights(weights, zero)[1])
    return byte_form(ctx, node, window, depth, direct=False)


def _i8_method(
    ctx: Context, node: Node, window: Window, depth: Depth, direct: bool = True
) -> OperatorMethod:
    method = method_of(ctx, node, byte_form(ctx, node, window, depth, direct))
    if method is None:
        raise ctx.unsupported(node, f"a window of {window.k} 8-bit values")
    return method


def i8_product(
    ctx: Context, node: Node, window: Window, weights: Array, activation: Activation
) -> KernelCall:
    x, w, y = (ctx.tensor(name) for name in (*node.inputs[:2], node.outputs[0]))
    vl = ctx.isa.vl
    x_zero, w_zero = zero_point_of(x), zero_of_rows(w)
    depth = depth_of(ctx, window, signed_weights(weights, w_zero)[1])
    method = _i8_method(ctx, node, window, depth, node.name not in ctx.transformed)
    tile = tile_of(method, ctx.isa.vl)
    if method.family == "winograd":
        return lower_bytes(ctx, node, window, weights - w_zero.astype(np.int64), activation, tile)
    packed = _pack_bytes(ctx, window, weights, x, (x_zero, w_zero), tile, depth, runs_alone(ctx))
    whole, width = weights - w_zero.astype(np.int64), round_up(weights.shape[0], vl)
    requantized = requantized_by(ctx, node, whole, packed.correction, activation, width)
    after, called, table = look_up_of(ctx, node)
    flips = flips_as_it_copies(ctx, node, window, method, depth.segments, depth.total)
    steps = _few_steps(ctx, window, method, depth) if "NARROW" in packed.macros else 0
    reads = not steps and bytes_read_ahead(ctx, window.pixels, tile, packed.macros)
    walk = f"_strips{steps}" if steps else "_ahead" * reads
    suffix = packed.suffix + "_flipped" * flips + walk + called
    kernel = ctx.kernel(
        f"{x.dtype.value}_{requantized.kind}_{tile.mr}x{tile.nv * vl}{suffix}",
        "conv/i8_conv.c",
        "conv/i8_conv.h",
        "ek_i8_conv_args",
        MR=tile.mr,
        NV=tile.nv,
        TX=C_TYPES[x.dtype],
        TY=C_TYPES[y.dtype],
        **packed.macros,
        **({"FLIPPED": 1} if flips else {}),
        **({"STEPS": steps} if steps else {}),
        **({READ_AHEAD: 1} if reads else {}),
        **requantized.macros,
        **after,
    )
    fields = _i8_fields(ctx, node, window, packed, method, depth, x_zero)
    if depth.segments:
        fields |= border_fields(ctx, window, tile)
    fields |= {
        **requantized.fields,
        "x": Value(x.name),
        "weights": ctx.weights.add(packed.weights),
        "y": Value(y.name),
        "pitch": ctx.pitch(ctx.look_ups[node.name].out if table else y.name),
        **table,
    }
    tasks = count_tasks(window, tile, vl)[0]
    return KernelCall(kernel, fields, tasks, grain_of(ctx, window, tasks))


def _few_steps(ctx: Context, window: Window, method: OperatorMethod, depth: Depth) -> int:
    """Steps along k of a product so short that a panel stays in registers for a strip of pixels
    (conv/i8_strips.h); 0 for others."""
    tile, steps = tile_of(method, ctx.isa.vl), depth.total // ctx.isa.k_step
    short = steps <= _FEW_STEPS and (window.pointwise or not depth.segments)
    whole = window.y[3] % ctx.isa.vl == 0 and window.pixels >= 2 * tile.mr
    in_registers = ctx.isa.i8 is ByteProduct.MULL16 and not ctx.board.in_order
    known = (tile, method.split) == (_STRIP_TILE, "m")
    return steps if short and whole and in_registers and known else 0


def hybrid_product(
    ctx: Context, node: Node, window: Window, weights: Array, activation: Activation
) -> list[KernelCall]:
    """f32 x times s8 weights: each image is quantized with its own scale; the result is f32."""
    x, w, y = (ctx.tensor(name) for name in (*node.inputs[:2], node.outputs[0]))
    assert w.quant is not None
    vl = ctx.isa.vl
    depth = depth_of(ctx, window, NO_ZERO)
    method = _i8_method(ctx, node, window, depth)
    tile = tile_of(method, ctx.isa.vl)
    stored = Tensor(f"{x.name}:s8", x.shape, DType.I8)
    packed = _pack_bytes(ctx, window, weights, stored, (0, NO_ZERO), tile, depth, runs_alone(ctx))
    unary = ("elementwise/unary.h", "ek_unary_args")
    measure = ctx.kernel("magnitudes", "elementwise/magnitudes.c", *unary)
    quantize = ctx.kernel(
        "quantize_s8_dynamic", "elementwise/quantize.c", *unary, TQ="int8_t", OP_DYNAMIC=1
    )
    multiply = ctx.kernel(
        f"s8_conv_f32_{tile.mr}x{tile.nv * vl}{packed.suffix}",
        "conv/i8_conv.c",
        "conv/i8_conv.h",
        "ek_i8_conv_args",
        MR=tile.mr,
        NV=tile.nv,
        TX="int8_t",
        TY="float",
        FLOAT_OUTPUT=1,
        **packed.macros,
    )
    one = dataclasses.replace(window, x=(1, *window.x[1:]), y=(1, *window.y[1:]))
    image = math.prod(one.x)
    chunks = math.ceil(image / UNARY_CHUNK)
    quantized, scale = ctx.scratch(node, image), ctx.scratch(node, 4 * (1 + chunks))
    width = round_up(weights.shape[0], vl)
    correction = padded(packed.correction, width, np.dtype(np.int64))
    low, high = activation.bounds
    calls = []
    for i in range(window.x[0]):
        passed: dict[str, Field] = {
            "n": image,
            "x": Value(x.name, i * image * 4),
            "y": quantized,
            "x_scale": scale,
        }
        calls += [KernelCall(measure, passed, chunks), KernelCall(quantize, passed, chunks)]
        fields = _i8_fields(ctx, node, one, packed, method, depth, 0)
        fields |= {
            "x": quantized,
            "weights": ctx.weights.add(packed.weights),
            "bias": ctx.weights.add(wrap_i32(correction)),
            "scale": ctx.weights.add(padded(w.quant.scale, width, _F32)),
            "x_scale": scale,
            "bias_f32": ctx.weights.add(bias_vector(ctx.optional(node, 2), width, _F32)),
            "low_f32": low,
            "high_f32": high,
            "y": Value(y.name, i * math.prod(one.y) * 4),
        }
        tasks = count_tasks(one, tile, vl)[0]
        calls.append(KernelCall(multiply, fields, tasks, grain_of(ctx, one, tasks)))
    return calls


@dataclass(frozen=True, eq=False)
class BytesProduct:
    """A byte product with f32 results: its kernel and the arguments independent of addresses. The
    caller stores `weights`: packed, `bits` per value, in panels [depth][columns]."""

    kernel: Kernel
    fields: dict[str, Field]
    tasks: int
    weights: Array
    bits: int
    depth: int
    columns: int


def float_product(
    ctx: Context,
    node: Node,
    window: Window,
    weights: Array,
    x: Tensor,
    zeros: tuple[int, Array],
    halve: bool,
) -> BytesProduct:
    """x [pixels, k] times weights [n, k], both bytes; the caller provides scales and bias.

    `zeros`: zero points of x and of the weights (one, or [n, 1]). `halve`: weights are in [-8, 7]
    and stored two per byte, if a panel is not too large.
    """
    depth = depth_of(ctx, window, signed_weights(weights, zeros[1])[1])
    method = _i8_method(ctx, node, window, depth)
    tile = tile_of(method, ctx.isa.vl)
    packed = _pack_bytes(ctx, window, weights, x, zeros, tile, depth)
    columns = tile.nv * ctx.isa.vl
    stored = packed.weights
    bits, macros = 8, dict(packed.macros)
    if halve and columns * depth.total <= I8_UNPACKED_BYTES:
        stored = pack_int4(stored, columns * depth.total)
        bits, macros["INT4"] = 4, 1
    suffix = packed.suffix + ("_int4" if bits == 4 else "")
    kernel = ctx.kernel(
        f"{x.dtype.value}_conv_f32_{tile.mr}x{columns}{suffix}",
        "conv/i8_conv.c",
        "conv/i8_conv.h",
        "ek_i8_conv_args",
        MR=tile.mr,
        NV=tile.nv,
        TX=C_TYPES[x.dtype],
        TY="float",
        FLOAT_OUTPUT=1,
        **macros,
    )
    width = round_up(weights.shape[0], ctx.isa.vl)
    correction = padded(packed.correction, width, np.dtype(np.int64))
    fields = _i8_fields(ctx, node, window, packed, method, depth, zeros[0])
    fields["bias"] = ctx.weights.add(wrap_i32(correction))
    if bits == 4:
        fields |= {"panel_outer": 1, "band": 0}  # a panel is unpacked once for all pixels
    tasks = count_tasks(window, tile, ctx.isa.vl)[0]
    return BytesProduct(kernel, fields, tasks, stored, bits, depth.total, columns)
