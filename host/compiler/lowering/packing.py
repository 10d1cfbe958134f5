"""Weight packing in the order kernels read: panels of output channels, k within a panel."""

from __future__ import annotations

import numpy as np

from edgekit.host.common.content import release_pages
from edgekit.host.compiler.ir.align import round_up
from edgekit.host.compiler.ir.quantization import zero_points_of
from edgekit.host.compiler.ir.types import Array, Tensor
from edgekit.kb.targets.isa import Isa

NO_ZERO = np.asarray(0)


def pack_panels(w: Array, nr: int, vl: int, group: int = 1, k_padded: int | None = None) -> Array:
    """[n, k] → panels [k_padded/group][nr][group], consecutive and flat.

    The last panel is only as wide as needed for complete vectors of `vl` channels; padding is zero.
    """
    n, k = w.shape
    depth = round_up(k, group) if k_padded is None else k_padded
    wide = np.zeros((round_up(n, vl), depth), w.dtype)
    wide[:n, :k] = w
    panels = []
    for start in range(0, wide.shape[0], nr):
        panel = wide[start : start + nr]
        panels.append(panel.reshape(panel.shape[0], -1, group).transpose(1, 0, 2).reshape(-1))
    return np.concatenate(panels) if panels else np.zeros(0, w.dtype)


def pack_byte_panels(w: Array, nr: int, isa: Isa, depth: int) -> Array:
    """Integer weights [n, k] in s8 range → s8 panels [depth/group][nr][group] for an ISA's 8-bit
    products."""
    order = isa.i8.order
    wide = np.zeros((len(w), depth), np.int8)
    wide[:, : w.shape[1]] = w
    groups = wide.reshape(len(w), depth // len(order), len(order))[:, :, order]
    return pack_panels(groups.reshape(wide.shape), nr, isa.vl, isa.i8.group)


def fits_int4(values: Array) -> bool:
    """Whether all values are -8 to 7."""
    return _fits(values, 4)


def fits_int3(values: Array) -> bool:
    """Whether all values are -4 to 3."""
    return _fits(values, 3)


def fits_int2(values: Array) -> bool:
    """Whether all values are -2 to 1."""
    return _fits(values, 2)


def _fits(values: Array, bits: int) -> bool:
    most, least, largest = 1 << bits - 1, values.min(initial=0), values.max(initial=0)
    release_pages()  # all weights of a model may be asked before any is packed
    return bool(least >= -most and largest < most)


def pack_int4(packed: Array, panel: int) -> Array:
    """Packs values in [-8, 7] two per byte, in panels of `panel` values; the last may be shorter.

    Value i of a panel, plus 8, is in the low half of its byte i, and value i + ceil(size / 2) in
    the high half (device/kernels/gemm/i4_unpack.h).
    """
    halves = []
    for start in range(0, packed.size, panel):
        values = (packed[start : start + panel] + 8).astype(np.uint8)
        half = -(-values.size // 2)
        high = np.zeros(half, np.uint8)
        high[: values.size - half] = values[half:]
        halves.append(values[:half] | high << 4)
    return np.concatenate(halves)


def zero_of_rows(w: Tensor) -> Array:
    """The zero point of weights [n, ...], or those of the rows, [n, 1], if they differ."""
    points = zero_points_of(w)
    return points.reshape(-1, 1) if points.size > 1 else points


def signed_weights(weights: Array, zero: Array) -> tuple[Array, Array]:
    """8-bit weights as values in s8 range (stored as s16), and their remaining zero point.

    `zero` is one zero point, or several that broadcast. The remaining zero point is 0 if the
    weights fit without one.
    """
    wide = weights.astype(np.int16)
    shifted = (wide - zero).astype(np.int16)
    if np.abs(shifted).max(initial=0) <= 127:
        return shifted, NO_ZERO
    return (wide - np.int16(128), zero - 128) if weights.dtype == np.uint8 else (wide, zero)
