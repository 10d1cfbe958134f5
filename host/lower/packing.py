"""Weights in the order the kernels read them: panels of output channels, k inside."""

from __future__ import annotations

import numpy as np

from edgekit.host.graph.types import Array
from edgekit.host.lower.context import round_up


def pack_panels(w: Array, nr: int, vl: int, group: int = 1, k_padded: int | None = None) -> Array:
    """[n, k] → panels [k_padded/group][nr][group], one after the other, flat.

    The last panel is only as wide as whole vectors of `vl` channels need; what is added is zero.
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
