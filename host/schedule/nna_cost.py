"""Cycles of a layer on the NNA, by the account of its instructions (docs/nna.md), not emulated."""

from __future__ import annotations

import math

from edgekit.device.arrays.nna_chip import NnaChip
from edgekit.device.kernel_facts import NNA_CHANNELS as CHANNELS
from edgekit.device.kernel_facts import NNA_TAPS as TAPS
from edgekit.host.graph import ops
from edgekit.host.graph.types import Graph, Node

_SIDE = 3
_PAIR = 3  # instructions for two rows of weights: two loads and a write
_SET = _PAIR * TAPS * CHANNELS // 2  # for the weights of one MAC
_PIXEL = 1.5  # a load each, and a write for two
_MAC = 3  # two settings and the MAC itself
_READ, _SUM = 6, 12  # of the 32 sums of a point: read and stored; added to those before, too


def nna_cycles(chip: NnaChip, graph: Graph, node: Node) -> float:
    """Cycles of the vector thread and the array, whichever is slower, from the first weights to
    the last sums; of a node that `fits_nna`."""
    op = getattr(node.op, "inner", node.op)
    x, w = (graph.tensors[name or ""] for name in node.inputs[:2])
    y = graph.tensors[node.outputs[0]]
    if isinstance(op, ops.Conv2D):
        (height, width, outputs), stride = y.shape[1:], op.stride[0]
    else:  # a product is a row of points
        outputs, depth = w.shape
        (height, width), stride = (1, x.elements // depth), 1
    ins, outs = math.ceil(w.shape[-1] / CHANNELS), math.ceil(outputs / CHANNELS)
    tiles = height * math.ceil(width / chip.output_points)
    columns = ((chip.output_points - 1) * stride + _SIDE + 1) // 2 * 2
    fill = _SIDE * columns * _PIXEL
    sums = height * width * (_READ + _SUM * (ins - 1))
    thread = outs * (ins * (_SET + tiles * (fill + _MAC)) + sums)
    array = outs * ins * tiles * chip.mac_cycles
    if chip.weight_sets == 1:  # weights are loaded while the array waits
        array += outs * ins * _SET
    return max(thread, array + _SET + fill)
