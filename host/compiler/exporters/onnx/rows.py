"""The row of each operator that ONNX can hold."""

from __future__ import annotations

# Rows register as their modules are imported.
from edgekit.host.compiler.exporters.onnx import layers, moves, recurrent  # noqa: F401
from edgekit.host.compiler.exporters.onnx.math import by_name
from edgekit.host.compiler.exporters.onnx.sink import Row, writes
from edgekit.host.compiler.ir.types import Operator


def row_of(operator: type[Operator]) -> Row | None:
    """None also for forms that passes make of an operator with a row."""
    return writes.own(operator) or (by_name if operator.onnx else None)
