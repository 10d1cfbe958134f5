"""An operator's cost on a board's NNA: cycles there, and the core's work around them.

Cycles are computed from instruction counts (docs/architecture.md). They are those of the vector
thread or the array, whichever is slower, from loading the first weights to storing the last sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from edgekit.device.runtime.arrays.nna_account import vector_cycles
from edgekit.device.runtime.arrays.nna_chip import NnaChip
from edgekit.device.runtime.kernel_facts import NNA_CHANNELS as CHANNELS
from edgekit.device.runtime.kernel_facts import NNA_TAPS as TAPS
from edgekit.host.compiler.ir.nna import form_of_layer, product_of
from edgekit.host.compiler.ir.ops import Conv2D, DepthwiseConv2D, FullyConnected, MatMul
from edgekit.host.compiler.ir.types import Graph, Node

# The weights in a product of two computed matrices: the columns of the second matrix, or, as in the
# patent, the values of the first one on the diagonal.
ProductForm = Literal["columns", "values"]

_SIDE = 3
_PAIR = 3  # instructions per two rows of weights: two loads and a write
_TAP = _PAIR * CHANNELS // 2  # to load the weights of a tap
_SET = TAPS * _TAP  # to load the weights of one MAC
_MAC = 3  # two settings and the MAC itself
_READ, _SUM = 6, 12  # per point with 32 sums: read and store; also add to the previous sums
_TAP_BYTES = CHANNELS * CHANNELS


@dataclass(frozen=True)
class NnaWork:
    """`cycles` of the NNA; for the core, `handled` elements processed one by one in addition to
    the results, and `weight_bytes` of rearranged weights, which come from memory."""

    cycles: float
    handled: int
    weight_bytes: int


def nna_work(chip: NnaChip, graph: Graph, node: Node) -> NnaWork:
    """Return the work of a node that `fits_nna`."""
    if isinstance(node.op, MatMul):
        return _product_work(chip, graph, node)
    op = node.op
    assert isinstance(op, Conv2D | DepthwiseConv2D | FullyConnected)
    w = graph.tensors[node.inputs[1] or ""]
    y = graph.tensors[node.outputs[0]]
    form, ins = form_of_layer(op, w), math.ceil(w.shape[-1] / CHANNELS)
    if form == "points":
        outs = math.ceil(w.shape[0] / CHANNELS)
        cycles = points_cycles(chip, y.elements // w.shape[0], ins, outs)
        return NnaWork(cycles, 0, outs * ins * _TAP_BYTES)
    assert not isinstance(op, FullyConnected)
    outs = math.ceil(y.shape[-1] / CHANNELS)
    each = 1 if form == "diagonal" else ins
    cycles = windows_cycles(chip, y.shape[1:3], op.stride[0], each, outs)
    return NnaWork(cycles, 0, outs * each * TAPS * _TAP_BYTES)


def _product_work(chip: NnaChip, graph: Graph, node: Node) -> NnaWork:
    """The core rearranges weights, and sums rows and columns to correct for zero points."""
    stack, m, k, n = product_of(graph, node)
    sums = m * k + k * n
    if product_form(chip, m, k, n) == "values":
        diagonals = m * math.ceil(k / TAPS) * TAPS * _TAP_BYTES
        cycles = stack * values_cycles(chip, m, k, n)
        return NnaWork(cycles, stack * (sums + m * k * CHANNELS), stack * diagonals)
    ins, outs = math.ceil(k / CHANNELS), math.ceil(n / CHANNELS)
    cycles = stack * points_cycles(chip, m, ins, outs)
    return NnaWork(cycles, stack * (sums + k * n), stack * ins * outs * _TAP_BYTES)


def windows_cycles(chip: NnaChip, size: tuple[int, ...], stride: int, ins: int, outs: int) -> float:
    """3x3 windows: `outs` groups of sums, each over `ins` groups of input channels."""
    height, width = size
    row = range(0, width, chip.output_points)  # of tiles
    tiles = height * len(row)
    columns = ((chip.output_points - 1) * stride + _SIDE + 1) // 2 * 2
    # A tile always writes all its columns, but loads only those inside the image.
    wide = (width - 1) * stride + _SIDE
    loads = sum(min(columns, wide - left * stride) for left in row) / len(row)
    fill = _SIDE * (loads + columns / 2)
    sums = height * width * (_READ + _SUM * (ins - 1))
    thread = outs * (ins * (_SET + tiles * (fill + _MAC)) + sums)
    array = outs * ins * tiles * chip.mac_cycles
    if chip.weight_sets == 1:  # weights are loaded while the array waits
        array += outs * ins * _SET
    return max(thread, array + _SET + fill)


def points_cycles(chip: NnaChip, points: int, ins: int, outs: int) -> float:
    """`outs` groups of sums per point; up to nine of the `ins` input groups serve as taps."""
    return _patches_cycles(chip, points, ins, outs, dense=True)


def values_cycles(chip: NnaChip, m: int, k: int, n: int) -> float:
    """[m, k] by [k, n] as in the patent; the remainder of n / 32 runs on the vector unit."""
    groups = n // CHANNELS
    whole = _patches_cycles(chip, groups, k, m, dense=False) if groups else 0.0
    return whole + vector_cycles(chip, m, k, n % CHANNELS)


def product_form(chip: NnaChip, m: int, k: int, n: int) -> ProductForm:
    """The form with fewer cycles for [m, k] by [k, n], both computed."""
    columns = points_cycles(chip, m, math.ceil(k / CHANNELS), math.ceil(n / CHANNELS))
    return "values" if values_cycles(chip, m, k, n) < columns else "columns"


def _patches_cycles(chip: NnaChip, points: int, depth: int, rounds: int, dense: bool) -> float:
    """`rounds` of weights over all points, `depth` pixels in patches of up to nine; with `dense`,
    patches of one or two pixels are packed next to each other."""
    thread = array = first = 0.0
    for start in range(0, depth, TAPS):
        taps = min(depth - start, TAPS)
        pitch = taps if dense and taps <= 2 else 4
        tiles = math.ceil(points / (chip.output_points // (2 if pitch == 4 else 1)))
        fill = points * (taps + math.ceil(taps / _SIDE) * pitch / 2)
        weights = taps * _TAP
        thread += weights + fill + tiles * _MAC + points * (_SUM if start else _READ)
        array += tiles * chip.mac_cycles + (weights if chip.weight_sets == 1 else 0)
        first = first or weights + fill / tiles
    return max(rounds * thread, rounds * array + first)
