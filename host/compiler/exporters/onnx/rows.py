"""One row per operator of the graph that ONNX can hold."""

from __future__ import annotations

from edgekit.host.compiler.exporters.onnx import layers as onnx_layers
from edgekit.host.compiler.exporters.onnx import math as onnx_math
from edgekit.host.compiler.exporters.onnx import moves as onnx_moves
from edgekit.host.compiler.exporters.onnx import recurrent as onnx_recurrent
from edgekit.host.compiler.exporters.onnx.sink import Rows

ROWS: Rows = {**onnx_layers.ROWS, **onnx_math.ROWS, **onnx_moves.ROWS, **onnx_recurrent.ROWS}
