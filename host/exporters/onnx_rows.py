"""One row per operator of the graph that ONNX can hold."""

from __future__ import annotations

from edgekit.host.exporters import onnx_layers, onnx_math, onnx_moves, onnx_recurrent
from edgekit.host.exporters.onnx_sink import Rows

ROWS: Rows = {**onnx_layers.ROWS, **onnx_math.ROWS, **onnx_moves.ROWS, **onnx_recurrent.ROWS}
