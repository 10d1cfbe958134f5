"""Looks up the ONNX export handler of an operator."""

from __future__ import annotations

# Importing these modules registers their handlers.
from edgekit.host.compiler.exporters.onnx import layers, moves, recurrent  # noqa: F401
from edgekit.host.compiler.exporters.onnx.math import by_name
from edgekit.host.compiler.exporters.onnx.sink import Row, writes
from edgekit.host.compiler.ir.types import Operator


def row_of(operator: type[Operator]) -> Row | None:
    """None also for variants of an operator that only passes create."""
    return writes.own(operator) or (by_name if operator.onnx else None)
