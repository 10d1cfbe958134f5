"""The row of each operator that TensorFlow Lite can hold."""

from __future__ import annotations

# Rows register as their modules are imported.
from edgekit.host.compiler.exporters.tflite import conv, moves  # noqa: F401
from edgekit.host.compiler.exporters.tflite.math import by_name
from edgekit.host.compiler.exporters.tflite.sink import Row, writes
from edgekit.host.compiler.ir.types import Operator


def row_of(operator: type[Operator]) -> Row | None:
    """None also for forms that passes make of an operator with a row."""
    return writes.own(operator) or (by_name if operator.tflite else None)
