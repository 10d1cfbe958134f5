"""Costs of a plan's NNA layers, from the native emulator run on this machine.

The cost depends on the layer's shape and the chip only, not on values, so one account covers all
runs of a compiled layer.
"""

from __future__ import annotations

import functools
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.device.runtime.arrays.nna_account import (
    NnaAccount,
    layer_work,
    make_account,
    matmul_work,
    totals,
)
from edgekit.device.runtime.arrays.nna_chip import NnaChip
from edgekit.device.runtime.arrays.nna_native import (
    ConvShape,
    MatmulShape,
    NativeNna,
    PointwiseShape,
)
from edgekit.device.runtime.kernel_facts import NNA_CHANNELS as CHANNELS
from edgekit.device.runtime.shared_library import open_library
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.costs.nna import ProductForm, product_form
from edgekit.host.compiler.ir.nna import NnaForm, product_of
from edgekit.host.compiler.ir.ops import Conv2D, DepthwiseConv2D, FullyConnected, MatMul
from edgekit.host.compiler.ir.types import Array, Graph, Node
from edgekit.host.compiler.lowering.nna.nna import NnaLayer, layer_of
from edgekit.host.compiler.toolchain.kernels import features_unit
from edgekit.host.compiler.toolchain.nna_units import nna_units
from edgekit.host.compiler.toolchain.zig import Toolchain, TranslationUnit
from edgekit.kb.targets.board import LOCAL, load_board

_ABI = '#include "ek.h"\nint ek_abi(void) {\n    return EK_ABI;\n}\n'


@dataclass(frozen=True)
class LayerAccount:
    """The account of one node, and the form in which it uses the NNA."""

    name: str
    form: NnaForm | ProductForm
    account: NnaAccount


def account_of_node(chip: NnaChip, graph: Graph, node: Node) -> LayerAccount:
    """The account of a node that `fits_nna`; BuildError if the emulator cannot be built here."""
    op = node.op
    if isinstance(op, MatMul):
        stack, m, k, n = product_of(graph, node)
        form = product_form(chip, m, k, n)
        one = _values_account(chip, m, k, n) if form == "values" else _points_account(chip, m, k, n)
        return LayerAccount(node.name, form, NnaAccount(**totals([one] * stack)))
    assert isinstance(op, Conv2D | DepthwiseConv2D | FullyConnected)
    x, w = (graph.tensors[name or ""] for name in node.inputs[:2])
    layer = layer_of(op, x, w, graph.tensors[node.outputs[0]])
    return LayerAccount(node.name, layer.form, _layer_account(chip, layer))


def _layer_account(chip: NnaChip, layer: NnaLayer) -> NnaAccount:
    (ins, outs), (height, width), window = layer.groups, layer.extent, layer.window
    (rows, columns), inputs, outputs = window.y[1:3], window.x[3], window.y[3]
    if layer.form == "points":
        return _points_account(chip, rows * columns, inputs, outputs)
    image = np.zeros((ins, height, width, CHANNELS), np.int8)
    weights = np.zeros(layer.rearranged_shape, np.int8)
    sums = np.empty((outs, rows, columns, CHANNELS), np.int32)
    depthwise = int(layer.form == "diagonal")
    shape = ConvShape(ins, height, width, outs, rows, columns, window.stride[0], depthwise)
    arrays = _data_pointers(image, weights, sums)
    counters, _ = _build_emulator().conv(chip, shape, arrays, timed=True)
    pixels = math.prod(window.kernel)
    work = layer_work(chip, layer.form, rows * columns, pixels, inputs, outputs)
    return make_account(chip, counters, work)


def _points_account(chip: NnaChip, points: int, inputs: int, outputs: int) -> NnaAccount:
    ins, outs = (math.ceil(count / CHANNELS) for count in (inputs, outputs))
    pixels = np.zeros((ins, points, CHANNELS), np.int8)
    weights = np.zeros((outs, ins, CHANNELS, CHANNELS), np.int8)
    sums = np.empty((outs, points, CHANNELS), np.int32)
    shape, arrays = PointwiseShape(points, ins, outs), _data_pointers(pixels, weights, sums)
    counters, _ = _build_emulator().pointwise(chip, shape, arrays, timed=True)
    return make_account(chip, counters, layer_work(chip, "points", points, 1, inputs, outputs))


def _values_account(chip: NnaChip, m: int, k: int, n: int) -> NnaAccount:
    a, b, sums = np.zeros((m, k), np.int8), np.zeros((k, n), np.int8), np.empty((m, n), np.int32)
    rest = np.zeros((k, n % CHANNELS), np.int8)
    arrays = _data_pointers(a, b, rest, sums)
    counters, _ = _build_emulator().matmul(chip, MatmulShape(m, k, n), arrays, timed=True)
    return make_account(chip, counters, matmul_work(m, k, n))


def _data_pointers(*arrays: Array) -> list[int]:
    return [array.ctypes.data for array in arrays]


@functools.cache
def _build_emulator() -> NativeNna:
    """Builds the emulator by itself, since the complete kernel library takes half a minute."""
    board, folder = load_board(LOCAL), cache_folder() / "objects"
    library = Toolchain(board, folder).build(
        [*nna_units(board), features_unit(board), TranslationUnit("abi", _ABI)], "nna.so"
    )
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "nna.so"
        path.write_bytes(library)
        return NativeNna(open_library(path, "the emulated NNA"))
