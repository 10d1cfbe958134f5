"""One row per operator of the graph that TensorFlow Lite can hold."""

from __future__ import annotations

from edgekit.host.exporters import tflite_conv, tflite_math, tflite_moves
from edgekit.host.exporters.tflite_sink import Rows

ROWS: Rows = {**tflite_conv.ROWS, **tflite_math.ROWS, **tflite_moves.ROWS}
