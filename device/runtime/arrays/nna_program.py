"""The vector thread's program: matrix products and convolutions as instruction streams.

All use the same pipeline over *periods*: a period has one set of weights and the *tiles* it serves;
a tile is one MAC. While the array computes on one FRAM, the thread reads back and stores the sums
of the other, writes a share of the next period's weights and fills the other FRAM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator, List, Optional, Tuple

import numpy as np

from edgekit.device.runtime.arrays.nna_chip import NnaChip
from edgekit.device.runtime.arrays.nna_machine import NnaMachine
from edgekit.device.runtime.kernel_facts import NNA_CHANNELS as CHANNELS
from edgekit.device.runtime.kernel_facts import NNA_FRAMS as FRAMS
from edgekit.device.runtime.kernel_facts import NNA_REGISTERS as REGISTERS
from edgekit.device.runtime.kernel_facts import NNA_TAPS as TAPS

Array = Any
_BATCH = 8  # registers that weights pass through, so that loads complete before they are used
_PAIR_COST = 3  # two loads and a write


@dataclass(frozen=True)
class NnaTile:
    """One MAC: pixels of each FRAM row (None: padding), and destinations, as (point, 32 sums)."""

    patch: Tuple[Tuple[Optional[Array], ...], ...]
    outputs: Tuple[Tuple[int, Array], ...]


@dataclass(frozen=True)
class Period:
    """Weights [taps, 32 out, 32 in] s8 and the tiles they serve; `first`: no sums precede this
    period; `stride` between the windows of neighboring points."""

    weights: Array
    first: bool
    stride: int
    tiles: Tuple[NnaTile, ...]


def matmul_periods(chip: NnaChip, a: Array, f: Array, sums: Array) -> Iterator[Period]:
    """A [M, K] s8 by F [D, K, 32] s8 into sums [M, D, 32] s32, nine values of a row at a time."""
    groups, depth = f.shape[:2]
    for row, weights in enumerate(a):
        for first in range(0, depth, TAPS):
            values = weights[first : first + TAPS]
            tiles = []
            for at in range(0, groups, chip.groups):
                lanes = range(at, min(at + chip.groups, groups))
                patch = _build_patches(f[lanes.start : lanes.stop, first : first + TAPS], 4)
                outputs = tuple((2 * i, sums[row, lane]) for i, lane in enumerate(lanes))
                tiles.append(NnaTile(patch, outputs))
            yield Period(diagonal(values), first == 0, 2, tuple(tiles))


def pointwise_periods(chip: NnaChip, x: Array, w: Array, sums: Array) -> Iterator[Period]:
    """x [Di, P, 32] s8 with w [Do, Di, 32, 32] s8 into sums [Do, P, 32] s32: nine groups of input
    channels of a point act as its taps.

    One or two taps take one column each, so that all points of a MAC are useful; from three taps
    on, as in a matrix product, only every second one is.
    """
    groups, points = x.shape[:2]
    for out, weights in zip(sums, w):
        for first in range(0, groups, TAPS):
            taps = weights[first : first + TAPS]
            pitch = 4 if len(taps) > 2 else len(taps)
            apart = 2 if pitch == 4 else 1  # between useful points
            per_tile = chip.output_points // apart
            tiles = []
            for left in range(0, points, per_tile):
                at = range(left, min(left + per_tile, points))
                pixels = x[first : first + TAPS, at.start : at.stop].swapaxes(0, 1)
                outputs = tuple((apart * i, out[point]) for i, point in enumerate(at))
                tiles.append(NnaTile(_build_patches(pixels, pitch), outputs))
            yield Period(taps, first == 0, min(len(taps), 2), tuple(tiles))


def _build_patches(pixels: Array, pitch: int) -> Tuple[Tuple[Optional[Array], ...], ...]:
    """Arranges pixels [count, taps, 32] as patches of three-pixel rows, side by side at `pitch`
    columns; rows are padded to an even length."""
    taps = pixels.shape[1]
    rows = [
        [
            patch[row + column] if column < 3 and row + column < taps else None
            for patch in pixels
            for column in range(pitch)
        ]
        for row in range(0, taps, 3)
    ]
    return tuple((*row, *[None] * (len(row) % 2)) for row in rows)


def diagonal(values: Array) -> Array:
    """Expands taps to weights [taps, 32, 32] that scale every channel by the tap's value and mix
    none."""
    return values[:, None, None] * np.eye(CHANNELS, dtype=np.int8)


def conv_periods(chip: NnaChip, x: Array, w: Array, sums: Array, stride: int) -> Iterator[Period]:
    """x [Di, H, W, 32] s8 with w [Do, Di, 9, 32, 32] s8 into sums [Do, OH, OW, 32] s32."""
    for out, weights in zip(sums, w):
        for in_group, image in enumerate(x):
            tiles = _conv_tiles(chip, image, out, stride)
            yield Period(weights[in_group], in_group == 0, stride, tiles)


def depthwise_periods(
    chip: NnaChip, x: Array, w: Array, sums: Array, stride: int
) -> Iterator[Period]:
    """x [D, H, W, 32] s8 with w [D, 9, 32, 32] s8, diagonal, into sums [D, OH, OW, 32] s32."""
    for out, weights, image in zip(sums, w, x):
        yield Period(weights, True, stride, _conv_tiles(chip, image, out, stride))


def _conv_tiles(chip: NnaChip, image: Array, out: Array, stride: int) -> Tuple[NnaTile, ...]:
    """Returns the windows of one channel group, [H, W, 32], for a group of sums [OH, OW, 32]."""
    height, width = out.shape[:2]
    columns = ((chip.output_points - 1) * stride + 3 + 1) // 2 * 2
    tiles = []
    for y in range(height):
        for left in range(0, width, chip.output_points):
            end = min(left + chip.output_points, width)
            lines = image[y * stride : y * stride + 3, left * stride :][:, :columns]
            patch = tuple((*line, *[None] * (columns - len(line))) for line in lines)
            outputs = tuple((i, out[y, at]) for i, at in enumerate(range(left, end)))
            tiles.append(NnaTile(patch, outputs))
    return tuple(tiles)


def run(machine: NnaMachine, periods: Iterator[Period]) -> None:
    """Issues the complete stream; the sums are complete afterwards."""
    period = next(periods, None)
    sets, used, fram = machine.chip.weight_sets, 0, 0
    if period:
        machine.nncfg("stride", period.stride)
        _write_weights(machine, used, _weight_pairs(period))
    ahead = np.empty((0, 2, CHANNELS), np.int8)  # the next period's weights, for the next fill
    pending: Optional[Tuple[int, NnaTile, bool]] = None
    while period:
        following = next(periods, None)
        machine.nncfg("stride", period.stride)
        coming = _weight_pairs(following) if following and sets == 2 else ahead[:0]
        ends = _distribute_pairs(period, len(coming))
        for tile, start, end in zip(period.tiles, [0, *ends], ends):
            _fill_fram(machine, fram, tile, used if tile is period.tiles[0] else 1 - used, ahead)
            machine.nncfg("mask", (1 << len(period.weights)) - 1)
            machine.nnmacg(fram, used)
            if pending:
                _read_back(machine, *pending)
            pending, ahead = (fram, tile, period.first), coming[start:end]
            fram = (fram + 1) % FRAMS
        if following and sets == 1:
            _write_weights(machine, used, _weight_pairs(following))
        used, period = (used + 1) % sets, following
    if pending:
        _read_back(machine, *pending)


def _distribute_pairs(period: Period, pairs: int) -> List[int]:
    """Returns how many pairs of the next weights are written by the end of each tile.

    Distributes instructions evenly over the MACs: a MAC hides only the instructions issued during
    its own tile, and an imbalance is never recovered.
    """
    reads = [_read_cost(tile, period.first) for tile in period.tiles]
    fills = [_fill_cost(tile) for tile in period.tiles]
    spare = [reads[i - 1] + fills[(i + 1) % len(fills)] for i in range(len(fills))]
    total, sums, done = sum(spare) + _PAIR_COST * pairs, 0, 0
    ends = []
    for i, cost in enumerate(spare):
        sums += cost
        wanted = (total * (i + 1) // len(spare) - sums) // _PAIR_COST
        done = min(max(wanted, done), pairs)
        ends.append(done)
    return ends


def _fill_cost(tile: NnaTile) -> int:
    pixels = [pixel for row in tile.patch for pixel in row]
    return sum(pixel is not None for pixel in pixels) + len(pixels) // 2


def _read_cost(tile: NnaTile, first: bool) -> int:
    return len(tile.outputs) * (6 if first else 12)


def _fill_fram(machine: NnaMachine, fram: int, tile: NnaTile, weights: int, ahead: Array) -> None:
    """Writes a FRAM, and pairs of rows into a weight set; issues all loads first, so that none
    stalls."""
    machine.nncfg("jump", len(tile.patch[0]))
    pixels = [pixel for row in tile.patch for pixel in row]
    count = len(pixels) // 2
    for i, pixel in enumerate(pixels):
        if pixel is not None:
            machine.la(i // 2, i % 2, pixel)
    fitting = ahead[: REGISTERS - count]
    _load_pairs(machine, count, fitting)
    for register in range(count):
        machine.nndwf(fram, register)
    for register in range(count, count + len(fitting)):
        machine.nndww(weights, register)
    _write_weights(machine, weights, ahead[len(fitting) :])


def _write_weights(machine: NnaMachine, weights: int, pairs: Array) -> None:
    """Writes pairs of rows, through a few registers at a time."""
    for start in range(0, len(pairs), _BATCH):
        batch = pairs[start : start + _BATCH]
        _load_pairs(machine, 0, batch)
        for register in range(len(batch)):
            machine.nndww(weights, register)


def _load_pairs(machine: NnaMachine, register: int, pairs: Array) -> None:
    for i, pair in enumerate(pairs):
        machine.la(register + i, 0, pair[0])
        machine.la(register + i, 1, pair[1])


def _weight_pairs(period: Period) -> Array:
    """Reshapes the weights for nndww: [pairs, 2, 32]."""
    return period.weights.reshape(-1, 2, CHANNELS)


def _read_back(machine: NnaMachine, fram: int, tile: NnaTile, first: bool) -> None:
    """Adds the sums of a finished MAC to those in memory; registers: results, then old sums."""
    halves = [
        (point, half, sums[16 * half : 16 * half + 16])
        for point, sums in tile.outputs
        for half in (0, 1)
    ]
    count = len(halves)
    if not first:
        for i, (_, _, sums) in enumerate(halves):
            machine.la(count + i, 0, sums[:8])
            machine.la(count + i, 1, sums[8:])
    for i, (point, half, _) in enumerate(halves):
        machine.nndrdocb(i, fram, point, half)
    if not first:
        for i in range(count):
            machine.add(i, i, count + i)
    for i, (_, _, sums) in enumerate(halves):
        machine.sa(i, 0, sums[:8])
        machine.sa(i, 1, sums[8:])
