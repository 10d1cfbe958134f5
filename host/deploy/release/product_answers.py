"""Answers of the runtime's commands that measure products with sparse or split weights."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from edgekit.host.common.decode import Count, Number
from edgekit.host.deploy.release.answers import CostAnswer


class ProductAnswer(TypedDict):
    """One of the two is present."""

    instructions: NotRequired[Number]
    time: NotRequired[CostAnswer]


class SpmmAnswer(TypedDict):
    sparse: ProductAnswer
    dense: dict[str, ProductAnswer]


class SplitReport(TypedDict):
    path: Literal["split", "int8", "float"]
    outliers: Count
    bytes: Count
    marks: Count
    x1: Count
    x2: Count
    w4: Count
    tile: Count
    split_cost: Number
    float_cost: Number


class OutlierAnswer(TypedDict):
    report: SplitReport
    relative_error: Number
    paths: dict[str, ProductAnswer]
    dense: ProductAnswer
