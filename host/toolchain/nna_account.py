"""What a plan's layers on the NNA cost, by the native emulator, run on this machine.

An account depends on the shape of a layer and on the chip, not on values: that of a compiled layer
is that of each of its runs.
"""

from __future__ import annotations

import functools
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.device.arrays.nna_account import Account, layer_work, make_account
from edgekit.device.arrays.nna_chip import NnaChip
from edgekit.device.arrays.nna_native import ConvShape, NativeNna, PointwiseShape
from edgekit.device.kernel_facts import NNA_CHANNELS as CHANNELS
from edgekit.device.shared_library import open_library
from edgekit.host.graph.nna import NnaForm
from edgekit.host.graph.ops import Conv2D, DepthwiseConv2D, FullyConnected
from edgekit.host.graph.types import Graph, Node
from edgekit.host.lower.nna import Layer, layer_of
from edgekit.host.paths import cache_folder
from edgekit.host.toolchain.kernels import features_unit
from edgekit.host.toolchain.nna_units import nna_units
from edgekit.host.toolchain.zig import Toolchain, Unit
from edgekit.kb.board import LOCAL, load_board

_ABI = '#include "ek.h"\nint ek_abi(void) {\n    return EK_ABI;\n}\n'


@dataclass(frozen=True)
class LayerAccount:
    """The account of one node, and how it uses the taps."""

    name: str
    form: NnaForm
    account: Account


def account_of_node(chip: NnaChip, graph: Graph, node: Node) -> LayerAccount:
    """The account of a node that `fits_nna`; BuildError if the emulator cannot be built here."""
    op = node.op
    assert isinstance(op, Conv2D | DepthwiseConv2D | FullyConnected)
    x, w = (graph.tensors[name or ""] for name in node.inputs[:2])
    layer = layer_of(op, x, w, graph.tensors[node.outputs[0]])
    return LayerAccount(node.name, layer.form, _account(chip, layer))


def _account(chip: NnaChip, layer: Layer) -> Account:
    (ins, outs), (height, width), window = layer.groups, layer.extent, layer.window
    rows, columns = window.y[1:3]
    image = np.zeros((ins, height, width, CHANNELS), np.int8)
    weights = np.zeros(layer.rearranged_shape, np.int8)
    sums = np.empty((outs, rows, columns, CHANNELS), np.int32)
    arrays = [array.ctypes.data for array in (image, weights, sums)]
    if layer.form == "points":
        shape = PointwiseShape(rows * columns, ins, outs)
        counters, _ = _emulator().pointwise(chip, shape, arrays, timed=True)
    else:
        depthwise = int(layer.form == "diagonal")
        stride = window.stride[0]
        conv = ConvShape(ins, height, width, outs, rows, columns, stride, depthwise)
        counters, _ = _emulator().conv(chip, conv, arrays, timed=True)
    work = layer_work(
        chip, layer.form, rows * columns, math.prod(window.kernel), window.x[3], window.y[3]
    )
    return make_account(chip, counters, work)


@functools.cache
def _emulator() -> NativeNna:
    """The emulator alone, a C file: the whole kernels library takes half a minute to build."""
    board, folder = load_board(LOCAL), cache_folder() / "objects"
    library = Toolchain(board, folder).build(
        [*nna_units(board), features_unit(board), Unit("abi", _ABI)], "nna.so"
    )
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "nna.so"
        path.write_bytes(library)
        return NativeNna(open_library(path, "the emulated NNA"))
