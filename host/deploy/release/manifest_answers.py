"""Schemas of the manifest parts in a board's answers."""

from __future__ import annotations

from typing import TypedDict

from edgekit.host.common.decode import Count, Number, Text


class PlacementSpecAnswer(TypedDict):
    cluster: Text
    core: Text
    threads: Count
    cost_us: Number
    alone_us: Number


class LossAnswer(TypedDict):
    cosine: Number
    off: Number
