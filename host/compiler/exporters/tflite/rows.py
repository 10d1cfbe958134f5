"""Looks up the TensorFlow Lite export handler of an operator."""

from __future__ import annotations

# Importing these modules registers their handlers.
from edgekit.host.compiler.exporters.tflite import conv, moves  # noqa: F401
from edgekit.host.compiler.exporters.tflite.math import by_name
from edgekit.host.compiler.exporters.tflite.sink import Row, writes
from edgekit.host.compiler.ir.types import Operator


def row_of(operator: type[Operator]) -> Row | None:
    """None also for variants of an operator that only passes create."""
    return writes.own(operator) or (by_name if operator.tflite else None)
