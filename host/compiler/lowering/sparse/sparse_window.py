"""Layout of the bands of pruned window convolutions on channels-first images."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from edgekit.device.runtime.arrays.sparse_input import Csr
from edgekit.device.runtime.arrays.sparse_pairs import pack_places
from edgekit.device.runtime.kernel_facts import SPARSE_WINDOW_SCRATCH
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.ops import ChannelsFirstConv2D
from edgekit.host.compiler.ir.types import Array, Node
from edgekit.host.compiler.lowering.common.window import Window, bias_vector
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value

_PANEL = 4096  # target input size in floats, which fits into a 32 KiB L1 cache with other data
_PIXELS = 64  # target pixels per band; weights are read once per band
_LANES = 16  # lanes of the longest vectors; sums are padded to a multiple


@dataclass(frozen=True)
class Bands:
    """The output rows of `window` in bands, in the layout of ek_sparse_window_args.

    `rows` per band, `channels` per panel, `lines` per copied channel, and their `pitch`.
    """

    window: Window
    rows: int
    channels: int
    lines: int
    pitch: int

    @property
    def count(self) -> int:
        return math.ceil(self.window.y[1] / self.rows)

    @property
    def panels(self) -> int:
        return math.ceil(self.window.x[3] / self.channels)

    @property
    def scratch(self) -> int:
        """Floats of scratch: the larger of the copy and the sums."""
        sh, sw = self.window.stride
        copy = self.channels * sh * sw * self.lines * self.pitch
        behind = self.window.padding.left // sw + _LANES
        return max(copy + behind, self.window.y[3] * self.pixels(self.rows, _LANES))

    def pixels(self, rows: int, vl: int) -> int:
        """Pixels computed for `rows` rows: complete vectors, including padding between rows."""
        return round_up((rows - 1) * self.pitch + self.window.y[2], vl)

    def all_pixels(self, vl: int) -> int:
        """Pixels computed for all images."""
        whole, rest = divmod(self.window.y[1], self.rows)
        image = whole * self.pixels(self.rows, vl) + (self.pixels(rest, vl) if rest else 0)
        return self.window.y[0] * image

    def places(self) -> Array:
        """[channels * kh * kw]: offset of each input of a panel for a band's first pixel."""
        (kh, kw), (sh, sw), (dh, dw) = self.window.kernel, self.window.stride, self.window.dilation
        c, y, x = np.ix_(range(self.channels), range(0, kh * dh, dh), range(0, kw * dw, dw))
        phase = (c * sh + y % sh) * sw + x % sw
        return ((phase * self.lines + y // sh) * self.pitch + x // sw).ravel()


@functools.lru_cache
def bands_of(window: Window) -> Bands | None:
    """Chooses the bands of a window; None if not even one row fits into scratch."""
    found = _build_bands(window, 1)
    if found.scratch > SPARSE_WINDOW_SCRATCH:
        return None
    for rows in range(2, window.y[1] + 1):
        bands = _build_bands(window, rows)
        enough = found.pixels(found.rows, 1) >= _PIXELS and bands.panels > 1
        if enough or bands.scratch > SPARSE_WINDOW_SCRATCH:
            break
        found = bands
    return _build_bands(window, math.ceil(window.y[1] / found.count))


def _build_bands(window: Window, rows: int) -> Bands:
    (kh, kw), (sh, sw), (dh, dw) = window.kernel, window.stride, window.dilation
    held = window.padding.left + window.x[2]
    reach = window.y[2] + (kw - 1) * dw // sw
    # The padding before a line doubles as the padding after the previous one.
    shared = max(min(window.padding.left // sw, reach - math.ceil(held / sw)), 0)
    lines, pitch = rows + (kh - 1) * dh // sh, reach - shared
    panels = math.ceil(window.x[3] * sh * sw * lines * pitch / _PANEL)
    return Bands(window, rows, math.ceil(window.x[3] / panels), lines, pitch)


def lower_sparse_window(ctx: Context, node: Node, window: Window) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ChannelsFirstConv2D)
    x, residual = ctx.tensor(node.inputs[0]), ctx.optional(node, 3)
    data = ctx.constant(node, 1, "weights")
    bands = bands_of(window)
    if bands is None:
        raise ctx.unsupported(node, f"a row of {window.x[3]} channels")
    rows = data.shape[0]
    matrix = data.transpose(0, 3, 1, 2).reshape(rows, -1).astype(np.float32)
    row, col = np.nonzero(matrix)
    start = np.searchsorted(row, np.arange(rows + 1)).astype(np.int64)
    csr = Csr(matrix.shape, start, col.astype(np.int32), matrix[row, col])
    pairs = pack_places(csr, bands.places())
    low, high = op.activation.bounds
    fields: dict[str, Field] = {
        "win": window.fields,
        "plan": {
            "panels": pairs.panels,
            "pairs": pairs.pairs,
            "pair": ctx.weights.add(pairs.pair),
            "columns": ctx.weights.add(pairs.columns),
            "values": ctx.weights.add(pairs.values),
        },
        "x": Value(x.name),
        "y": Value(node.outputs[0]),
        "bias": ctx.weights.add(bias_vector(ctx.optional(node, 2), rows, np.dtype(np.float32))),
        "residual": None if residual is None else Value(residual.name),
        "low": low,
        "high": high,
        "band": bands.rows,
        "channels": bands.channels,
        "lines": bands.lines,
        "pitch": bands.pitch,
    }
    in_order = {"EK_IN_ORDER": 1} if ctx.board.in_order else {}
    kernel = ctx.kernel(
        "f32_sparse_window",
        "sparse/window.c",
        "sparse/window.h",
        "ek_sparse_window_args",
        EK_STORED=0,
        **in_order,
    )
    return [KernelCall(kernel, fields, None)]
