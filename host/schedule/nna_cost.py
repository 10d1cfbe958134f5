"""Cycles of a layer on the NNA, by the account of its instructions (docs/nna.md), not emulated."""

from __future__ import annotations

import math

from edgekit.device.arrays.nna_chip import NnaChip
from edgekit.device.kernel_facts import NNA_CHANNELS as CHANNELS
from edgekit.device.kernel_facts import NNA_TAPS as TAPS
from edgekit.host.graph.nna import SIDE, form_of_layer
from edgekit.host.graph.ops import Conv2D, DepthwiseConv2D, FullyConnected
from edgekit.host.graph.types import Graph, Node

_PAIR = 3  # instructions for two rows of weights: two loads and a write
_TAP = _PAIR * CHANNELS // 2  # for the weights of a tap
_SET = TAPS * _TAP  # for those of one MAC
_PIXEL = 1.5  # a load each, and a write for two
_MAC = 3  # two settings and the MAC itself
_READ, _SUM = 6, 12  # of the 32 sums of a point: read and stored; added to those before, too


def nna_cycles(chip: NnaChip, graph: Graph, node: Node) -> float:
    """Cycles of the vector thread and the array, whichever is slower, from the first weights to
    the last sums; of a node that `fits_nna`."""
    op = node.op
    assert isinstance(op, Conv2D | DepthwiseConv2D | FullyConnected)
    x, w = (graph.tensors[name or ""] for name in node.inputs[:2])
    y = graph.tensors[node.outputs[0]]
    form = form_of_layer(op, w)
    outputs = y.shape[-1] if form == "diagonal" else w.shape[0]
    ins, outs = math.ceil(x.shape[-1] / CHANNELS), math.ceil(outputs / CHANNELS)
    if form == "points":
        depth = math.ceil(w.shape[-1] / CHANNELS)
        return _points_cycles(chip, y.elements // outputs, depth, outs)
    assert not isinstance(op, FullyConnected)
    return _windows_cycles(chip, y.shape[1:3], op.stride[0], 1 if form == "diagonal" else ins, outs)


def nna_weight_bytes(graph: Graph, node: Node) -> int:
    """Bytes of the rearranged weights of a node that `fits_nna`."""
    op, w = node.op, graph.tensors[node.inputs[1] or ""]
    assert isinstance(op, Conv2D | DepthwiseConv2D | FullyConnected)
    form, inner = form_of_layer(op, w), math.ceil(w.shape[-1] / CHANNELS)
    tap = CHANNELS * CHANNELS
    if form == "diagonal":
        return inner * TAPS * tap
    return math.ceil(w.shape[0] / CHANNELS) * inner * (1 if form == "points" else TAPS) * tap


def _windows_cycles(
    chip: NnaChip, size: tuple[int, ...], stride: int, ins: int, outs: int
) -> float:
    """Of `outs` groups of sums, each of `ins` groups of input channels."""
    height, width = size
    tiles = height * math.ceil(width / chip.output_points)
    columns = ((chip.output_points - 1) * stride + SIDE + 1) // 2 * 2
    fill = SIDE * columns * _PIXEL
    sums = height * width * (_READ + _SUM * (ins - 1))
    thread = outs * (ins * (_SET + tiles * (fill + _MAC)) + sums)
    array = outs * ins * tiles * chip.mac_cycles
    if chip.weight_sets == 1:  # weights are loaded while the array waits
        array += outs * ins * _SET
    return max(thread, array + _SET + fill)


def _points_cycles(chip: NnaChip, points: int, ins: int, outs: int) -> float:
    """Of `outs` groups of sums; up to nine groups of input channels at a time are the taps."""
    thread = array = first = 0.0
    for start in range(0, ins, TAPS):
        taps = min(ins - start, TAPS)
        pitch = 4 if taps > 2 else taps
        tiles = math.ceil(points / (chip.output_points // (2 if pitch == 4 else 1)))
        fill = points * (taps + math.ceil(taps / SIDE) * pitch / 2)
        weights = taps * _TAP
        thread += weights + fill + tiles * _MAC + points * (_SUM if start else _READ)
        array += tiles * chip.mac_cycles + (weights if chip.weight_sets == 1 else 0)
        first = first or weights + fill / tiles
    return max(outs * thread, outs * array + first)
