"""Costs of computing several rows of a depthwise convolution at once."""

from __future__ import annotations

import math

from edgekit.device.runtime.kernel_facts import DEPTHWISE_TILE

_ALONE = 17.0  # extra multiply-adds of a column outside any tile, in simulated time on A76


def lines_of(rows: int, window: tuple[int, int], stride: tuple[int, int]) -> int:
    """Input lines read by `rows` output rows."""
    return (rows - 1) * stride[0] + window[0]


def cost_of_rows(
    y: tuple[int, int, int],
    window: tuple[int, int],
    stride: tuple[int, int],
    rows: int,
    threads: int,
) -> float:
    """Cost, in multiply-adds, of a channel block of y (images, rows, columns), `rows` rows at once.

    A load counts as half a multiply-add. A remaining row is computed separately. Threads share
    groups of rows. Pixels are computed in tiles of columns; if the window crosses both borders of
    y, as if padded, and no tile fits in between, each column is computed separately.
    """
    loads, alone = ((DEPTHWISE_TILE - 1) * stride[1] + window[1]) / DEPTHWISE_TILE, 0.0
    if y[2] < DEPTHWISE_TILE + (window[1] - 1) // stride[1]:
        loads, alone = float(window[1]), _ALONE
    one, several = (
        n * math.prod(window) + lines_of(n, window, stride) * loads / 2 + alone for n in (1, rows)
    )
    groups, left = divmod(y[1], rows)
    if threads > 1:
        most = math.ceil(y[0] * math.ceil(y[1] / rows) / threads)
        return threads * y[2] * most * (several if groups else one)
    return y[0] * y[2] * (groups * several + left * one)
