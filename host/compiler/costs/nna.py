"""An operator's cost on a board's NNA: cycles there, and the core's work around them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgekit.device.runtime.arrays.nna_chip import NnaChip
from edgekit.device.runtime.kernel_facts import NNA_CHANNELS as CHANNELS
from edgekit.device.runtime.kernel_facts import NNA_TAPS as TAPS
from edgekit.host.compiler.costs.nna_cycles import (
    points_cycles,
    product_form,
    values_cycles,
    windows_cycles,
)
from edgekit.host.compiler.ir.nna import form_of_layer, product_of
from edgekit.host.compiler.ir.ops import Conv2D, DepthwiseConv2D, FullyConnected, MatMul
from edgekit.host.compiler.ir.types import Graph, Node

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
